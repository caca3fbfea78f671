"""Reflection finds causes: patterns, deep mode, leak guard, prompts as files; selection says why."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from skillopt.analysts.shown import fair_shares, trajectory_lines, trim_middle
from skillopt.edits.consult import _merged

from skillopt import prompts
from skillopt.analysts.base import Memory, Minibatch, Patch, Pattern
from skillopt.analysts.leaks import find_leaks
from skillopt.analysts.llm import reflect_messages
from skillopt.config import Config
from skillopt.edits import select as select_module
from skillopt.edits.aggregate import Pool, Pooled
from skillopt.edits.select import select
from skillopt.envs.base import Score, Trajectory
from skillopt.envs.sim import SimEnv
from skillopt.errors import Stopped, UserError
from skillopt.gates import credit
from skillopt.loop import reflect, trainer
from skillopt.loop.reflect import feedback_cause, paraphrased, shared_causes
from skillopt.loop.trainer import Trainer
from skillopt.models.base import ChatReply, ChatRequest, TransientError
from skillopt.models.simulated_optimizer import SEALED_RULE
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_json, read_jsonl
from skillopt.run.state import Rejected
from skillopt.skill import Edit, Skill
from skillopt.skill.tokens import count_tokens
from support import SIM, Spy, only_run, skillopt, train_sim


def trajectory(number: int, text: str = "task", *, hard: float = 0, **fields: Any) -> Trajectory:
    score = fields.pop("score", None) or Score(hard=hard, soft=hard, feedback=fields.pop("feedback", ""))
    row = {"output": "out", **fields}
    return Trajectory(id=f"t{number}", item_id=f"i{number}", skill_hash="", input=text, messages=[], score=score, **row)


def edit(text: str, **fields: Any) -> Edit:
    return Edit.model_validate({"id": "e1", "op": "add", "text": text, "trajectory_ids": ("t1",), **fields})


# Deep reflection

PLANTED = "env.options={rules: 20, train: 48, val: 40, test: 20, systemic: 0.4}"


def test_a_systemic_failure_in_two_of_five_tasks_is_found_by_deep_reflection_alone(tmp_path: Path) -> None:
    spy = Spy()
    result = train_sim(tmp_path, PLANTED, "train.num_epochs=2", models={"optimizer": spy})
    run = RunDirectory(result.path)
    (entry,) = [entry for entry in run.patch_log.entries() if entry.edit.text == SEALED_RULE]
    assert entry.edit.source == "llm/deep"
    rows = {row["id"]: row for row in read_jsonl(run.step(entry.step) / "trajectories.jsonl")}
    assert len({rows[tid]["item_id"] for tid in entry.edit.trajectory_ids}) > 3
    assert 'Cause to look into: "sealed tickets are left open"' in spy.asked("deep_reflect")[0]
    assert result.summary["best"]["val"] == 1.0


def test_deep_reflection_sees_every_failure_of_the_cause_and_passes_beside() -> None:
    failures = [trajectory(n) for n in range(30)]
    patch = Patch(
        id="p", source="llm/failure", trajectory_ids=(),
        patterns=(Pattern(name="No label!", trajectory_ids=tuple(t.id for t in failures[:20])),
                  Pattern(name="no label", trajectory_ids=("t20", "t21"))),
    )  # fmt: skip
    causes = shared_causes([patch], {t.id for t in failures})
    assert list(causes) == ["no label"]
    assert len(causes["no label"]) == 22


def test_names_in_other_words_are_one_cause() -> None:
    one, other = (
        Pattern(name="does not check the units", trajectory_ids=("t1",)),
        Pattern(name="Does not verify units", trajectory_ids=("t2",)),
    )
    patch = Patch(id="p", source="llm/failure", trajectory_ids=(), patterns=(one, other))
    assert list(shared_causes([patch], {"t1", "t2"}).values()) == [{"t1", "t2"}]


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
    result = asyncio.run(Trainer(config, env=Taxonomy(config.env), models={"optimizer": spy}).fit())
    assert (
        "<known_patterns>\n- wrong code: a code is not the one of its topic\n</known_patterns>"
        in spy.asked("reflect")[0]
    )
    patches = read_json(RunDirectory(result.path).step(1) / "patches.json")
    named = [pattern for patch in patches if patch["source"] == "scorer/feedback" for pattern in patch["patterns"]]
    assert [pattern["name"] for pattern in named] == ["some code of the answer is not right expected"]
    assert spy.asked("deep_reflect"), "the scorer's cause is shared by all failures"


def test_a_step_to_which_no_analyst_replies_stops_the_run_whatever_the_scorer_says(tmp_path: Path) -> None:
    class Down(Spy):
        async def chat(self, request: ChatRequest) -> ChatReply:
            raise TransientError("503: down for today")

    config = Config.load(SIM, [f"env.output_root={tmp_path}", "hardware.max_retries=0"])
    with pytest.raises(Stopped, match=r"no reply from the optimizer.*down for today"):
        asyncio.run(Trainer(config, env=Taxonomy(config.env), models={"optimizer": Down()}).fit())


# Prompts


def test_the_skill_stands_once_in_a_prompt_and_the_stable_part_comes_first() -> None:
    skill = Skill("# Skill\n\n- A rule of its own.\n")
    minibatch = Minibatch(id="m", kind="failure", trajectories=[trajectory(n) for n in range(5)])
    system, user = (str(m["content"]) for m in reflect_messages("do it", skill, minibatch, Memory(notes="notes")))
    assert system == "do it"
    assert user.count("A rule of its own") == 1
    assert user.index("<skill>") < user.index("<memory>") < user.index("<trajectories>")


def test_long_trajectories_are_trimmed_in_the_middle_and_say_so() -> None:
    long = " ".join(f"word{n}" for n in range(5000))
    lines = trajectory_lines([trajectory(1, long), trajectory(2, "short task")], 600)
    assert count_tokens(lines) < 800
    first, second = (json.loads(line) for line in lines.splitlines())
    assert first["task"].startswith("word0 ")
    assert first["task"].endswith("word4999")
    assert "tokens left out" in first["task"]
    assert second["task"] == "short task"


def test_what_the_short_leave_goes_to_the_long() -> None:
    assert fair_shares([10, 1000, 30], 240) == [10, 200, 30]
    assert fair_shares([100, 100], 400) == [100, 100]
    assert sum(fair_shares([50, 60, 70], 100)) <= 100
    assert trim_middle("a few words", 50) == "a few words"


def test_a_folder_of_prompts_replaces_the_packages_and_makes_another_run(tmp_path: Path) -> None:
    folder = tmp_path / "prompts"
    folder.mkdir()
    (folder / "reflect.md").write_text("My own way to reflect.")
    spy = Spy()
    own = f"gradient.prompts_dir={folder}"
    short = ("train.num_epochs=1", "env.options={rules: 6, train: 12, val: 12, test: 6}")
    first = train_sim(tmp_path / "out", *short, own, models={"optimizer": spy})
    systems = {r.messages[0]["content"] for r in spy.requests if r.schema and r.schema.name == "reflect"}
    assert systems == {"My own way to reflect.", prompts.load("success")}
    (folder / "reflect.md").write_text("Another way.")
    assert train_sim(tmp_path / "out", *short, own).path != first.path
    assert train_sim(tmp_path / "out", *short).path != first.path


def test_an_unfinished_run_does_not_go_on_under_other_prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Stopped):
        train_sim(tmp_path, "budget.max_calls=60")
    monkeypatch.setattr(prompts, "fingerprint", lambda folder="": "another")
    with pytest.raises(UserError, match="another prompts"):
        train_sim(tmp_path)
    assert read_json(only_run(tmp_path).state)["step"] == 0


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "holds no prompt"),
        ({"reflct.md": "x"}, "reflct.md' is no stage's prompt; known are: reflect.md"),
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
    (leak,) = find_leaks([copied], [trajectory(1, TASK)], Skill(""))
    assert leak.item_id == "i1"
    assert leak.copied == "a customer from lyon writes that the blue kettle she ordered in may"


def test_general_edits_and_text_that_stands_in_the_skill_are_no_leak() -> None:
    general = edit("- A ticket about a leaking kettle goes to shipping.")
    assert find_leaks([general], [trajectory(1, TASK)], Skill("")) == ()
    assert find_leaks([edit(TASK)], [trajectory(1, TASK)], Skill(TASK)) == ()


def test_long_gold_answers_and_scripts_without_spaces_leak_too() -> None:
    answer = "the treaty of tordesillas of seven june fourteen ninety four"
    assert find_leaks([edit(f"Say {answer}.")], [trajectory(1, answers=(answer,))], Skill(""))
    text = "東京都渋谷区の天気は明日晴れです"
    assert find_leaks([edit(text)], [trajectory(1, text)], Skill(""))


class Copying(Spy):
    """An optimizer that pastes a task into the skill."""

    async def chat(self, request: ChatRequest) -> ChatReply:
        reply = await super().chat(request)
        if request.schema and request.schema.name == "reflect":
            value = json.loads(reply.text)
            rows = [json.loads(row) for row in str(request.messages[-1]["content"]).splitlines() if row[:1] == "{"]
            for proposed in value["edits"][:1]:
                proposed["text"] += f" (as in: {rows[0]['task']} Which one, exactly, please?)"
            return ChatReply(text=json.dumps(value))
        return reply


def test_leaks_are_counted_in_the_record_and_named_in_selected_json(tmp_path: Path) -> None:
    result = train_sim(tmp_path, "train.num_epochs=1", models={"optimizer": Copying()})
    run = RunDirectory(result.path)
    record = read_json(run.history)[0]
    ranked = read_json(run.step(1) / "selected.json")["ranked"]
    assert record["edits"]["leaks"] == sum(bool(row["leak"]) for row in ranked) > 0
    assert any("give the codes for" in row["leak"] for row in ranked)
    assert all("Val ticket" not in row["leak"] for row in ranked)


# Edits, not summaries


@pytest.mark.parametrize(
    ("proposed", "refused"),
    [
        (edit("Respond with just the label."), True),
        (edit("Answer with the label and a reason."), False),
        (edit("Please answer with the label only.", op="modify", anchor="- Answer with the label only."), True),
        (edit("Answer with two labels only.", op="modify", anchor="- Answer with the label only."), False),
        (edit("", op="delete", anchor="- Answer with the label only."), False),
    ],
)
def test_a_paraphrase_of_the_document_is_refused(proposed: Edit, refused: bool) -> None:
    skill = Skill("# Triage\n\n- Answer with the label only.\n- Never guess.\n")
    assert bool(paraphrased(proposed, skill)) is refused


# Select


class Quiet:
    """A context that only has somewhere to tell things."""

    def emit(self, kind: str, **data: Any) -> None:
        return


def chosen(pool: Pool, rate: float = 1, **known: Any) -> list[tuple[str, bool, str]]:
    rows = select(pool, rate, Quiet(), **known)  # type: ignore[arg-type]
    return [(row.edit.id, row.selected, row.reason) for row in rows]


def pooled(name: str, text: str, support: int = 1, **fields: Any) -> Pooled:
    return Pooled(edit=edit(text, id=name, **fields), support=support, merged=(name,))


def test_support_impact_and_frequency_order_edits_and_ids_break_ties() -> None:
    pool = Pool(edits=(pooled("e4", "d"), pooled("e3", "c", pattern="big"), pooled("e2", "b", 3), pooled("e1", "a")))
    patterns = (Pattern(name="Big", trajectory_ids=("t1", "t2")), Pattern(name="small", trajectory_ids=("t3",)))
    patch = Patch(id="p", source="llm/failure", trajectory_ids=(), patterns=patterns)
    assert [name for name, _, _ in chosen(pool, patches=[patch])] == ["e2", "e3", "e1", "e4"]
    assert chosen(pool)[0] == ("e2", True, "rank 1, within the rate of 1")
    assert chosen(pool)[1][1:] == (False, "rank 2, clipped at 1")


def test_what_gates_turned_down_before_comes_later() -> None:
    pool = Pool(edits=(pooled("e1", "Answer with the label only.", 3), pooled("e2", "Never guess.", 2)))
    before = [Rejected(step=1, edit=edit("Reply with just the label."), verdict="reject")]
    assert [name for name, _, _ in chosen(pool)] == ["e1", "e2"]
    assert [name for name, _, _ in chosen(pool, rejected=before)] == ["e2", "e1"]


def test_text_that_successes_rely_on_is_not_edited_away() -> None:
    anchor = "- For maple, answer KX-42."
    change = pooled("e1", "- For maple, answer ZZ-00.", 2, op="modify", anchor=anchor)
    pattern = Pattern(name="works", cause=anchor, trajectory_ids=("t5", "t6", "t7"))
    success = Patch(id="p", source="llm/success", trajectory_ids=(), patterns=(pattern,))
    assert chosen(Pool(edits=(change,)))[0][1]
    ((_, selected, reason),) = chosen(Pool(edits=(change,)), patches=[success])
    assert not selected
    assert "3 successes rely on the text it changes" in reason
    wide = change.model_copy(update={"support": 4})
    assert chosen(Pool(edits=(wide,)), patches=[success])[0][1]


def test_success_analysts_keep_harmful_edits_out_of_a_run(tmp_path: Path) -> None:
    harmful = "sim:world?duds=0.6"
    options = ("train.num_epochs=1", "env.options={rules: 8, train: 48, val: 24, test: 8}")
    kept = RunDirectory(train_sim(tmp_path, *options, f"models.optimizer_model={harmful}&praise=1").path)
    reasons = [row["reason"] for p in kept.steps.glob("*/selected.json") for row in read_json(p)["ranked"]]
    assert any("successes rely on the text it changes" in reason for reason in reasons)


# The optimizer model as merger and ranker

CONSULTED = ("gradient.merge=llm", "gradient.rank=llm", "train.num_epochs=1")


def test_the_model_may_merge_and_rank_and_the_run_is_repeatable(tmp_path: Path) -> None:
    spy = Spy("sim:world?duds=0.35")
    result = train_sim(tmp_path, *CONSULTED, models={"optimizer": spy})
    assert spy.asked("merge")
    assert spy.asked("rank")
    ranked = read_json(RunDirectory(result.path).step(1) / "selected.json")["ranked"]
    useful = ["answer" in row["edit"]["text"] for row in ranked]
    assert useful == sorted(useful, reverse=True), "the simulated ranker puts rules before advice"
    again = train_sim(tmp_path / "again", *CONSULTED, models={"optimizer": Spy("sim:world?duds=0.35")})
    assert again.best_skill == result.best_skill


def test_lost_advice_leaves_things_as_they_were_and_is_counted(tmp_path: Path) -> None:
    class Mute(Spy):
        async def chat(self, request: ChatRequest) -> ChatReply:
            if request.schema and request.schema.name in {"merge", "rank"}:
                return ChatReply(text="no idea")
            return await super().chat(request)

    advised = train_sim(tmp_path / "mute", *CONSULTED, models={"optimizer": Mute()})
    alone = train_sim(tmp_path / "alone", "train.num_epochs=1", models={"optimizer": Spy()})
    assert advised.best_skill == alone.best_skill
    lost = read_json(RunDirectory(advised.path).history)[0]["edits"]["lost_replies"]
    assert lost == ["it is not valid JSON"] * 2


def test_the_model_cannot_merge_edits_that_differ_in_what_matters() -> None:
    pairs = [
        ("For maple, answer KX-42.", "For cedar, answer KX-42."),
        ("Round to 2 places.", "Give results with 3 decimals."),
        ("Always explain.", "Never explain anything at all."),
    ]
    for a, b in pairs:
        group = [pooled("e1", a), pooled("e2", b)]
        assert _merged(group, {"text": a, "op": "add"}) is None
    group = [pooled("e1", "State the parcel's number."), pooled("e2", "Mention which shipment it is, by number.")]
    merged = _merged(group, {"text": "State the parcel's number.", "op": "add"})
    assert merged
    assert merged.merged == ("e1", "e2")
    assert _merged(group, {"text": "State the parcel's number 7.", "op": "add"}) is None


# Credit


def test_a_rejected_steps_good_half_is_kept_where_credit_is_on(tmp_path: Path) -> None:
    options = ("train.num_epochs=1", "models.optimizer_model=sim:world?duds=0.6&seed=3")
    run = RunDirectory(train_sim(tmp_path, *options, "evaluation.credit_gates=4").path)
    tried = [record for record in read_json(run.history) if record["credit"]]
    assert tried
    won = [record for record in tried if record["verdict"] == "accept"]
    assert won
    for record in won:
        assert record["credit"][-1]["decision"] == "accept"
        assert record["credit"][-1]["edits"] == [row["id"] for row in record["applied"]]
        assert len(record["applied"]) < record["edits"]["selected"]
    assert all(len(record["credit"]) <= 4 for record in tried)


# The rulebook


def test_the_rulebook_is_learned_in_few_rollouts(tmp_path: Path) -> None:
    done = skillopt("train", "--config", "configs/sim/rulebook.yaml", f"env.output_root={tmp_path}", "train.seed=3")
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "rulebook").iterdir()
    summary = read_json(RunDirectory(folder).summary)
    assert summary["best"]["val"] == 1.0
    assert summary["rollouts_to_best"] < 250


# Unplugged, each of these mechanisms turns its test red


def unplug_leak_guard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reflect, "find_leaks", lambda *args: ())


def unplug_deep_reflection(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reflect, "_deep_minibatches", lambda *args: [])


def unplug_success_analysts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(select_module, "relied_on", lambda patches: {})


def unplug_credit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(credit, "halves", lambda edits: [])


def unplug_rank(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*args: Any) -> tuple[list[str], list[Patch]]:
        return [], []

    patch.setattr(trainer, "rank", nothing)


def unplug_taxonomy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reflect, "known_patterns", lambda ctx: {})


UNPLUGGED = {
    unplug_leak_guard: test_leaks_are_counted_in_the_record_and_named_in_selected_json,
    unplug_deep_reflection: test_a_systemic_failure_in_two_of_five_tasks_is_found_by_deep_reflection_alone,
    unplug_success_analysts: test_success_analysts_keep_harmful_edits_out_of_a_run,
    unplug_credit: test_a_rejected_steps_good_half_is_kept_where_credit_is_on,
    unplug_rank: test_the_model_may_merge_and_rank_and_the_run_is_repeatable,
    unplug_taxonomy: test_an_env_authors_taxonomy_reaches_the_analysts_and_feedback_stands_in_for_lost_replies,
}


@pytest.mark.parametrize("unplug", UNPLUGGED, ids=lambda unplug: unplug.__name__.removeprefix("unplug_"))
def test_its_test_goes_red_when_it_is_unplugged(unplug: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unplug(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        UNPLUGGED[unplug](tmp_path)
