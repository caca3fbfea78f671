"""The presets of coding agents: how each agent's program is called to answer a request or do a task."""

from __future__ import annotations

import json
from pathlib import Path

from skillopt.processes.coding_agents import Preset, TaskMode
from skillopt_agents.output import (
    parse_claude,
    parse_codex,
    parse_copilot,
    parse_gemini,
    parse_gemini_stream,
    parse_goose,
    parse_opencode,
)

_ROLE = "You answer one request with text and nothing else. You have no tools and no files."
_QUIET_CLAUDE = {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
_OPENCODE = {
    "autoupdate": False,
    "share": "disabled",
    "agent": {"skillopt": {"mode": "primary", "prompt": _ROLE, "tools": {"*": False}, "permission": {"*": "deny"}}},
}


def _below(home: Path) -> dict[str, str]:
    """Return environment variables that move a program's folders into the rollout's home folder."""
    places = {"CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state", "CACHE": ".cache"}
    return {f"XDG_{name}_HOME": str(home / place) for name, place in places.items()}


CLAUDE_CODE = Preset(
    program="claude",
    ask=(
        *("-p", "--output-format", "json", "--tools", "", "--safe-mode", "--strict-mcp-config"),
        *("--no-session-persistence", "--system-prompt", _ROLE),
    ),
    env=_QUIET_CLAUDE,
    pass_env=("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR"),
    install="install Claude Code (npm install -g @anthropic-ai/claude-code)",
    login="start claude once and use /login",
    parse=parse_claude,
    reports_cost=True,
    task_mode=TaskMode(
        argv=(
            *("-p", "--output-format", "stream-json", "--verbose", "--permission-mode", "acceptEdits"),
            *("--allowedTools", "Skill,Read,Glob,Grep,Edit,Write,Bash"),
        ),
        env=lambda home: {"CLAUDE_CONFIG_DIR": str(home / ".claude"), **_QUIET_CLAUDE},
        skill_folders=lambda home: [home / ".claude" / "skills"],
    ),
)
CODEX = Preset(
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
    parse=parse_codex,
    task_mode=TaskMode(
        argv=("exec", "--json", "--skip-git-repo-check", "--sandbox", "workspace-write"),
        env=lambda home: {"CODEX_HOME": str(home / ".codex")},
        skill_folders=lambda home: [home / ".codex" / "skills"],  # Codex refuses a skill that is in two folders
        use=lambda name: f"Use the skill ${name} for this task.",
    ),
)
OPENCODE = Preset(
    program="opencode",
    ask=("run", "--pure", "--format", "json", "--title", "skillopt", "--agent", "skillopt"),
    files={"opencode.json": json.dumps(_OPENCODE)},
    pass_env=("OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR"),
    install="install OpenCode (npm install -g opencode-ai)",
    login="run: opencode auth login",
    parse=parse_opencode,
    max_concurrency=4,  # all its processes use the same database
    reports_cost=True,
    task_mode=TaskMode(
        argv=("run", "--pure", "--format", "json", "--title", "skillopt", "--auto"),
        env=lambda home: {"OPENCODE_DISABLE_AUTOUPDATE": "1", **_below(home)},
        skill_folders=lambda home: [home / ".config" / "opencode" / "skills"],
    ),
)
GEMINI_CLI = Preset(
    program="gemini",
    ask=("--output-format", "json", "--skip-trust", "--extensions", "none", "--policy", "no_tools.toml"),
    files={"no_tools.toml": '[[rule]]\ntoolName = "*"\ndecision = "deny"\npriority = 999\n'},
    pass_env=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_CLOUD_PROJECT"),
    install="install Gemini CLI (npm install -g @google/gemini-cli)",
    login="start gemini once and choose how to sign in",
    parse=parse_gemini,
    task_mode=TaskMode(
        argv=("--output-format", "stream-json", "--skip-trust", "--extensions", "none", "--approval-mode", "yolo"),
        env=lambda home: {"GEMINI_CLI_HOME": str(home)},
        files={".gemini/settings.json": '{"security": {"auth": {"selectedType": "gemini-api-key"}}}'},
        skill_folders=lambda home: [home / ".gemini" / "skills"],
        parse=parse_gemini_stream,
    ),
)
QWEN_CODE = Preset(
    program="qwen",
    ask=(
        *("--output-format", "json", "--bare", "--chat-recording", "false", "--system-prompt", _ROLE),
        *("--exclude-tools", "read_file", "--exclude-tools", "edit", "--exclude-tools", "run_shell_command"),
    ),
    pass_env=("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "DASHSCOPE_API_KEY"),
    install="install Qwen Code (npm install -g @qwen-code/qwen-code)",
    login="run: qwen auth",
    parse=parse_claude,
    task_mode=TaskMode(
        argv=("--output-format", "stream-json", "--chat-recording", "false", "--approval-mode", "yolo"),
        env=lambda home: {},
        skill_folders=lambda home: [home / ".qwen" / "skills"],
    ),
)
COPILOT = Preset(
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
    parse=parse_copilot,
    reports_tokens=False,
    task_mode=TaskMode(
        argv=(
            *("--no-color", "--output-format", "json", "--stream", "off", "--no-ask-user", "--allow-all-tools"),
            *("--no-custom-instructions", "--disable-builtin-mcps"),
        ),
        env=lambda home: {"COPILOT_HOME": str(home / ".copilot")},
        skill_folders=lambda home: [home / ".copilot" / "skills"],
    ),
)
GOOSE = Preset(
    program="goose",
    ask=("run", "--no-session", "--quiet", "--no-profile", "--output-format", "stream-json", "--instructions", "-"),
    env={"GOOSE_MODE": "chat"},
    pass_env=(
        *("GOOSE_PROVIDER", "GOOSE_MODEL", "OPENAI_API_KEY", "OPENAI_HOST", "ANTHROPIC_API_KEY"),
        *("ANTHROPIC_HOST", "GOOGLE_API_KEY", "OPENROUTER_API_KEY"),
    ),
    install="install goose (see its documentation: a script, or brew install block-goose-cli)",
    login="run: goose configure",
    parse=parse_goose,
    task_mode=TaskMode(
        argv=("run", "--no-session", "--quiet", "--output-format", "stream-json", "--instructions", "-"),
        env=lambda home: {"GOOSE_MODE": "auto", **_below(home)},
        skill_folders=lambda home: [home / ".config" / "goose" / "skills"],
    ),
)
