"""The tasks: items, how they are done, how they are scored."""

from __future__ import annotations

import difflib

from skillopt.config import Config
from skillopt.envs.base import Env
from skillopt.errors import UserError

KNOWN = ("qa", "sim", "trigger")


def open_env(config: Config) -> Env:
    """The env that the config names, its data loaded."""
    name = config.env.name
    if name == "qa":
        from skillopt.envs.qa import QAEnv

        return QAEnv(config.env)
    if name == "sim":
        from skillopt.envs.sim import SimEnv

        return SimEnv(config.env)
    if name == "trigger":
        from skillopt.envs.trigger import TriggerEnv

        return TriggerEnv(config.env)
    near = difflib.get_close_matches(name, KNOWN, n=1, cutoff=0)
    raise UserError(f"env.name: unknown '{name}'; did you mean '{near[0]}'? Known are: {', '.join(KNOWN)}")
