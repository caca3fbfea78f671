"""What does a task: the target model with one question and one reply, or a function of the user."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import Field

from skillopt import plugins
from skillopt.cli_agents.trouble import trouble_in
from skillopt.config import EnvConfig
from skillopt.envs.base import Chat, Episode, FileChange, Item, Score
from skillopt.envs.load import load_object, source_hash
from skillopt.envs.place import opened_place, read_since
from skillopt.envs.sandbox import Mode
from skillopt.envs.tools import start
from skillopt.envs.workspace import WorkedEpisode, Workspaces
from skillopt.errors import UserError
from skillopt.models.base import ChatReply, Message, ModelError, TransientError
from skillopt.options import Options
from skillopt.skill import Skill

Function = Callable[..., Any]
"""Of item, skill and model: the answer as text, (text, messages) or an Episode. It may be async."""


class Agent(Protocol):
    """Does one task with a skill."""

    fingerprint: str

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode: ...


def open_agent(config: EnvConfig, workspaces: Workspaces, mode: Mode = "namespaces") -> Agent:
    """The agent that the config names."""
    if config.agent and config.command:
        raise UserError("env.agent and env.command exclude each other; remove one")
    if config.agent == "shell":
        from skillopt.envs.shell import ShellAgent

        return ShellAgent(config, workspaces)
    if config.agent:
        return OwnAgent(config.agent, config.agent_options, workspaces)
    if config.command:
        from skillopt.envs.command import CommandAgent

        return CommandAgent(config, workspaces)
    if config.agent_options:
        raise UserError("env.agent_options: there is no env.agent or env.command that they could be for; remove them")
    return OneReply(mode)


def task_text(item: Item) -> str:
    return f"{item.context}\n\n{item.question}" if item.context else item.question


class OneReply:
    """The skill is the system prompt, the context and question are the user's message, the reply is scored.

    Before it replies, the target may list, read and run the further files of a package.
    """

    fingerprint = ""

    def __init__(self, mode: Mode = "namespaces") -> None:
        self._mode: Mode = mode

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        messages = start(skill, task_text(item))
        if skill.others:
            return await with_package(["package", item.model_dump(mode="json")], messages, skill, chat, self._mode)
        reply = await chat(messages)
        return Episode(messages=[*messages, {"role": "assistant", "content": reply.text}], output=reply.text)


async def with_package(
    identity: Sequence[Any], messages: Sequence[Message], skill: Skill, chat: Chat, mode: Mode = "namespaces"
) -> Episode:
    """One reply of the target, which may look into the skill's package first; in the journal as a whole."""
    from skillopt.envs.package_tools import package_chat

    async def work() -> dict[str, Any]:
        with package_chat(skill, chat, mode) as inside:
            reply = await inside(messages)
            return {"output": reply.text, "messages": inside.talk, **inside.used()}

    return episode_from(await chat.whole([*identity, skill.hash], work))


class AgentOptions(Options):
    """`env.agent_options` of a function."""

    timeout: float = Field(default=300, gt=0)
    on_timeout: Literal["wrong", "error"] = "wrong"


class OwnAgent:
    """`file.py:fn` or a function: of item, skill and model to its answer, async or not.

    Parameters named `workspace` and `skill_dir` get the folder of the task and the folder of the skill's package.
    Its rollouts are journalled whole: what is in the journal is not done again, whether or not the agent's calls went
    through `model`.
    """

    def __init__(self, agent: str | Function, options: Mapping[str, Any], workspaces: Workspaces) -> None:
        self._options = AgentOptions.read(options, "env.agent_options")
        if isinstance(agent, str):
            self._function: Function = load_object(agent, "env.agent")
            self._name = agent.rpartition(":")[2]
            self.fingerprint = source_hash(agent)
        else:
            self._function, self._name = agent, plugins.named(agent)
            self.fingerprint = plugins.fingerprint(agent, module=False)
        self._wants = _wanted_places(self._function)
        self._workspaces = workspaces

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        identity = ["agent", self.fingerprint, self._name, item.model_dump(mode="json"), skill.hash]
        if not self._wants and not self._workspaces.used:

            async def work() -> dict[str, Any]:
                return await self._once(item, skill, Recorder(chat), {})

            return episode_from(await chat.whole(identity, work))
        start = self._workspaces.start(item)

        async def work_in_place() -> dict[str, Any]:
            with opened_place(item, skill, start) as place:
                places = {name: getattr(place, name) for name in self._wants}
                found = await self._once(item, skill, Recorder(chat), places)
                opened = {"opened": read_since(place.skill_dir, skill)} if "skill_dir" in self._wants else {}
                return found | opened | place.left(start, self._workspaces.most)

        return episode_from(await chat.whole([*identity, start.digest], work_in_place))

    async def _once(self, item: Item, skill: Skill, model: Recorder, places: Mapping[str, Path]) -> dict[str, Any]:
        seconds = self._options.timeout
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                found = await self._call(item, skill, model, places)
        except ModelError:
            raise
        except TimeoutError as error:
            if not limit.expired():
                raise TransientError(f"env.agent: TimeoutError: {error}") from error
            if self._options.on_timeout == "error":
                raise TransientError(f"env.agent: no answer within {seconds:g} s") from None
            return timed_out(model.talk or start(skill, task_text(item)), seconds)
        except Exception as error:  # whatever the user's own code raises: no answer, and no score
            said = f"{type(error).__name__}: {error}"
            trouble = trouble_in(said)
            turned_away = trouble.kind == "limit"
            raise TransientError(f"env.agent: {said}", retry_after=trouble.wait, overloaded=turned_away) from error
        return self._result(found, model.talk or start(skill, task_text(item)))

    async def _call(self, item: Item, skill: Skill, model: Recorder, places: Mapping[str, Path]) -> Any:
        if inspect.iscoroutinefunction(self._function):
            return await self._function(item, skill, model, **places)
        found = await asyncio.to_thread(self._function, item, skill, model, **places)
        return await found if inspect.isawaitable(found) else found

    def _result(self, found: Any, talk: Sequence[Message]) -> dict[str, Any]:
        """A text, (text, messages), or an Episode, as plain JSON."""
        messages: Sequence[Message] = talk
        if isinstance(found, Episode):
            score = found.score.model_dump() if found.score else None
            said = found.messages or [*talk, {"role": "assistant", "content": found.output}]
            used = {"usage": vars(found.usage)} if found.usage else {}
            return _plain({"output": found.output, "messages": said, "score": score, **used})
        if isinstance(found, tuple) and len(found) == 2:
            found, messages = found
        if not isinstance(found, str):
            raise TransientError(f"env.agent: returned {type(found).__name__}; it must return its answer as text")
        if not messages or messages[-1].get("role") != "assistant":
            messages = [*messages, {"role": "assistant", "content": found}]
        return _plain({"output": found, "messages": list(messages)})


def _wanted_places(function: Any) -> tuple[str, ...]:
    """Which of the two folders a function takes."""
    try:
        names = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ()
    return tuple(name for name in ("workspace", "skill_dir") if name in names)


class Recorder:
    """The target for an agent, which keeps the conversation as the agent last had it."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self.talk: list[Message] = []

    async def __call__(self, messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] = ()) -> ChatReply:
        reply = await self._chat(messages, tools=tools) if tools else await self._chat(messages)
        self.talk = [*messages, reply.message()]
        return reply

    async def whole(self, identity: Sequence[Any], work: Any) -> dict[str, Any]:
        return await self._chat.whole(identity, work)


def timed_out(messages: Sequence[Message], seconds: float) -> dict[str, Any]:
    """The time limit is part of the task: an answer that is too late does not solve it."""
    feedback = f"the agent gave no answer within {seconds:g} s"
    return _plain({"output": "", "messages": messages, "score": {"hard": 0, "soft": 0, "feedback": feedback}})


def episode_from(result: Mapping[str, Any]) -> Episode:
    """From the journal, or just done."""
    score = Score(**result["score"]) if result.get("score") else None
    left = result.get("left") or {}
    return WorkedEpisode(
        messages=result["messages"],
        output=result["output"],
        score=score,
        changes=tuple(FileChange(**each) for each in left.get("changes", ())),
        opened=tuple(result.get("opened") or ()),
        ran=tuple(result.get("ran") or ()),
        packed=left.get("packed", ""),
        problem=left.get("problem", ""),
    )


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(value, default=str))
    return plain
