"""Tools with which a chat model lists, reads and runs the further files of a skill. Scripts run in the sandbox."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from skillopt.errors import SkillOptError
from skillopt.models.base import ChatReply, FatalError, Message
from skillopt.skill import Skill
from skillopt.skill.document import FILE
from skillopt.skill.folder import path_problem
from skillopt.tasks.base import Chat, Episode, Json, ToolDefinition
from skillopt.tasks.sandbox import Mode, Sandbox, SandboxResult, command_problem
from skillopt.tasks.tools import Tool, printed, tool_results

MOST_TURNS = 20
"""The maximum number of replies in a row that only ask for files."""
E = TypeVar("E", bound=Episode)
_RUN_BY = {".py": ["python"], ".sh": ["sh"]}


class PackageChat:
    """The target with tools for the package's files. A call returns the first reply that does not ask for a file."""

    def __init__(self, chat: Chat, skill: Skill, folder: Path, mode: Mode) -> None:
        self._chat, self._skill, self._folder, self._mode = chat, skill, folder, mode
        self._sandbox: Sandbox | None = None
        self.talk: list[Message] = []
        """The conversation so far, with the contents of files that the target asked for."""
        self.opened: set[str] = set()
        self.ran: set[str] = set()
        functions: list[Callable[..., Any]] = [self.list_skill_files, self.read_skill_file]
        functions += [self.run_skill_script] if scripts_of(skill) else []
        self._tools = {tool.name: tool for tool in map(Tool.of, functions)}

    async def __call__(self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()) -> ChatReply:
        offered = [*tools, *(tool.definition() for tool in self._tools.values())]
        talk = list(messages)
        for _ in range(MOST_TURNS):
            reply = await self._chat(talk, tools=offered)
            talk.append(reply.message())
            names = {call["function"]["name"] for call in reply.tool_calls}
            if not names or not names <= self._tools.keys():
                break
            talk += await tool_results(reply, self._tools)
        self.talk = talk
        return reply

    async def opaque_rollout(self, identity: Sequence[Any], work: Any) -> Json:
        return await self._chat.opaque_rollout(identity, work)

    async def list_skill_files(self) -> list[str]:
        """List the files that come with your instructions."""
        return sorted(self._skill.others)

    async def read_skill_file(self, path: str) -> str:
        """Read one of the files that come with your instructions, such as references/rules.md."""
        text = self._skill.read(self._known(path))
        if text is None:
            return f"error: '{path}' is not a text file"
        self.opened.add(path)
        return text

    async def run_skill_script(self, path: str, arguments: list[str] = []) -> str:  # noqa: B006 - never changed
        """Run one of the scripts that come with your instructions, such as scripts/convert.py, and get its output."""
        name = self._known(path)
        if name not in scripts_of(self._skill):
            return f"error: '{path}' is not a script; there are: {', '.join(scripts_of(self._skill))}"
        if problem := command_problem(*arguments):
            return f"error: {problem}"
        self.opened.add(name)
        self.ran.add(name)
        done = await self._run(name, arguments)
        ended = f"[{done.reason}]" if done.reason else ""
        return printed(done.stdout, done.stderr, ended) or "[done, nothing printed]"

    async def _run(self, name: str, arguments: Sequence[str]) -> SandboxResult:
        try:
            self._sandbox = self._sandbox or Sandbox(mode=self._mode)
            words = [*_RUN_BY.get(Path(name).suffix, []), f"../skill/{name}", *arguments]
            with tempfile.TemporaryDirectory(prefix="skillopt-script-") as empty:
                places = {"skill": self._folder}
                return await self._sandbox.shell(
                    words, Path(empty), others=places, variables={"SKILLOPT_SKILL_DIR": "skill"}, keep=""
                )
        except SkillOptError as error:  # a problem of this machine, not a mistake of the target
            raise FatalError(f"the skill's script '{name}' cannot be run: {error}") from None

    def _known(self, path: str) -> str:
        """The path that the model named, if it is a file of the package; else raises FileNotFoundError."""
        if path in {FILE, *self._skill.others}:
            return path
        files = ", ".join(sorted(self._skill.others)[:50])
        raise FileNotFoundError(f"'{path[:200]}' {path_problem(path) or 'is not there'}; there are: {files}")


@contextmanager
def package_chat(skill: Skill, chat: Chat, mode: Mode = "namespaces") -> Iterator[PackageChat]:
    """Yield the target with tools for the skill's package. The folder of the package is removed at the end of the
    block."""
    with tempfile.TemporaryDirectory(prefix="skillopt-skill-", ignore_cleanup_errors=True) as root:
        folder = Path(root, "skill")
        skill.write_to(folder)
        yield PackageChat(chat, skill, folder, mode)


def target_with(skill: Skill, chat: Chat) -> AbstractContextManager[Chat]:
    """The target, with tools for the skill's further files if it has any."""
    return package_chat(skill, chat) if skill.others else nullcontext(chat)


def with_files(episode: E, chat: Chat) -> E:
    """The episode with the names of the package's files that were opened and run."""
    if not isinstance(chat, PackageChat):
        return episode
    return episode.model_copy(update={"opened": tuple(sorted(chat.opened)), "ran": tuple(sorted(chat.ran))})


def scripts_of(skill: Skill) -> list[str]:
    """The files of a skill's package that can be run."""
    return sorted(name for name in skill.others if name.startswith("scripts/") or name in skill.executable)
