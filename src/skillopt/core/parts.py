"""Parts that a caller passes in, in place of those that the config names, and those that entry points name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skillopt import plugins
from skillopt.analysts import open_analysts
from skillopt.analysts.base import Analyst
from skillopt.config import Config
from skillopt.core.schedule import Shape, shape_of
from skillopt.errors import UserError

Gate = Callable[[Mapping[str, float], Mapping[str, float]], bool | str]
"""A gate of one's own: the scores of the selection items under the current skill and under the candidate, by item id.

It is asked about candidates that the config's gate accepts, and may turn them down: with False, or with the reason. It
cannot let through what does not improve: that would be a run without a gate.
"""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Analysts, gates and the schedule of one run."""

    analysts: tuple[Analyst, ...]
    gates: tuple[Gate, ...] = ()
    schedule: Shape
    scheduler: str
    """The schedule's name, for people."""
    passed_in: Mapping[str, Any]
    """Fingerprints of the parts that the config does not name; they are part of the run's identity."""


def resolve(
    config: Config, *, analysts: Sequence[Analyst] = (), gates: Sequence[Gate] = (), schedule: Shape | None = None
) -> Parts:
    """What is passed in, and where nothing is, what the config names."""
    shape = schedule or shape_of(config.optimizer.lr_scheduler)
    if schedule is not None:
        _check_shape(schedule, config)
    named = [plugins.load("gates", name, key="evaluation.gates", known=()) for name in config.evaluation.gates]
    passed: dict[str, Any] = {
        "analysts": [plugins.fingerprint(getattr(analyst, "function", analyst)) for analyst in analysts],
        "gates": [plugins.fingerprint(gate) for gate in gates],
        "schedule": plugins.fingerprint(schedule) if schedule else "",
    }
    return Parts(
        analysts=tuple(analysts) or tuple(open_analysts(config.gradient.analysts)),
        gates=tuple(plugins.instance(gate) for gate in (*named, *gates)),
        schedule=shape,
        scheduler=plugins.named(schedule) if schedule else config.optimizer.lr_scheduler,
        passed_in={kind: value for kind, value in passed.items() if value},
    )


def _check_shape(schedule: Shape, config: Config) -> None:
    shares = [schedule(n / 10) for n in range(11)]
    if any(not 0 <= share <= 1 for share in shares):
        raise UserError(f"schedule '{plugins.named(schedule)}': must give a share from 0 to 1 for a progress of 0 to 1")
    if len(set(shares)) == 1 and config.optimizer.reject_decay == 1:
        raise UserError(
            f"schedule '{plugins.named(schedule)}': is constant, and with optimizer.reject_decay 1 the learning rate "
            "cannot change; choose a reject_decay below 1"
        )
