"""Writes the part of a request about the tools that an agent can call. Each tool is listed once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import cast

from skillopt.chat_protocol import FunctionDefinition
from skillopt.skill.tokens import count_tokens
from skillopt.tasks.base import Trajectory
from skillopt.training.requests.blocks import block, data_line, fair_shares, trim_middle

SHOWN = 3000
"""The maximum number of tokens of tools' descriptions and schemas in one request; the middle of long texts is cut
out."""
MOST_TOOLS = 60
LONGEST_NAME = 40
"""The maximum number of tokens of a tool's name."""
_ABOUT = (
    "The agent can call the tools in the block `tools` during a task. What a tool can find out or do for it does not "
    "belong in the skill: the skill says which tool to call, when, and what to do with the result."
)


def tool_blocks(trajectories: Iterable[Trajectory]) -> Iterable[str]:
    """The block of all tools that were offered in these tasks, sorted by name; nothing if there were none."""
    if lines := tool_lines(trajectories):
        yield _ABOUT
        yield block("tools", lines)


def tool_lines(trajectories: Iterable[Trajectory]) -> str:
    """A line of JSON for each tool: its name, its description and the schema of its arguments."""
    functions: dict[str, FunctionDefinition] = {}
    for tool in (tool for trajectory in trajectories for tool in trajectory.tools):
        inner = tool.get("function")
        function = inner if isinstance(inner, dict) else cast("FunctionDefinition", tool)
        functions.setdefault(str(function.get("name", "")), function)
    names = sorted(functions)[:MOST_TOOLS]
    texts = [_texts(functions[name]) for name in names]
    shares = fair_shares([sum(map(count_tokens, parts)) for parts in texts], SHOWN)
    lines = [_line(name, parts, share) for name, parts, share in zip(names, texts, shares, strict=True)]
    left = len(functions) - len(names)
    return "\n".join([*lines, *([f"({left} more tools are not shown.)"] if left else [])])


def _texts(function: FunctionDefinition) -> tuple[str, str]:
    return str(function.get("description") or ""), json.dumps(function.get("parameters") or {}, ensure_ascii=False)


def _line(name: str, texts: Sequence[str], share: int) -> str:
    shares = fair_shares([count_tokens(text) for text in texts], share)
    description, parameters = (trim_middle(text, most) for text, most in zip(texts, shares, strict=True))
    whole = parameters == texts[1]
    row = {"name": trim_middle(name, LONGEST_NAME), "description": description}
    return data_line({**row, "parameters": json.loads(parameters) if whole else parameters})
