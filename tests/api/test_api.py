"""The Python API: what the command line does, in code, with parts of one's own."""

from __future__ import annotations

import asyncio
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import skillopt
from skillopt import events
from skillopt.training import heartbeat as pulse
from skillopt.training.gates import Verdict, strict_gate
from skillopt.training.rollout import measure
from support import SIM, Spy
from support import skillopt as command
from support.api import TASKS, small


def test_ten_lines_train_a_skill_on_a_list_of_dicts(tmp_path: Path) -> None:
    result = skillopt.train(
        tasks=TASKS, target_model="sim:world", optimizer_model="sim:world", batch_size=12, output_root=str(tmp_path)
    )
    assert result.scores == {"initial_val": 0, "best_val": 1, "initial_test": 0, "best_test": 1}
    assert "- For maple, answer " in result.best_skill.text
    assert [record["step"] for record in result.history] == [1, 2], "then all validation tasks are right"
    assert result.summary["stop_reason"] == "all 12 validation tasks are right"
    assert (result.path / "report.html").exists()


def test_the_same_call_again_goes_on_and_asks_nothing(tmp_path: Path) -> None:
    first = skillopt.train(**small(tmp_path))
    seen: list[events.Event] = []
    again = skillopt.train(**small(tmp_path, callbacks=[seen.append]))
    assert again.path == first.path
    (started,) = [event for event in seen if isinstance(event, events.RunStarted)]
    assert started.resumed
    assert started.done == started.steps


def test_commands_work_on_a_run_that_code_began(tmp_path: Path) -> None:
    result = skillopt.train(**small(tmp_path))
    run = str(result.path / "config.yaml")
    done = command("eval", "--config", run, "--skill", str(result.path / "best_skill.md"), "--split", "val")
    assert done.returncode == 0, done.stderr
    assert f"hard {result.scores['best_val']:.2f}" in done.stdout


@pytest.mark.parametrize("config", ["path", "dict", "config"])
def test_a_config_may_be_a_file_a_dict_or_a_config_and_keywords_stand_above_it(config: str, tmp_path: Path) -> None:
    loaded = skillopt.Config.load(SIM)
    given: Any = {"path": SIM, "dict": loaded.model_dump(), "config": loaded}[config]
    trainer = skillopt.Trainer(given, num_epochs=1, budget={"max_calls": 9}, output_root=str(tmp_path))
    assert trainer.config.train.num_epochs == 1
    assert trainer.config.budget.max_calls == 9
    assert trainer.config.env.options == loaded.env.options
    with pytest.raises(skillopt.Stopped, match=r"budget\.max_calls"):
        trainer.fit()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"epochs": 3}, "epochs: is not a config key"),
        ({"max_calls": "many"}, "max_calls"),
        ({"train": 3}, "train: is a section"),
        ({"use_gate": False}, "a run without a gate"),
        ({"tasks": TASKS[:3]}, "3 different tasks are too few"),
        ({"tasks": [{"question": "Why?"}] * 9}, "needs at least one answer"),
        ({"tasks": ["Why?"] * 9}, "must be an object"),
        ({"tasks": {"train": TASKS, "val": []}}, "needs the splits 'train', 'val' and 'test'"),
        ({"analysts": ["oracle"]}, "gradient.analysts: unknown 'oracle'"),
        ({"analysts": [3]}, "must be a function"),
    ],
)
def test_wrong_arguments_are_refused_with_the_place_and_the_fix(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(skillopt.UserError, match=message.replace("(", r"\(")):
        skillopt.Trainer(**keys)


def test_a_notebook_trains_while_its_own_loop_runs(tmp_path: Path) -> None:
    ticks = 0

    async def notebook() -> tuple[skillopt.Result, skillopt.Result]:
        nonlocal ticks
        blocking = skillopt.train(**small(tmp_path / "a"))
        task = asyncio.create_task(skillopt.train_async(**small(tmp_path / "b")))
        while not task.done():
            ticks += 1
            await asyncio.sleep(0)
        return blocking, await task

    blocking, awaited = asyncio.run(notebook())
    assert blocking.best_skill == awaited.best_skill
    assert ticks > 1


def test_callbacks_get_typed_events_and_may_stop_the_run(tmp_path: Path) -> None:
    trainer = skillopt.Trainer(**small(tmp_path))
    told: list[events.GateDecided] = []

    @trainer.on(events.GateDecided)
    def decided(event: events.GateDecided) -> None:
        told.append(event)
        trainer.interrupt()

    with pytest.raises(skillopt.Stopped, match="interrupted"):
        trainer.fit()
    assert [(event.step, event.decision, event.before) for event in told] == [(1, "accept", 0.0)]
    trainer = skillopt.Trainer(**small(tmp_path))
    trainer.on(events.StepFinished, told.append)  # type: ignore[arg-type]
    result = trainer.fit()
    assert result.summary["status"] == "finished"
    assert [event.step for event in told] == [1, 2]


def test_a_callback_that_raises_is_reported_once_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pulse, "SECONDS", 0.01)
    kinds = ("pulse", "progress", "gate_decided", "step_finished")
    seen: list[str] = []

    def faulty_at(kind: str) -> Callable[[events.Event], None]:
        def faulty(event: events.Event) -> None:
            if event.kind == kind:
                raise ValueError(f"a mistake at {event.kind}")

        return faulty

    class Slow(Spy):
        async def chat(self, request: skillopt.ChatRequest) -> skillopt.ChatReply:
            await asyncio.sleep(0.03)
            return await super().chat(request)

    trainer = skillopt.Trainer(
        **small(tmp_path, models={"target": Slow()}), callbacks=[faulty_at(kind) for kind in kinds]
    )
    trainer.on(events.Event, lambda event: seen.append(event.kind))
    try:
        result = trainer.fit()
    except ValueError as error:
        pytest.fail(f"the training ended: {error}")
    assert result.summary["status"] == "finished"
    assert min(seen.count(kind) for kind in kinds) >= 2, "the other callbacks and the heartbeat go on"
    said = capsys.readouterr().err
    assert said.count("callback 'faulty' failed") == len(kinds)
    assert [said.count(f"ValueError: a mistake at {kind}") for kind in kinds] == [1] * len(kinds)


def test_every_event_of_a_run_has_its_type(tmp_path: Path) -> None:
    seen: list[events.Event] = []
    skillopt.train(**small(tmp_path, num_epochs=2, callbacks=[seen.append]))
    assert {type(event).__name__ for event in seen} <= set(events.__all__)
    steps = [event.record.step for event in seen if isinstance(event, events.StepFinished)]
    assert steps == sorted(set(steps))
    (end,) = [event.summary.status for event in seen if isinstance(event, events.RunFinished)]
    assert end == "finished"
    assert {"run_started", "progress", "gate_decided", "run_finished"} <= {event.kind for event in seen}


def by_hand(skill: skillopt.Skill, trajectories: Sequence[skillopt.Trajectory]) -> list[dict[str, Any]]:
    """An analyst that copies what would have been right, one rule a failure; and one edit that cites nothing."""
    edits = [
        {
            "op": "add",
            "section": "Rules",
            "text": f"- For {t.input.rsplit(' ', 1)[-1].strip('.')}, answer {t.answers[0]}.",
            "trajectory_ids": [t.id],
        }
        for t in trajectories
        if t.score.hard < 1
    ]
    return [*edits, {"op": "add", "section": "Rules", "text": "- Trust me."}]


def test_a_plain_function_is_an_analyst_and_needs_no_optimizer(tmp_path: Path) -> None:
    result = skillopt.train(**small(tmp_path, analysts=[by_hand], use_meta_skill=False, learning_rate=12))
    assert result.scores["best_test"] == 1
    assert result.summary["calls"]["optimizer"] == 0
    assert "Trust me" not in result.best_skill.text
    log = (result.path / "patch_log.jsonl").read_text()
    assert "by_hand/batch" in log


def wrong_op(skill: skillopt.Skill, trajectories: Sequence[skillopt.Trajectory]) -> Iterator[dict[str, Any]]:
    yield {"op": "append", "text": "Be kind.", "trajectory_ids": [trajectories[0].id]}


def test_a_mistake_in_the_edits_of_a_function_ends_the_run_and_is_named(tmp_path: Path) -> None:
    with pytest.raises(skillopt.UserError, match=r"analyst 'wrong_op': op: Input should be 'add'"):
        skillopt.train(**small(tmp_path, analysts=[wrong_op], use_meta_skill=False))


def no_gain_at_all(before: Mapping[str, float], after: Mapping[str, float]) -> bool | str:
    assert before.keys() == after.keys()
    return "the house is not ready" if sum(after.values()) > sum(before.values()) else True


def test_a_gate_of_ones_own_turns_down_what_improves_and_says_why(tmp_path: Path) -> None:
    result = skillopt.train(**small(tmp_path, vetoes=[no_gain_at_all]))
    assert result.summary["steps"]["accepted"] == 0
    assert result.summary["steps"]["rejected"] == 2
    assert {record["evidence"]["reason"] for record in result.history} == {"the house is not ready"}


def test_a_gate_of_ones_own_lets_nothing_through_that_does_not_improve(tmp_path: Path) -> None:
    duds = {"optimizer_model": "sim:world?duds=1"}
    result = skillopt.train(**small(tmp_path, vetoes=[lambda before, after: True], **duds))
    assert result.summary["steps"]["accepted"] == 0


async def always(skill: Any, candidate: Any, current: Any, ctx: Any, *, tag: str = "", rule: str = "strict") -> Verdict:
    """Takes every candidate, at what it scores."""
    if not candidate.applied:
        return await strict_gate(skill, candidate, current, ctx)
    items = [item for item in ctx.env.items("val") if item.id in current]
    found = await measure(candidate.skill, items, ctx, tag=tag or f"gate-{ctx.step:04d}", stage="gate")
    before = sum(current.values()) / len(current)
    score = {"before": before, "after": found.score, "at_most": found.score}
    counts = {"items": len(items), "measured": len(items)}
    return Verdict(
        decision="accept", gate="always", rule="strict", metric="hard", known_scores=found.values, **score, **counts
    )


def test_a_gate_that_is_passed_in_decides_and_its_source_is_part_of_the_run(tmp_path: Path) -> None:
    duds = {"optimizer_model": "sim:world?duds=1"}
    result = skillopt.train(**small(tmp_path, gate=always, **duds))
    assert result.summary["steps"]["accepted"] == result.summary["steps"]["run"] == 2
    assert {record["evidence"]["gate"] for record in result.history} == {"always"}
    assert skillopt.train(**small(tmp_path, **duds)).path != result.path


def test_a_veto_comes_on_top_of_a_gate_that_is_passed_in(tmp_path: Path) -> None:
    duds = {"optimizer_model": "sim:world?duds=1"}
    result = skillopt.train(**small(tmp_path, gate=always, vetoes=[lambda before, after: False], **duds))
    assert result.summary["steps"]["accepted"] == 0
    assert {record["evidence"]["reason"] for record in result.history} == {"rejected by '<lambda>'"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda verdict: True, "returned bool; a gate must return a skillopt.Verdict"),
        (lambda verdict: verdict.model_copy(update={"after": None}), "accepted a candidate without a score"),
        (
            lambda verdict: verdict.model_copy(update={"known_scores": {}}),
            r"accepted a candidate without the scores of 12 items",
        ),
    ],
)
def test_a_gate_whose_verdict_cannot_be_relied_on_ends_the_run_in_words(
    change: Any, message: str, tmp_path: Path
) -> None:
    async def careless(*arguments: Any, **keys: Any) -> Any:
        return change(await always(*arguments, **keys))

    with pytest.raises(skillopt.UserError, match=f"gate 'careless': {message}"):
        skillopt.train(**small(tmp_path, gate=careless))


def test_a_schedule_of_ones_own_sets_the_rates(tmp_path: Path) -> None:
    result = skillopt.train(**small(tmp_path, schedule=lambda progress: 0.5 if progress < 1 else 0.0, learning_rate=5))
    assert [record["learning_rate"]["scheduled"] for record in result.history] == [3, 1]
    with pytest.raises(skillopt.UserError, match="must return a number from 0 to 1"):
        skillopt.train(**small(tmp_path, schedule=lambda progress: 2.0))
    with pytest.raises(skillopt.UserError, match="cannot change"):
        skillopt.train(**small(tmp_path, schedule=lambda progress: 1.0, reject_decay=1))


def generous(item: Any, output: str) -> tuple[float, str]:
    wanted = item.answers[0]
    return (1.0, "") if wanted in output else (0.25, f'expected "{wanted}", as the house says')


async def later(item: Any, output: str) -> bool:
    await asyncio.sleep(0)
    return bool(item["answers"][0] in output)


def test_a_scorer_of_ones_own_gives_soft_scores_and_its_feedback_reaches_the_trajectories(tmp_path: Path) -> None:
    result = skillopt.train(**small(tmp_path, scorer=generous, metric="soft"))
    assert result.scores["initial_val"] == 0.25
    assert (result.scores["best_val"] or 0) > 0.5
    assert "as the house says" in (result.path / "steps/step_0001/trajectories.jsonl").read_text()


def test_another_scorer_makes_another_run(tmp_path: Path) -> None:
    a = skillopt.train(**small(tmp_path, scorer=generous))
    b = skillopt.train(**small(tmp_path, scorer=lambda item, output: item.answers[0] in output))
    c = skillopt.train(**small(tmp_path, scorer=generous))
    assert a.path == c.path != b.path
    assert skillopt.train(**small(tmp_path, scorer=later)).scores == b.scores


@pytest.mark.parametrize("wrong", [lambda item, output: 3, lambda item, output: 1 / 0])
def test_a_scorer_that_fails_is_named_with_the_task(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(skillopt.SkillOptError, match=r"scorer .*task '[0-9a-f]{16}'"):
        skillopt.train(**small(tmp_path, scorer=wrong))


def test_evaluate_compare_and_replicate_give_what_the_commands_write(tmp_path: Path) -> None:
    result = skillopt.train(**small(tmp_path))
    common = {k: v for k, v in small(tmp_path).items() if k != "num_epochs"}
    measured = skillopt.evaluate(None, result.best_skill, split="val", **common)
    assert measured["score"] == result.scores["best_val"]
    compared = skillopt.compare(None, "initial", "best", num_epochs=1, **common)
    assert compared["difference"] == pytest.approx(result.scores["best_val"])
    seeds = skillopt.replicate(seeds=2, **small(tmp_path))
    assert [row["seed"] for row in seeds["rows"]] == [42, 43]
    assert seeds["improved"]["test"] == 1
    assert seeds["rows"][0]["run"] == str(result.path)


def test_a_list_of_tasks_is_split_the_same_under_every_seed(tmp_path: Path) -> None:
    trainers = [skillopt.Trainer(**small(tmp_path, tasks=TASKS, seed=seed)) for seed in (1, 2)]
    sets = [[item.id for item in trainer.env.items("test")] for trainer in trainers if trainer.env]
    assert sets[0] == sets[1]
    assert 10 <= len(sets[0]) <= 14


class Diary:
    """A tracker in a few lines."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def begin(self, about: Any) -> str:
        self.told.append(about.name)
        return ""

    def step(self, step: int, scalars: Mapping[str, float], began: float, ended: float) -> None:
        self.told.append((step, scalars["score/validation"]))

    def skill(self, version: int, step: int, text: str) -> None:
        self.told.append(version)

    def finish(self, status: str, figures: Mapping[str, float], files: Sequence[Path]) -> None:
        self.told.append((status, figures["final/test"]))

    def close(self) -> None:
        self.told.append("closed")


def test_a_tracker_of_ones_own_is_told_the_run(tmp_path: Path) -> None:
    diary = Diary()
    result = skillopt.train(**small(tmp_path, trackers=[diary]))
    assert diary.told[0] == f"tasks/{result.path.name}"
    assert [row[0] for row in diary.told if isinstance(row, tuple)] == [1, 2, "finished"]
    assert diary.told[-2:] == [("finished", result.scores["best_test"]), "closed"]


PLUGIN = """
def always(skill, trajectories):
    return [{"op": "add", "section": "Rules", "text": "- For amber, answer NX-42.",
             "trajectory_ids": [t.id for t in trajectories]}]
def stern(before, after): return "never"
async def idle(skill, candidate, current, ctx, *, tag="", rule="strict"):
    from skillopt.training.gates import Verdict
    return Verdict(decision="reject", gate="idle", rule=rule, metric="hard", before=0, after=None, at_most=1, items=12,
                   measured=0, reason="not today")
def halves(progress): return 0.5
def lenient(item, output): return 1.0 if item.answers[0] in output else 0.5
"""
ENTRY_POINTS = """[skillopt.analysts]
always = house:always
[skillopt.gates]
stern = house:stern
idle = house:idle
[skillopt.schedules]
halves = house:halves
[skillopt.scorers]
lenient = house:lenient
"""


def test_parts_that_a_package_registers_are_used_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    info = site / "house-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "house.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: house\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    with pytest.raises(skillopt.UserError, match="lr_scheduler"):
        skillopt.Trainer(**small(tmp_path, lr_scheduler="halves"))
    with pytest.raises(skillopt.UserError, match=r"evaluation\.gate.*one of: paired, strict"):
        skillopt.Trainer(**small(tmp_path, evaluation={"gate": "idle"}))
    monkeypatch.syspath_prepend(str(site))
    keys: dict[str, Any] = {"lr_scheduler": "halves", "analysts": ["always"]}
    result = skillopt.train(
        **small(tmp_path, **keys, evaluation={"vetoes": ["stern"]}, learning_rate=5, metric="soft", scoring="lenient")
    )
    first = result.history[0]
    assert first["learning_rate"]["scheduled"] == 3
    assert first["evidence"]["reason"] == "never"
    assert result.scores["initial_val"] == 0.5
    assert "NX-42" in (result.path / "steps/step_0001/candidate_skill.md").read_text()
    decided = skillopt.train(**small(tmp_path, evaluation={"gate": "idle"}))
    assert {record["evidence"]["reason"] for record in decided.history} == {"not today"}


def test_the_public_names_are_exactly_those_of_the_package(tmp_path: Path) -> None:
    names = {name for name, value in vars(skillopt).items() if not isinstance(value, types.ModuleType)}
    assert {name for name in names if not name.startswith("_")} <= set(skillopt.__all__) == set(dir(skillopt))
    undocumented = [n for n in skillopt.__all__ if n != "__version__" and not inspect.getdoc(getattr(skillopt, n))]
    assert undocumented == []


@pytest.mark.slow
def test_the_types_ship_and_a_users_program_passes_a_strict_check(tmp_path: Path) -> None:
    assert (Path(skillopt.__file__).parent / "py.typed").exists()
    program = tmp_path / "program.py"
    program.write_text(
        "import skillopt\n"
        "trainer = skillopt.Trainer('c.yaml', scorer=lambda item, output: output == item.answers[0])\n"
        "@trainer.on(skillopt.events.GateDecided)\n"
        "def tell(event: skillopt.events.GateDecided) -> None:\n    print(event.decision.upper())\n"
        "score: float | None = trainer.fit().scores['best_test']\n"
        "edit: skillopt.Edit = trainer.fit().best_skill\n"
    )
    from mypy import api

    source = str(Path(skillopt.__file__).parent.parent)
    told, _, code = api.run(["--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "c"), str(program)])
    assert code == 1, source
    (line,) = told.splitlines()
    assert 'program.py:7: error: Incompatible types in assignment (expression has type "Skill"' in line
