"""Coding agents that users call by name (`claude-code`, `codex`). A `Preset` describes one of them.

A package registers its presets in the entry-point group `skillopt.agents`; SkillOpt's own are in skillopt_agents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from skillopt import plugins
from skillopt.errors import UserError
from skillopt.processes.agent_output import AgentOutput

LOGIN_VARIABLES = ("HOME", "USER", "LOGNAME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
"""Environment variables by which a command line finds its login; none of them contains a secret."""


@dataclass(frozen=True, kw_only=True)
class TaskMode:
    """How an agent does a task. The agent gets a separate home folder, which contains the skill."""

    argv: tuple[str, ...]
    env: Callable[[Path], dict[str, str]]
    skill_folders: Callable[[Path], list[Path]]
    use: Callable[[str], str] = "Use the skill {} for this task.".format
    """Makes the first line of the task from the skill's name."""
    parse: Callable[[str], AgentOutput] | None = None
    """The parser of a task's output; None if `Preset.parse` parses this output, too."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files to write into the home folder: their texts by path."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A coding agent's command line. It reads the prompt from standard input. When used as a model, it has no tools."""

    program: str
    ask: tuple[str, ...]
    """Arguments with which the agent answers one request."""
    last: tuple[str, ...] = ()
    """Arguments at the end of the command line."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files to write into the folder in which the agent answers a request: their texts by path."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that turn off what no request needs, such as the agent's updates of itself."""
    pass_env: tuple[str, ...]
    """Environment variables that the agent always gets: its keys and URLs."""
    install: str
    login: str
    parse: Callable[[str], AgentOutput]
    """The parser of the agent's output."""
    max_concurrency: int = 8
    """The maximum number of requests at the same time, each in a separate process."""
    reports_cost: bool = False
    reports_tokens: bool = True
    """True if the agent reports its tokens; if not, they are estimated from the texts."""
    task_mode: TaskMode | None = None

    @staticmethod
    def model_argv(model: str) -> list[str]:
        return ["--model", model] if model else []


def preset_of(name: str) -> Preset | None:
    """The coding agent with this name; None if no installed package has registered it."""
    if not plugins.reference("agents", name):
        return None
    preset = plugins.load("agents", name, key="agent", known=())
    if not isinstance(preset, Preset):
        raise UserError(f"{name}: the registered object is not a skillopt.processes.coding_agents.Preset")
    return preset


def presets() -> dict[str, Preset]:
    """All coding agents that installed packages have registered, by name."""
    return {name: preset for name in plugins.names("agents") if (preset := preset_of(name))}


def task_presets() -> dict[str, Preset]:
    """The coding agents that can do tasks, by name."""
    return {name: preset for name, preset in presets().items() if preset.task_mode}
