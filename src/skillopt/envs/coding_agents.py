"""Ready-made commands for coding agents in their non-interactive modes: claude-code, codex."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skillopt.models.base import Message

_SHOWN = 4000
"""Characters of one event that the transcript keeps."""


@dataclass(frozen=True, kw_only=True)
class Heard:
    """What an agent's output says."""

    output: str
    messages: list[Message] = field(default_factory=list)
    """What it did on the way, as the analysts are to read it."""
    error: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Preset:
    """How one agent is called, where it looks for skills, and how its output is read."""

    argv: list[str]
    last: tuple[str, ...] = ()
    """Arguments that stand at the end."""
    pass_env: tuple[str, ...]
    """Variables that it gets without being named by the user: its own keys and URLs."""
    install: str
    env: Callable[[Path], dict[str, str]]
    skill_folders: Callable[[Path], list[Path]]
    use: Callable[[str], str]
    """The first line of the task, which names the skill."""
    heard: Callable[[str], Heard]

    @staticmethod
    def model_argv(model: str) -> list[str]:
        return ["--model", model] if model else []


def _events(stdout: str) -> Iterator[dict[str, Any]]:
    """JSON lines; whatever else stands between them is left out."""
    for line in stdout.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event


def hear_claude(stdout: str) -> Heard:
    """`--output-format stream-json`: assistant and user messages, then one result."""
    messages: list[Message] = []
    result: dict[str, Any] | None = None
    for event in _events(stdout):
        if event.get("type") in {"assistant", "user"} and isinstance(event.get("message"), dict):
            messages.append({"role": event["type"], "content": _claude_text(event["message"].get("content"))})
        elif event.get("type") == "result":
            result = event
    if result is None:
        return Heard(output="", messages=messages, error="no result in the output")
    used = result.get("usage") or {}
    output = str(result.get("result") or "")
    prompt = sum(
        int(used.get(key) or 0) for key in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    )
    out_of_turns = result.get("subtype") == "error_max_turns"  # its own limit: no answer, but no fault of the endpoint
    return Heard(
        output=output,
        messages=messages or [{"role": "assistant", "content": output}],
        error="" if out_of_turns or not result.get("is_error") else output or str(result.get("subtype")),
        prompt_tokens=prompt,
        completion_tokens=int(used.get("output_tokens") or 0),
    )


def _claude_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = []
    for part in content or []:
        kind = part.get("type")
        if kind == "text":
            parts.append(str(part.get("text", "")))
        elif kind == "tool_use":
            parts.append(f"[calls {part.get('name')}: {json.dumps(part.get('input'), ensure_ascii=False)[:_SHOWN]}]")
        elif kind == "tool_result":
            found = part.get("content")
            text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
            parts.append(f"[result: {text[:_SHOWN]}]")
    return "\n".join(parts)


def hear_codex(stdout: str) -> Heard:
    """`codex exec --json`: items as they are completed; the last agent message is the answer."""
    messages: list[Message] = []
    output, error, prompt, completion = "", "", 0, 0
    for event in _events(stdout):
        kind, item = event.get("type"), event.get("item") or {}
        if kind == "item.completed" and item.get("type") == "agent_message":
            output = str(item.get("text", ""))
            messages.append({"role": "assistant", "content": output})
        elif kind == "item.completed" and item.get("type") == "command_execution":
            told = f"[runs {item.get('command')}: {str(item.get('aggregated_output', ''))[:_SHOWN]}]"
            messages.append({"role": "assistant", "content": told})
        elif kind == "item.completed" and item.get("type") not in {"reasoning", "error"}:
            messages.append({"role": "assistant", "content": f"[{json.dumps(item, ensure_ascii=False)[:_SHOWN]}]"})
        elif kind == "turn.completed":
            used = event.get("usage") or {}
            prompt += int(used.get("input_tokens") or 0)
            completion += int(used.get("output_tokens") or 0)
        elif kind == "turn.failed":
            error = str((event.get("error") or {}).get("message") or "turn failed")
    if not output and not error:
        error = "no agent message in the output"
    return Heard(output=output, messages=messages, error=error, prompt_tokens=prompt, completion_tokens=completion)


PRESETS: dict[str, Preset] = {
    "claude-code": Preset(
        argv=[
            "claude",
            "-p",
            "--output-format",
            "stream-json",
            "--verbose",
            "--permission-mode",
            "acceptEdits",
            "--allowedTools",
            "Skill,Read,Glob,Grep,Edit,Write",
        ],
        pass_env=("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN"),
        install="install Claude Code (npm install -g @anthropic-ai/claude-code)",
        env=lambda home: {
            "CLAUDE_CONFIG_DIR": str(home / ".claude"),
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        skill_folders=lambda home: [home / ".claude" / "skills"],
        use=lambda name: f"Use the skill {name} for this task.",
        heard=hear_claude,
    ),
    "codex": Preset(
        argv=["codex", "exec", "--json", "--skip-git-repo-check", "--sandbox", "workspace-write"],
        last=("-",),
        pass_env=("CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
        install="install Codex (npm install -g @openai/codex)",
        env=lambda home: {"CODEX_HOME": str(home / ".codex")},
        skill_folders=lambda home: [home / ".agents" / "skills", home / ".codex" / "skills"],
        use=lambda name: f"Use the skill ${name} for this task.",
        heard=hear_codex,
    ),
}
