"""The trainer. `fit` is the training loop as the picture in docs/architecture.md shows it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from skillopt.analysts.base import Patch
from skillopt.config import Config
from skillopt.core.batches import Step, plan_steps
from skillopt.core.context import Context
from skillopt.core.pulse import pulse
from skillopt.core.rollout import Rollouts, begin, begin_ahead, failed
from skillopt.core.schedule import decayed_rate, scheduled_rate
from skillopt.core.split import Measured, measure
from skillopt.edits.aggregate import Asked, Pool
from skillopt.edits.candidates import candidates
from skillopt.edits.merge import aggregate, rank
from skillopt.edits.review import Reviewed, file_conflicts, review
from skillopt.edits.risk import held_back
from skillopt.edits.select import Ranked, select
from skillopt.envs.base import SPLITS, Env, Item
from skillopt.errors import DiskError, SkillOptError, Stopped, disk_trouble, is_disk_trouble
from skillopt.gates.credit import credit
from skillopt.gates.heats import race
from skillopt.letters.case import CaseFile
from skillopt.loop.case_file import case_file, remember
from skillopt.loop.commit import apply_verdict
from skillopt.loop.epoch_end import end_epoch, look_ahead
from skillopt.loop.record import StepWork, step_record, write_step
from skillopt.loop.reflect import reflect
from skillopt.loop.rehearsal import rehearse
from skillopt.loop.second_look import second_look
from skillopt.loop.session import Mode, Session, open_session, pins
from skillopt.measure.finals import Finals, measure_finals
from skillopt.models.base import ChatModel
from skillopt.preflight.components import Parts, resolve
from skillopt.preflight.doctor import advice
from skillopt.preflight.plan import plan_run, with_real_figures
from skillopt.run.events import Listener
from skillopt.run.files import append_jsonl, read_json, write_atomic, write_json, write_jsonl
from skillopt.run.history import History
from skillopt.run.result import Result
from skillopt.run.seals import Seals
from skillopt.run.state import State
from skillopt.run.summary import rollouts_paid, usage
from skillopt.skill import Applied, Skill


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
    ) -> None:
        """`read_test` false leaves the test split sealed: the run stops before its end and can be finished later."""
        self.config = config
        self._env, self._models = env, models
        self._listeners = listeners
        self._mode = mode
        self._baseline: asyncio.Task[Measured] | None = None  # the initial skill's validation, while it is under way
        self._parts = parts or resolve(config)
        self._gate = self._parts.gate
        self._shared_journal = shared_journal
        self._read_test = read_test
        self._initial_skill = initial_skill
        self.started = False

    async def fit(self) -> Result:
        """Train to the end, from where the run stopped."""
        async with self._opened():
            await self._begin()
            for epoch, steps in enumerate(self.plan, 1):
                for step in self._left(steps):
                    ctx, skill, rates = self.base.at(epoch, step.number), self.skill, self._rates(step)
                    rollouts = self._rollouts(step, skill, ctx)
                    case = case_file(self.state, rates["used"], ctx, step.items)
                    patches = await reflect(skill, rollouts, case, ctx)
                    pool = await aggregate(patches, skill, case, ctx)
                    reviewed = self._reviewed(pool, ctx)
                    ranked, asked = await self._ranked(reviewed, patches, rates["used"], skill, case, ctx)
                    winner, heats = await race(candidates(skill, ranked, ctx), await self._val(), ctx)
                    self._speculate(step, skill, winner.applied)
                    verdict = await self._gate(skill, winner.applied, self.state.val, ctx)
                    credited = await credit(skill, winner.applied, verdict, self.state.val, ctx, self._gate)
                    results = self._checked(await rollouts.all())
                    work = StepWork(step, skill, rates, results, patches, reviewed, ranked, asked, heats, credited)
                    await self._commit(work, ctx)
                if self.state.epoch < epoch and not self._over():
                    await self._end_epoch(epoch)
            return await self._finish()

    def interrupt(self) -> None:
        """What Ctrl-C does: nothing new starts, what is in flight is paid for and kept."""
        if not self.started:
            raise KeyboardInterrupt
        self.session.switch.trip(Stopped("interrupted"))
        letters = len(getattr(self.base.optimizer.model, "waiting", ()))  # they stay open: no run waits for a reader
        in_flight = self.base.target.limiter.in_flight + self.base.optimizer.limiter.in_flight - letters
        self.base.emit("stopping", in_flight=in_flight, letters=letters)

    # Opening and closing

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[None]:
        """Everything that the loop needs, closed again whatever happens; a stop leaves a state to continue from."""
        opened = open_session(
            self.config,
            env=self._env,
            models=self._models,
            listeners=self._listeners,
            mode=self._mode,
            parts=self._parts,
            shared_journal=self._shared_journal,
            initial_skill=self._initial_skill,
        )
        async with opened as session:
            self.session: Session = session
            self.config, self._parts, self._gate = session.ctx.config, session.parts, session.parts.gate
            self.plan = plan_steps(session.ctx.env.items("train"), self.config.train)
            self._steps = [step for steps in self.plan for step in steps]
            self.base = session.base(len(self._steps))
            self.run = session.ctx.run
            self.forecast = plan_run(self.config, session.ctx.env, session.initial_skill, parts=self._parts)
            self.state = session.state or State(pins=pins(self.config))
            self.history = History(self.run.history)
            self.started = True
            self._earlier = self.state.telemetry.model_copy()
            try:
                async with pulse(self.base):
                    yield
            except SkillOptError as error:
                session.switch.trip(error)
                await self.base.underway.settle()
                self._stop(error)
                raise
            except DiskError as error:
                if not is_disk_trouble(error):
                    self.base.underway.cancel()
                    raise
                stopped = Stopped(disk_trouble(error))
                session.switch.trip(stopped)
                await self.base.underway.settle()
                self._stop(stopped)
                raise stopped from error
            except BaseException:  # a second Ctrl-C, or a bug: wait for nothing
                self.base.underway.cancel()
                raise
            await self.base.underway.settle()

    async def _begin(self) -> None:
        """A new run measures its initial skill, zero-shot; another goes back to its last finished step."""
        config, state, run = self.config, self.state, self.run
        resumed = self.session.state is not None
        if resumed:  # before any event is sent: a listener may read the history
            run.roll_back(
                step=state.step, epoch=state.epoch, version=state.version, patch_log_size=state.patch_log_size
            )
            self.history.roll_back(state.step)
        self._seals = Seals(run, state)
        self.base.emit(
            "run_started",
            path=str(run.root),
            resumed=resumed,
            finished=state.status == "finished",
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
        if resumed:
            self.skill = run.read_skill(state.current)
            return
        self.skill = self.session.initial_skill
        self.base.emit("advice", checks=advice(config, self.base.env, self.skill, self.forecast))
        run.write_skill(0, self.skill)
        run.write_best(self.skill)
        run.conflicts.parent.mkdir(exist_ok=True)
        write_atomic(run.conflicts, "")
        self.history.begin()
        self._write_summary(Finals())  # a run that is cut short in its first step has a bill, too
        await rehearse(self.skill, self._batch(self._steps[0]), self.base.at(1, 1))
        self._baseline = self.base.underway.start(self._evaluate("val", "initial", self.skill, later=True))

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
            state.initial_val = state.best.val = measured.score
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
                (self._write_state if begun else self._write_summary)(Finals())
        self.base.emit("run_stopped", reason=str(error))

    # The parts of a step

    def _left(self, steps: list[Step]) -> Iterator[Step]:
        return (step for step in steps if step.number > self.state.step and not self._over())

    def _over(self) -> str:
        """Why no step is left to do; a gate accepts nothing where every validation task is right already."""
        if 0 < self.config.train.patience <= self.state.stale_steps:
            return "patience"
        return "all validation tasks are right" if min(self.state.val.values(), default=0) >= 1 else ""

    def _rates(self, step: Step) -> dict[str, float]:
        scheduled = scheduled_rate(step.number, self.base.steps, self.config.optimizer, self._parts.schedule)
        return {"scheduled": scheduled, "used": decayed_rate(scheduled, self.state.decay, self.config.optimizer)}

    def _rollouts(self, step: Step, skill: Skill, ctx: Context) -> Rollouts:
        """The step's batch, under way."""
        items = self._batch(step)
        ctx.emit("rollout_started", items=len(items), workers=self.config.role("target").workers)
        rollouts = begin(skill, items, ctx)
        if self._ends_epoch(step):
            look_ahead(self.state, skill, ctx)
        return rollouts

    def _batch(self, step: Step) -> list[Item]:
        return [item for item in step.items if item.id not in self.state.set_aside]

    def _ends_epoch(self, step: Step) -> bool:
        return step is self.plan[step.epoch - 1][-1]

    def _go_ahead(self, done: int, skill: Skill, stage: str = "rollout") -> None:
        """Begin the rollouts of the step after `done`, while files and notes are written."""
        if done < self.base.steps and not self._over():
            step = self._steps[done]
            begin_ahead(skill, self._batch(step), self.base.at(step.epoch, step.number), stage=stage)

    def _speculate(self, step: Step, skill: Skill, candidate: Applied) -> None:
        """Guess the gate's verdict while it runs: that of most steps so far; at first, accept."""
        if self.config.train.speculate and candidate.applied and not self._ends_epoch(step):
            guess = candidate.skill if self.state.counts.accepted * 2 >= self.state.counts.run else skill
            self._go_ahead(step.number, guess, stage="speculate")

    def _checked(self, results: list[Any]) -> list[Any]:
        if refused := {error.item_id: error.error for error in failed(results) if error.refused}:
            self.base.emit("set_aside", items=refused)
        self.state.set_aside = {**self.state.set_aside, **refused}
        return results

    def _reviewed(self, pool: Pool, ctx: Context) -> Reviewed:
        return review(held_back(pool, self.skill, ctx), self.run, ctx.step, self.state.reviewed)

    async def _ranked(
        self, reviewed: Reviewed, patches: list[Patch], rate: float, skill: Skill, case: CaseFile, ctx: Context
    ) -> tuple[list[Ranked], list[Asked]]:
        order, asked = await rank(reviewed.pool, skill, case, ctx)
        ranked = select(
            reviewed.pool,
            rate,
            skill,
            ctx,
            patches=patches,
            rejected=self.state.rejected,
            order=order,
            turned_down=reviewed.turned_down,
        )
        return ranked, asked

    async def _commit(self, work: StepWork, ctx: Context) -> None:
        """Save the step; the state is written last, and finishes it."""
        self.run.check_held()
        ctx.emit("gate_decided", **work.verdict.brief())
        state = self.state
        state.edits_proposed += work.pool.proposed + sum(len(patch.dropped) for patch in work.patches)
        apply_verdict(state, work.skill, work.credited, ctx)
        remember(state, work, await second_look(work, ctx), ctx)
        state.step = work.step.number
        state.reviewed = {**state.reviewed, **{d.conflict: ctx.step for d in work.reviewed.used}}
        self.skill = work.candidate.skill if work.verdict.accepted else work.skill
        if not self._ends_epoch(work.step):  # where it does, the slow update may change the skill
            self._go_ahead(ctx.step, self.skill)
        telemetry = {"seconds": self._counted(ctx), "paid_so_far": self._paid()}
        record = step_record(work, state, self.config.evaluation.metric, telemetry)
        await asyncio.to_thread(write_step, self.run, work, record)
        file_conflicts(self.run, ctx.step, work.pool.conflicts)
        self.history.append(record)
        self._save()
        ctx.emit("step_finished", record={k: v for k, v in record.items() if k != "applied"})

    async def _end_epoch(self, epoch: int) -> None:
        ctx = self.base.at(epoch, self.state.step)
        outcome = await end_epoch(self.state, ctx, self._gate, self._go_ahead)
        self.history.amend(epoch_end=outcome)
        self.skill = self.run.read_skill(self.state.current)
        self._counted(ctx)
        self._save()
        ctx.emit("epoch_finished", outcome=outcome)

    def _paid(self) -> dict[str, Any]:
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
        self._write_state(Finals())

    # The end

    async def _evaluate(self, split: str, name: str, skill: Skill, *, later: bool = False) -> Measured:
        """Measure a skill on a split, and leave the items' scores in the run."""
        whole = self.base.env.items(split)
        items = [item for item in whole if item.id not in self.state.set_aside]
        self.base.emit("evaluation_started", split=split, name=name, items=len(items))
        ctx, gone = replace(self.base, later=later), len(whole) - len(items)
        stage = "baseline" if name == "no_skill" else "evaluate"
        measured = await measure(skill, items, ctx, tag=f"{split}-{name}", stage=stage, set_aside=gone)
        self.state.set_aside = {**self.state.set_aside, **measured.set_aside}
        scores = {t.item_id: {"hard": t.score.hard, "soft": t.score.soft} for t in measured.trajectories}
        report = {"skill_hash": skill.hash, "score": measured.score, "items": scores, "set_aside": measured.set_aside}
        write_jsonl(self.run.evaluations / f"{split}_{name}.jsonl", measured.trajectories)
        write_json(self.run.evaluations / f"{split}_{name}.json", report)
        self.base.emit("evaluation_finished", split=split, name=name, score=measured.score)
        return measured

    async def _finish(self) -> Result:
        """The test split is read here, once."""
        state = self.state
        best = self.run.read_skill(state.best.version)
        if not self._read_test and state.status != "finished":
            self.run.write_best(best)
            state.status, state.stop_reason = "stopped", "trained; the test split is left sealed"
            self._write_state(Finals())
        elif state.status != "finished":
            self.run.write_best(best)
            read = {"who": "train", "when": datetime.now(UTC).isoformat(), "items": len(self.base.env.items("test"))}
            finals = await measure_finals(state, self.base, self._evaluate)
            self._counted(self.base)
            scores = {name: finals.score(f"test_{name}") for name in ("initial", "best")}
            append_jsonl(self.run.test_reads, [read | {"scores": scores}])
            state.status, state.stop_reason = "finished", self._over()
            self._write_state(finals)
        summary = read_json(self.run.summary)
        self.base.emit("run_finished", summary=summary)
        return Result(path=self.run.root, best_skill=best, summary=summary)

    def _write_state(self, finals: Finals) -> None:
        """The summary, then the state, which makes it all count."""
        self.run.check_held()
        state = self.state
        self._write_summary(finals)
        if state.status != "stopped":  # a stop declares nothing finished
            self._seals.seal(state, self.session.journal.sync())
        state.write(self.run.state)

    def _write_summary(self, finals: Finals) -> None:
        telemetry = self.state.telemetry
        telemetry.seconds = self._earlier.seconds + time.monotonic() - self.session.started
        hits = self.base.target.from_journal + self.base.optimizer.from_journal
        telemetry.from_journal = self._earlier.from_journal + hits
        summary = finals.summary(self.state, self.base, self._paid())
        write_json(self.run.summary, summary | {"plan": with_real_figures(self.forecast, summary)})
