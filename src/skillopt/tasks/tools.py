"""Tasks with tools: plain functions, and the loop in which the target calls them.

async def run(self, item, skill, chat):
    return await run_tools(start(skill, item.question), [Tool.of(look_up)], chat)
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from pydantic import JsonValue, TypeAdapter, ValidationError, validate_call

from skillopt import plugins
from skillopt.chat_protocol import ContentPart
from skillopt.config.options import first_problem
from skillopt.models.base import ChatReply, Message, ModelError
from skillopt.skill import Skill
from skillopt.tasks.base import Chat, Episode, ToolDefinition

LONGEST_RESULT = 20_000
"""The maximum number of characters of a tool's result that the target is shown, so one result cannot fill the
context."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A function that the target may call."""

    name: str
    description: str
    parameters: Mapping[str, JsonValue]
    """The JSON schema of the function's arguments, as one object."""
    run: Callable[..., Any | Awaitable[Any]]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Tool:
        """Make a tool from a function: from its name, its docstring and its annotated parameters. The function may
        be async."""
        names, validated = inspect.signature(function).parameters, validate_call(function)
        schema = TypeAdapter(cast(Any, function)).json_schema()
        parameters = {key: value for key, value in schema.items() if key not in {"title", "additionalProperties"}}

        async def checked(**arguments: Any) -> Any:
            known = {name: value for name, value in arguments.items() if name in names}  # models often add arguments
            return await plugins.called(partial(validated, **known))

        description = inspect.getdoc(function) or function.__name__
        return cls(name=function.__name__, description=description, parameters=parameters, run=checked)

    def definition(self) -> ToolDefinition:
        """The tool's definition in the form of the OpenAI chat protocol."""
        parameters = dict(self.parameters)
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": parameters},
        }


def system(skill: Skill) -> list[Message]:
    """The skill as the system prompt; no message if the skill is empty."""
    return [{"role": "system", "content": skill.text}] if skill.text.strip() else []


def start(skill: Skill, task: str | list[ContentPart]) -> list[Message]:
    """The first messages of a rollout: the skill (unless it is empty) as the system prompt, and the task."""
    return [*system(skill), {"role": "user", "content": task}]


def printed(*parts: str) -> str:
    """The parts of a command's output (standard output, standard error) as one text; empty parts are left out."""
    return "\n".join(text for part in parts if (text := part.strip("\n")))


async def run_tools(messages: Sequence[Message], tools: Sequence[Tool], chat: Chat, *, max_turns: int = 20) -> Episode:
    """Ask the target and run the tools that its reply calls, until a reply calls no tool.

    If a tool raises an error, or the name or the arguments of a call are wrong, the target gets the error as the tool's
    result. After `max_turns` replies, the text of the last one is the output.
    """
    talk = list(messages)
    by_name = {tool.name: tool for tool in tools}
    definitions = [tool.definition() for tool in tools]
    text = ""
    for _ in range(max_turns):
        reply = await chat(talk, tools=definitions)
        talk.append(reply.message())
        text = reply.text
        if not reply.tool_calls:
            break
        talk += await tool_results(reply, by_name)
    return Episode(messages=talk, output=text)


async def tool_results(reply: ChatReply, tools: Mapping[str, Tool]) -> list[Message]:
    """The results of all tools that a reply calls, as the next messages."""
    messages: list[Message] = []
    for call in reply.tool_calls:
        result = await _call(call["function"]["name"], call["function"]["arguments"], tools)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result[:LONGEST_RESULT]})
    return messages


async def _call(name: str, arguments_text: str, tools: Mapping[str, Tool]) -> str:
    """A tool's result as text; an error is a result, too."""
    tool = tools.get(name)
    if tool is None:
        return f"error: there is no tool '{name}'; there are: {', '.join(tools)}"
    try:
        arguments = json.loads(arguments_text or "{}")
        if not isinstance(arguments, dict):
            raise ValueError("the arguments must be an object")
        value = tool.run(**arguments)
        value = await value if inspect.isawaitable(value) else value
    except ValidationError as error:
        return f"error: {first_problem(error)}"
    except ModelError:
        raise
    except Exception as error:  # the target gets it as the tool's result
        return f"error: {type(error).__name__}: {error}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
