"""`skillopt init` writes a folder that trains as it stands, whole or not at all."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from skillopt.api import train_async
from skillopt.cli import main
from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.models.base import ChatReply, ChatRequest
from skillopt.preflight.starter import InitOptions, write_folder
from skillopt.skill import Skill
from skillopt.skill.standard import STANDARD
from skillopt.tasks import open_env
from skillopt.tasks.base import SPLITS, check_splits
from skillopt.training.batches import plan_steps
from skillopt.training.initial import needs_baseline
from skillopt.training.trainer import TrainingLoop
from support import REPO, skillopt

RULES = {"radiator": "oak", "heating": "oak", "water": "elm", "tap": "elm", "socket": "ash", "light": "ash"}


class Pupil:
    """A target that answers right once its skill names the answers' form: what the real one is taught, without it."""

    name = endpoint = "pupil"
    deterministic = True

    async def chat(self, request: ChatRequest) -> ChatReply:
        system = str(request.messages[0]["content"])
        task = str(request.messages[-1]["content"]).lower()
        if "The possible answers are" not in system:
            return ChatReply(text="Thank you for your message!")
        answer = next((team for word, team in RULES.items() if word in task), "fir")
        return ChatReply(text=f"<answer>{answer}</answer>")

    async def close(self) -> None:
        return


def command(*arguments: str) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code in {0, None}


def test_the_demo_trains_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command("init", "demo")
    assert sorted(path.name for path in Path("demo").iterdir()) == [
        "README.md", "config.yaml", "seed_skill.md", "tasks.jsonl", "tasks.split.json",
    ]  # fmt: skip
    config = Config.load("demo/config.yaml")
    assert config.models.target_model == "local:qwen2.5-coder-0.5b"
    result = asyncio.run(TrainingLoop(config, models={"target": Pupil()}).fit())
    assert (result.summary["initial"]["test"], result.summary["calls"]["optimizer"]) == (0, 0)
    assert result.summary["best"]["test"] > 0.5
    assert result.summary["calls"]["target"] <= 150
    assert result.path.is_relative_to(Path("outputs/demo"))


@pytest.mark.parametrize("options", [{"scorer": True}, {"scoring": "contains"}, {"target": "openai:gpt-4o-mini"}])
def test_every_choice_gives_a_config_that_opens(tmp_path: Path, options: dict[str, Any]) -> None:
    folder = tmp_path / "my task"
    write_folder(folder, InitOptions(**options))
    config = Config.load(folder / "config.yaml")
    env = open_env(config)
    check_splits(env)
    env.close()
    assert (folder / "scorer.py").exists() == bool(options.get("scorer"))
    if "target" in options:
        assert (config.gradient.analysts, config.evaluation.gate) == (("llm",), "paired")


def test_the_scorer_that_it_writes_gives_feedback(tmp_path: Path) -> None:
    write_folder(tmp_path / "t", InitOptions(scorer=True))
    env: Any = open_env(Config.load(tmp_path / "t" / "config.yaml"))
    item = next(item for item in env.items("train") if item.answers == ("oak",))

    async def scores() -> list[Any]:
        return [await env.score(item, output) for output in ("<answer>Oak</answer>", "I say oak.", "elm")]

    right, half, wrong = asyncio.run(scores())
    env.close()
    assert (right.hard, half.soft, wrong.soft) == (1, 0.5, 0)
    assert half.feedback == "the right answer is there, but not alone in the answer tags"


CSV = "Prompt,Label,Topic,note\n" + "".join(
    f'"Ticket {n}, please help",{("billing", "technical")[n % 2]},t{n % 2},x{n}\n' for n in range(16)
)


def test_ones_own_table_becomes_tasks_with_its_columns_found(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "mine.csv").write_text(CSV)
    command("init", str(tmp_path / "own"), "--from", str(tmp_path / "mine.csv"))
    told = capsys.readouterr().out
    assert "Prompt → question, Label → answers, Topic → type" in told
    assert "The initial skill names the 2 possible answers: billing, technical" in told
    named = "You do the task that you are given.\nReply with exactly one of: billing, technical.\n"
    seed = Skill((tmp_path / "own" / "seed_skill.md").read_text())
    assert seed.shown.text == named
    env = open_env(Config.load(tmp_path / "own" / "config.yaml"))
    items = [item for split in SPLITS for item in env.items(split)]
    assert len(items) == 16
    first = next(item for item in items if "Ticket 0," in item.question)
    assert (first.answers, first.type, first.model_extra) == (("billing",), "t0", {"note": "x0"})


@pytest.mark.parametrize("answer", ["It is {0}", "one, {1} or two", "{1}\n{1}"])
def test_answers_that_are_no_closed_set_or_no_plain_list_are_not_named(tmp_path: Path, answer: str) -> None:
    rows = [{"question": f"How many are {n}?", "answer": answer.format(n, n % 2)} for n in range(24)]
    (tmp_path / "mine.json").write_text(json.dumps(rows))
    command("init", str(tmp_path / "own"), "--from", str(tmp_path / "mine.json"))
    seed = Skill((tmp_path / "own" / "seed_skill.md").read_text())
    assert seed.shown.text == "You do the task that you are given.\n"


@pytest.mark.parametrize("kind", [(), ("--env",)])
def test_the_initial_skill_has_the_four_sections_as_headings_that_a_target_never_gets(
    tmp_path: Path, kind: tuple[str, ...]
) -> None:
    command("init", str(tmp_path / "own"), *kind)
    seed = Skill((tmp_path / "own" / "seed_skill.md").read_text())
    assert [section.title for section in seed.sections if section.level] == list(STANDARD)
    assert "#" not in seed.shown.text
    assert not needs_baseline(seed)


OTHERS = "(to use other columns: --question, --answer, --id, --type)"
PEOPLE = ["Customer question", "Best answer", "Ticket"]


@pytest.mark.parametrize(
    ("cut", "named"), [(";", ", cells separated by semicolons"), ("\t", ", cells separated by tabs"), (",", "")]
)
def test_a_table_as_people_save_it_is_recognised_and_shown_in_one_line(
    tmp_path: Path, capsys: Any, cut: str, named: str
) -> None:
    rows = [[f"What is {n} and one?", f"It is {n + 1}", f"T{n}"] for n in range(12)]
    text = "\r\n".join(cut.join(row) for row in [PEOPLE, *rows])
    (tmp_path / "mine.csv").write_text("\ufeff" + text, encoding="utf-8", newline="")
    command("init", str(tmp_path / "own"), "--from", str(tmp_path / "mine.csv"))
    told = capsys.readouterr().out.splitlines()
    columns = "Customer question → question, Best answer → answers"
    assert told[0] == f"{tmp_path / 'mine.csv'}: 12 rows{named}: {columns} {OTHERS}"
    assert told[1] == "first task: What is 0 and one? → It is 1"
    items = [item for split in SPLITS for item in open_env(Config.load(tmp_path / "own" / "config.yaml")).items(split)]
    assert {(item.question, item.answer, item["Ticket"]) for item in items} == {tuple(row) for row in rows}


def test_rows_that_contradict_each_other_are_named_by_their_lines_and_nothing_is_dropped(tmp_path: Path) -> None:
    rows = [f"What is {n}?,a{n}" for n in range(12)]
    (tmp_path / "a.csv").write_text(
        "\n".join(["question,answer", *rows, "What is 3?,b", "what is  7?,b", "What is 3?,c"])
    )
    with pytest.raises(UserError) as caught:
        write_folder(tmp_path / "own", InitOptions(source=tmp_path / "a.csv"))
    assert str(caught.value).splitlines() == [
        f"{tmp_path / 'a.csv'}: lines 5, 14 and 16 ask the same ('What is 3?') and want different answers ('a3'; 'b'; "
        "'c'); keep one of these tasks, or give each of them all right answers",
        f"{tmp_path / 'a.csv'}: lines 9 and 15 ask the same ('What is 7?') and want different answers ('a7'; 'b'); "
        "keep one of these tasks, or give each of them all right answers",
        "correct these rows, or add --skip-bad to leave them out",
    ]
    assert not (tmp_path / "own").exists()


def test_rows_that_repeat_others_are_left_out_and_named(tmp_path: Path) -> None:
    rows = [f"What is {n}?,a{n}" for n in range(12)]
    (tmp_path / "a.csv").write_text("\n".join(["question,answer", *rows, rows[3], rows[0].upper().replace("A0", "a0")]))
    told = write_folder(tmp_path / "own", InitOptions(source=tmp_path / "a.csv"))
    assert "2 rows repeat an earlier one and are left out: lines 14 (as 5) and 15 (as 2)" in told
    assert f"Wrote {tmp_path / 'own'}: 12 tasks; their split, saved in tasks.split.json:" in told


def test_every_bad_row_is_named_at_once(tmp_path: Path) -> None:
    rows = ["Q1,a", "Q2,", "Q3,a,b", "Q4,", ",a"]
    (tmp_path / "a.csv").write_text("\n".join(["question,answer", *rows]))
    with pytest.raises(UserError) as caught:
        write_folder(tmp_path / "own", InitOptions(source=tmp_path / "a.csv"))
    first, second, third, _ = str(caught.value).splitlines()
    assert first.startswith(f"{tmp_path / 'a.csv'}: lines 3 and 5: answers: needs at least one answer")
    assert second.startswith(f"{tmp_path / 'a.csv'}:4: has 3 cells, and the header has 2")
    assert third.startswith(f"{tmp_path / 'a.csv'}:6: question: ")


def test_headings_that_could_both_be_the_question_are_left_to_the_user(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("First question,Second question,Answer\nQ,R,a\n")
    with pytest.raises(UserError, match=r"several columns look like the question \(First question, Second question\)"):
        write_folder(tmp_path / "own", InitOptions(source=tmp_path / "a.csv"))


def test_columns_by_name_numbers_and_json_as_answers(tmp_path: Path) -> None:
    (tmp_path / "n.jsonl").write_text(
        "".join(json.dumps({"a": f"{n} + {n}", "b": 2 * n, "question": "?"}) + "\n" for n in range(12))
    )
    write_folder(tmp_path / "sums", InitOptions(source=tmp_path / "n.jsonl", question="a", answer="b"))
    config = Config.load(tmp_path / "sums" / "config.yaml")
    assert config.env.scoring == "number"
    assert {item.question for item in open_env(config).items("train")} <= {f"{n} + {n}" for n in range(12)}
    (tmp_path / "j.json").write_text(json.dumps([{"text": f"{n}", "output": json.dumps({"n": n})} for n in range(12)]))
    write_folder(tmp_path / "objects", InitOptions(source=tmp_path / "j.json"))
    assert Config.load(tmp_path / "objects" / "config.yaml").env.scoring == "json"


@pytest.mark.parametrize(
    ("name", "content", "options", "told"),
    [
        ("a.csv", "x,y\n1,2\n", {}, "the question; choose a column with --question COLUMN (the columns are: x, y)"),
        ("a.csv", CSV, {"answer": "nobody"}, "--answer: "),
        ("a.csv", "question,answer\nQ?,yes\n", {}, "split would be empty: 1 different tasks"),
        ("a.csv", "", {}, "holds no items"),
        ("a.txt", "Q?", {}, "items are read from .jsonl"),
        ("a.csv", CSV, {"scoring": "bleu"}, "--scoring: there is no 'bleu'"),
        ("a.csv", "question,answer\nR?,a\nQ?,\n", {}, "a.csv:3: answers: needs at least one answer"),
    ],
)
def test_what_cannot_become_tasks_is_told_and_nothing_is_left(
    tmp_path: Path, name: str, content: str, options: dict[str, str], told: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError) as caught:
        write_folder(tmp_path / "own", InitOptions(source=tmp_path / name, **options))  # type: ignore[arg-type]
    assert told in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_folder_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="exists already"):
        write_folder(tmp_path / "demo", InitOptions())
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["mine.txt"]


@pytest.mark.wheel
def test_the_templates_are_in_the_wheel(tmp_path: Path) -> None:
    build = pytest.importorskip("hatchling.builders.wheel")
    (built,) = build.WheelBuilder(str(REPO)).build(directory=str(tmp_path), versions=["standard"])
    names = zipfile.ZipFile(built).namelist()
    for name in ("demo/tasks.jsonl", "demo/config.yaml", "demo/scorer.py.txt", "env/my_env.py.txt", "env/config.yaml"):
        assert f"skillopt/preflight/templates/{name}" in names


# Data as people have it


def test_at_most_ten_bad_rows_are_named_and_the_rest_is_counted(tmp_path: Path) -> None:
    rows = [f"Q{n}," if n % 2 else f"Q{n},a{n}" for n in range(60)]
    (tmp_path / "a.csv").write_text("\n".join(["question,answer", *rows]))
    done = skillopt("init", "own", "--from", "a.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert len(re.findall(r"\d+", done.stderr)) == 11, done.stderr
    assert "a.csv: lines 3, 5, 7, 9, 11, 13, 15, 17, 19 and 21: answers: needs at least one answer" in done.stderr
    assert "… and 20 more rows" in done.stderr


MESSY = [
    json.dumps({"question": "Same?", "answer": "yes"}),
    "{not JSON",
    json.dumps({"question": "Same?", "answer": "no"}),
    json.dumps({"question": "Nothing?", "answer": ""}),
    json.dumps({"question": "Later?", "answer": "TBD"}),
    *[json.dumps({"question": f"What is {n}?", "answer": f"a{n}"}) for n in range(12)],
]
BAD = ("a.jsonl:2: not JSON", "a.jsonl:4: answers", "a.jsonl: lines 1 and 3 ask the same", "a.jsonl:5: the answer is")


def test_every_kind_of_bad_row_is_named_in_one_pass_and_may_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n".join(MESSY))
    done = skillopt("init", "own", "--from", "a.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    for place in BAD:
        assert place in done.stderr
    assert "add --skip-bad to leave them out" in done.stderr
    done = skillopt("init", "own", "--from", "a.jsonl", "--skip-bad", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "5 rows are left out (not usable as tasks):" in done.stdout
    for place in BAD:
        assert place in done.stdout
    assert len((tmp_path / "own" / "tasks.jsonl").read_text().splitlines()) == 12


def test_answers_that_nobody_filled_in_are_pointed_out(tmp_path: Path) -> None:
    rows = [f"Q{n},a{n}" for n in range(30)]
    (tmp_path / "a.csv").write_text("\n".join(["question,answer", *rows, "Q31,N/A", "Q32,TBD", "Q33,n/a"]))
    done = skillopt("init", "own", "--from", "a.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 rows are kept, although the answer looks like a placeholder (--skip-bad leaves them out):" in done.stdout
    assert "a.csv:32: the answer is 'N/A'" in done.stdout
    done = skillopt("init", "clean", "--from", "a.csv", "--skip-bad", cwd=tmp_path)
    assert len((tmp_path / "clean" / "tasks.jsonl").read_text().splitlines()) == 30, done.stderr
    signs = [f"Q{n},{'+-'[n % 2]}" for n in range(30)]
    (tmp_path / "signs.csv").write_text("\n".join(["question,answer", *signs]))
    assert "placeholder" not in skillopt("init", "signs", "--from", "signs.csv", cwd=tmp_path).stdout


TICKETS = ["Ticket ID,Customer ID,Guest question,Area,Best answer"] + [
    f"T-{n:03d},C{n % 5},What about case {n}?,{('rooms', 'food', 'bills')[n % 3]},a{n}" for n in range(24)
]


def test_ids_and_types_are_found_by_their_headings_and_no_hash_is_in_a_run(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n".join([*TICKETS, TICKETS[3]]))
    models = ("--target_model", "sim:world", "--optimizer_model", "sim:world")
    done = skillopt("init", "own", "--from", "a.csv", *models, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Ticket ID → id, Guest question → question, Best answer → answers, Area → type" in done.stdout
    assert "1 rows repeat an earlier one and are left out: lines 26 (as 4)" in done.stdout
    done = skillopt("train", "--config", "own/config.yaml", "train.num_epochs=1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (stuck,) = [line for line in done.stdout.splitlines() if line.startswith("Persistent failures")]
    assert re.findall(r"T-\d{3}", stuck)
    report = next((tmp_path / "outputs").glob("own/*/report.html")).read_text()
    assert "T-00" in report
    assert not re.search(r"\b[0-9a-f]{16}\b", stuck + re.sub(r"<(script|style).*?</\1>", "", report, flags=re.DOTALL))
    items = [json.loads(line) for line in (tmp_path / "own" / "tasks.jsonl").read_text().splitlines()]
    assert {item["id"] for item in items} == {f"T-{n:03d}" for n in range(24)}
    assert items[0]["type"] == "rooms"
    done = skillopt("init", "other", "--from", "a.csv", "--id", "Customer ID", cwd=tmp_path)
    assert done.returncode == 2
    assert "id 'C0' was already used at a.csv:2; ids must be unique" in done.stderr


def test_a_table_that_excel_saved_for_windows_is_read_with_a_warning(tmp_path: Path) -> None:
    rows = [f"Where is the café {n}?,“Rue {n}” – près d'ici" for n in range(12)]
    (tmp_path / "a.csv").write_bytes("\r\n".join(["question,answer", *rows]).encode("cp1252"))
    done = skillopt("init", "own", "--from", "a.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "warn  a.csv: is not UTF-8 and was read as Windows text (cp1252)" in done.stdout
    assert "“Rue 3” – près d'ici" in (tmp_path / "own" / "tasks.jsonl").read_text(encoding="utf-8")


def test_what_a_hint_says_to_run_can_be_run_where_the_user_stands(tmp_path: Path) -> None:
    rows = [f"Q{n},a{n}" for n in range(12)]
    (tmp_path / "a.csv").write_text("\n".join(["question,answer", *rows]))
    made = skillopt("init", "my tasks", "--from", "a.csv", "--target_model", "sim:world", cwd=tmp_path)
    (line,) = [line for line in made.stdout.splitlines() if line.startswith("Now: ")]
    config = shlex.split(line)[-1]
    found = skillopt("doctor", "--offline", "--config", config, cwd=tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr
    (hint,) = re.findall(r"run `skillopt (.+?)`", found.stdout)
    done = skillopt(*shlex.split(hint), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


# What `init` writes


def test_a_training_of_ones_own_tasks_has_eight_steps_and_says_what_the_tasks_are(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(CSV)
    write_folder(tmp_path / "own", InitOptions(source=tmp_path / "mine.csv", target="openai:gpt-4o-mini"))
    config = Config.load(tmp_path / "own" / "config.yaml")
    steps = sum(map(len, plan_steps(open_env(config).items("train"), config.train)))
    assert steps >= 8
    assert config.env.task == "Each task is a “Prompt”; the right reply is its “Label”."


# Bad data, as a user meets it


def complaint(tmp_path: Path, file: Path) -> tuple[str, int]:
    """The message of a real command, and the most memory that it held, in megabytes."""
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"env": {"data": str(file), "output_root": str(tmp_path / "out")}}))
    code = (
        "import re, sys\nfrom skillopt.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "finally:\n    print(int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) // 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "plan", "--config", str(config)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr, int(done.stdout.split()[-1])


@pytest.mark.slow
def test_a_line_of_200_megabytes_is_refused_without_eating_memory(tmp_path: Path) -> None:
    file = tmp_path / "long.jsonl"
    with file.open("wb") as stream:
        stream.write(b'{"id": "a", "question": "Q?", "answers": ["a"]}\n{"id": "b", "question": "')
        stream.truncate(200 << 20)  # a hole: nothing but zeros, and no line end
    told, megabytes = complaint(tmp_path, file)
    assert f"{file}:2: the line is longer than 16 MB; write each item on a line of its own" in told
    assert megabytes < 300


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("t.jsonl", b'{"id": "a", "question": "caf\xe9", "answers": ["a"]}\n', ":1: not UTF-8 at byte 28; save"),
        ("t.jsonl", b'{"id": "a", "question": 3, "answers": ["a"]}\n', ":1: question: Input should be a valid string"),
        ("t.jsonl", b'{"id": "a", "answers": ["a"]}\n', ":1: question: Field required; an item has 'id'"),
        ("t.jsonl", b'{"question": "Q"}\n', ":1: answers: needs at least one answer"),
        ("t.jsonl", b'{"question": "Q", "answer": true}\n', ":1: answers: Input should be a valid tuple"),
        (
            "t.jsonl",
            b'{"id": 1, "question": "Q", "answer": 1}\n{"id": 1, "question": "R", "answer": 1}\n',
            ":1; ids must",
        ),
        ("t.jsonl", b"\n\n", ": holds no items"),
        ("t.csv", b"question,answer\nQ?,a,b\n", ":2: has 3 cells, and the header has 2; put cells that hold a ','"),
        ("t.csv", b'question,answer\n"Q?,a\n', "is a double quote left open?"),
        ("t.csv", b"prompt,answer\nQ?,a\n", ":1: the header has no column 'question' (it has: prompt, answer)"),
        ("t.csv", b"question,question\nQ?,a\n", ":1: the column 'question' is twice"),
        ("t.csv", b"question,answer\nQ?,caf\xe9\n", ":2: not UTF-8 at byte 22"),
        ("t.xml", b"<a/>", ": items are read from .jsonl"),
    ],
)
def test_bad_files_are_named_by_line_field_and_fix(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(UserError) as caught:
        open_env(Config.parse({"env": {"data": str(file)}}))
    assert told in str(caught.value)
    assert str(file) in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_large_array_is_told_to_become_lines_and_a_folder_where_it_belongs(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    with file.open("wb") as stream:
        stream.truncate(65 << 20)
    with pytest.raises(UserError, match=r"is one JSON array of 65 MB.*save the items as JSON lines"):
        open_env(Config.parse({"env": {"data": str(file)}}))
    with pytest.raises(UserError, match=r"is a folder; set env\.split_dir to a folder with train/, val/ and test/"):
        open_env(Config.parse({"env": {"data": str(tmp_path)}}))
    with pytest.raises(UserError, match=r"is not a folder \(one file belongs in env\.data\)"):
        open_env(Config.parse({"env": {"split_dir": str(file)}}))


@pytest.mark.real_model
def test_the_demo_runs_on_the_embedded_model(tmp_path: Path) -> None:
    """The small one, on a slice: that it runs is the promise here; what the 0.5B learns stands in docs/your_data.md."""
    write_folder(tmp_path / "demo", InitOptions(target="local:smollm2-135m"))
    small = ["env.options={limit: {train: 4, val: 4, test: 4}}", "train.batch_size=4", "models.target_max_tokens=8"]
    config = Config.load(tmp_path / "demo" / "config.yaml", [f"env.output_root={tmp_path / 'out'}", *small])
    result = asyncio.run(train_async(config))
    assert result.summary["status"] == "finished"
    assert result.summary["calls"]["target"] >= 12
