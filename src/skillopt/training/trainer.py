"""The trainer. `TrainingLoop.fit` is the training loop that the picture in docs/architecture.md shows."""

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
from skillopt.config.sections import SCHEDULES
from skillopt.errors import BY_HAND, DiskError, SkillOptError, Stopped, disk_trouble, is_disk_trouble
from skillopt.models.base import ChatModel
from skillopt.record.base import ByRole
from skillopt.record.costs import Paid, rollouts_paid, usage
from skillopt.record.damage import history_of, seal_files, take_back
from skillopt.record.directory import announce
from skillopt.record.edits import Conflict
from skillopt.record.events import (
    Advice,
    EndedEarly,
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
from skillopt.tasks.failure_kinds import choices_of
from skillopt.training.batches import Step, plan_steps
from skillopt.training.context import Context
from skillopt.training.edits.aggregate import aggregate
from skillopt.training.edits.candidates import candidates
from skillopt.training.edits.carry import UNCONFIRMED, with_pending
from skillopt.training.edits.review import file_conflicts, review
from skillopt.training.edits.risk import held_back
from skillopt.training.edits.select import select
from skillopt.training.epoch_end import end_epoch, look_ahead
from skillopt.training.extension import first_phase, reopen, why_over
from skillopt.training.final_scores import FinalScores, measure_finals
from skillopt.training.gates import GATES
from skillopt.training.gates.credit import credit
from skillopt.training.gates.minimal import best_wording, try_minimal
from skillopt.training.heartbeat import heartbeat
from skillopt.training.initial import differences, given_notes
from skillopt.training.optimizer_context import optimizer_context, probe_rejected, remember
from skillopt.training.parts import Parts, resolve
from skillopt.training.reflect import reflect
from skillopt.training.rollout import Measured, Rollouts, begin, begin_ahead, failed, measure
from skillopt.training.schedule import decayed_rate, scheduled_rate
from skillopt.training.session import Mode, Session, open_session, pins, write_config
from skillopt.training.smoke_test import smoke_test
from skillopt.training.step_files import StepWork, apply_verdict, step_record, write_step

MakePreflight = Callable[[Config, Env, Skill, Parts], Preflight]
"""A function that returns the plan of a run, with advice; for example `preflight.doctor.preflight`."""

WithVerdict = Callable[[Summary, Sequence[StepRecord], Settings], Summary]
"""A function that adds a verdict (a sentence for people) to a summary; for example `view.diagnosis.with_verdict`."""


class TrainingLoop:
    """Trains one skill. If the config belongs to an unfinished run, this run continues; with the mode `fresh`, a new
    run starts."""

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
        initial_skill: Skill | None = None,
        preflight: MakePreflight | None = None,
        with_verdict: WithVerdict | None = None,
    ) -> None:
        self.config = config
        self.listeners = list(listeners)
        self._mode = mode
        self._baseline: asyncio.Task[Measured] | None = None  # measures the initial skill on validation
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
        self._make_preflight = preflight
        self._with_verdict = with_verdict
        self.started = False

    async def fit(self) -> Result:
        """Train to the end. If the run was stopped, continue it."""
        async with self._opened():
            await self._begin()
            for epoch, steps in enumerate(self.plan, 1):
                for step in self._left(steps):
                    ctx, skill, rates = self._context(step), self.skill, self._rates(step)
                    rollouts = self._rollouts(step, skill, ctx)
                    knowledge = optimizer_context(self.state, rates.used, ctx, step.items)
                    patches = await reflect(skill, rollouts, knowledge, ctx)
                    pool = with_pending(await aggregate(patches, skill, knowledge, ctx), self.state)
                    reviewed = review(held_back(pool, skill, ctx), self.run, ctx.step, self.state.reviewed)
                    down = reviewed.turned_down
                    ranked = select(reviewed.pool, rates.used, skill, ctx, patches=patches, turned_down=down)
                    results = self._checked(await rollouts.all())
                    candidate, wordings = candidates(skill, ranked, patches, ctx)
                    minimal, current = await best_wording(wordings, rollouts.items, ctx), await self._val()
                    at_gate = ctx if minimal else self._expecting(step, ctx)
                    verdict = await self._gate(skill, candidate, current, at_gate)
                    credited = await credit(skill, candidate, verdict, current, ctx, self._gate)
                    credited, short_form = await try_minimal(skill, minimal, credited, current, ctx, self._gate)
                    work = StepWork(step, skill, rates, results, patches, reviewed, ranked, credited, short_form)
                    await self._commit(work, ctx)
                if self._epoch_begun(steps):
                    await self._end_epoch(epoch, finished=self.state.step == steps[-1].number)
            return await self._finish()

    def interrupt(self) -> None:
        """Stop the run as Ctrl-C does: start no new calls, wait for the calls in flight and keep their replies."""
        if not self.started:
            raise KeyboardInterrupt
        self.session.switch.trip(Stopped(BY_HAND))
        letters = len(self.base.optimizer.model.waiting)  # letters stay open: the run does not wait for their replies
        in_flight = self.base.target.limiter.in_flight + self.base.optimizer.limiter.in_flight - letters
        self.base.emit(Stopping(in_flight=in_flight, letters=letters))

    # Opening and closing

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[None]:
        """Open everything that the loop needs. Close it at the end, also after an error, so that a stopped run can be
        continued."""
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
                else Preflight(
                    plan=Plan(steps=len(self._steps), epochs=len(self.plan), schedule=session.schedule.summary)
                )
            )
            self.state = session.state or State(pins=pins(self.config), memory=given_notes(self.config))
            self.state.phases = self.state.phases or [first_phase(self.config, session.schedule)]
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
            except BaseException:  # a second Ctrl-C or a bug: do not wait for running calls
                self.base.background.cancel()
                raise
            await self.base.background.settle()

    async def _begin(self) -> None:
        """Start or continue the run. A new run measures its initial skill. An unfinished run goes back to its last
        finished step. A finished run is extended if the config has more epochs than the run."""
        config, state, run = self.config, self.state, self.run
        resumed, finished = self.session.state is not None, state.status == "finished"
        phase = reopen(run, state, config, self.plan, self._parts)
        if finished and state.status != "finished":
            take_back(run, state)
            write_config(run, config)
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
                phase=phase,
                reads_again=config.evaluation.test and run.test_reads.exists(),
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
                scheduler=state.phases[-1].scheduler,
                scheduler_reason=state.phases[-1].reason,
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
        self._write_summary(FinalScores())  # a run that stops in its first step has costs, too
        await smoke_test(self.skill, self._batch(self._steps[0]), self.base.at(1, 1))
        self._baseline = self.base.background.start(self._evaluate("val", "initial", self.skill, low_priority=True))

    async def _val(self) -> dict[str, float]:
        """Return the current skill's validation scores by item. At the start of a run, first wait until the initial
        skill is measured."""
        if self._baseline:
            await self._baseline
            self._keep_baseline()
        return self.state.val

    def _keep_baseline(self) -> None:
        """Store the initial skill's validation scores if they are measured. From then on, the run can be resumed."""
        if self._baseline and self._baseline.done() and not self._baseline.exception():
            measured, self._baseline, state = self._baseline.result(), None, self.state
            state.val = measured.values
            state.initial_val = state.best.val = state.score = measured.score
            state.telemetry.rollouts_to_best = rollouts_paid(self.session.journal.totals())
            self._counted(self.base)
            self._save()

    def _stop(self, error: SkillOptError) -> None:
        """Record why the run stopped. The saved state is still the state after the last finished step."""
        self._keep_baseline()
        if self.state.status != "finished":
            begun = self.run.state.exists()  # if no state was saved yet, write only the costs
            self.state = State.read(self.run.state) if begun else self.state
            self.state.status, self.state.stop_reason = "stopped", str(error)
            with suppress(*DiskError):  # the disk may be full; the last saved state remains
                (self._write_state if begun else self._write_summary)(FinalScores())
        self.base.emit(RunStopped(reason=str(error)))

    # The parts of a step

    def _left(self, steps: list[Step]) -> Iterator[Step]:
        return (step for step in steps if step.number > self.state.step and not self._over())

    def _over(self) -> str:
        return why_over(self.state, self.config)

    def _epoch_begun(self, steps: list[Step]) -> bool:
        """True if a step of this epoch is done, but not yet the work at the end of the epoch (slow update, notes). If
        the run ends within the epoch, this work is done, too."""
        begun = self.state.epoch < steps[0].epoch and self.state.step >= steps[0].number
        return begun and self.state.status != "finished"

    def _context(self, step: Step) -> Context:
        return replace(self.base.at(step.epoch, step.number), changed=self.state.changed)

    def _rates(self, step: Step) -> LearningRate:
        phase = self.state.phases[-1]  # each phase has its own schedule
        number, steps = step.number - phase.after, self.base.steps - phase.after
        shape = self._parts.schedule or SCHEDULES[phase.scheduler]
        scheduled = scheduled_rate(number, steps, self.config.optimizer, shape)
        return LearningRate(scheduled=scheduled, used=decayed_rate(scheduled, self.state.decay, self.config.optimizer))

    def _rollouts(self, step: Step, skill: Skill, ctx: Context) -> Rollouts:
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
        """Start the rollouts of step `done + 1` while the files and notes of step `done` are still being written."""
        if done < self.base.steps and not self._over():
            step = self._steps[done]
            begin_ahead(skill, self._batch(step), self.base.at(step.epoch, step.number))

    def _expecting(self, step: Step, ctx: Context) -> Context:
        """Return the context for the step's gate. As soon as it is certain that a built-in gate will accept the
        candidate, the gate calls `expect`, and this starts the next step's rollouts. With a user's gate or veto, these
        rollouts start only after the verdict."""
        if self._ends_epoch(step) or self._gate not in GATES.values():
            return ctx
        return replace(ctx, expect=lambda skill: self._go_ahead(step.number, skill))

    def _checked(self, results: list[Any]) -> list[Any]:
        if refused := {error.item_id: error.error for error in failed(results) if error.refused}:
            self.base.emit(SetAside(items=refused))
        self.state.set_aside = {**self.state.set_aside, **refused}
        return results

    async def _commit(self, work: StepWork, ctx: Context) -> None:
        """Save the step. The state is written last, so a resumed run repeats a step that was only partly saved."""
        self.run.check_held()
        ctx.emit(GateDecided(**dict(work.verdict.brief())))
        state = self.state
        state.edits_proposed += work.pool.proposed + sum(len(patch.dropped) for patch in work.patches)
        apply_verdict(state, work.skill, work.credited, ctx)
        remember(state, work, await probe_rejected(work, ctx), ctx)
        state.short_form = work.short_form or state.short_form
        state.step = work.step.number
        state.reviewed = {**state.reviewed, **{d.conflict: ctx.step for d in work.reviewed.used}}
        self.skill = work.candidate.skill if work.verdict.accepted else work.skill
        if not self._ends_epoch(work.step):  # at the end of an epoch the slow update may change the skill
            self._go_ahead(ctx.step, self.skill)
        telemetry = StepTelemetry(seconds=self._counted(ctx), paid_so_far=self._paid())
        choices = choices_of(item.answer for item in self.base.env.items("train"))
        record = step_record(work, state, self.config.evaluation.metric, telemetry, choices)
        await asyncio.to_thread(write_step, self.run, work, record)
        file_conflicts(self.run, ctx.step, work.pool.conflicts)
        self.history.append(record)
        self._save()
        ctx.emit(StepFinished(record=record))

    async def _end_epoch(self, epoch: int, *, finished: bool) -> None:
        ctx = self.base.at(epoch, self.state.step)
        skills = self._epoch_start, self.skill
        self.skill, outcome = await end_epoch(self.state, *skills, ctx, self._gate, self._go_ahead, finished=finished)
        self._epoch_start = self.skill
        self.history.end_epoch(outcome)
        self._counted(ctx)
        self._save()
        ctx.emit(EpochFinished(outcome=outcome))

    def _paid(self) -> ByRole[Paid]:
        return usage(self.session.journal.totals(), self.session.budget.cost)

    def _counted(self, ctx: Context) -> dict[str, float]:
        """Return the seconds of each stage since the last call of this function, and add them to the run's total."""
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
        """Measure a skill on a split, and write the items' scores into the run's folder."""
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
        """Measure the final scores, write the summary and return the result. Only this function reads the test split,
        and only if `evaluation.test` is true."""
        state = self.state
        best = self.run.read_skill(state.best.version)
        early = self._over() if state.step < self.base.steps else ""
        if early and (state.status != "finished" or self.config.train.num_epochs > state.phases[-1].epochs):
            self.base.emit(EndedEarly(reason=early, done=state.step, steps=self.base.steps))
        if state.status != "finished":
            self.run.write_best(best)
            unconfirmed = [Conflict(a=edit, reason=UNCONFIRMED) for edit in state.pending]
            file_conflicts(self.run, state.step, unconfirmed)
            when, items = datetime.now(UTC).isoformat(), len(self.base.env.items("test"))
            finals = await measure_finals(state, self.base, self._evaluate)
            self._counted(self.base)
            if self.config.evaluation.test:
                scores = {name: finals.score(f"test_{name}") for name in ("initial", "best")}
                append_jsonl(self.run.test_reads, [TestSplitRead(who="train", when=when, items=items, scores=scores)])
            state.status, state.stop_reason = "finished", early
            self._write_state(finals)
        summary = Summary.model_validate_json(read_bytes(self.run.summary))
        self.base.emit(RunFinished(summary=summary))
        return Result(path=self.run.root, best_skill=best.shown, summary=summary)

    def _write_state(self, finals: FinalScores) -> None:
        """Write the summary, then the state. A resumed run trusts only files whose checksums are in the state."""
        self.run.check_held()
        state = self.state
        self._write_summary(finals)
        if state.status != "stopped":  # a stopped run has no newly finished step
            state.replies = self.session.journal.sync()
            seal_files(self.run, state)
        state.write(self.run.state)

    def _write_summary(self, finals: FinalScores) -> None:
        telemetry = self.state.telemetry
        telemetry.seconds = self._earlier.seconds + time.monotonic() - self.session.started
        callers = [self.base.target, self.base.optimizer, *([self.base.judge] if self.base.judge else [])]
        hits = sum(caller.from_journal for caller in callers)
        telemetry.from_journal = self._earlier.from_journal + hits
        summary = finals.summary(self.state, self.base, self._paid())
        if self._with_verdict and summary.status != "running":  # a running run has no verdict yet
            summary = self._with_verdict(summary, read_history(self.run.history), self.config.flat())
        plan = with_real_figures(self._preflight.plan, summary)
        write_json(self.run.summary, summary.model_copy(update={"plan": plan}))
