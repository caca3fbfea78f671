"""The analysts, the gate and the schedule of a run: those that a caller passes in, else those of the config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from skillopt import plugins
from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.record.base import ROLES, Role
from skillopt.skill import Skill
from skillopt.tasks import is_shipped
from skillopt.tasks.base import Env, is_judged
from skillopt.training.analysts import open_analysts
from skillopt.training.analysts.base import Analyst
from skillopt.training.batches import batch_sizes
from skillopt.training.gates import Gate, Veto, custom_gate, open_gate, with_vetoes
from skillopt.training.gates.floors import with_floors
from skillopt.training.initial import Fingerprints
from skillopt.training.judging import flips
from skillopt.training.schedule import Schedule, Shape, choose_schedule, shape_of


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The analysts, the gate and the schedule of one run."""

    analysts: tuple[Analyst, ...]
    gate: Gate
    schedule: Shape | None
    """The shape of the schedule. None means `auto`: the number of steps and the initial skill decide the shape."""
    scheduler: str
    """The name of the schedule, for people."""
    passed_in: Fingerprints
    """Fingerprints of the parts that a program passed in. If two trainings have different fingerprints, they are
    different runs."""

    def schedule_of(self, config: Config, items: int, skill: Skill) -> Schedule:
        """The schedule of a run that has `items` training items and starts from `skill`."""
        steps = sum(map(len, batch_sizes(items, config.train)))
        return choose_schedule(self.scheduler, self.schedule, config.optimizer, steps, skill.tokens)


def resolve(
    config: Config,
    *,
    analysts: Sequence[Analyst] = (),
    gate: Gate | None = None,
    vetoes: Sequence[Veto] = (),
    schedule: Shape | None = None,
) -> Parts:
    """Build the parts of a run. `gate` replaces the gate that the config names. `vetoes` are added to the vetoes of the
    config."""
    if schedule is not None:
        _check_shape(schedule)
    named = [plugins.load("gates", name, key="evaluation.vetoes", known=()) for name in config.evaluation.vetoes]
    passed: dict[str, JsonValue] = {
        "analysts": [plugins.fingerprint(getattr(analyst, "function", analyst)) for analyst in analysts],
        "gate": plugins.fingerprint(gate) if gate else "",
        "gates": [plugins.fingerprint(veto) for veto in vetoes],
        "schedule": plugins.fingerprint(schedule) if schedule else "",
        "judge": "flips" if flips(config) else "",
    }
    deciding = with_vetoes(
        custom_gate(gate) if gate else open_gate(config.evaluation.gate),
        [plugins.instance(veto) for veto in (*named, *vetoes)],
    )
    return Parts(
        analysts=tuple(analysts) or tuple(open_analysts(config.gradient.analysts)),
        gate=with_floors(deciding) if config.evaluation.floors else deciding,
        schedule=schedule or shape_of(config.optimizer.lr_scheduler),
        scheduler=plugins.named(schedule) if schedule else config.optimizer.lr_scheduler,
        passed_in={kind: value for kind, value in passed.items() if value},
    )


def roles_of(config: Config, parts: Parts | None = None, env: Env | None = None) -> tuple[Role, ...]:
    """The roles whose models a training calls."""
    judge: tuple[Role, ...] = ("judge",) if _judged(config, env) and config.models.judge_model else ()
    return (*(ROLES if needs_optimizer(config, parts, env) else ROLES[:1]), *judge)


def measuring_roles(config: Config, env: Env) -> tuple[Role, ...]:
    """The roles whose models are called in a measurement without training."""
    judge: Role = "judge" if config.models.judge_model else "optimizer"
    return ("target", judge) if is_judged(env) else ("target",)


def _judged(config: Config, env: Env | None) -> bool:
    if env is not None:
        return is_judged(env)
    return config.env.scoring == "judge" or not is_shipped(config.env.name)


def needs_optimizer(config: Config, parts: Parts | None = None, env: Env | None = None) -> bool:
    """True if a training calls the optimizer model: for its analysts, for notes and guidance, or as the judge.

    If `env` is None and the config's env is not built in, the function assumes that the env needs a judge.
    """
    between = config.optimizer.use_slow_update or config.optimizer.use_meta_skill
    analysts = (parts or resolve(config)).analysts
    judged = _judged(config, env) and not config.models.judge_model
    return (between and config.train.num_epochs > 1) or judged or any(a.needs_optimizer for a in analysts)


def why_optimizer(config: Config, parts: Parts | None = None, env: Env | None = None) -> str:
    """The message for a run that needs the optimizer only between epochs; empty for other runs."""
    once = config.model_copy(update={"train": config.train.model_copy(update={"num_epochs": 1})})
    if needs_optimizer(once, parts, env) or not needs_optimizer(config, parts, env):
        return ""
    return (
        "In this run only guidance and notes between epochs need an optimizer: name a model that you have "
        "(with --optimizer_model handoff, you answer: docs/handoff.md), or train one epoch (train.num_epochs=1)"
    )


def _check_shape(schedule: Shape) -> None:
    name = plugins.named(schedule)
    try:
        wrong = any(not 0 <= schedule(n / 10) <= 1 for n in range(11))
    except Exception as error:
        raise UserError(f"schedule '{name}': {type(error).__name__}: {error}") from error
    if wrong:
        raise UserError(f"schedule '{name}': must return a number from 0 to 1 for every progress from 0 to 1")
