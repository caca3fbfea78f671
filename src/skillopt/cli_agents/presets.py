"""The table of command lines that people have signed in to: how each answers a request, and how some do a task."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from skillopt.cli_agents.output import (
    Heard,
    hear_claude,
    hear_codex,
    hear_copilot,
    hear_gemini,
    hear_gemini_stream,
    hear_goose,
    hear_opencode,
)

PLACES = ("HOME", "USER", "LOGNAME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
"""Where a command line finds its own login; none of them holds a secret."""
_ROLE = "You answer one request with text and nothing else. You have no tools and no files."
_QUIET_CLAUDE = {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
_OPENCODE = {
    "autoupdate": False,
    "share": "disabled",
    "agent": {"skillopt": {"mode": "primary", "prompt": _ROLE, "tools": {"*": False}, "permission": {"*": "deny"}}},
}


@dataclass(frozen=True, kw_only=True)
class Doing:
    """How an agent does a task, with a separate home folder in which it finds the skill."""

    argv: tuple[str, ...]
    env: Callable[[Path], dict[str, str]]
    skill_folders: Callable[[Path], list[Path]]
    use: Callable[[str], str] = "Use the skill {} for this task.".format
    """The first line of the task, which names the skill."""
    heard: Callable[[str], Heard] | None = None
    """How its output is read, where that differs from an answer's."""
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
    """Variables that keep it to the request alone: no updates, no titles."""
    pass_env: tuple[str, ...]
    """Variables that it gets without being named by the user: its own keys and URLs."""
    install: str
    login: str
    heard: Callable[[str], Heard]
    at_once: int = 8
    """Requests that it is given side by side, each in a process."""
    reports_cost: bool = False
    doing: Doing | None = None

    @staticmethod
    def model_argv(model: str) -> list[str]:
        return ["--model", model] if model else []


def _below(home: Path) -> dict[str, str]:
    """The rollout's home for programs that look at these variables first."""
    places = {"CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state", "CACHE": ".cache"}
    return {f"XDG_{name}_HOME": str(home / place) for name, place in places.items()}


PRESETS: dict[str, Preset] = {
    "claude-code": Preset(
        program="claude",
        ask=(
            *("-p", "--output-format", "json", "--tools", "", "--safe-mode", "--strict-mcp-config"),
            *("--no-session-persistence", "--system-prompt", _ROLE),
        ),
        env=_QUIET_CLAUDE,
        pass_env=("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR"),
        install="install Claude Code (npm install -g @anthropic-ai/claude-code)",
        login="start claude once and use /login",
        heard=hear_claude,
        reports_cost=True,
        doing=Doing(
            argv=(
                *("-p", "--output-format", "stream-json", "--verbose", "--permission-mode", "acceptEdits"),
                *("--allowedTools", "Skill,Read,Glob,Grep,Edit,Write,Bash"),
            ),
            env=lambda home: {"CLAUDE_CONFIG_DIR": str(home / ".claude"), **_QUIET_CLAUDE},
            skill_folders=lambda home: [home / ".claude" / "skills"],
        ),
    ),
    "codex": Preset(
        program="codex",
        ask=(
            *("exec", "--json", "--skip-git-repo-check", "--ephemeral", "--sandbox", "read-only"),
            *("--disable", "shell_tool", "--disable", "multi_agent", "--disable", "goals"),
            *("-c", 'web_search="disabled"', "-c", "mcp_servers={}"),
        ),
        last=("-",),
        pass_env=("CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_HOME"),
        install="install Codex (npm install -g @openai/codex)",
        login="run: codex login",
        heard=hear_codex,
        doing=Doing(
            argv=("exec", "--json", "--skip-git-repo-check", "--sandbox", "workspace-write"),
            env=lambda home: {"CODEX_HOME": str(home / ".codex")},
            skill_folders=lambda home: [home / ".codex" / "skills"],  # two places are ambiguous to it
            use=lambda name: f"Use the skill ${name} for this task.",
        ),
    ),
    "opencode": Preset(
        program="opencode",
        ask=("run", "--pure", "--format", "json", "--title", "skillopt", "--agent", "skillopt"),
        files={"opencode.json": json.dumps(_OPENCODE)},
        pass_env=("OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR"),
        install="install OpenCode (npm install -g opencode-ai)",
        login="run: opencode auth login",
        heard=hear_opencode,
        at_once=4,  # its processes share one database
        reports_cost=True,
        doing=Doing(
            argv=("run", "--pure", "--format", "json", "--title", "skillopt", "--auto"),
            env=lambda home: {"OPENCODE_DISABLE_AUTOUPDATE": "1", **_below(home)},
            skill_folders=lambda home: [home / ".config" / "opencode" / "skills"],
        ),
    ),
    "gemini-cli": Preset(
        program="gemini",
        ask=("--output-format", "json", "--skip-trust", "--extensions", "none", "--policy", "no_tools.toml"),
        files={"no_tools.toml": '[[rule]]\ntoolName = "*"\ndecision = "deny"\npriority = 999\n'},
        pass_env=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_CLOUD_PROJECT"),
        install="install Gemini CLI (npm install -g @google/gemini-cli)",
        login="start gemini once and choose how to sign in",
        heard=hear_gemini,
        doing=Doing(
            argv=("--output-format", "stream-json", "--skip-trust", "--extensions", "none", "--approval-mode", "yolo"),
            env=lambda home: {"GEMINI_CLI_HOME": str(home)},
            files={".gemini/settings.json": '{"security": {"auth": {"selectedType": "gemini-api-key"}}}'},
            skill_folders=lambda home: [home / ".gemini" / "skills"],
            heard=hear_gemini_stream,
        ),
    ),
    "qwen-code": Preset(
        program="qwen",
        ask=(
            *("--output-format", "json", "--bare", "--chat-recording", "false", "--system-prompt", _ROLE),
            *("--exclude-tools", "read_file", "--exclude-tools", "edit", "--exclude-tools", "run_shell_command"),
        ),
        pass_env=("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "DASHSCOPE_API_KEY"),
        install="install Qwen Code (npm install -g @qwen-code/qwen-code)",
        login="run: qwen auth",
        heard=hear_claude,
        doing=Doing(
            argv=("--output-format", "stream-json", "--chat-recording", "false", "--approval-mode", "yolo"),
            env=lambda home: {},
            skill_folders=lambda home: [home / ".qwen" / "skills"],
        ),
    ),
    "copilot": Preset(
        program="copilot",
        ask=(
            *("--silent", "--no-color", "--output-format", "json", "--stream", "off", "--no-ask-user"),
            *("--no-custom-instructions", "--disable-builtin-mcps", "--available-tools", "none"),
        ),
        pass_env=(
            *("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "COPILOT_MODEL", "COPILOT_PROVIDER_BASE_URL"),
            *("COPILOT_PROVIDER_TYPE", "COPILOT_PROVIDER_API_KEY"),
        ),
        install="install GitHub Copilot CLI (npm install -g @github/copilot)",
        login="start copilot once and use /login",
        heard=hear_copilot,
        doing=Doing(
            argv=(
                *("--no-color", "--output-format", "json", "--stream", "off", "--no-ask-user", "--allow-all-tools"),
                *("--no-custom-instructions", "--disable-builtin-mcps"),
            ),
            env=lambda home: {"COPILOT_HOME": str(home / ".copilot")},
            skill_folders=lambda home: [home / ".copilot" / "skills"],
        ),
    ),
    "goose": Preset(
        program="goose",
        ask=("run", "--no-session", "--quiet", "--no-profile", "--output-format", "stream-json", "--instructions", "-"),
        env={"GOOSE_MODE": "chat"},
        pass_env=(
            *("GOOSE_PROVIDER", "GOOSE_MODEL", "OPENAI_API_KEY", "OPENAI_HOST", "ANTHROPIC_API_KEY"),
            *("ANTHROPIC_HOST", "GOOGLE_API_KEY", "OPENROUTER_API_KEY"),
        ),
        install="install goose (see its documentation: a script, or brew install block-goose-cli)",
        login="run: goose configure",
        heard=hear_goose,
        doing=Doing(
            argv=("run", "--no-session", "--quiet", "--output-format", "stream-json", "--instructions", "-"),
            env=lambda home: {"GOOSE_MODE": "auto", **_below(home)},
            skill_folders=lambda home: [home / ".config" / "goose" / "skills"],
        ),
    ),
}
