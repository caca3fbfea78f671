"""Each benchmark: a scripted policy earns full marks, doing nothing earns the baseline, tricky scores are as computed
by hand, and the published files become splits."""

from __future__ import annotations

import asyncio
import base64
import csv
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from skillopt.config import Config, EnvConfig
from skillopt.errors import SkillOptError, UserError
from skillopt.models.base import ChatReply, Message
from skillopt.skill import Skill
from skillopt.skill.tokens import count_tokens
from skillopt.tasks import is_shipped, open_env
from skillopt.tasks.base import Env, Item, Score, check_splits, score_output
from skillopt_benchmarks.alfworld import prepare as prepare_alfworld
from skillopt_benchmarks.docvqa import DocVQAEnv
from skillopt_benchmarks.livemathematicianbench import ChoiceEnv, right_choice, shuffle
from skillopt_benchmarks.officeqa import match, passages, read_date
from skillopt_benchmarks.searchqa import cut_context
from skillopt_benchmarks.sources import prepare
from support import REPO, skillopt, write_rows
from support.searchqa import published_file

TEXT = ("searchqa", "docvqa", "livemathematicianbench", "officeqa")
NAMES = (*TEXT, "reasoning_gym", "spreadsheetbench", "textworld", "alfworld")


class Replies:
    """A chat that a policy answers, and that remembers what it was asked."""

    def __init__(self, policy: Callable[[Sequence[Message]], str]) -> None:
        self.policy = policy
        self.asked: list[Sequence[Message]] = []

    async def __call__(self, messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] = ()) -> ChatReply:
        self.asked.append(messages)
        return ChatReply(text=self.policy(messages))

    async def opaque_rollout(self, identity: Sequence[Any], work: Any) -> dict[str, Any]:
        raise NotImplementedError


def mini(name: str, *overrides: str) -> Env:
    env = open_env(Config.load(REPO / "configs" / name / "mini.yaml", overrides))
    check_splits(env)
    return env


def earned(env: Env, policy: Callable[[Item], str], split: str = "test") -> list[Score]:
    """The scores of a policy that knows the item."""

    async def one(item: Item) -> Score:
        episode = await env.run(item, Skill("Do it."), Replies(lambda _: policy(item)))
        return episode.score or await score_output(env, item, episode.output)

    async def every() -> list[Score]:
        return [await one(item) for item in env.items(split)]

    return asyncio.run(every())


def idle(env: Env, split: str = "test") -> list[float]:
    async def every() -> list[float]:
        return [(await score_output(env, item, env.baseline(item))).hard for item in env.items(split)]

    return asyncio.run(every())


def test_every_benchmark_has_an_env_two_configs_a_seed_skill_and_a_section_in_the_docs() -> None:
    docs = (REPO / "docs" / "benchmarks.md").read_text()
    for name in NAMES:
        assert is_shipped(name)
        for kind in ("default", "mini"):
            config = Config.load(REPO / "configs" / name / f"{kind}.yaml")
            assert config.env.name == name
            assert Path(config.train.init_skill).is_file()
            assert config.notes.init_skill
            assert config.notes.schedule
        assert f"## {name}" in docs, f"docs/benchmarks.md has no section on {name}"


def test_the_searchqa_config_carries_the_guides_values() -> None:
    config = Config.load(REPO / "configs" / "searchqa" / "default.yaml")
    assert (config.train.num_epochs, config.train.batch_size) == (4, 40)
    assert (config.optimizer.learning_rate, config.optimizer.lr_scheduler) == (4, "cosine")
    assert config.optimizer.use_slow_update
    assert config.optimizer.use_meta_skill
    assert (config.gradient.analyst_workers, config.evaluation.use_gate) == (16, True)


@pytest.mark.parametrize("name", TEXT)
def test_a_scripted_policy_earns_full_marks_and_doing_nothing_none(name: str) -> None:
    env = mini(name)
    for split in ("train", "val", "test"):
        told = earned(env, lambda item: f"I think so.\n<answer>{item.answers[-1]}</answer>", split)
        assert all((score.hard, score.soft) == (1, 1) for score in told)
        assert sum(idle(env, split)) == 0
        wrong = earned(env, lambda _: "<answer>no idea at all</answer>", split)
        assert all(score.hard == 0 and score.feedback.startswith(("expected", "the reply")) for score in wrong)


# SearchQA


def test_a_context_is_cut_between_documents() -> None:
    documents = [f"[DOC] [TLE] Title {n} [PAR] " + f"word{n} " * 50 for n in range(5)]
    whole = " ".join(documents)
    assert cut_context(whole, 10_000) == whole
    cut = cut_context(whole, count_tokens(" ".join(documents[:3])) + 20)
    assert cut == " ".join(documents[:3]).rstrip()
    first = cut_context(whole, 60)
    assert documents[0].startswith(first)
    assert 0 < count_tokens(first) <= 60
    assert cut_context("no border " * 100, 50).startswith("no border")


def test_searchqa_is_read_as_mrqa_publishes_it(tmp_path: Path) -> None:
    lines: list[Any] = [{"header": {"dataset": "SearchQA"}}]
    for n in range(20):
        asked = {"qid": f"q{n}", "question": f"clue {n}", "answers": [f"a{n}", "b"], "detected_answers": []}
        lines.append({"context": f"[DOC] [TLE] t [PAR] text {n}", "qas": [asked]})
    (tmp_path / "in").mkdir()
    with gzip.open(tmp_path / "in" / "SearchQA.jsonl.gz", "wt") as file:
        file.write("\n".join(json.dumps(line) for line in lines))
    counts = prepare("searchqa", tmp_path / "in", tmp_path / "out", print)
    assert counts == {"train": 4, "val": 2, "test": 14}
    env = open_env(Config.load(REPO / "configs/searchqa/default.yaml", [f"env.split_dir={tmp_path / 'out'}"]))
    check_splits(env)
    assert {item.answers[1] for item in env.items("test")} == {"b"}
    assert env.items("test")[0].context.startswith("[DOC]")


# Multiple choice


def choice_item(number: int, label: str, choices: Sequence[str] = ("one", "two", "three", "four", "five")) -> Item:
    return Item.model_validate({"id": f"i{number}", "question": f"Q{number}?", "choices": choices, "label": label})


def test_choices_are_shuffled_by_id_always_the_same_way_and_the_right_one_stays_right() -> None:
    asked = [shuffle(choice_item(n, "A")) for n in range(200)]
    assert asked == [shuffle(choice_item(n, "A")) for n in range(200)]
    assert all(item.get("choices")[item.answers[0]] == "one" for item in asked)
    for letter in "ABCDE":
        assert 15 <= sum(item.answers == (letter,) for item in asked) <= 65, "no place is preferred"
    assert right_choice(choice_item(1, "(b)")) == 1
    assert right_choice(choice_item(1, "three")) == 2
    for wrong in ("F", "six", ""):
        with pytest.raises(UserError, match="label"):
            right_choice(choice_item(1, wrong))
    with pytest.raises(UserError, match="all different"):
        shuffle(choice_item(1, "A", ["same", " Same.", "other"]))
    assert shuffle(choice_item(1, "-1", ["1", "-1", "e"])).get("label") == "-1", "signs tell choices apart"


def test_the_answer_counts_by_letter_or_text_and_two_letters_do_not() -> None:
    env = mini("livemathematicianbench")
    item = env.items("test")[0]
    right, texts = item.answers[0], item.get("choices")
    wrong = next(letter for letter in texts if letter != right)

    def hard(text: str) -> float:
        return asyncio.run(score_output(env, item, text)).hard

    assert [hard(text) for text in (right, f"({right.lower()})", f"The answer is {right}.", texts[right])] == [1] * 4
    assert [hard(text) for text in (wrong, texts[wrong], f"{right} or {wrong}", "", "Z")] == [0] * 5


def test_livemathematicianbench_is_read_as_it_is_published(tmp_path: Path) -> None:
    forms: list[Any] = [
        {"choices": [{"label": "A", "text": "x"}, {"label": "B", "text": "y"}], "correct_choice": {"label": "B"}},
        {"choices": {"A": "x", "B": "y"}, "correct_answer": "B"},
        {"choices": ["x", "y"], "label": "B"},
    ]
    rows = [{"no": n, "theorem_type": ["Existence"], "mcq": {"question": f"Q{n}", **forms[n % 3]}} for n in range(9)]
    (tmp_path / "in" / "202511").mkdir(parents=True)
    (tmp_path / "in" / "202511" / "qa_202511_final.json").write_text(json.dumps(rows))
    assert sum(prepare("livemathematicianbench", tmp_path / "in", tmp_path / "out", print).values()) >= 7
    env = ChoiceEnv(EnvConfig(name="livemathematicianbench", split_dir=str(tmp_path / "out")))
    assert all(i.get("choices")[i.answers[0]] == "y" for s in ("train", "val", "test") for i in env.items(s))


# OfficeQA


@pytest.mark.parametrize(
    ("said", "gold", "hard"),
    [
        ("1,234.5", "1234.5", 1),
        ("12345", "1,234.5", 0),  # equal once punctuation is gone, and yet another number
        ("1234.50 million", "1,234.5 million", 1),
        ("$2,602", "2602", 1),
        ("2602 dollars", "$2,602", 1),
        ("-3.5%", "3.5%", 0),
        ("3.5 percent", "3.5%", 1),
        ("March 3, 1941", "1941-03-03", 1),
        ("3rd March 1941", "March 3, 1941", 1),
        ("March 4, 1941", "March 3, 1941", 0),
        ("April 12, 1951.", "April 12, 1951", 1),
        ("The Agnes Holm", "agnes holm", 1),
        ("Piet", "Piet Varga", 0),
    ],
)
def test_office_answers_are_compared_as_numbers_dates_or_text(said: str, gold: str, hard: int) -> None:
    assert match(said, [gold]).hard == hard
    assert match(f"So: <answer>{said}</answer>", ["something else", gold]).hard == hard


def test_office_soft_scores_are_token_f1_and_tolerance_is_a_share() -> None:
    assert match("Piet", ["Piet Varga"]).soft == pytest.approx(2 / 3)
    assert match("101", ["100"]).hard == 0
    assert match("101", ["100"], tolerance=0.01).hard == 1
    assert match("102", ["100"], tolerance=0.01).hard == 0
    assert read_date("13.13.2020") is None
    assert read_date("1941") is None


def test_the_passages_nearest_to_the_question_are_shown() -> None:
    filler = "\n\n".join(f"Paragraph {n} speaks of the weather and of nothing else." for n in range(300))
    documents = {"a.txt": filler, "b.txt": f"{filler}\n\nHerring landed in May: 417 tons.\n\n{filler}"}
    shown = passages("How much herring was landed in May?", documents, 200)
    assert "417 tons" in shown
    assert count_tokens(shown) < 300
    assert passages("Anything?", {"a.txt": "Short."}, 50) == "## a.txt\n\nShort."


def test_officeqa_is_read_as_it_is_published(tmp_path: Path) -> None:
    (tmp_path / "in" / "documents").mkdir(parents=True)
    (tmp_path / "in" / "documents" / "b_1941.txt").write_text("Receipts were 5 dollars.")
    with (tmp_path / "in" / "officeqa_full.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["uid", "question", "answer", "source_docs", "source_files", "difficulty"])
        writer.writerows([[f"U{n}", f"Receipts {n}?", "5", "http://x", "b_1941.txt", "easy"] for n in range(6)])
    assert sum(prepare("officeqa", tmp_path / "in", tmp_path / "out", print).values()) >= 3
    env = open_env(Config.load(REPO / "configs/officeqa/default.yaml", [f"env.split_dir={tmp_path / 'out'}"]))
    assert "Receipts were 5 dollars" in env.items("train")[0].context


# DocVQA


def test_a_page_goes_to_the_model_as_an_image_and_is_not_stored() -> None:
    env = mini("docvqa", "env.options.pages=image")
    item = env.items("test")[0]
    chat = Replies(lambda _: item.answers[0])
    episode = asyncio.run(env.run(item, Skill("Look."), chat))
    system, user = chat.asked[0]
    assert system == {"role": "system", "content": "Look."}
    image, question = user["content"]
    head, data = image["image_url"]["url"].split(",")
    assert (image["type"], head, question) == (
        "image_url",
        "data:image/png;base64",
        {"type": "text", "text": item.question},
    )
    assert base64.b64decode(data) == (REPO / "data/docvqa/mini" / item.get("image")).read_bytes()
    assert item.context not in json.dumps(user), "the text is for those who cannot see"
    assert data[:100] not in json.dumps(episode.messages)
    text = mini("docvqa")
    chat = Replies(lambda _: item.answers[0])
    asyncio.run(text.run(item, Skill(""), chat))
    assert chat.asked[0][0]["content"] == f"{item.context}\n\n{item.question}"


@pytest.mark.parametrize(
    ("said", "golds", "soft"),
    [
        ("Wim Daal", ["wim daal"], 1.0),
        ("Wim Dael", ["Wim Daal"], 7 / 8),
        ("abcd", ["abxy"], 0.0),  # a distance of exactly one half is too far
        ("abcde", ["abcxy"], 3 / 5),
        ("", ["x"], 0.0),
        ("475.34", ["$475.34", "475.34"], 1.0),
    ],
)
def test_anls_is_as_published(said: str, golds: list[str], soft: float) -> None:
    env = mini("docvqa")
    item = Item(id="1", question="?", answers=tuple(golds))
    score = asyncio.run(score_output(env, item, said))
    assert score.soft == pytest.approx(soft)
    assert score.hard == float(soft >= 0.999)


def test_documents_of_officeqa_that_are_a_link_out_of_the_data_are_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("TOPSECRET")
    row = {"question": "What?", "answers": ["x"], "documents": ["secret.txt"]}
    splits = ("train", "val", "test")
    write_rows(tmp_path / "data", {split: [{**row, "id": split, "question": split}] for split in splits})
    (tmp_path / "data" / "documents").symlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match="leads out of"):
        open_env(Config.parse({"env": {"name": "officeqa", "split_dir": str(tmp_path / "data")}}))


def test_docvqa_is_read_as_it_is_published_and_images_stay_below_their_folder(tmp_path: Path) -> None:
    source = tmp_path / "in"
    (source / "documents").mkdir(parents=True)
    (source / "ocr").mkdir()
    rows = []
    for n in range(6):
        (source / "documents" / f"p{n}.png").write_bytes(b"\x89PNG")
        lines = {"recognitionResults": [{"lines": [{"text": f"line {n}"}, {"text": "end"}]}]}
        (source / "ocr" / f"p{n}.json").write_text(json.dumps(lines))
        rows.append({"questionId": n, "question": f"Q{n}?", "image": f"documents/p{n}.png", "answers": ["x", "y"]})
    (source / "val_v1.0_withQT.json").write_text(json.dumps({"data": rows}))
    prepare("docvqa", source, tmp_path / "out", print)
    env = DocVQAEnv(EnvConfig(name="docvqa", split_dir=str(tmp_path / "out")))
    assert env.items("train")[0].context.endswith("\nend")
    for bad in ("../../secret.png", "/etc/passwd", "documents/none.png"):
        row = {"id": "1", "question": "?", "answers": ["x"], "image": bad, "context": "t"}
        write_rows(tmp_path / "bad", {split: [{**row, "id": split}] for split in ("train", "val", "test")})
        with pytest.raises(UserError, match="image: "):
            DocVQAEnv(EnvConfig(name="docvqa", split_dir=str(tmp_path / "bad")))


# Published sets that the env `qa` reads


def test_a_kind_of_big_bench_hard_is_prepared_with_its_canary(tmp_path: Path) -> None:
    rows = [{"input": f"Is {n} even?\n", "target": "Yes" if n % 2 == 0 else "No"} for n in range(20)]
    (tmp_path / "in" / "bbh").mkdir(parents=True)
    kind = tmp_path / "in" / "bbh" / "navigate.json"
    kind.write_text(json.dumps({"canary": "canary GUID 26b5", "examples": [*rows, rows[0]]}))
    (kind.parent / "web_of_lies.json").write_text("{}")
    assert prepare("bbh", tmp_path / "in", tmp_path / "out", print, "navigate") == {"train": 8, "val": 4, "test": 8}
    assert (tmp_path / "out" / "canary.txt").read_text() == "canary GUID 26b5\n"
    env = open_env(Config.load(REPO / "configs/bbh/default.yaml", [f"env.split_dir={tmp_path / 'out'}"]))
    check_splits(env)
    assert {item.answers[0] for split in ("train", "val", "test") for item in env.items(split)} == {"Yes", "No"}
    with pytest.raises(UserError, match=r"web_of_lies.json: is not a file of bbh: item 1"):
        prepare("bbh", tmp_path / "in", tmp_path / "other", print, "web_of_lies")
    assert not (tmp_path / "other").exists()


def test_the_formula_set_keeps_its_authors_splits_and_no_task_is_in_two(tmp_path: Path) -> None:
    files = {"train_subset_500": range(6), "val_subset_300": range(5, 9), "test": range(8, 12)}
    for name, numbers in files.items():
        lines = [json.dumps({"context": f"Profit of {n} and {n}?", "target": str(2.0 * n)}) for n in numbers]
        (tmp_path / f"formula_{name}.jsonl").write_text("\n".join(lines))
    assert prepare("formula", tmp_path, tmp_path / "out", print) == {"train": 6, "val": 2, "test": 4}
    check_splits(open_env(Config.load(REPO / "configs/formula/default.yaml", [f"env.split_dir={tmp_path / 'out'}"])))
    (tmp_path / "formula_val_subset_300.jsonl").unlink()
    with pytest.raises(UserError, match="no file of the split val"):
        prepare("formula", tmp_path, tmp_path / "other", print)


# Data that is not there


@pytest.mark.parametrize("name", ["docvqa", "officeqa"])
def test_data_that_needs_an_account_is_asked_for_by_name_and_place(name: str, tmp_path: Path) -> None:
    done = skillopt("data", "prepare", name, "--from", str(tmp_path), "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert str(tmp_path) in done.stderr
    assert f"configs/{name}/mini.yaml" in " ".join(done.stderr.split())
    assert not (tmp_path / "out").exists()


def test_a_source_that_cannot_be_reached_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    with pytest.raises(SkillOptError, match=r"cannot be reached.*Put these files there: SearchQA.jsonl.gz"):
        prepare("searchqa", tmp_path / "in", tmp_path / "out", print)
    assert list((tmp_path / "in").iterdir()) == []


def test_official_alfworld_games_become_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    with pytest.raises(UserError, match="set ALFWORLD_DATA"):
        prepare_alfworld(tmp_path / "out")
    for folder in ("train", "valid_seen", "valid_unseen"):
        for n, name in enumerate(["pick_and_place_simple-Mug-None-Desk-1", "pick_two_obj_and_place-CD-None-Safe-2",
                                  "pick_and_place_with_movable_recep-Pen-Cup-Desk-3"]):  # fmt: skip
            place = tmp_path / "json_2.1.1" / folder / name / f"trial_T{n}"
            place.mkdir(parents=True)
            game = {"grammar": 'x "Your task is to: put a mug in desk."', "solvable": True, "pddl_problem": folder}
            (place / "game.tw-pddl").write_text(json.dumps(game))
            told = {"task_type": name.split("-")[0], "turk_annotations": {"anns": [{"task_desc": "d"}]}}
            (place / "traj_data.json").write_text(json.dumps(told))
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    assert prepare_alfworld(tmp_path / "out") == {"train": 2, "val": 2, "test": 2}
    rows = json.loads((tmp_path / "out" / "train" / "items.json").read_text())
    assert {row["question"] for row in rows} == {"Your task is to: put a mug in desk."}
    assert all((tmp_path / row["game"]).is_file() for row in rows)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["data", "prepare", "squad"], "unknown name 'squad'; the known names are: alfworld"),
        (["data", "prepare", "bbh"], "--kind: is needed for bbh; choose one of: boolean_expressions"),
        (["data", "prepare", "bbh", "--kind", "../x"], "--kind: bbh has no kind '../x'; choose one of"),
        (["data", "prepare", "formula", "--kind", "navigate"], "--kind: formula has no kinds"),
        (["data", "prepare", "textworld"], "(use `skillopt data generate textworld`)"),
        (["data", "generate", "searchqa", "--out", "x"], "(use `skillopt data prepare searchqa`)"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_ones(arguments: list[str], complaint: str) -> None:
    done = skillopt(*arguments)
    assert done.returncode == 2
    assert complaint in " ".join(done.stderr.split())


# Split manifests


IDS = {"train": ["train-000", "train-003"], "val": ["train-001"], "test": ["train-002", "train-004"]}


@pytest.mark.parametrize("form", ["ids", "objects", "named otherwise", "folder of items.json", "folder of texts"])
def test_a_manifest_decides_which_item_is_in_which_split(tmp_path: Path, form: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "SearchQA.jsonl.gz").write_bytes(published_file(8))
    manifest = tmp_path / "manifest.json"
    if form == "folder of items.json":
        for split, ids in IDS.items():
            (manifest / split).mkdir(parents=True)
            (manifest / split / "items.json").write_text(json.dumps([{"id": name, "more": 1} for name in ids]))
    elif form == "folder of texts":
        manifest.mkdir()
        for split, ids in IDS.items():
            (manifest / f"{split}.txt").write_text("\n".join(ids))
    else:
        rows: dict[str, Any] = {split: [{"qid": i} for i in ids] for split, ids in IDS.items()}
        rows = rows if form == "objects" else dict(IDS)
        if form == "named otherwise":
            rows = {"splits": {"train": IDS["train"], "validation": IDS["val"], "test": IDS["test"]}}
        manifest.write_text(json.dumps(rows))
    arguments = ("data", "prepare", "searchqa", "--from", str(tmp_path / "in"), "--out", str(tmp_path / "out"))
    done = skillopt(*arguments, "--manifest", str(manifest))
    assert done.returncode == 0, done.stderr
    for split, ids in IDS.items():
        items = json.loads((tmp_path / "out" / split / "items.json").read_text())
        assert [item["id"] for item in items] == ids


@pytest.mark.parametrize(
    ("manifest", "complaint"),
    [
        ({**IDS, "test": ["x1", "x2", "train-004"]}, "2 of 6 ids are not among the 8 items that were read: x1, x2."),
        ({**IDS, "val": ["train-000"]}, "'train-000' is in train and in val; remove the id from one of them"),
        ({"train": ["train-000"]}, "has no list of ids for val, test"),
        ({**IDS, "test": [{"name": "x"}]}, 'test: {"name": "x"} is not an id'),
        ({**IDS, "test": []}, "test: must be a list of at least one id"),
        ([], "has no list of ids for train, val, test"),
    ],
)
def test_a_wrong_manifest_is_refused_before_anything_is_written(
    tmp_path: Path, manifest: object, complaint: str
) -> None:
    (tmp_path / "SearchQA.jsonl.gz").write_bytes(published_file(8))
    (tmp_path / "manifest").write_text(json.dumps(manifest))
    arguments = ("data", "prepare", "searchqa", "--from", str(tmp_path), "--out", str(tmp_path / "out"))
    done = skillopt(*arguments, "--manifest", str(tmp_path / "manifest"))
    assert done.returncode == 2
    assert complaint in done.stderr
    assert not (tmp_path / "out").exists()
