"""The tasks: items, how they are done, how they are scored."""

from __future__ import annotations

import difflib
from importlib.metadata import EntryPoint, entry_points

from skillopt.config import Config
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
GROUP = "skillopt.envs"
"""The entry-point group by which an installed package offers envs."""


def open_env(config: Config) -> Env:
    """The env that the config names (built in, a plug-in, or `module:Class`), its data loaded."""
    name = config.env.name
    plug_ins = {point.name: point for point in entry_points(group=GROUP)}
    if name in BUILT_IN:
        make = load_object(BUILT_IN[name], "env.name")
    elif name in plug_ins:
        make = _plug_in(plug_ins[name])
    elif is_reference(name):
        make = load_object(name, "env.name")
    else:
        known = sorted([*BUILT_IN, *plug_ins])
        near = difflib.get_close_matches(name, known, n=1, cutoff=0)
        raise UserError(f"env.name: unknown '{name}'; did you mean '{near[0]}'? Known are: {', '.join(known)}")
    env: Env = make(config.env)
    return env


def _plug_in(point: EntryPoint) -> type[Env]:
    try:
        found: type[Env] = point.load()
    except Exception as error:  # whatever the plug-in's package raises
        raise UserError(
            f"env.name: the plug-in '{point.name}' ({point.value}) cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    return found
