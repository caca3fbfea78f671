"""The shell agent: any chat model does workspace tasks with one tool, a command in the sandboxed workspace.

The skill's package is at `$SKILLOPT_SKILL_DIR`. A model that has no tools may write a ```sh block in its reply.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import Field

from skillopt.config import EnvConfig
from skillopt.envs.agents import episode_from, task_text, timed_out
from skillopt.envs.base import Chat, Episode, Item
from skillopt.envs.place import opened_place
from skillopt.envs.sandbox import Limits, Mode, Outcome, Sandbox
from skillopt.envs.tools import printed, start
from skillopt.envs.workspace import Workspaces
from skillopt.errors import SkillOptError
from skillopt.models.base import ChatReply, Message, TransientError
from skillopt.options import Options
from skillopt.skill import Skill

_HOW = (
    "\n\nYou work in a folder of files. The tool `run` runs a shell command there and shows what it prints. Do the "
    "task with it, then reply with one short sentence and no command. If you cannot call tools, write the command in a "
    "```sh block."
)
_PACKAGE = " Your instructions come with further files, at $SKILLOPT_SKILL_DIR."
IN_SANDBOX = "Run a shell command in the task's folder: no network, Python and the usual tools."
IN_CONTAINER = "Run a shell command in the task's container."
_PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
_BLOCK = re.compile(r"```(?:sh|bash|shell)[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_CALL = re.compile(r'\{\s*"name"\s*:\s*"run"\s*,\s*"arguments"\s*:\s*(\{.*?\})\s*\}', re.DOTALL)
_LONGEST_RESULT = 8000

Run = Callable[[str], Awaitable[Outcome]]
"""Runs a command where the task's files are."""


class ShellOptions(Options):
    """`env.agent_options` of the shell agent."""

    turns: int = Field(default=30, ge=1, le=1000)
    """Replies of the model."""
    timeout: float = Field(default=600, gt=0)
    """Seconds for the whole task."""
    sandbox: Mode = "namespaces"
    limits: Limits = Limits()
    """What one command may use up."""


class ShellAgent:
    def __init__(self, config: EnvConfig, workspaces: Workspaces) -> None:
        self.options = ShellOptions.read(config.agent_options, "env.agent_options")
        self._sandbox = Sandbox(self.options.limits, mode=self.options.sandbox) if workspaces.local else None
        self._workspaces = workspaces
        self.turns = self.options.turns
        self.fingerprint = ""

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        start, sandbox = self._workspaces.start(item), self._sandbox
        assert sandbox

        async def work() -> dict[str, Any]:
            with opened_place(item, skill, start) as place:
                others, variables = {"skill": place.skill_dir}, {"SKILLOPT_SKILL_DIR": "skill"}

                async def run(command: str) -> Outcome:
                    return await sandbox.shell(command, place.workspace, others=others, variables=variables)

                return await self.worked(item, skill, chat, run) | place.left(start, self._workspaces.most)

        return episode_from(await chat.whole(self.identity(item, skill), work))

    def identity(self, item: Item, skill: Skill) -> list[Any]:
        """What makes a rollout the same as another, for the journal."""
        options = self.options.model_dump(mode="json", exclude={"timeout"})
        return ["shell agent", options, item.model_dump(mode="json"), self._workspaces.start(item).digest, skill.hash]

    async def worked(
        self, item: Item, skill: Skill, chat: Chat, run: Run, description: str = IN_SANDBOX
    ) -> dict[str, Any]:
        """The conversation, up to the first reply without a command, or to a limit; `run` runs a command."""
        session = _Session(run, skill)
        tool = {"type": "function", "function": {"name": "run", "description": description, "parameters": _PARAMETERS}}
        return await self._held(item, skill, chat, session, tool) | session.used()

    async def _held(
        self, item: Item, skill: Skill, chat: Chat, session: _Session, tool: Mapping[str, Any]
    ) -> dict[str, Any]:
        talk = start(skill, f"{task_text(item)}{_HOW}{_PACKAGE if skill.others else ''}")
        seconds, text = self.options.timeout, ""
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                for _ in range(self.options.turns):
                    reply = await chat(talk, tools=[tool])
                    talk.append(reply.message())
                    text = reply.text
                    answers = await session.answers(reply)
                    if not answers:
                        break
                    talk += answers
        except TimeoutError:
            if not limit.expired():
                raise
            return timed_out(talk, seconds)
        return {"output": text, "messages": talk}


class _Session:
    """One task's commands, and what they used of the skill's package."""

    def __init__(self, run: Run, skill: Skill) -> None:
        self._command, self._skill = run, skill
        self._commands: list[str] = []

    async def answers(self, reply: ChatReply) -> list[Message]:
        """The results of all commands of a reply; none where it has none."""
        found: list[Message] = []
        for call in reply.tool_calls:
            result = await self._called(call["function"])
            found.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        if not reply.tool_calls and (command := written_command(reply.text)):
            found.append({"role": "user", "content": await self._run(command)})
        return found

    async def _called(self, function: Mapping[str, Any]) -> str:
        try:
            command = json.loads(function["arguments"] or "{}")["command"]
        except (ValueError, KeyError, TypeError):
            command = None
        if function["name"] != "run" or not isinstance(command, str):
            return 'error: there is one tool, run, with one argument: {"command": "ls"}'
        return await self._run(command)

    async def _run(self, command: str) -> str:
        self._commands.append(command)
        try:
            done = await self._command(command.replace("\0", ""))
        except SkillOptError as error:  # this machine's, and no mistake of the target
            raise TransientError(f"env.agent: shell: {error}") from None
        return shown(done)

    def used(self) -> dict[str, Any]:
        """The package's files that the commands name, and the scripts among them."""
        text = "\n".join(self._commands)
        opened = [name for name in sorted(self._skill.others) if name in text]
        ran = [name for name in opened if name.startswith("scripts/") or name in self._skill.executable]
        return {"opened": opened, "ran": ran} if opened else {}


def written_command(text: str) -> str:
    """The command that a reply holds as text: of a model that has no tools, or writes its calls down."""
    if block := _BLOCK.search(text):
        return block[1].strip()
    if call := _CALL.search(text):
        try:
            command = json.loads(call[1]).get("command")
        except (ValueError, AttributeError):
            return ""
        return command if isinstance(command, str) else ""
    return ""


def shown(outcome: Outcome) -> str:
    """What the model is shown of a command's end."""
    text = printed(outcome.stdout, outcome.stderr)
    if len(text) > _LONGEST_RESULT:
        half = _LONGEST_RESULT // 2
        text = f"{text[:half]}\n[… {len(text) - _LONGEST_RESULT} characters left out …]\n{text[-half:]}"
    return printed(text, f"[{outcome.reason}]" if outcome.reason else "") or "[done, nothing printed]"
