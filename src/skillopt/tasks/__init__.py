"""Tasks: their items, and the code that does and scores them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from skillopt import plugins
from skillopt.config import Config
from skillopt.config.identity import PASSED_IN
from skillopt.errors import UserError
from skillopt.tasks.base import Env, as_env
from skillopt.tasks.load import is_reference, load_object

BUILT_IN = {"qa": "skillopt.tasks.qa:QAEnv", "trigger": "skillopt.tasks.trigger:TriggerEnv"}
"""The built-in envs by name, each imported when it is used. Every other env, even if it comes with SkillOpt, is
registered in the entry-point group `skillopt.envs`. An env's class is called with the config's `env` section."""


def is_shipped(name: str) -> bool:
    """Does this env come with SkillOpt?"""
    return name in BUILT_IN or plugins.reference("envs", name).startswith(("skillopt.", "skillopt_"))


@contextmanager
def using_env(config: Config) -> Iterator[Env]:
    """Open the env that the config names, and close it at the end of the block."""
    env = open_env(config)
    try:
        yield env
    finally:
        env.close()


def open_env(config: Config) -> Env:
    """Open the env that the config names (built in, a plug-in, or `module:Class`) and load its data. The caller must
    close the env, because it may have started processes."""
    name, scoring = config.env.name, config.env.scoring
    if scoring.startswith(PASSED_IN):
        function = scoring.removeprefix(PASSED_IN)
        raise UserError(
            f"env.scoring: the scorer is the function '{function}' of a Python program, and a command cannot call it; "
            f"give the file of the function: env.scoring=FILE.py:{function}"
        )
    if name in BUILT_IN or (is_reference(name) and not plugins.reference("envs", name)):
        make = load_object(BUILT_IN.get(name, name), "env.name")
    elif not is_shipped("sim") and not plugins.reference("envs", name):
        raise UserError(
            f"env.name: '{name}' is not registered, and neither are the envs that come with SkillOpt. So SkillOpt is "
            "not installed here, or an old version is installed; run `pip install -e .` in SkillOpt's folder"
        )
    else:
        make = plugins.load("envs", name, key="env.name", known=BUILT_IN)
    return as_env(make(config.env))
