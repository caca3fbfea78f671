"""The shell agent: a chat model does workspace tasks with one tool, which runs commands in the sandboxed workspace.

The skill's package is at `$SKILLOPT_SKILL_DIR`. A model that cannot call tools may write a ```sh block in its reply.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import Field

from skillopt.config import EnvConfig
from skillopt.config.options import Options
from skillopt.errors import SkillOptError
from skillopt.models.base import JsonObject, TransientError
from skillopt.skill import Skill
from skillopt.tasks.agents import journalled, task_text, timed_out
from skillopt.tasks.base import Chat, Episode, Item
from skillopt.tasks.package_tools import scripts_of
from skillopt.tasks.rollout_dirs import rollout_dirs
from skillopt.tasks.sandbox import Mode, Sandbox, SandboxLimits, SandboxResult, command_problem
from skillopt.tasks.tools import Tool, printed, start, tool_results
from skillopt.tasks.workspace import WorkedEpisode, Workspaces

_HOW = (
    "\n\nYou work in a folder of files. The tool `run` runs a shell command there and shows what it prints. Do the "
    "task with it, then reply with one short sentence and no command. If you cannot call tools, write the command in a "
    "```sh block."
)
_PACKAGE = " Your instructions come with further files, at $SKILLOPT_SKILL_DIR."
IN_SANDBOX = "Run a shell command in the task's folder: no network, Python and the usual tools."
IN_CONTAINER = "Run a shell command in the task's container."
_PARAMETERS: JsonObject = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
_BLOCK = re.compile(r"```(?:sh|bash|shell)[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_CALL = re.compile(r'\{\s*"name"\s*:\s*"run"\s*,\s*"arguments"\s*:\s*(?=\{)')
_CLOSED = re.compile(r"\s*\}")
_LONGEST_RESULT = 8000

Run = Callable[[str], Awaitable[SandboxResult]]
"""A function that runs a command in the folder of the task's files."""


class ShellOptions(Options):
    """Options of the shell agent (`env.agent_options`)."""

    turns: int = Field(default=30, ge=1, le=1000)
    """The maximum number of replies of the model in one task."""
    timeout: float = Field(default=600, gt=0)
    """The maximum number of seconds for the whole task."""
    sandbox: Mode = "namespaces"
    limits: SandboxLimits = SandboxLimits()
    """The limits of one command."""


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

        async def work() -> WorkedEpisode:
            with rollout_dirs(item, skill, start) as dirs:
                others, variables = {"skill": dirs.skill_dir}, {"SKILLOPT_SKILL_DIR": "skill"}

                async def run(command: str) -> SandboxResult:
                    return await sandbox.shell(command, dirs.workspace, others=others, variables=variables)

                return dirs.with_diff(await self.worked(item, skill, chat, run), start, self._workspaces.most)

        return await journalled(chat, self.identity(item, skill), work)

    def identity(self, item: Item, skill: Skill) -> list[Any]:
        """The values that identify a rollout in the journal."""
        options = self.options.model_dump(mode="json", exclude={"timeout"})
        return ["shell agent", options, item.model_dump(mode="json"), self._workspaces.start(item).digest, skill.hash]

    async def worked(
        self, item: Item, skill: Skill, chat: Chat, run: Run, description: str = IN_SANDBOX
    ) -> WorkedEpisode:
        """Do the task: run the commands of the replies with `run`, until a reply has no command or a limit is
        reached."""
        session = _Session(run, skill)
        tool = Tool(name="run", description=description, parameters=_PARAMETERS, run=session.run)
        talk = start(skill, f"{task_text(item)}{_HOW}{_PACKAGE if skill.others else ''}")
        seconds, text = self.options.timeout, ""
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                for _ in range(self.options.turns):
                    reply = await chat(talk, tools=[tool.definition()])
                    talk.append(reply.message())
                    text = reply.text
                    answers = await tool_results(reply, {"run": tool})
                    if not reply.tool_calls and (command := written_command(text)):
                        answers = [{"role": "user", "content": await session.run(command)}]
                    if not answers:
                        break
                    talk += answers
        except TimeoutError:
            if not limit.expired():
                raise
            return timed_out(talk, seconds).model_copy(update=session.files_used())
        return WorkedEpisode(output=text, messages=talk).model_copy(update=session.files_used())


class _Session:
    """Runs the commands of one task, and records the package's files that they name."""

    def __init__(self, run: Run, skill: Skill) -> None:
        self._command, self._skill = run, skill
        self._commands: list[str] = []

    async def run(self, command: object = None, **_more: object) -> str:
        """Run a command; returns its result for the model."""
        if not isinstance(command, str):
            return 'error: the tool run has one argument: {"command": "ls"}'
        self._commands.append(command)
        command = command.replace("\0", "")
        if problem := command_problem(command):
            return f"error: {problem}"
        try:
            done = await self._command(command)
        except SkillOptError as error:  # a problem of this machine, not a mistake of the target
            raise TransientError(f"env.agent: shell: {error}") from None
        return shown(done)

    def files_used(self) -> dict[str, tuple[str, ...]]:
        """The fields `opened` and `ran` of an Episode. `opened`: the package's files that the commands name. `ran`: the
        scripts among these files."""
        text = "\n".join(self._commands)
        opened = tuple(name for name in sorted(self._skill.others) if name in text)
        return {"opened": opened, "ran": tuple(name for name in scripts_of(self._skill) if name in opened)}


def written_command(text: str) -> str:
    """The command in the text of a reply; empty if there is none. Some models cannot call tools, or write their calls
    as text."""
    if block := _BLOCK.search(text):
        return block[1].strip()
    if call := _CALL.search(text):
        try:
            arguments, end = json.JSONDecoder().raw_decode(text, call.end())
        except (ValueError, RecursionError):
            return ""
        command = arguments.get("command")
        return command if isinstance(command, str) and _CLOSED.match(text, end) else ""
    return ""


def shown(outcome: SandboxResult) -> str:
    """The result of a command as the model sees it."""
    text = printed(outcome.stdout, outcome.stderr)
    if len(text) > _LONGEST_RESULT:
        half = _LONGEST_RESULT // 2
        text = f"{text[:half]}\n[… {len(text) - _LONGEST_RESULT} characters left out …]\n{text[-half:]}"
    return printed(text, f"[{outcome.reason}]" if outcome.reason else "") or "[done, nothing printed]"
