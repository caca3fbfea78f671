"""The tasks: items, how they are done, how they are scored."""

from __future__ import annotations

from skillopt import plugins
from skillopt.config import Config
from skillopt.config.identity import PASSED_IN
from skillopt.envs.base import Env
from skillopt.envs.load import is_reference, load_object
from skillopt.errors import UserError

BUILT_IN = {
    "qa": "skillopt.envs.qa:QAEnv",
    "sim": "skillopt.envs.sim:SimEnv",
    "folders": "skillopt.envs.folders:FoldersEnv",
    "trigger": "skillopt.envs.trigger:TriggerEnv",
    "searchqa": "skillopt.envs.searchqa:SearchQAEnv",
    "docvqa": "skillopt.envs.docvqa:DocVQAEnv",
    "alfworld": "skillopt.envs.games:AlfWorldEnv",
    "textworld": "skillopt.envs.games:TextWorldEnv",
    "reasoning_gym": "skillopt.envs.reasoning:ReasoningGymEnv",
    "spreadsheetbench": "skillopt.envs.spreadsheet:SpreadsheetEnv",
    "livemathematicianbench": "skillopt.envs.choices:ChoiceEnv",
    "officeqa": "skillopt.envs.officeqa:OfficeQAEnv",
}
"""By name; imported only when it is asked for. Each is called with the config's `env` section."""


def open_env(config: Config) -> Env:
    """The env that the config names (built in, a plug-in, or `module:Class`), its data loaded."""
    name, scoring = config.env.name, config.env.scoring
    if scoring.startswith(PASSED_IN):
        function = scoring.removeprefix(PASSED_IN)
        raise UserError(
            f"env.scoring: the run was scored by the function '{function}', which its program passed in; a command "
            f"finds it by its file: env.scoring=FILE.py:{function}"
        )
    if name in BUILT_IN or (is_reference(name) and not plugins.reference("envs", name)):
        make = load_object(BUILT_IN.get(name, name), "env.name")
    else:
        make = plugins.load("envs", name, key="env.name", known=BUILT_IN)
    env: Env = make(config.env)
    return env
