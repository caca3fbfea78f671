"""Coding agents that are called by name (`claude-code`, `codex`): the description of one, and the list of all.

A package registers its `Preset`s in the entry-point group `skillopt.agents`; ours are in skillopt_agents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from skillopt import plugins
from skillopt.errors import UserError
from skillopt.processes.agent_output import AgentOutput

LOGIN_VARIABLES = ("HOME", "USER", "LOGNAME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
"""Variables by which a command line finds its login; none of them holds a secret."""


@dataclass(frozen=True, kw_only=True)
class TaskMode:
    """How an agent does a task, with a separate home folder in which it finds the skill."""

    argv: tuple[str, ...]
    env: Callable[[Path], dict[str, str]]
    skill_folders: Callable[[Path], list[Path]]
    use: Callable[[str], str] = "Use the skill {} for this task.".format
    """The first line of the task, which names the skill."""
    parse: Callable[[str], AgentOutput] | None = None
    """How its output is read, if that differs from an answer's."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files of the home folder, by path."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One command line. Its prompt is on standard input; asked as a model, it has no tools."""

    program: str
    ask: tuple[str, ...]
    """Arguments with which it answers one request."""
    last: tuple[str, ...] = ()
    """Arguments at the very end."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files of the folder in which it answers a request."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that turn off the agent's other work, such as updates and titles."""
    pass_env: tuple[str, ...]
    """Variables that it gets without being named by the user: its keys and URLs."""
    install: str
    login: str
    parse: Callable[[str], AgentOutput]
    """How its output is read."""
    max_concurrency: int = 8
    """Requests at the same time, each in a separate process."""
    reports_cost: bool = False
    reports_tokens: bool = True
    """If not, the tokens are estimated from the texts."""
    task_mode: TaskMode | None = None

    @staticmethod
    def model_argv(model: str) -> list[str]:
        return ["--model", model] if model else []


def preset_of(name: str) -> Preset | None:
    """The agent of that name; None if no installed package has registered it."""
    if not plugins.reference("agents", name):
        return None
    preset = plugins.load("agents", name, key="agent", known=())
    if not isinstance(preset, Preset):
        raise UserError(f"{name}: what is registered is not a skillopt.processes.coding_agents.Preset")
    return preset


def presets() -> dict[str, Preset]:
    """Every agent that installed packages have registered."""
    return {name: preset for name in plugins.names("agents") if (preset := preset_of(name))}


def task_presets() -> dict[str, Preset]:
    """The names of coding agents that can do tasks."""
    return {name: preset for name, preset in presets().items() if preset.task_mode}
