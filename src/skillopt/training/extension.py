"""Decides whether a run ends before its last step, and reopens finished runs."""

from __future__ import annotations

from collections.abc import Sequence

from skillopt.config import Config
from skillopt.record.damage import unseal
from skillopt.record.directory import RunDirectory
from skillopt.record.run import Run
from skillopt.record.state import Phase, State
from skillopt.training.batches import Step
from skillopt.training.parts import Parts
from skillopt.training.schedule import Schedule, choose_schedule


def why_over(state: State, config: Config) -> str:
    """The reason why a run ends before its last step; empty if the run continues. If every validation task is solved,
    no gate can accept another candidate."""
    if 0 < config.train.patience <= state.stale_steps:
        return f"no improvement in {state.stale_steps} step{'s' * (state.stale_steps != 1)}"
    if min(state.val.values(), default=0) < 1:
        return ""
    return f"all {len(state.val)} validation tasks are right" if len(state.val) > 1 else "the validation task is right"


def first_phase(config: Config, schedule: Schedule) -> Phase:
    epochs = config.train.num_epochs
    return Phase(first_epoch=1, epochs=epochs, after=0, scheduler=schedule.name, reason=schedule.reason)


def reopen(
    run: RunDirectory, state: State, config: Config, plan: Sequence[Sequence[Step]], parts: Parts
) -> Phase | None:
    """Reopen a finished run if the config asks for more epochs, or for a test score that the run does not have yet.
    Return the new phase if there are more epochs, else None. The run is open again as soon as the state is written."""
    if state.status != "finished":
        return None
    stale, state.stale_steps = state.stale_steps, 0  # an extended run counts steps without gain from 0
    extends = state.phases[-1].epochs < config.train.num_epochs and not why_over(state, config)
    summary = Run(run).summary
    unread = config.evaluation.test and summary is not None and summary.best.test is None
    if not extends:
        state.stale_steps = stale
    if not extends and not unread:
        return None
    again = [run.summary, run.config_yaml, run.config_json]
    again += [*run.evaluations.glob("test_*"), *run.evaluations.glob("val_remeasured*")]
    if extends and state.epoch and state.step < plan[state.epoch - 1][-1].number:  # the run ended within its last epoch
        again += [run.epoch_end(state.step), *run.meta_skill(state.epoch).glob("*")]
        state.epoch, state.epoch_versions = state.epoch - 1, state.epoch_versions[:-1]
    if extends:
        steps, tokens = plan[-1][-1].number - state.step, run.read_skill(state.current).tokens
        schedule = choose_schedule(parts.scheduler, parts.schedule, config.optimizer, steps, tokens)
        phase = first_phase(config, schedule)
        state.phases = [*state.phases, phase.model_copy(update={"first_epoch": state.epoch + 1, "after": state.step})]
    state.status, state.stop_reason = "running", ""
    unseal(run, state, again)
    state.write(run.state)
    return state.phases[-1] if extends else None
