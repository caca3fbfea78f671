"""Letters in real runs hold what the run knows, and an optimizer that acts on letters alone learns less from less.

The simulated optimizer knows nothing but its letter (sim/optimizer.py). Here one part of its letters is
taken away at a time, and what it learns is compared.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from skillopt.models.base import ChatReply, ChatRequest, Message, Schema
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json
from skillopt.record.state import Tried, TriedEdit
from skillopt.sim.model import SimOptions, code_for
from skillopt.sim.optimizer import SEALED, SEALED_RULE, optimizer_reply, rules_in
from skillopt.skill import Skill
from skillopt.tasks.base import Item
from skillopt.training import optimizer_context as builder
from skillopt.training import prompts
from skillopt.training.requests.compose import (
    IN_PENDING,
    NO_LONGER_PENDING,
    UNDONE,
    meta_skill_request,
    reflect_request,
    slow_update_request,
)
from skillopt.training.requests.context import MOST_OTHERS, EditLimits, OptimizerContext, Pair, TaskInfo
from skillopt.training.requests.guidance import guidance_schema
from skillopt.training.requests.replies import reflect_schema, text_schema
from support import REPO, Spy, train_short, trajectory

sys.path.insert(0, str(REPO / "bench"))

from learning.mechanisms import MECHANISMS

# One letter at a time

MAPLE, CEDAR, AMBER = (f"- For {topic}, answer {code_for(topic, 0)}." for topic in ("maple", "cedar", "amber"))
ADVICE = TriedEdit(op="add", section="Advice", text="- Take care with maple.", fate="applied")
INFO = TaskInfo(task="Give codes.", scoring="Equal to the expected codes.", target="sim:world")


def ask(letter: list[Message], schema: Schema, **options: Any) -> dict[str, Any]:
    return optimizer_reply(ChatRequest(messages=letter, schema=schema), SimOptions(**options), key="k")


def task(
    number: int, topic: str, output: str = "unknown", *, hard: float = 0, sealed: bool = False, **fields: Any
) -> Any:
    text = f"Train ticket {number}. Give the codes for: {topic}." + f" {SEALED}" * sealed
    expected = code_for(topic, 0) + " SEALED" * sealed
    return trajectory(number, text, hard=hard, **{"output": output, "answers": (expected,), **fields})


BATCH = [task(1, "maple"), task(2, "cedar"), task(3, "amber")]


def reflected(context: OptimizerContext, batch: list[Any], **options: Any) -> list[str]:
    """The texts that the optimizer proposes."""
    letter = reflect_request("prompt", Skill(""), context, batch, 4000)
    return [edit["text"] for edit in ask(letter, reflect_schema("reflect", ["t1"], 16), **options)["edits"]]


CONTEXT = OptimizerContext(task_info=INFO, edit_limits=EditLimits(edits=3))


def test_without_expected_answers_no_code_is_learned() -> None:
    assert reflected(CONTEXT, BATCH) == [AMBER, CEDAR, MAPLE]
    assert reflected(CONTEXT, [t.model_copy(update={"answers": ()}) for t in BATCH]) == []


def test_without_the_task_no_code_is_learned() -> None:
    assert reflected(CONTEXT, [t.model_copy(update={"input": ""}) for t in BATCH]) == []


def test_the_letters_limit_is_kept_and_without_it_a_single_edit_is_dared(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(reflected(replace(CONTEXT, edit_limits=EditLimits(edits=2)), BATCH)) == 2
    monkeypatch.setattr("skillopt.training.requests.compose._limits", lambda *args: "")
    assert len(reflected(CONTEXT, BATCH)) == 1


def dud_seed() -> int:
    """A seed with which the optimizer gives advice about maple, where nothing teaches it better."""
    return next(seed for seed in range(99) if ADVICE.text in reflected(CONTEXT, BATCH, duds=0.9, seed=seed))


def test_without_history_an_edit_that_was_rejected_is_proposed_again() -> None:
    tried = Tried(step=1, verdict="reject", before=0.5, edits=(ADVICE,))
    known = replace(CONTEXT, tried=(tried,))
    assert MAPLE in reflected(known, BATCH, duds=0.9, seed=dud_seed())
    assert MAPLE not in reflected(CONTEXT, BATCH, duds=0.9, seed=dud_seed())
    for other in (tried.model_copy(update={"verdict": "accept"}), tried.model_copy(update={"edits": ()})):
        assert MAPLE not in reflected(replace(CONTEXT, tried=(other,)), BATCH, duds=0.9, seed=dud_seed())


def test_without_notes_more_edits_are_of_no_use() -> None:
    lesson = notes_after(Tried(step=1, epoch=1, verdict="reject", before=0.5, edits=(ADVICE,)))
    useful = dict.fromkeys(("", lesson), 0)
    for notes in useful:
        for seed in range(40):
            texts = reflected(replace(CONTEXT, notes=notes), BATCH, duds=0.6, seed=seed)
            useful[notes] += sum(bool(rules_in(text)) for text in texts)
    assert useful[lesson] > 1.3 * useful[""]


def notes_after(*epoch: Tried, notes: str = "") -> str:
    letter = meta_skill_request("prompt", replace(CONTEXT, notes=notes), Skill(""), Skill(""), epoch)
    return str(ask(letter, text_schema("meta_skill", "memory"))["memory"])


def test_notes_come_from_the_epochs_edits_and_their_fates() -> None:
    stated = TriedEdit(op="add", section="Rules", text=MAPLE, fate="applied")
    steps = [
        Tried(step=1, verdict="accept", before=0.2, after=0.5, edits=(stated, stated)),
        Tried(step=2, verdict="reject", before=0.5, edits=(ADVICE,)),
    ]
    full = notes_after(*steps)
    assert "general advice was of no use" in full
    assert "2 edits that state a code were accepted, 1 with advice were of no use" in full
    assert notes_after() == ""
    for part in ({"verdict": ""}, {"edits": ()}):
        blind = notes_after(*(step.model_copy(update=part) for step in steps))
        assert "general advice" not in blind
    fateless = [
        s.model_copy(update={"edits": tuple(e.model_copy(update={"fate": ""}) for e in s.edits)}) for s in steps
    ]
    assert notes_after(*fateless) == ""
    assert notes_after(steps[0], notes="- Old lore.").startswith("- Old lore.\n")
    accepted = steps[1].model_copy(update={"step": 1, "verdict": "accept"})
    assert "1 with advice were of no use" in notes_after(accepted, steps[0]), "its topic needed a rule all the same"


def pair(change: str, topic: str, before: str, now: str, **fields: Any) -> Pair:
    hard = {"regressed": (1, 0), "persistent_fail": (0, 0)}[change]
    old, new = (task(1, topic, out, hard=h, **fields) for out, h in zip((before, now), hard, strict=True))
    return Pair(change=change, before=old, after=new)


LOST = pair("regressed", "maple", code_for("maple", 0), "unknown")
NEVER = pair("persistent_fail", "cedar", "unknown", "ZZ-00")


def guidance(pairs: list[Pair], before: str = MAPLE) -> list[str]:
    letter = slow_update_request("prompt", CONTEXT, Skill(before), Skill(AMBER), pairs)
    return [line["text"] for line in ask(letter, guidance_schema())["lines"]]


def blank(one: Pair, side: str, **fields: Any) -> Pair:
    return replace(one, **{side: getattr(one, side).model_copy(update=fields)})


def test_guidance_restores_what_fell_back_and_states_what_never_worked() -> None:
    assert guidance([LOST, NEVER]) == [MAPLE, CEDAR]


@pytest.mark.parametrize(
    "blind",
    [
        lambda: guidance([blank(LOST, "before", output="")]),
        lambda: guidance([blank(LOST, "after", output="")]),
        lambda: guidance([blank(LOST, "after", input="")]),
        lambda: guidance([LOST], before=AMBER),
        lambda: guidance([blank(NEVER, "after", answers=())]),
        lambda: guidance([blank(NEVER, "after", output="")]),
        lambda: guidance([]),
    ],
    ids=["output before", "output now", "task", "difference of the skills", "expected answer", "wrong output", "pairs"],
)
def test_guidance_without_one_of_its_parts_says_less(blind: Callable[[], list[str]]) -> None:
    assert blind() == []


def deep(batch: list[Any], cause: str = "sealed tickets are left open") -> list[str]:
    letter = reflect_request("prompt", Skill(MAPLE), CONTEXT, batch, 4000, cause)
    return [edit["text"] for edit in ask(letter, reflect_schema("deep_reflect", ["t1"], 16))["edits"]]


def test_a_deep_reflection_compares_the_failures_of_its_cause_with_the_passes() -> None:
    code = code_for("maple", 0)
    sealed = [task(n, "maple", code, sealed=True) for n in (1, 2)]
    passed = task(3, "maple", code, hard=1)
    assert deep([*sealed, passed]) == [SEALED_RULE]
    assert deep([*sealed, passed], cause="") == []
    assert deep([t.model_copy(update={"answers": ()}) for t in sealed]) == []
    assert deep([*sealed, passed.model_copy(update={"output": f"{code} SEALED"})]) == [], (
        "a pass shows that it is not that"
    )


# Letters of a whole run


def letters_of(spy: Spy, stage: str, tag: str) -> list[str]:
    """The block of each request of a stage; empty where there is none."""
    found = [re.search(rf"(?s)<{tag}>\n(.*?)\n</{tag}>", text) for text in spy.asked(stage)]
    return [match[1] if match else "" for match in found]


def rows(block: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in block.splitlines()]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Spy, RunDirectory]:
    """A run with every stage, and all that its optimizer was asked."""
    return whole_run(tmp_path_factory.mktemp("told"))


def whole_run(out: Path) -> tuple[Spy, RunDirectory]:
    spy = Spy("sim:world?duds=0.5")
    options = ("train.num_epochs=2", "optimizer.learning_rate=3", "gradient.minibatch_size=6")
    return spy, RunDirectory(train_short(out, *options, models={"optimizer": spy}).path)


def test_every_letter_of_a_run_names_the_job(told: tuple[Spy, RunDirectory], tmp_path: Path) -> None:
    spy, _ = told
    stages = {request.schema.name for request in spy.requests if request.schema}
    assert stages >= {"reflect", "merge", "slow_update", "meta_skill"}
    for request in spy.requests:
        user = str(request.messages[1]["content"])
        assert user.startswith("<task>\nEach task asks for the secret codes of some topics;")
        assert "The agent's model is sim:world. A reply is cut off after 1024 tokens." in user
        assert "<scoring>\nA reply is right if it equals an expected answer" in user
    own = Spy()
    train_short(
        tmp_path, "env.task=Find the code.", "train.num_epochs=1", "budget.max_calls=5000", models={"optimizer": own}
    )
    assert own.asked("reflect")[0].startswith("<task>\nFind the code. The agent's model is")


def test_letters_show_the_rate_the_score_and_the_history_of_the_run(told: tuple[Spy, RunDirectory]) -> None:
    spy, run = told
    records = read_json(run.history)
    letters = list(zip(*(letters_of(spy, "reflect", tag) for tag in ("limits", "scores", "history")), strict=True))
    first_of_step: dict[int, tuple[str, str, str]] = {}
    for limits, scores, history in letters:
        first_of_step.setdefault(len(rows(history)) + 1, (limits, scores, history))
    assert set(first_of_step) >= {1, 2, 3}
    for number, (limits, scores, history) in first_of_step.items():
        record = records[number - 1]
        assert f"at most {int(record['learning_rate']['used'] + 0.5)} edits" in limits
        assert ("validation" in scores) == (number > 1)
        if number > 1:
            assert f"never see: {record['val_before']:.2f} (hard: the share that is solved)." in scores
        for shown, earlier in zip(rows(history), records, strict=False):
            assert (shown["step"], shown["verdict"]) == (earlier["step"], earlier["verdict"])
            fates = {edit["text"]: edit["fate"] for edit in shown["edits"]}
            applied = {edit["text"] for edit in earlier["applied"]}
            assert {text for text, fate in fates.items() if fate == "applied"} <= applied
            mark = "applied" if earlier["verdict"] == "accept" else UNDONE
            assert {fates[text] for text in applied} <= {mark, builder.LEFT_OUT, IN_PENDING, NO_LONGER_PENDING}
            if earlier["val_after"] is not None:
                assert shown["validation"] == f"{earlier['val_before']:.2f} → {earlier['val_after']:.2f}"
    fates = {edit["fate"].partition(":")[0] for row in rows(letters[-1][2]) for edit in row["edits"]}
    assert fates >= {"applied", "not tried"}


def test_letters_show_the_answers_of_training_tasks_outside_their_batch(told: tuple[Spy, RunDirectory]) -> None:
    spy, run = told
    trajectories = map(json.loads, (run.step(1) / "trajectories.jsonl").read_text().splitlines())
    batch = {row["input"] for row in trajectories}
    others = {row["task"]: row["expected"] for row in rows(letters_of(spy, "reflect", "other_tasks")[0])}
    assert len(others) + len(batch) == 48, "a small training split is shown whole"
    assert not others.keys() & batch
    assert all(others.values())


def test_long_tasks_and_those_without_an_answer_are_not_shown_next_to_a_batch() -> None:
    kept = [Item(id=f"i{n:03}", question=f"Task {n}", answers=("rare" if n == 50 else "x",)) for n in range(100)]
    unfit = [Item(id="long", question="word " * 200, answers=("x",)), Item(id="open", question="Write a poem.")]

    def others(room: int) -> tuple[Item, ...]:
        config = SimpleNamespace(gradient=SimpleNamespace(prompt_tokens=room))
        env = SimpleNamespace(items=lambda split: [*unfit, *kept])
        return builder.other_tasks(
            {"i000"}, cast(Any, SimpleNamespace(env=env, config=config, rng=lambda _: Random(7)))
        )

    found = others(24_000)
    assert len(found) == MOST_OTHERS
    assert list(found) == sorted(found, key=lambda item: item.id)
    assert not {"long", "open", "i000"} & {item.id for item in found}
    few = others(200)
    assert 0 < len(few) < MOST_OTHERS, "a small optimizer's letters keep their room for trajectories"
    assert "rare" in {item.answer for item in few}, "as many different answers as possible"


def test_history_names_the_task_types_that_a_step_helped_and_broke(told: tuple[Spy, RunDirectory]) -> None:
    spy, run = told
    types = {f"val-{n:03d}": "1 code" if n < 20 else "2 codes" for n in range(40)}
    seen = 0
    for shown in rows(letters_of(spy, "reflect", "history")[-1]):
        evidence = read_json(run.step(shown["step"]) / "gate.json")["evidence"]
        changes = dict.fromkeys(("1 code", "2 codes"), 0.0)
        for row in evidence:
            changes[types[row["item_id"]]] += row["after"] - row["before"]
        assert shown.get("task_types_helped", []) == [name for name, change in changes.items() if change > 0]
        assert shown.get("task_types_broken", []) == [name for name, change in changes.items() if change < 0]
        seen += bool(shown.get("task_types_helped"))
    assert seen


def test_notes_and_the_epochs_fates_are_those_of_the_run(told: tuple[Spy, RunDirectory]) -> None:
    spy, run = told
    steps = [[row["step"] for row in rows(block)] for block in letters_of(spy, "meta_skill", "epoch")]
    assert steps == [[1, 2, 3, 4], [5, 6, 7, 8]]
    notes = (run.meta_skill(1) / "memory.md").read_text().strip()
    assert notes
    assert letters_of(spy, "meta_skill", "notes") == ["", notes]
    assert {"", notes} == set(letters_of(spy, "reflect", "notes"))


def test_the_slow_update_shows_the_outputs_of_both_epochs_skills(told: tuple[Spy, RunDirectory]) -> None:
    spy, run = told
    comparison = read_json(run.slow_update(2) / "comparison.json")
    trajectories = [json.loads(line) for line in (run.slow_update(2) / "trajectories.jsonl").read_text().splitlines()]
    outputs = {row["id"]: row["output"] for row in trajectories}
    shown = rows(letters_of(spy, "slow_update", "comparison")[0])
    wanted = [row for row in comparison["rows"] if row["class_"] != "stable_success"]
    assert len(shown) == len(wanted) > 0
    for row in wanted:
        now, before = outputs[row["after_id"]], outputs[row["before_id"]]
        match = [s for s in shown if s["change"] == row["class_"] and s["output_now"] == now]
        assert match
        if row["class_"] != "persistent_fail":
            assert any(s["output_before"] == before for s in match)
    assert letters_of(spy, "slow_update", "difference")[0].startswith("--- skill of the previous epoch")


def test_an_agents_expected_answers_reach_the_letter_also_where_the_scorer_gives_only_a_number(tmp_path: Path) -> None:
    """With a custom scorer that returns a number, the expected answer is all that there is to learn from."""
    scorer = tmp_path / "scorer.py"
    scorer.write_text("def score(item, output):\n    return float(output.strip() == item['answers'][0])\n")
    spy = Spy()
    note = "env.scoring_note=Only the whole code counts."
    own = (f"env.scoring={scorer}:score", note)
    result = train_short(tmp_path / "out", "train.num_epochs=1", *own, models={"optimizer": spy})
    row = rows(letters_of(spy, "reflect", "failures")[0])[0]
    assert row["expected"]
    assert "<scoring>\nOnly the whole code counts.\n</scoring>" in spy.asked("reflect")[0]
    assert "feedback" not in row
    assert result.summary["best"]["val"] > result.summary["initial"]["val"]


# Whole runs with a part of every letter taken away


class Blind(Spy):
    """An optimizer that does not see one part of its letters."""

    def __init__(self, name: str, blindfold: Callable[[str], str]) -> None:
        super().__init__(name)
        self._blindfold = blindfold

    async def chat(self, request: ChatRequest) -> ChatReply:
        head, *rest = request.messages
        seen = [{**message, "content": self._blindfold(str(message["content"]))} for message in rest]
        return await super().chat(replace(request, messages=[head, *seen]))


def without_block(tag: str) -> Callable[[str], str]:
    return lambda letter: re.sub(rf"(?s)<{tag}>\n.*?\n</{tag}>", "", letter)


def without_field(name: str) -> Callable[[str], str]:
    return lambda letter: re.sub(rf'"{name}": "(?:[^"\\]|\\.)*"', f'"{name}": ""', letter)


BLINDFOLDS: dict[str, Callable[[str], str]] = {
    "expected answers": without_field("expected"),
    "tasks": without_field("task"),
    "failures": without_block("failures"),
    "limits": without_block("limits"),
}
SMALL = ("train.num_epochs=1", "env.options={rules: 12, train: 24, val: 24, test: 4}", "train.batch_size=6")


def seeing(letter: str) -> str:
    return letter


def history(out: Path, name: str, blindfold: Callable[[str], str], *more: str) -> list[dict[str, Any]]:
    result = train_short(out, *SMALL, *more, models={"optimizer": Blind(name, blindfold)})
    records: list[dict[str, Any]] = read_json(RunDirectory(result.path).history)
    return records


def learned(records: list[dict[str, Any]]) -> float:
    """The area under the learning curve."""
    return sum(r["val_after"] if r["verdict"] == "accept" else r["val_before"] for r in records)


def tried_again(records: list[dict[str, Any]]) -> int:
    """Advice that was tried although a gate had rejected it. A rule that fell with others may well come back."""
    rejected: set[str] = set()
    again = 0
    for record in records:
        texts = {edit["text"] for edit in record["applied"] if edit["section"] == "Advice"}
        again += len(texts & rejected)
        carried = {edit["text"] for edit in record.get("pending", ())}  # the loop itself tries these again
        rejected |= texts - carried if record["verdict"] == "reject" else set()
    return again


def test_a_run_whose_letters_lack_one_part_learns_less(tmp_path: Path) -> None:
    whole = learned(history(tmp_path / "seeing", "sim:world", seeing))
    blind = {part: learned(history(tmp_path / part, "sim:world", hide)) for part, hide in BLINDFOLDS.items()}
    assert {part: area for part, area in blind.items() if area >= whole} == {}


@pytest.mark.slow
@pytest.mark.parametrize("blindfold", [without_block("history"), without_field("fate")], ids=["history", "fates"])
def test_a_run_whose_letters_lack_the_history_repeats_what_was_rejected(
    blindfold: Callable[[str], str], tmp_path: Path
) -> None:
    names = [f"sim:world?duds=0.9&seed={seed}" for seed in range(3)]
    for answers, again in ((seeing, False), (blindfold, True)):
        folders = [(name, tmp_path / f"{again}-{number}") for number, name in enumerate(names)]
        found = sum(tried_again(history(folder, name, answers, "train.num_epochs=2")) for name, folder in folders)
        assert bool(found) is again


# What a step leaves for the next letters


def test_history_has_the_causes_that_an_optimizer_named_and_not_those_counted_off_the_data(tmp_path: Path) -> None:
    run = RunDirectory(train_short(tmp_path, "train.num_epochs=1", "gradient.analysts=[llm, exemplar]").path)
    named = {cause.partition(":")[0] for tried in read_json(run.state)["tried"] for cause in tried["causes"]}
    assert named
    assert all(name.startswith("no rule for ") for name in named), "the exemplar analyst names answers: no KX-42"


def test_a_step_without_a_proposal_is_not_in_the_history(tmp_path: Path) -> None:
    class Silent(Spy):
        async def chat(self, request: ChatRequest) -> ChatReply:
            return ChatReply(text=json.dumps({"patterns": [], "edits": []}))

    run = RunDirectory(train_short(tmp_path, "train.num_epochs=1", models={"optimizer": Silent()}).path)
    assert read_json(run.history)
    assert read_json(run.state)["tried"] == []


# The builder of the context, unplugged


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("task_info", test_every_letter_of_a_run_names_the_job),
        ("edits_for", test_letters_show_the_rate_the_score_and_the_history_of_the_run),
        ("changed_types", test_history_names_the_task_types_that_a_step_helped_and_broke),
    ],
)
def test_a_blank_in_the_case_file_of_a_run_turns_its_test_red(
    name: str, check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blanks: dict[str, Any] = {
        "task_info": lambda ctx: TaskInfo(),
        "edits_for": lambda rate: 1,
        "changed_types": lambda verdict, ctx: ((), ()),
    }
    monkeypatch.setattr(builder, name, blanks[name])
    given = whole_run(tmp_path / "run")
    with pytest.raises((AssertionError, IndexError)):
        check(given, tmp_path) if name == "task_info" else check(given)


def test_the_prompt_of_a_run_has_the_advice_that_fits_its_batches(told: tuple[Spy, RunDirectory]) -> None:
    spy, run = told
    systems = {str(r.messages[0]["content"]) for r in spy.requests if r.schema and r.schema.name == "reflect"}
    parts = {part for part in prompts.PARTS for text in systems if prompts.load(part).strip() in text}
    fitting = {"reflect_imitator", "reflect_competent", "reflect_minimal"}
    assert {"reflect_imitator", "reflect_minimal"} <= parts <= fitting, "its form is right throughout"
    assert not [text for text in systems if prompts.ADVICE in text]
    kinds = read_json(run.history)[0]["failure_kinds"]
    failed = read_json(run.step(1) / "trajectory_digest.json")["failed"]
    assert sum(kinds.values()) == len(failed) > 0


def test_a_second_epoch_learns_from_what_the_first_made_of_its_tasks(told: tuple[Spy, RunDirectory]) -> None:
    spy, run = told
    pairs = [row for block in letters_of(spy, "reflect", "two_outcomes") for row in rows(block)]
    assert pairs
    assert all(row["wrong"] != row["right"] for row in pairs)
    since = next(row["step"] for row in read_json(run.history) if row["verdict"] == "accept") + 1
    solved: dict[str, bool] = {}
    for line in (
        line for n in range(since, 5) for line in (run.step(n) / "trajectories.jsonl").read_text().splitlines()
    ):
        row = json.loads(line)
        solved[row["input"]] = solved.get(row["input"], False) or row["score"]["hard"] >= 1
    first = next(n for n, block in enumerate(letters_of(spy, "reflect", "history")) if len(rows(block)) == 4)
    others = [(row["task"], row.get("solved", "")) for row in rows(letters_of(spy, "reflect", "other_tasks")[first])]
    never = [task for task, mark in others if mark.startswith("not in")]
    assert never == [task for task, _ in others[: len(never)]], "they come first"
    assert never
    assert not [task for task, mark in others if solved.get(task, True) == mark.startswith("not in")]


def test_findings_survive_every_gate_and_never_reach_the_target(told: tuple[Spy, RunDirectory]) -> None:
    spy, run = told
    found = read_json(run.state)["findings"]
    assert found == read_json(run.meta_skill(2) / "findings.json")
    assert {each["step"] for each in found} > {1}
    assert any("reject" in row["verdict"] for row in read_json(run.history))
    blocks = letters_of(spy, "reflect", "findings")
    assert blocks[0] == ""
    assert rows(blocks[-1])[0]["text"] in {each["text"] for each in found}
    assert not [each for each in found if each["text"] in run.best_skill.read_text()]
    assert found[0]["supports"][0].startswith("train-"), "tasks, whose ids hold over all steps"


def test_each_mechanism_of_the_requests_can_be_switched_off_for_a_measurement(tmp_path: Path) -> None:
    with ExitStack() as off:
        for name in ("no-fit", "no-kinds", "no-shared", "no-findings", "no-pairs", "no-own-words", "no-minimal"):
            patched = MECHANISMS[name].patch
            assert patched
            off.enter_context(mock.patch(*patched))
        spy, run = whole_run(tmp_path)
    letters = spy.asked("reflect")
    assert not [
        tag for tag in ("findings", "two_outcomes", "ready_examples", "shared") for t in letters if f"<{tag}>" in t
    ]
    assert not [text for text in letters if "Failures: " in text]
    systems = {str(r.messages[0]["content"]) for r in spy.requests if r.schema and r.schema.name == "reflect"}
    assert all(prompts.load(part).strip() in text for part in ("reflect_imitator", "reflect_steps") for text in systems)
    assert not [text for text in systems if "- <history>" in text and "- <two_outcomes>" in text]
    assert read_json(run.state)["findings"] == []


def test_with_all_mechanisms_the_same_run_shows_what_they_are_for(told: tuple[Spy, RunDirectory]) -> None:
    letters = told[0].asked("reflect")
    assert [tag for tag in ("findings", "two_outcomes") if any(f"<{tag}>" in text for text in letters)] == [
        "findings",
        "two_outcomes",
    ]
