"""The trainer. `fit` is the training loop as the picture in docs/architecture.md shows it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from skillopt.config import Config
from skillopt.errors import DiskError, SkillOptError, Stopped, StopReason, disk_trouble, is_disk_trouble
from skillopt.models.base import ChatModel
from skillopt.record.base import ByRole
from skillopt.record.costs import Paid, rollouts_paid, usage
from skillopt.record.damage import history_of, seal_files
from skillopt.record.directory import announce
from skillopt.record.events import (
    Advice,
    EpochFinished,
    EvaluationFinished,
    EvaluationStarted,
    GateDecided,
    Listener,
    RolloutStarted,
    RunFinished,
    RunStarted,
    RunStopped,
    SetAside,
    StepFinished,
    Stopping,
)
from skillopt.record.files import append_jsonl, read_bytes, write_atomic, write_json, write_jsonl
from skillopt.record.forecast import Plan, Preflight, with_real_figures
from skillopt.record.history import History, read_history
from skillopt.record.result import Result
from skillopt.record.run import Settings
from skillopt.record.state import State
from skillopt.record.step import Evaluation, LearningRate, StepRecord, StepTelemetry, TestSplitRead
from skillopt.record.summary import Summary
from skillopt.skill import Skill
from skillopt.tasks.base import SPLITS, Env, Item
from skillopt.training.batches import Step, plan_steps
from skillopt.training.context import Context
from skillopt.training.edits.aggregate import aggregate
from skillopt.training.edits.review import file_conflicts, review
from skillopt.training.edits.risk import held_back
from skillopt.training.edits.select import select
from skillopt.training.edits.update import candidates
from skillopt.training.epoch_end import end_epoch, look_ahead
from skillopt.training.final_scores import FinalScores, measure_finals
from skillopt.training.gates import GATES
from skillopt.training.gates.credit import credit
from skillopt.training.gates.screening import screen
from skillopt.training.heartbeat import heartbeat
from skillopt.training.initial import differences
from skillopt.training.optimizer_context import optimizer_context, probe_rejected, remember
from skillopt.training.parts import Parts, resolve
from skillopt.training.reflect import reflect
from skillopt.training.rollout import Measured, Rollouts, begin, begin_ahead, failed, measure
from skillopt.training.schedule import decayed_rate, scheduled_rate
from skillopt.training.session import Mode, Session, open_session, pins
from skillopt.training.smoke_test import smoke_test
from skillopt.training.step_files import StepWork, apply_verdict, step_record, write_step

MakePreflight = Callable[[Config, Env, Skill, Parts], Preflight]
"""Gives the plan of a run and advice about it; `preflight.doctor.preflight` is one."""

WithVerdict = Callable[[Summary, Sequence[StepRecord], Settings], Summary]
"""Gives a summary its sentence for people; `view.diagnosis.with_verdict` is one."""


class TrainingLoop:
    """Trains one skill. The same config again continues an unfinished run; mode `fresh` begins another."""

    def __init__(
        self,
        config: Config,
        *,
        env: Env | None = None,
        models: dict[str, ChatModel] | None = None,
        listeners: Sequence[Listener] = (),
        mode: Mode = "auto",
        parts: Parts | None = None,
        shared_journal: Path | None = None,
        read_test: bool = True,
        initial_skill: Skill | None = None,
        preflight: MakePreflight | None = None,
        with_verdict: WithVerdict | None = None,
    ) -> None:
        """`read_test` false leaves the test split sealed: the run stops before its end and can be finished later."""
        self.config = config
        self.listeners = list(listeners)
        self._mode = mode
        self._baseline: asyncio.Task[Measured] | None = None  # the initial skill's validation, while it is under way
        self._opening = open_session(
            config,
            env=env,
            models=models,
            listeners=self.listeners,
            mode=mode,
            parts=parts or resolve(config),
            shared_journal=shared_journal,
            initial_skill=initial_skill,
        )
        self._read_test = read_test
        self._make_preflight = preflight
        self._with_verdict = with_verdict
        self.started = False

    async def fit(self) -> Result:
        """Train to the end, from where the run stopped."""
        async with self._opened():
            await self._begin()
            for epoch, steps in enumerate(self.plan, 1):
                for step in self._left(steps):
                    ctx, skill, rates = self.base.at(epoch, step.number), self.skill, self._rates(step)
                    rollouts = self._rollouts(step, skill, ctx)
                    knowledge = optimizer_context(self.state, rates.used, ctx, step.items)
                    patches = await reflect(skill, rollouts, knowledge, ctx)
                    pool = await aggregate(patches, skill, knowledge, ctx)
                    reviewed = review(held_back(pool, skill, ctx), self.run, ctx.step, self.state.reviewed)
                    down = reviewed.turned_down
                    ranked = select(reviewed.pool, rates.used, skill, ctx, patches=patches, turned_down=down)
                    winner, screening = await screen(candidates(skill, ranked, ctx), await self._val(), ctx)
                    verdict = await self._gate(skill, winner.applied, self.state.val, self._expecting(step, ctx))
                    credited = await credit(skill, winner.applied, verdict, self.state.val, ctx, self._gate)
                    results = self._checked(await rollouts.all())
                    work = StepWork(step, skill, rates, results, patches, reviewed, ranked, screening, credited)
                    await self._commit(work, ctx)
                if self.state.epoch < epoch and not self._over():
                    await self._end_epoch(epoch)
            return await self._finish()

    def interrupt(self) -> None:
        """What Ctrl-C does: nothing new starts, what is in flight is paid for and kept."""
        if not self.started:
            raise KeyboardInterrupt
        self.session.switch.trip(Stopped(StopReason.BY_HAND))
        letters = len(self.base.optimizer.model.waiting)  # they stay open: no run waits for a reader
        in_flight = self.base.target.limiter.in_flight + self.base.optimizer.limiter.in_flight - letters
        self.base.emit(Stopping(in_flight=in_flight, letters=letters))

    # Opening and closing

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[None]:
        """Everything that the loop needs, closed again whatever happens; a stop leaves a state to continue from."""
        async with self._opening as session:
            self.session: Session = session
            self._parts, self._gate = session.parts, session.parts.gate
            self.plan = plan_steps(session.ctx.env.items("train"), self.config.train)
            self._steps = [step for steps in self.plan for step in steps]
            self.base = replace(session.ctx, steps=len(self._steps))
            self.run = session.ctx.run
            self._preflight = (
                self._make_preflight(self.config, session.ctx.env, session.initial_skill, self._parts)
                if self._make_preflight
                else Preflight(plan=Plan(steps=len(self._steps), epochs=len(self.plan)))
            )
            self.state = session.state or State(pins=pins(self.config))
            self.history = History(self.run.history)
            self.started = True
            self._earlier = self.state.telemetry.model_copy()
            try:
                async with heartbeat(self.base):
                    yield
            except SkillOptError as error:
                session.switch.trip(error)
                await self.base.background.settle()
                self._stop(error)
                raise
            except DiskError as error:
                if not is_disk_trouble(error):
                    self.base.background.cancel()
                    raise
                stopped = Stopped(disk_trouble(error))
                session.switch.trip(stopped)
                await self.base.background.settle()
                self._stop(stopped)
                raise stopped from error
            except BaseException:  # a second Ctrl-C, or a bug: wait for nothing
                self.base.background.cancel()
                raise
            await self.base.background.settle()

    async def _begin(self) -> None:
        """A new run measures its initial skill, zero-shot; another goes back to its last finished step."""
        config, state, run = self.config, self.state, self.run
        resumed = self.session.state is not None
        if resumed:  # before any event is sent: a listener may read the history
            run.roll_back(
                step=state.step, epoch=state.epoch, version=state.version, patch_log_size=state.patch_log_size
            )
            self.history.begin(history_of(run, state))
            run.write_best(run.read_skill(state.best.version))
        self.base.emit(
            RunStarted(
                path=str(run.root),
                resumed=resumed,
                finished=state.status == "finished",
                best_skill=str(run.best_package if run.trains_package else run.best_skill),
                differs=None if resumed or self._mode == "fresh" else differences(run, config),
                done=state.step,
                steps=self.base.steps,
                splits={split: len(self.base.env.items(split)) for split in SPLITS},
                target=self.base.target.model.name,
                optimizer=self.base.optimizer.model.name,
                workers=config.role("target").workers,
                epochs=config.train.num_epochs,
                learning_rate=config.optimizer.learning_rate,
                scheduler=self._parts.scheduler,
            )
        )
        announce(run.root, finished=state.status == "finished")
        if resumed:
            self.skill, self._epoch_start = (run.read_skill(n) for n in (state.current, state.epoch_versions[-1]))
            return
        self.skill = self._epoch_start = self.session.initial_skill
        self.base.emit(Advice(checks=tuple(self._preflight.advice)))
        run.write_skill(0, self.skill)
        run.write_best(self.skill)
        run.conflicts.parent.mkdir(exist_ok=True)
        write_atomic(run.conflicts, "")
        self.history.begin([])
        self._write_summary(FinalScores())  # a run that is cut short in its first step has costs, too
        await smoke_test(self.skill, self._batch(self._steps[0]), self.base.at(1, 1))
        self._baseline = self.base.background.start(self._evaluate("val", "initial", self.skill, low_priority=True))

    async def _val(self) -> dict[str, float]:
        """The current skill's validation scores; the initial skill's are measured during the first rollout."""
        if self._baseline:
            await self._baseline
            self._keep_baseline()
        return self.state.val

    def _keep_baseline(self) -> None:
        """From here on there is a run that can be resumed."""
        if self._baseline and self._baseline.done() and not self._baseline.exception():
            measured, self._baseline, state = self._baseline.result(), None, self.state
            state.val = measured.values
            state.initial_val = state.best.val = state.score = measured.score
            state.telemetry.rollouts_to_best = rollouts_paid(self.session.journal.totals())
            self._counted(self.base)
            self._save()

    def _stop(self, error: SkillOptError) -> None:
        """Keep the state of the last finished step; only record why the run ended."""
        self._keep_baseline()
        if self.state.status != "finished":
            begun = self.run.state.exists()  # if not, there is a bill, and no state to continue from
            self.state = State.read(self.run.state) if begun else self.state
            self.state.status, self.state.stop_reason = "stopped", str(error)
            with suppress(*DiskError):  # the disk may be what stopped it; the state before it is kept
                (self._write_state if begun else self._write_summary)(FinalScores())
        self.base.emit(RunStopped(reason=str(error)))

    # The parts of a step

    def _left(self, steps: list[Step]) -> Iterator[Step]:
        return (step for step in steps if step.number > self.state.step and not self._over())

    def _over(self) -> StopReason | None:
        """Why the steps that are left are not done: no gate accepts anything if every validation task is right."""
        if 0 < self.config.train.patience <= self.state.stale_steps:
            return StopReason.PATIENCE
        return StopReason.ALL_RIGHT if min(self.state.val.values(), default=0) >= 1 else None

    def _rates(self, step: Step) -> LearningRate:
        scheduled = scheduled_rate(step.number, self.base.steps, self.config.optimizer, self._parts.schedule)
        return LearningRate(scheduled=scheduled, used=decayed_rate(scheduled, self.state.decay, self.config.optimizer))

    def _rollouts(self, step: Step, skill: Skill, ctx: Context) -> Rollouts:
        """The step's batch, under way."""
        items = self._batch(step)
        ctx.emit(RolloutStarted(items=len(items), workers=self.config.role("target").workers))
        rollouts = begin(skill, items, ctx)
        if self._ends_epoch(step):
            look_ahead(self._epoch_start, skill, ctx)
        return rollouts

    def _batch(self, step: Step) -> list[Item]:
        return [item for item in step.items if item.id not in self.state.set_aside]

    def _ends_epoch(self, step: Step) -> bool:
        return step is self.plan[step.epoch - 1][-1]

    def _go_ahead(self, done: int, skill: Skill) -> None:
        """Begin the rollouts of the step after `done`, while files and notes are written."""
        if done < self.base.steps and not self._over():
            step = self._steps[done]
            begin_ahead(skill, self._batch(step), self.base.at(step.epoch, step.number))

    def _expecting(self, step: Step, ctx: Context) -> Context:
        """For the step's gate: the next rollouts begin as soon as it is certain which skill they are for. That is never
        certain if a gate or veto of the user decides."""
        if self._ends_epoch(step) or self._gate not in GATES.values():
            return ctx
        return replace(ctx, expect=lambda skill: self._go_ahead(step.number, skill))

    def _checked(self, results: list[Any]) -> list[Any]:
        if refused := {error.item_id: error.error for error in failed(results) if error.refused}:
            self.base.emit(SetAside(items=refused))
        self.state.set_aside = {**self.state.set_aside, **refused}
        return results

    async def _commit(self, work: StepWork, ctx: Context) -> None:
        """Save the step; the state is written last, and finishes it."""
        self.run.check_held()
        ctx.emit(GateDecided(**dict(work.verdict.brief())))
        state = self.state
        state.edits_proposed += work.pool.proposed + sum(len(patch.dropped) for patch in work.patches)
        apply_verdict(state, work.skill, work.credited, ctx)
        remember(state, work, await probe_rejected(work, ctx), ctx)
        state.step = work.step.number
        state.reviewed = {**state.reviewed, **{d.conflict: ctx.step for d in work.reviewed.used}}
        self.skill = work.candidate.skill if work.verdict.accepted else work.skill
        if not self._ends_epoch(work.step):  # where it does, the slow update may change the skill
            self._go_ahead(ctx.step, self.skill)
        telemetry = StepTelemetry(seconds=self._counted(ctx), paid_so_far=self._paid())
        record = step_record(work, state, self.config.evaluation.metric, telemetry)
        await asyncio.to_thread(write_step, self.run, work, record)
        file_conflicts(self.run, ctx.step, work.pool.conflicts)
        self.history.append(record)
        self._save()
        ctx.emit(StepFinished(record=record))

    async def _end_epoch(self, epoch: int) -> None:
        ctx = self.base.at(epoch, self.state.step)
        skills = self._epoch_start, self.skill
        self.skill, outcome = await end_epoch(self.state, *skills, ctx, self._gate, self._go_ahead)
        self._epoch_start = self.skill
        self.history.end_epoch(outcome)
        self._counted(ctx)
        self._save()
        ctx.emit(EpochFinished(outcome=outcome))

    def _paid(self) -> ByRole[Paid]:
        return usage(self.session.journal.totals(), self.session.budget.cost)

    def _counted(self, ctx: Context) -> dict[str, float]:
        """Seconds by stage since the last count, which go into the run's sum."""
        seconds, stages = dict(ctx.seconds), self.state.telemetry.stages
        for stage, taken in seconds.items():
            stages[stage] = stages.get(stage, 0.0) + taken
        ctx.seconds.clear()
        return seconds

    def _save(self) -> None:
        self.state.status, self.state.stop_reason = "running", ""
        self._write_state(FinalScores())

    # The end

    async def _evaluate(self, split: str, name: str, skill: Skill, *, low_priority: bool = False) -> Measured:
        """Measure a skill on a split, and leave the items' scores in the run."""
        whole = self.base.env.items(split)
        items = [item for item in whole if item.id not in self.state.set_aside]
        self.base.emit(EvaluationStarted(split=split, name=name, items=len(items)))
        ctx, gone = replace(self.base, low_priority=low_priority), len(whole) - len(items)
        stage = "baseline" if name == "no_skill" else "evaluate"
        measured = await measure(skill, items, ctx, tag=f"{split}-{name}", stage=stage, set_aside=gone)
        self.state.set_aside = {**self.state.set_aside, **measured.set_aside}
        scores = {t.item_id: t.score.numbers for t in measured.trajectories}
        report = Evaluation(skill_hash=skill.hash, score=measured.score, items=scores, set_aside=measured.set_aside)
        write_jsonl(self.run.evaluations / f"{split}_{name}.jsonl", measured.trajectories)
        write_json(self.run.evaluations / f"{split}_{name}.json", report)
        self.base.emit(EvaluationFinished(split=split, name=name, score=measured.score))
        return measured

    async def _finish(self) -> Result:
        """The test split is read here, once."""
        state = self.state
        best = self.run.read_skill(state.best.version)
        if not self._read_test and state.status != "finished":
            self.run.write_best(best)
            state.status, state.stop_reason = "stopped", StopReason.SEALED
            self._write_state(FinalScores())
        elif state.status != "finished":
            self.run.write_best(best)
            when, items = datetime.now(UTC).isoformat(), len(self.base.env.items("test"))
            finals = await measure_finals(state, self.base, self._evaluate)
            self._counted(self.base)
            scores = {name: finals.score(f"test_{name}") for name in ("initial", "best")}
            append_jsonl(self.run.test_reads, [TestSplitRead(who="train", when=when, items=items, scores=scores)])
            early = self._over() if state.step < self.base.steps else None
            state.status, state.stop_reason = "finished", early or ""
            self._write_state(finals)
        summary = Summary.model_validate_json(read_bytes(self.run.summary))
        self.base.emit(RunFinished(summary=summary))
        return Result(path=self.run.root, best_skill=best.shown, summary=summary)

    def _write_state(self, finals: FinalScores) -> None:
        """The summary, then the state, which makes it all count."""
        self.run.check_held()
        state = self.state
        self._write_summary(finals)
        if state.status != "stopped":  # a stop declares nothing finished
            state.replies = self.session.journal.sync()
            seal_files(self.run, state)
        state.write(self.run.state)

    def _write_summary(self, finals: FinalScores) -> None:
        telemetry = self.state.telemetry
        telemetry.seconds = self._earlier.seconds + time.monotonic() - self.session.started
        hits = self.base.target.from_journal + self.base.optimizer.from_journal
        telemetry.from_journal = self._earlier.from_journal + hits
        summary = finals.summary(self.state, self.base, self._paid())
        if self._with_verdict and summary.status != "running":  # the verdict needs the run's end
            summary = self._with_verdict(summary, read_history(self.run.history), self.config.flat())
        plan = with_real_figures(self._preflight.plan, summary)
        write_json(self.run.summary, summary.model_copy(update={"plan": plan}))
