"""Runs a cell: SkillOpt's training, gepa, random search or a baseline, with real models or from a recording."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from skillopt.api import train_config
from skillopt.config import Config
from skillopt.errors import SkillOptError, UserError
from skillopt.measure.session import measuring_session
from skillopt.models import open_model
from skillopt.models.base import ChatModel
from skillopt.models.handoff import Box
from skillopt.record.costs import rollouts_paid
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json
from skillopt.record.journal import read_totals
from skillopt.skill import Skill
from skillopt.tasks.base import SPLITS, Trajectory
from skillopt.training.context import Context
from skillopt.training.initial import initial_of
from skillopt.training.optimizer_context import probe_rejected
from skillopt.training.rollout import measure
from skillopt.training.step_files import StepWork
from skillopt.version import METHOD
from skillopt.view.console import open_console, watching

from .cells import VARIANTS, Cell
from .mechanisms import MECHANISMS
from .recording import Known, Recording, recording_of
from .remembered import Remembered, recorded_replies
from .result import CellResult, Outcomes, tokens_of
from .sets import load


@dataclass(frozen=True, kw_only=True)
class Job:
    """A cell to run, with its folders and its recording."""

    cell: Cell
    out: Path
    """The folder of all cells."""
    data: Path | None = None
    box: Path | None = None
    """The folder for the letters of a handoff; if None, a folder in the cell's folder."""
    recording: Recording | None = None

    @property
    def folder(self) -> Path:
        return self.out / self.cell.name

    @property
    def letters(self) -> Path | None:
        asks = self.cell.optimizer == "handoff" and self.cell.method not in {"random", "baseline"}
        return (self.box or self.folder / "letters") if asks else None

    def config(self) -> Config:
        return load(self.cell, self.folder, data=self.data, box=self.letters)

    def models(self, *roles: str) -> dict[str, ChatModel]:
        """Return a cell's models: in a replay the recorded models, else the target, whose replies all cells share. If a
        mechanism is off, also a reader who gets only requests that the whole training of the same seed did not have."""
        if self.recording:
            return {role: self.recording.model(role) for role in roles}
        target = open_model("target", self.config())
        if target.deterministic:
            target = Remembered(target, self.out / "replies.sqlite", recorded_replies(self.cell))
        found: dict[str, ChatModel] = {"target": target}
        whole = recording_of(replace(self.cell, method="ours"))
        if self.letters and self.cell.method in MECHANISMS and whole.exists():
            recorded = Recording.read(whole).model("optimizer", exact=True)
            found["optimizer"] = Known(Box(self.letters, self.cell.name), recorded=recorded)
        return found


def run_cell(job: Job) -> CellResult:
    """Run a cell and write its result. A finished cell is only read, an unfinished cell continues, and a failed cell
    is tried again."""
    path = job.folder / "result.json"
    if path.exists() and not (known := CellResult.read(path)).error:
        return known
    started = time.monotonic()
    try:
        job.cell.check()
        result = asyncio.run(method_of(job.cell.method)(job))
        if not result.minutes:
            result = replace(result, minutes=round((time.monotonic() - started) / 60, 1))
    except (SkillOptError, OSError) as error:
        result = CellResult(cell=job.cell, error=str(error))
    result.write(path)
    return result


def method_of(name: str) -> Callable[[Job], Coroutine[Any, Any, CellResult]]:
    from .rivals import gepa, random_search

    known = {**dict.fromkeys(VARIANTS, ours), "gepa": gepa, "random": random_search, "baseline": baseline}
    if name not in known:
        raise UserError(f"method '{name}' cannot be run by this version; known are: {', '.join(known)}")
    return known[name]


async def ours(job: Job) -> CellResult:
    off = VARIANTS[job.cell.method]
    roles = ("target",) if job.cell.optimizer == "none" else ("target", "optimizer")
    with _as_recorded(job.recording), off.applied(job.config()) as config, watching(open_console()) as listener:
        models = job.models(*roles)
        listeners = [] if job.recording else [listener]  # a replay shows no progress
        try:
            found = await train_config(config, listeners=listeners, models=models, parts=off.parts(config))
        finally:
            for model in models.values():
                await model.close()
    result = of_run(job.cell, found.path)
    return await _without_gate(job, result, found.path) if off.gate else result


@contextmanager
def _as_recorded(recording: Recording | None) -> Iterator[None]:
    """For an old recording, switch off the newer mechanisms, which would ask the target for replies that it lacks."""
    with ExitStack() as stack:
        method = int(recording.head["method"]) if recording else int(METHOD)
        if method < 5:
            for name in ("no-leave-out", "no-carry", "no-changed-first"):
                stack.enter_context(MECHANISMS[name].applied(Config()))
        if method < 8:
            stack.enter_context(mock.patch("skillopt.training.gates.minimal.MORE_TASKS", 0))
            stack.enter_context(mock.patch("skillopt.training.optimizer_context.MOST_PROBED_PASSES", 0))
        if method < 7:
            stack.enter_context(mock.patch("skillopt.training.trainer.probe_rejected", _probe_before_the_last_step))
        yield


async def _probe_before_the_last_step(work: StepWork, ctx: Context) -> list[Trajectory]:
    return await probe_rejected(work, ctx) if ctx.step < ctx.steps else []


async def _without_gate(job: Job, result: CellResult, path: Path) -> CellResult:
    """Return the result of a training without a gate. Nothing was measured during it, so the last skill is tested, and
    there is no validation score."""
    last = Skill(max((path / "skills").glob("skill_v*.md")).read_text(encoding="utf-8"))
    async with measuring_session(job.config(), job.folder / "measured", models=job.models("target")) as session:
        test = {**result.test, "best": await tested(last, "test", session.ctx)}
    return replace(result, test=test, skill=last.shown.text, val=[], val_best=None, curve=[])


def of_run(cell: Cell, path: Path) -> CellResult:
    """Return the figures of a finished training, from its folder."""
    run = RunDirectory(path)
    summary, history = read_json(run.summary), read_json(run.history)
    if summary["status"] != "finished":
        raise UserError(f"{path}: the run is not finished; run the same command again to continue it")
    test = {which: outcomes(path / "evaluations" / f"test_{which}.json") for which in ("initial", "best", "no_skill")}
    measured = sum(bool(found) for found in test.values())
    if summary["best"]["version"] == 0 or not test["best"]:
        test["best"] = test["initial"]
    val = outcomes(path / "evaluations" / "val_initial.json")
    paid = rollouts_paid(read_totals(run.journal)) - measured * len(test["initial"])
    curve, best = [(len(val), summary["initial"]["val"])], summary["initial"]["val"]
    for row in history:
        so_far = row["telemetry"]["paid_so_far"]["target"]
        best = max(best, row["val_after"] or 0.0) if row["verdict"] == "accept" else best
        curve.append((min(paid, so_far.get("rollouts", so_far["calls"])), best))
    tokens = summary["tokens"]
    return CellResult(
        cell=cell,
        test={which: found for which, found in test.items() if found},
        val_initial=summary["initial"]["val"],
        val_best=summary["best"]["val"],
        val=[row["val_after"] for row in history if row["verdict"] != "skipped"],
        curve=curve,
        rollouts=paid,
        requests=summary["calls"]["optimizer"],
        tokens={role: tokens[role]["prompt"] + tokens[role]["completion"] for role in ("target", "optimizer")},
        minutes=round(summary["seconds"] / 60, 1),
        skill=run.read_best().text,
        items={"val": len(val), "test": len(test["initial"])},
    )


def outcomes(path: Path) -> Outcomes:
    """Return the hard scores from a measurement in a run's folder; empty if there is no measurement."""
    items = read_json(path)["items"] if path.exists() else {}
    return {item: scores["hard"] for item, scores in items.items()}


async def baseline(job: Job) -> CellResult:
    """Measure the test items without a skill and with the initial skill."""
    config = job.config()
    async with measuring_session(config, job.folder / "measured", models=job.models("target")) as session:
        skills = {"no_skill": Skill(""), "initial": initial_of(config)}
        test = {which: await tested(skill, "test", session.ctx) for which, skill in skills.items()}
        return CellResult(
            cell=job.cell, test=test, tokens={"target": tokens_of(session.paid(), "target")}, items=sizes(session.ctx)
        )


async def tested(skill: Skill, split: str, ctx: Context) -> Outcomes:
    """Measure a skill on a split, and return each item's hard score."""
    found = await measure(skill, ctx.env.items(split), ctx, tag=f"results-{split}", stage="evaluate")
    return hard(found.trajectories)


def hard(trajectories: list[Trajectory]) -> Outcomes:
    return {trajectory.item_id: float(trajectory.score.hard) for trajectory in trajectories}


def sizes(ctx: Context) -> dict[str, int]:
    return {split: len(ctx.env.items(split)) for split in SPLITS}
