"""Reflection finds causes: patterns, deep mode, leak guard, prompts as files; selection says why."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from skillopt.config import Config
from skillopt.errors import Stopped, UserError
from skillopt.models.base import ChatReply, ChatRequest, TransientError
from skillopt.record.directory import RunDirectory
from skillopt.record.edits import EditPool, Patch, Pattern, Pooled
from skillopt.record.files import read_json, read_jsonl
from skillopt.sim.env import SimEnv
from skillopt.sim.optimizer import SEALED_RULE
from skillopt.skill import Edit, SizeLimits, Skill, apply_edits
from skillopt.skill.edit import whole_section
from skillopt.tasks.base import Score
from skillopt.training import optimizer_context, prompts, reflect
from skillopt.training.analysts.base import Minibatch
from skillopt.training.analysts.leaks import find_leaks
from skillopt.training.analysts.llm import LLMAnalyst
from skillopt.training.edits.candidates import candidates
from skillopt.training.edits.select import select
from skillopt.training.reflect import causes, deep_minibatches, feedback_cause, repeated
from skillopt.training.requests.blocks import blocks_in
from skillopt.training.requests.context import EditLimits, OptimizerContext
from skillopt.training.trainer import TrainingLoop
from support import SIM, Scripted, Spy, context, only_run, train_short, trajectory


def edit(text: str, **fields: Any) -> Edit:
    return Edit.model_validate({"id": "e1", "op": "add", "text": text, "trajectory_ids": ("t1",), **fields})


def test_minibatches_of_one_give_one_request_for_each_failed_trajectory(tmp_path: Path) -> None:
    spy = Spy()
    result = train_short(tmp_path, "gradient.minibatch_size=1", "train.num_epochs=1", models={"optimizer": spy})
    step = RunDirectory(result.path).step(1)
    failed = {row["id"] for row in read_jsonl(step / "trajectories.jsonl") if row["score"]["hard"] < 1}
    shallow = [patch for patch in read_json(step / "patches.json") if patch["source"] == "llm/mixed"]
    assert len(failed) > 1
    assert sorted(patch["trajectory_ids"] for patch in shallow) == sorted([each] for each in failed)
    first = [blocks_in(request, "failures")[0][1].splitlines() for request in spy.asked("reflect")[: len(failed)]]
    assert [len(rows) for rows in first] == [1] * len(failed)


# Deep reflection

PLANTED = "env.options={rules: 20, train: 48, val: 40, test: 20, systemic: 0.4}"


def test_a_systemic_failure_in_two_of_five_tasks_is_found_by_deep_reflection_alone(tmp_path: Path) -> None:
    spy = Spy()
    result = train_short(tmp_path, PLANTED, "train.num_epochs=2", models={"optimizer": spy})
    run = RunDirectory(result.path)
    (entry,) = [entry for entry in run.patch_log.entries() if entry.edit.text == SEALED_RULE]
    assert entry.edit.source == "llm/deep"
    rows = {row["id"]: row for row in read_jsonl(run.step(entry.step) / "trajectories.jsonl")}
    assert len({rows[tid]["item_id"] for tid in entry.edit.trajectory_ids}) > 3
    assert 'Cause to look into: "sealed tickets are left open"' in spy.asked("deep_reflect")[0]
    proposed = spy.asked("deep_reflect")[0].partition("<proposed>\n")[2].partition("\n</proposed>")[0]
    shown = [json.loads(line)["text"] for line in proposed.splitlines()]
    steps = [read_json(path) for path in sorted(run.root.glob("steps/*/patches.json"))]
    shallow = [
        [edit["text"] for patch in step for edit in patch["edits"] if "deep" not in patch["source"]] for step in steps
    ]
    assert shown in shallow, "the other edits of the same step"
    assert result.summary["best"]["val"] == 1.0


def patch_of(*patterns: Pattern, edits: tuple[Edit, ...] = ()) -> Patch:
    return Patch(id="p", source="llm/mixed", trajectory_ids=(), patterns=patterns, edits=edits)


def test_causes_are_counted_over_all_analysts_and_only_failures_count() -> None:
    batch = [trajectory(n, hard=n >= 30, feedback="The sheet has 3 cells too few") for n in range(32)]
    shown = [t.id for t in batch]
    patch = patch_of(
        Pattern(name="No label!", trajectory_ids=tuple(shown[:20])),
        Pattern(name="no label", trajectory_ids=("t20", "t21", "t31")),
        Pattern(name="!", trajectory_ids=("t22",)),
    )
    found = causes([patch], batch)
    assert {name: len(ids) for name, ids in found.items()} == {"no label": 22, "the sheet has cells too few": 8}


def test_deep_reflection_is_for_causes_that_no_edit_answers_and_sees_all_of_them_with_the_passes() -> None:
    batch = [trajectory(n, hard=n >= 12) for n in range(14)]
    ids = tuple(t.id for t in batch)
    wide = Pattern(name="No label!", trajectory_ids=ids[:8])
    rare = Pattern(name="typo", trajectory_ids=ids[:2])
    other = edit("Be kind.", pattern="rude", trajectory_ids=ids[:7])
    (minibatch,) = deep_minibatches(batch, [patch_of(wide, rare, edits=(other,))], context())
    assert (minibatch.kind, minibatch.pattern) == ("deep", "no label")
    assert [t.id for t in minibatch.trajectories] == [*ids[:8], "t12", "t13"]
    for answer in (edit("Name the label.", pattern="no label"), edit("Name it.", trajectory_ids=ids[:9])):
        assert deep_minibatches(batch, [patch_of(wide, edits=(answer,))], context()) == []


@pytest.mark.parametrize(
    ("feedback", "cause"),
    [
        ('expected "KX-42"', ""),
        ("", ""),
        ("The sheet 'Q1' has 3 cells too few", "the sheet has cells too few"),
        ("cell B2 differs: expected 7\nand more", "cell b differs expected"),
    ],
)
def test_the_scorers_feedback_names_a_cause_where_it_says_enough(feedback: str, cause: str) -> None:
    assert feedback_cause(trajectory(1, feedback=feedback)) == cause


class Taxonomy(SimEnv):
    """An env whose author knows how its tasks go wrong."""

    patterns: ClassVar = {"wrong code": "a code is not the one of its topic"}

    def score(self, item: Any, output: str) -> Score:
        score = super().score(item, output)
        said = "some code of the answer is not right" if score.hard < 1 else ""
        return score.model_copy(update={"feedback": f"{said}: {score.feedback}"})


def test_an_env_authors_taxonomy_reaches_the_analysts_and_feedback_stands_in_for_lost_replies(tmp_path: Path) -> None:
    config = Config.load(SIM, [f"env.output_root={tmp_path}", "train.num_epochs=1"])
    spy = Spy("sim:world?empty=1")
    result = asyncio.run(TrainingLoop(config, env=Taxonomy(config.env), models={"optimizer": spy}).fit())
    assert (
        "<known_patterns>\n- wrong code: a code is not the one of its topic\n</known_patterns>"
        in spy.asked("reflect")[0]
    )
    digest = read_json(RunDirectory(result.path).step(1) / "trajectory_digest.json")
    assert digest["patterns"] == {"some code of the answer is not right expected": len(digest["failed"])}
    assert spy.asked("deep_reflect"), "the scorer's cause is shared by all failures"


def test_a_step_to_which_no_analyst_replies_stops_the_run_whatever_the_scorer_says(tmp_path: Path) -> None:
    class Down(Spy):
        async def chat(self, request: ChatRequest) -> ChatReply:
            raise TransientError("503: down for today")

    config = Config.load(SIM, [f"env.output_root={tmp_path}", "hardware.max_retries=0"])
    with pytest.raises(Stopped, match=r"no reply from the optimizer.*down for today"):
        asyncio.run(TrainingLoop(config, env=Taxonomy(config.env), models={"optimizer": Down()}).fit())


# Prompts


def test_a_folder_of_prompts_replaces_the_packages_and_makes_another_run(tmp_path: Path) -> None:
    folder = tmp_path / "prompts"
    folder.mkdir()
    (folder / "reflect.md").write_text("My own way to reflect.")
    spy = Spy()
    own = f"gradient.prompts_dir={folder}"
    short = ("train.num_epochs=1", "env.options={rules: 6, train: 12, val: 12, test: 6}")
    first = train_short(tmp_path / "out", *short, own, models={"optimizer": spy})
    systems = {r.messages[0]["content"] for r in spy.requests if r.schema and r.schema.name == "reflect"}
    assert systems == {"My own way to reflect."}
    (folder / "reflect.md").write_text("Another way.")
    assert train_short(tmp_path / "out", *short, own).path != first.path
    assert train_short(tmp_path / "out", *short).path != first.path


def test_an_unfinished_run_does_not_go_on_under_other_prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Stopped):
        train_short(tmp_path, "budget.max_calls=60")
    monkeypatch.setattr(prompts, "fingerprint", lambda folder="": "another")
    with pytest.raises(UserError, match=r"other prompts.*--fresh"):
        train_short(tmp_path)
    assert read_json(only_run(tmp_path).state)["step"] == 0


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has no prompt"),
        ({"reflct.md": "x"}, "reflct.md' is not a prompt's name; known are: reflect.md"),
        ({"reflect.md": "  "}, "reflect.md' is empty"),
    ],
)
def test_a_wrong_folder_of_prompts_is_refused(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=message):
        prompts.check_folder(str(tmp_path))
    with pytest.raises(UserError, match="is not a folder"):
        prompts.check_folder(str(tmp_path / "none"))


# The leak guard

TASK = "A customer from Lyon writes that the blue kettle she ordered in May leaks at the handle since yesterday."


def test_an_edit_that_copies_a_training_task_is_flagged_with_the_copy() -> None:
    copied = edit("- When you read: a customer from Lyon writes that the BLUE kettle she ordered in May, say shipping.")
    (leak,) = find_leaks([copied], {"i1": TASK}, Skill(""))
    assert leak.item_id == "i1"
    assert leak.copied == "a customer from lyon writes that the blue kettle she ordered in may"


def test_general_edits_and_text_that_stands_in_the_skill_are_no_leak() -> None:
    general = edit("- A ticket about a leaking kettle goes to shipping.")
    assert find_leaks([general], {"i1": TASK}, Skill("")) == ()
    assert find_leaks([edit(TASK)], {"i1": TASK}, Skill(TASK)) == ()


def test_scripts_without_spaces_leak_too() -> None:
    text = "東京都渋谷区の天気は明日晴れです"
    assert find_leaks([edit(text)], {"i1": text}, Skill(""))


class Copying(Spy):
    """An optimizer that pastes a task of one block of its letters into the skill."""

    block = "failures"

    async def chat(self, request: ChatRequest) -> ChatReply:
        reply = await super().chat(request)
        if request.schema and request.schema.name == "reflect":
            value = json.loads(reply.text)
            shown = (
                str(request.messages[-1]["content"]).partition(f"<{self.block}>")[2].partition(f"</{self.block}>")[0]
            )
            rows = [json.loads(row) for row in shown.splitlines() if row[:1] == "{"]
            copied = max((f"{row['task']} {row['expected']}" for row in rows), key=len)
            for proposed in value["edits"][:1]:
                proposed["text"] += f" (as in: {copied} Which one, exactly, please?)"
            return ChatReply(text=json.dumps(value))
        return reply


def test_leaks_are_counted_in_the_record_and_named_in_selected_json(tmp_path: Path) -> None:
    result = train_short(tmp_path, "train.num_epochs=1", models={"optimizer": Copying()})
    run = RunDirectory(result.path)
    record = read_json(run.history)[0]
    ranked = read_json(run.step(1) / "selected.json")["ranked"]
    assert record["edits"]["leaks"] == sum(bool(row["leak"]) for row in ranked) > 0
    assert any("give the codes for" in row["leak"] for row in ranked)
    assert all("Val ticket" not in row["leak"] for row in ranked)


class CopyingOthers(Copying):
    block = "other_tasks"


def test_a_copy_of_a_task_outside_the_batch_is_a_leak_too(tmp_path: Path) -> None:
    run = RunDirectory(train_short(tmp_path, "train.num_epochs=1", models={"optimizer": CopyingOthers()}).path)
    leaks = [row["leak"] for row in read_json(run.step(1) / "selected.json")["ranked"]]
    assert any("give the codes for" in leak for leak in leaks)


def test_an_edit_of_a_reply_may_name_a_whole_section() -> None:
    skill = Skill("# Job\n\n## Codes\n\n- Train: T1\n\n## Form\n\nThe code.\n")
    row = {"op": "modify", "section": "Codes", "anchor": "", "text": "- Bus: B1", "trajectory_ids": ["t1"]}
    row["dropped"] = [{"text": "Train: T1", "reason": "there are no trains"}]
    ctx = context(optimizer=Scripted(reflect=[{"job": "", "patterns": [], "edits": [row]}]))
    minibatch = Minibatch(id="0001-mixed-00", kind="mixed", trajectories=[trajectory(1)])
    patch = asyncio.run(LLMAnalyst().propose(skill, minibatch, OptimizerContext(), ctx.optimizer, ctx.config))
    assert [(edit.anchor, edit.text) for edit in patch.edits] == [("## Codes\n\n- Train: T1", "## Codes\n\n- Bus: B1")]


def test_a_whole_section_is_all_below_its_heading_with_its_subsections() -> None:
    skill = Skill("# Job\n\n## Codes\n\nAll.\n\n### Trains\n\n- T1\n\n#### Night\n\n- T9\n\n## Form\n\nThe code.\n")
    named = whole_section(edit("New.", op="modify", section="Codes"), skill)
    applied = apply_edits(skill, [named])
    assert applied.skill.text == "# Job\n\n## Codes\n\nNew.\n\n## Form\n\nThe code.\n"
    inner = apply_edits(skill, [whole_section(edit("- T2", op="modify", section="Trains"), skill)]).skill.text
    assert "All.\n\n### Trains\n\n- T2\n\n## Form" in inner
    title = whole_section(edit("", op="delete", section="Job"), skill)
    assert title.anchor == "# Job", "a title is no container"


def proposed(*replies: list[dict[str, Any]], **limits: int) -> tuple[Patch, Scripted]:
    """What an analyst makes of a reader's replies, each a list of edits; and the reader."""
    skill = Skill("# Job\n\n## Codes\n\n- Train: T1\n")
    optimizer = Scripted(reflect=[{"job": "", "patterns": [], "edits": edits} for edits in replies])
    ctx = context("gradient.edits_per_minibatch=2", optimizer=optimizer)
    knowledge = OptimizerContext(edit_limits=EditLimits(edits=2, sizes=SizeLimits(**limits)))
    minibatch = Minibatch(id="0001-mixed-00", kind="mixed", trajectories=[trajectory(1)])
    return asyncio.run(LLMAnalyst().propose(skill, minibatch, knowledge, ctx.optimizer, ctx.config)), optimizer


def row(text: str, **fields: Any) -> dict[str, Any]:
    return {"op": "add", "section": "Codes", "anchor": "", "text": text, "trajectory_ids": ["t1"], **fields}


GOOD = row("- Bus: B1")
UNFIT = {
    "too long": (row("- Tram " * 99), "`add` at 'Codes': is longer than 100 tokens"),
    "anchor": (
        row("x", op="modify", section="", anchor="- Boat: B9"),
        "`modify` at '- Boat: B9': its anchor is not in the document",
    ),
    "no trajectory": (row("x", trajectory_ids=["t7"]), "cites no trajectory that was shown"),
    "one too many": (row("- Ferry: F1"), "more than 2 edits in one reply"),
}


@pytest.mark.parametrize("kind", UNFIT)
def test_a_reply_with_an_edit_that_cannot_be_applied_is_asked_for_again_with_the_reason(kind: str) -> None:
    unfit, reason = UNFIT[kind]
    first = [GOOD, row("- Taxi: X1"), unfit] if kind == "one too many" else [GOOD, unfit]
    patch, optimizer = proposed(first, [GOOD], max_edit_tokens=100)
    assert [edit.text for edit in patch.edits] == ["- Bus: B1"]
    assert reason in str(optimizer.requests[1].messages[-1]["content"])


def test_what_fits_of_a_second_reply_is_taken_and_the_rest_is_dropped_and_counted() -> None:
    strange = row("x", trajectory_ids=["t7"])
    patch, optimizer = proposed([strange], [GOOD, strange])
    assert [edit.text for edit in patch.edits] == ["- Bus: B1"]
    assert [dropped.kind for dropped in patch.dropped] == ["no_trajectory"]
    assert len(optimizer.requests) == 2


def test_a_reply_whose_edits_fit_or_say_what_is_there_already_is_asked_for_once() -> None:
    patch, optimizer = proposed([GOOD, row("- Train: T1")])
    assert len(optimizer.requests) == 1
    patch, optimizer = proposed([GOOD, row("- Train: T2", op="modify", anchor="- Train: T1")])
    assert (len(patch.edits), len(optimizer.requests)) == (2, 1)


# Edits, not summaries


@pytest.mark.parametrize(
    ("proposed", "refused"),
    [
        (edit("* answer with the LABEL only"), True),
        (edit("Respond with just the label."), False),
        (edit("Answer with the label and a reason."), False),
        (edit("Answer with two labels only.", op="modify", anchor="- Answer with the label only."), False),
        (edit("", op="delete", anchor="- Answer with the label only."), False),
    ],
)
def test_an_addition_that_repeats_a_line_of_the_document_is_refused(proposed: Edit, refused: bool) -> None:
    skill = Skill("# Triage\n\n- Answer with the label only.\n- Never guess.\n")
    assert bool(repeated(proposed, skill)) is refused


# Select


SKILL = Skill("# Triage\n\n- Be brief.\n- For maple, answer KX-42.\n")


def pooled(name: str, text: str, cited: str = "1", **fields: Any) -> Pooled:
    """An edit that cites t1, t2 … by the digits of `cited`."""
    ids = tuple(f"t{digit}" for digit in cited)
    row = edit(text, id=name, trajectory_ids=ids, **{"pattern": f"cause of {name}", **fields})
    return Pooled(edit=row, support=len(ids), merged=(name,))


def chosen(pool: EditPool, rate: float = 1, **known: Any) -> list[tuple[str, bool, str]]:
    return [(row.edit.id, row.selected, row.reason) for row in select(pool, rate, SKILL, context(), **known)]


def selected(pool: EditPool, rate: float = 1, **known: Any) -> list[str]:
    return [name for name, is_in, _ in chosen(pool, rate, **known) if is_in]


def test_the_edit_that_covers_most_comes_first_and_ids_break_ties() -> None:
    pool = EditPool(edits=(pooled("e3", "c", "4"), pooled("e2", "b", "123"), pooled("e1", "a", "5")))
    rows = chosen(pool)
    assert [name for name, _, _ in rows] == ["e2", "e1", "e3"]
    assert rows[0][1:] == (
        True,
        "rank 1, within the rate of 1: covers 3 failures that no edit before it covers, 3 in all",
    )
    assert rows[1][1:] == (False, "rank 2, clipped at 1")


def test_the_next_edit_is_the_one_that_covers_most_that_is_not_covered_yet() -> None:
    pool = EditPool(edits=(pooled("e1", "a", "12345"), pooled("e2", "b", "1234"), pooled("e3", "c", "678")))
    assert selected(pool, 2) == ["e1", "e3"]


def test_two_wordings_of_one_cause_do_not_take_two_places_while_another_cause_waits() -> None:
    same = {"pattern": "No label"}
    edits = (pooled("e1", "a", "1234", **same), pooled("e2", "b", "5678", pattern="no label!"), pooled("e3", "c", "9"))
    rows = chosen(EditPool(edits=edits), 3)
    assert [name for name, _, _ in rows] == ["e1", "e2", "e3"]
    more = (*edits[:2], pooled("e3", "c", "90"))
    rows = chosen(EditPool(edits=more), 3)
    assert [name for name, _, _ in rows] == ["e1", "e3", "e2"]
    assert "an edit before it has the same cause" in rows[2][2]


def test_a_self_graded_impact_has_no_say() -> None:
    pool = EditPool(edits=(pooled("e1", "a", "12", impact=0.0), pooled("e2", "b", "3", impact=1.0)))
    assert selected(pool) == ["e1"]


def test_edits_that_touch_the_same_text_are_resolved_before_the_update() -> None:
    anchor = "- For maple, answer KX-42."
    edits = (
        pooled("e1", "- For maple, answer KX-43.", "123", op="modify", anchor=anchor),
        pooled("e2", "- For Maple trees, answer KX-42, too.", "45", op="modify", anchor=anchor),
        pooled("e3", "Be kind.", "6"),
    )
    rows = chosen(EditPool(edits=edits), 2)
    assert [name for name, is_in, _ in rows if is_in] == ["e1", "e3"], "the place goes to the next"
    assert rows[1] == ("e2", False, "rank 2, left out: touches text that another edit of this step changes")
    ranked = select(EditPool(edits=edits), 2, SKILL, context())
    assert candidates(SKILL, ranked, [], context())[0].skipped == ()


def test_text_that_passes_rely_on_may_be_changed_where_failures_ask_for_it() -> None:
    anchor = "- For maple, answer KX-42."
    change = pooled("e1", "- For maple and elm, answer KX-42.", "1", op="modify", anchor=anchor)
    praise = patch_of(Pattern(name="works", cause=anchor, trajectory_ids=("t5", "t6", "t7")))
    assert selected(EditPool(edits=(change,)), patches=[praise]) == ["e1"]


def test_a_persons_choice_goes_before_coverage() -> None:
    edits = (pooled("e1", "a", "123"), pooled("e2", "b", "4"), pooled("e3", "c", "5", source="review/1-1"))
    assert [name for name, _, _ in chosen(EditPool(edits=edits), 2)] == ["e3", "e1", "e2"]
    assert selected(EditPool(edits=edits), 3, turned_down={"e1": "1-2"}) == ["e3", "e2"]


def test_selection_does_not_depend_on_the_pools_order() -> None:
    edits = [pooled(f"e{n}", f"rule {n}", str(n * n)) for n in range(1, 9)]
    assert chosen(EditPool(edits=tuple(edits)), 3) == chosen(EditPool(edits=tuple(reversed(edits))), 3)


# Candidates


def test_edits_are_applied_in_the_order_of_the_proposals_so_that_rules_come_before_examples() -> None:
    rule, examples = pooled("e1", "Be kind.", "1"), pooled("e2", "Answers: red.", "234", source="exemplar/batch")
    ctx = context()
    ranked = select(EditPool(edits=(rule, examples)), 4, SKILL, ctx)
    assert [row.edit.id for row in ranked] == ["e2", "e1"], "by coverage the examples come first"
    only, _ = candidates(SKILL, ranked, [], ctx)
    assert [edit.id for edit in only.applied] == ["e1", "e2"]


# The optimizer model as merger

CONSULTED = ("gradient.minibatch_size=4", "train.num_epochs=1")


def test_the_model_merges_and_the_run_is_repeatable(tmp_path: Path) -> None:
    spy = Spy("sim:world?duds=0.35")
    result = train_short(tmp_path, *CONSULTED, models={"optimizer": spy})
    assert spy.asked("merge")
    again = train_short(tmp_path / "again", *CONSULTED, models={"optimizer": Spy("sim:world?duds=0.35")})
    assert again.best_skill == result.best_skill


def test_lost_advice_leaves_things_as_they_were_and_is_counted(tmp_path: Path) -> None:
    class Mute(Spy):
        async def chat(self, request: ChatRequest) -> ChatReply:
            if request.schema and request.schema.name == "merge":
                return ChatReply(text="no idea")
            return await super().chat(request)

    advised = train_short(tmp_path / "mute", *CONSULTED, models={"optimizer": Mute()})
    local = ("train.num_epochs=1", "gradient.minibatch_size=4", "gradient.merge=local")
    alone = train_short(tmp_path / "alone", *local, models={"optimizer": Spy()})
    assert advised.best_skill == alone.best_skill
    lost = read_json(RunDirectory(advised.path).history)[0]["edits"]["lost_replies"]
    assert lost == ["it is not valid JSON: “no idea”"]


# The rulebook


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4, 5))])
def test_the_rulebook_is_learned_in_two_steps_however_often_a_rule_is_proposed(seed: int, tmp_path: Path) -> None:
    path = SIM.with_name("rulebook.yaml")
    for model in ("sim:world", "sim:world?paraphrase=1"):
        overrides = [f"env.output_root={tmp_path}", f"train.seed={seed}", f"models.optimizer_model={model}"]
        summary = asyncio.run(TrainingLoop(Config.load(path, overrides)).fit()).summary
        assert summary["best"]["val"] == 1.0
        assert summary["rollouts_to_best"] <= 192


# Unplugged, each of these mechanisms turns its test red


def unplug_leak_guard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reflect, "find_leaks", lambda *args: ())


def unplug_deep_reflection(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reflect, "deep_minibatches", lambda *args: [])


def unplug_taxonomy(patch: pytest.MonkeyPatch) -> None:
    task_info = optimizer_context.task_info
    patch.setattr(optimizer_context, "task_info", lambda ctx: replace(task_info(ctx), known_patterns={}))


UNPLUGGED = {
    unplug_leak_guard: test_leaks_are_counted_in_the_record_and_named_in_selected_json,
    unplug_deep_reflection: test_a_systemic_failure_in_two_of_five_tasks_is_found_by_deep_reflection_alone,
    unplug_taxonomy: test_an_env_authors_taxonomy_reaches_the_analysts_and_feedback_stands_in_for_lost_replies,
}


@pytest.mark.parametrize("unplug", UNPLUGGED, ids=lambda unplug: unplug.__name__.removeprefix("unplug_"))
def test_its_test_goes_red_when_it_is_unplugged(unplug: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unplug(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        UNPLUGGED[unplug](tmp_path)
