"""Agents that do a task: the target model with one question and one reply, or a function of the user."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field

from skillopt import plugins
from skillopt.config import EnvConfig
from skillopt.config.options import Options
from skillopt.errors import UserError
from skillopt.models.base import ChatReply, JsonObject, Message, ModelError, TransientError
from skillopt.processes.agent_failures import classify_failure
from skillopt.skill import Skill
from skillopt.tasks.base import Agent, Chat, Episode, Item, Json, Score, ToolDefinition
from skillopt.tasks.images import image_parts, without_images
from skillopt.tasks.load import load_object, source_hash
from skillopt.tasks.rollout_dirs import files_read, rollout_dirs
from skillopt.tasks.sandbox import Mode
from skillopt.tasks.tools import start
from skillopt.tasks.workspace import WorkedEpisode, Workspaces

Function = Callable[..., Any]
"""An agent function. It gets the item (without answers), the skill and the model, and returns text, (text, messages)
or an Episode. It may be async."""


def open_agent(config: EnvConfig, workspaces: Workspaces, mode: Mode, root: Path) -> Agent:
    """Make the agent that the config names. `root` is the folder of the tasks; images are files below it."""
    if config.agent and config.command:
        raise UserError("env.agent and env.command exclude each other; remove one")
    if config.agent == "shell":
        from skillopt.tasks.shell import ShellAgent

        return ShellAgent(config, workspaces)
    if config.agent:
        return OwnAgent(config.agent, config, workspaces)
    if config.command:
        from skillopt.tasks.command import CommandAgent

        return CommandAgent(config, workspaces)
    if config.agent_options:
        raise UserError(
            "env.agent_options: these options are for env.agent or env.command; set one of these keys, or remove the "
            "options"
        )
    return OneReply(mode, root)


def task_text(item: Item) -> str:
    return f"{item.context}\n\n{item.question}" if item.context else item.question


class OneReply:
    """Asks the target once: the skill is the system prompt; images, context and question are the user's message.

    If the skill is a package, the target may list, read and run the package's other files before it replies.
    """

    fingerprint = ""
    turns = 1

    def __init__(self, mode: Mode, root: Path) -> None:
        self._mode: Mode = mode
        self._root = root

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        text, images = task_text(item), image_parts(item, self._root)
        messages = start(skill, [*images, {"type": "text", "text": text}] if images else text)
        if skill.others:
            episode = await self._with_package(item, skill, messages, chat)
        else:
            reply = await chat(messages)
            talk: list[Message] = [*messages, {"role": "assistant", "content": reply.text}]
            episode = Episode(messages=talk, output=reply.text)
        return episode.model_copy(update={"messages": without_images(episode.messages, item)}) if images else episode

    async def _with_package(self, item: Item, skill: Skill, messages: list[Message], chat: Chat) -> Episode:
        """The episode of a target that may look into the package before it replies. The journal stores the whole
        episode as one entry."""
        from skillopt.tasks.package_tools import package_chat, with_files

        async def work() -> WorkedEpisode:
            with package_chat(skill, chat, self._mode) as inside:
                reply = await inside(messages)
                return with_files(WorkedEpisode(output=reply.text, messages=inside.talk), inside)

        return await journalled(chat, ["package", item.model_dump(mode="json"), skill.hash], work)


class AgentOptions(Options):
    """Options of an agent that is a function (`env.agent_options`)."""

    timeout: float = Field(default=300, gt=0)
    on_timeout: Literal["wrong", "error"] = "wrong"


class OwnAgent:
    """An agent that is a function of item, skill and model, passed in or named as `file.py:fn`. The function returns
    its answer and may be async.

    A parameter named `workspace` gets the folder of the task; one named `skill_dir` gets the folder of the skill's
    package. A rollout that is in the journal is not done again, even if the agent calls other models than
    `model`.
    """

    turns = 1

    def __init__(self, agent: str | Function, config: EnvConfig, workspaces: Workspaces) -> None:
        self._options = AgentOptions.read(config.agent_options, "env.agent_options")
        if isinstance(agent, str):
            self._function: Function = load_object(agent, "env.agent")
            self._name = agent.rpartition(":")[2]
            self.fingerprint = source_hash(agent)
        else:
            self._function, self._name = agent, plugins.named(agent)
            self.fingerprint = plugins.fingerprint(agent, module=False)
        self._wants = _wanted_folders(self._function)
        self._workspaces = workspaces

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        identity = ["agent", self.fingerprint, self._name, item.model_dump(mode="json"), skill.hash]
        if not self._wants and not self._workspaces.used:
            return await journalled(chat, identity, lambda: self._once(item, skill, Recorder(chat), {}))
        start = self._workspaces.start(item)

        async def work_in_folders() -> WorkedEpisode:
            with rollout_dirs(item, skill, start) as dirs:
                folders = {"workspace": dirs.workspace, "skill_dir": dirs.skill_dir}
                wanted = {name: folders[name] for name in self._wants}
                episode = await self._once(item, skill, Recorder(chat), wanted)
                read = files_read(dirs.skill_dir, skill) if "skill_dir" in self._wants else []
                changes = {"changes": episode.changes} if episode.changes else {}
                episode = dirs.with_diff(episode, start, self._workspaces.most)
                return episode.model_copy(update={"opened": tuple(sorted({*episode.opened, *read})), **changes})

        return await journalled(chat, [*identity, start.digest], work_in_folders)

    async def _once(self, item: Item, skill: Skill, model: Recorder, folders: Mapping[str, Path]) -> WorkedEpisode:
        seconds = self._options.timeout
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                work = partial(self._function, item.for_agent(), skill, model, **folders)
                result = await plugins.called(work)
        except ModelError:
            raise
        except TimeoutError as error:
            if not limit.expired():
                raise TransientError(f"env.agent: TimeoutError: {error}") from error
            if self._options.on_timeout == "error":
                raise TransientError(f"env.agent: no answer within {seconds:g} s") from None
            return timed_out(model.talk or start(skill, task_text(item)), seconds)
        except Exception as error:  # any error of the user's code: there is no answer and no score
            message = f"{type(error).__name__}: {error}"
            trouble = classify_failure(message)
            turned_away = trouble.kind == "limit"
            raise TransientError(f"env.agent: {message}", retry_after=trouble.wait, overloaded=turned_away) from error
        return _episode_of(result, model.talk or start(skill, task_text(item)))


def _episode_of(result: Any, talk: Sequence[Message]) -> WorkedEpisode:
    """The Episode of an agent function's result: a text, (text, messages), or an Episode."""
    messages: Sequence[Message] = talk
    if isinstance(result, Episode):
        messages = result.messages or [*talk, {"role": "assistant", "content": result.output}]
        return WorkedEpisode(**{**dict(result), "messages": messages})
    if isinstance(result, tuple) and len(result) == 2:
        result, messages = result
    if not isinstance(result, str):
        raise TransientError(f"env.agent: returned {type(result).__name__}; it must return its answer as text")
    if not messages or messages[-1].get("role") != "assistant":
        messages = [*messages, {"role": "assistant", "content": result}]
    return WorkedEpisode(output=result, messages=list(messages))


def _wanted_folders(function: Any) -> tuple[str, ...]:
    """The parameters of a function that are named `workspace` or `skill_dir`."""
    try:
        names = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ()
    return tuple(name for name in ("workspace", "skill_dir") if name in names)


class Recorder:
    """Sends an agent's calls to the target and records the agent's last conversation."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self.talk: list[Message] = []

    async def __call__(self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()) -> ChatReply:
        reply = await self._chat(messages, tools=tools) if tools else await self._chat(messages)
        self.talk = [*messages, reply.message()]
        return reply

    async def opaque_rollout(self, identity: Sequence[Any], work: Any) -> Json:
        return await self._chat.opaque_rollout(identity, work)


def timed_out(messages: Sequence[Message], seconds: float) -> WorkedEpisode:
    """The episode of a rollout that reached its time limit. Its score is 0, because an answer that is too late does not
    solve the task."""
    score = Score(hard=0, soft=0, feedback=f"the agent gave no answer within {seconds:g} s")
    return WorkedEpisode(output="", messages=list(messages), score=score)


async def journalled(
    chat: Chat, identity: Sequence[Any], work: Callable[[], Awaitable[WorkedEpisode]]
) -> WorkedEpisode:
    """The episode of a rollout with model calls that SkillOpt cannot see. The rollout is done once for this identity;
    after that, the episode is read from the journal. `opaque_rollout` counts the rollout's usage."""

    async def plain() -> Any:
        episode = json.loads(json.dumps((await work()).model_dump(exclude_defaults=True), default=str))
        workspace = {name: episode.pop(name) for name in _WORKSPACE if name in episode}
        return {"output": "", "messages": [], **episode} | ({"left": workspace} if workspace else {})

    result = await chat.opaque_rollout(identity, plain)
    left = cast("JsonObject", result.get("left") or {})
    return WorkedEpisode.model_validate({**result, **left, "usage": None})


_WORKSPACE = ("changes", "packed", "problem")
