"""The analysts, the gate and the schedule of a run: what a caller passes in, else what the config names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from skillopt import plugins
from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.tasks import is_shipped
from skillopt.tasks.base import Env, is_judged
from skillopt.training.analysts import open_analysts
from skillopt.training.analysts.base import Analyst
from skillopt.training.gates import Gate, Veto, custom_gate, open_gate, with_vetoes
from skillopt.training.initial import Fingerprints
from skillopt.training.schedule import Shape, shape_of


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What one run is made of."""

    analysts: tuple[Analyst, ...]
    gate: Gate
    schedule: Shape
    scheduler: str
    """The schedule's name, for people."""
    passed_in: Fingerprints
    """Fingerprints of the parts that the config does not name; they are part of the run's identity."""


def resolve(
    config: Config,
    *,
    analysts: Sequence[Analyst] = (),
    gate: Gate | None = None,
    vetoes: Sequence[Veto] = (),
    schedule: Shape | None = None,
) -> Parts:
    """`gate` decides in place of the config's; `vetoes` come on top of whichever gate decides."""
    shape = schedule or shape_of(config.optimizer.lr_scheduler)
    if schedule is not None:
        _check_shape(schedule, config)
    named = [plugins.load("gates", name, key="evaluation.vetoes", known=()) for name in config.evaluation.vetoes]
    passed: dict[str, JsonValue] = {
        "analysts": [plugins.fingerprint(getattr(analyst, "function", analyst)) for analyst in analysts],
        "gate": plugins.fingerprint(gate) if gate else "",
        "gates": [plugins.fingerprint(veto) for veto in vetoes],
        "schedule": plugins.fingerprint(schedule) if schedule else "",
    }
    return Parts(
        analysts=tuple(analysts) or tuple(open_analysts(config.gradient.analysts)),
        gate=with_vetoes(
            custom_gate(gate) if gate else open_gate(config.evaluation.gate),
            [plugins.instance(veto) for veto in (*named, *vetoes)],
        ),
        schedule=shape,
        scheduler=plugins.named(schedule) if schedule else config.optimizer.lr_scheduler,
        passed_in={kind: value for kind, value in passed.items() if value},
    )


def needs_optimizer(config: Config, parts: Parts | None = None, env: Env | None = None) -> bool:
    """Analysts may do without an LLM; notes and guidance are always written by one, and a judge is one.

    Without the `env`, one that is not built in counts as judged: it may be.
    """
    between = config.optimizer.use_slow_update or config.optimizer.use_meta_skill
    analysts = (parts or resolve(config)).analysts
    judged = is_judged(env) if env is not None else config.env.scoring == "judge" or not is_shipped(config.env.name)
    return (between and config.train.num_epochs > 1) or judged or any(a.needs_optimizer for a in analysts)


def _check_shape(schedule: Shape, config: Config) -> None:
    shares = [schedule(n / 10) for n in range(11)]
    if any(not 0 <= share <= 1 for share in shares):
        raise UserError(f"schedule '{plugins.named(schedule)}': must give a share from 0 to 1 for a progress of 0 to 1")
    if len(set(shares)) == 1 and config.optimizer.reject_decay == 1:
        raise UserError(
            f"schedule '{plugins.named(schedule)}': is constant, and with optimizer.reject_decay 1 the learning rate "
            "cannot change; choose a reject_decay below 1"
        )
