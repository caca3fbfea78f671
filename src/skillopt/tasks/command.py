"""An agent that is a command line: it gets the task on standard input and the skill as a file, and prints the answer.

Every rollout has a fresh workspace and a separate home folder. The command gets only harmless environment variables and
those that the user names, such as keys. When the command ends, every process that it started
is ended, too.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from skillopt.config import EnvConfig
from skillopt.config.options import Options
from skillopt.errors import UserError
from skillopt.keys import redact
from skillopt.models.base import FatalError, Message, TransientError, Usage
from skillopt.processes.agent_failures import classify_failure
from skillopt.processes.agent_output import AgentOutput, last_line, loaded, parse_text, tool_calls
from skillopt.processes.coding_agents import preset_of
from skillopt.processes.process import Finished, fingerprint, minimal_environ, run_command, split_command
from skillopt.skill import Skill
from skillopt.skill.package import name_problem, read_package
from skillopt.tasks.agents import journalled, task_text, timed_out
from skillopt.tasks.base import Chat, Episode, Item
from skillopt.tasks.package_tools import scripts_of
from skillopt.tasks.rollout_dirs import RolloutDirs, files_read, rollout_dirs, unread
from skillopt.tasks.tools import start
from skillopt.tasks.workspace import WorkedEpisode, Workspaces


class AgentCommandOptions(Options):
    """Options of an agent that is a command (`env.agent_options`)."""

    timeout: float = Field(default=600, gt=0)
    on_timeout: Literal["wrong", "error"] = "wrong"
    pass_env: tuple[str, ...] = ()
    """Names of further environment variables that the command gets, such as those of keys."""
    workspace: str = ""
    """A folder that is copied into every fresh workspace."""
    model: str = ""
    """The text that replaces `{model}` in the command line; for a coding agent, the model that it uses."""
    args: tuple[str, ...] = ()
    """Further arguments of a coding agent."""
    skill_name: str = Field(default="task-skill", pattern=r"^[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?$")
    description: str = "House rules for the tasks of this workspace. Use for every task here."


class CommandAgent:
    """Does tasks with a command line, or with a coding agent that SkillOpt knows by name."""

    turns = 1

    def __init__(self, config: EnvConfig, workspaces: Workspaces) -> None:
        self._options = AgentCommandOptions.read(config.agent_options, "env.agent_options")
        self._workspaces = workspaces
        preset = preset_of(config.command) if isinstance(config.command, str) else None
        self._doing = preset.task_mode if preset else None
        self._preset = preset if self._doing else None
        named = [self._preset.program, *self._doing.argv] if self._preset and self._doing else []
        self._argv = named or split_command(config.command, "env.command", "write it as a list: [python, agent.py]")
        if shutil.which(self._argv[0]) is None:
            hint = f"; {self._preset.install}" if self._preset else ""
            raise UserError(f"env.command: '{self._argv[0]}' is not a program that can be found on PATH{hint}")
        if self._options.workspace and not Path(self._options.workspace).is_dir():
            raise UserError(f"env.agent_options.workspace: '{self._options.workspace}' is not a folder")
        workspace = self._options.workspace
        self.fingerprint = fingerprint(self._argv, sorted(Path(workspace).rglob("*")) if workspace else ())

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        options = self._options.model_dump(exclude={"timeout", "pass_env", "workspace"})
        identity = ["command", self._argv_name(), options, self.fingerprint, item.model_dump(mode="json"), skill.hash]
        start = self._workspaces.start(item)
        identity += [start.digest] if self._workspaces.used else []

        async def work() -> WorkedEpisode:
            with rollout_dirs(item, skill, start, self._options.workspace) as dirs:
                argv, env, stdin = self._inputs(item, skill, dirs)
                episode = self._result(await self._ran(argv, env, stdin, dirs), skill, stdin)
                episode = self._with_files(episode, skill, dirs)
                return dirs.with_diff(episode, start, self._workspaces.most) if self._workspaces.used else episode

        return await journalled(chat, identity, work)

    async def watched(self, item: Item, skills: Mapping[str, Skill], chat: Chat) -> Episode:
        """Do a task with a coding agent that may load these skills; the task does not name them. The output is the
        names of the skills that the agent loaded."""
        options = self._options.model_dump(exclude={"timeout", "pass_env", "workspace"})
        hashes = sorted((name, skill.hash) for name, skill in skills.items())
        identity = ["trigger", self._argv_name(), options, self.fingerprint, item.model_dump(mode="json"), hashes]

        async def work() -> WorkedEpisode:
            with rollout_dirs(item, Skill(""), self._workspaces.start(item), self._options.workspace) as dirs:
                argv, env, stdin = self._inputs(item, Skill(""), dirs)
                for folder in self._doing.skill_folders(dirs.home) if self._doing else ():
                    for name, skill in skills.items():
                        skill.write_to(folder / name)
                return self._loaded(await self._ran(argv, env, stdin, dirs), stdin, list(skills))

        return await journalled(chat, identity, work)

    def _loaded(self, done: Finished, stdin: str, names: Sequence[str]) -> WorkedEpisode:
        """The episode; its output is the names of the skills that the agent loaded. They count even if the agent later
        reached its time limit."""
        heard = self._heard()(done.stdout)
        used = [name for name in names if loaded(heard.messages, name)]
        if not done.timed_out and not used:
            self._result(done, Skill(""), stdin)  # raises the error that fits a failure
        talk: list[Message] = [{"role": "user", "content": stdin}, *heard.messages]
        return WorkedEpisode(output=", ".join(used) or "none", messages=talk, usage=_usage(heard))

    def _argv_name(self) -> list[str]:
        return [Path(word).name if Path(word).is_absolute() else word for word in self._argv]

    async def _ran(self, argv: list[str], env: dict[str, str], stdin: str, dirs: RolloutDirs) -> Finished:
        try:
            return await run_command(argv, cwd=dirs.workspace, env=env, stdin=stdin, timeout=self._options.timeout)
        except OSError as error:
            raise FatalError(f"env.command: '{argv[0]}' cannot be started: {error.strerror or error}") from None

    def _with_files(self, episode: WorkedEpisode, skill: Skill, dirs: RolloutDirs) -> WorkedEpisode:
        """The episode with the names of the package's files that the agent used, as the files' access times and the
        agent's transcript show."""
        if not skill.others:
            return episode
        folders = self._skill_folders(skill, dirs) or [dirs.skill_dir]
        calls = [arguments for _, arguments in tool_calls(episode.messages)]
        named = {name for name in skill.others if any(name in arguments for arguments in calls)}
        opened = named | {name for folder in folders for name in files_read(folder, skill)}
        ran = named & set(scripts_of(skill))
        return episode.model_copy(update={"opened": tuple(sorted(opened)), "ran": tuple(sorted(ran))})

    def _name(self, skill: Skill) -> str:
        """The skill's name. A package's folder must have the package's name."""
        name = read_package(skill.front).name if skill.front else ""
        return name if name and not name_problem(name) else self._options.skill_name

    def _skill_folders(self, skill: Skill, dirs: RolloutDirs) -> list[Path]:
        """The folders in which a coding agent finds the skill; empty for any other command."""
        folders = self._doing.skill_folders(dirs.home) if self._doing else []
        return [folder / self._name(skill) for folder in folders]

    def _inputs(self, item: Item, skill: Skill, dirs: RolloutDirs) -> tuple[list[str], dict[str, str], str]:
        """The command line, the environment and the standard input of one rollout."""
        options, preset, doing, task = self._options, self._preset, self._doing, task_text(item)
        env = minimal_environ([*options.pass_env, *(preset.pass_env if preset else ())])
        env |= {"HOME": str(dirs.home), "SKILLOPT_SKILL": str(dirs.skill), "SKILLOPT_ITEM": str(dirs.item)}
        env["SKILLOPT_SKILL_DIR"] = str(dirs.skill_dir)
        if preset is None or doing is None:
            values = {"{skill}": str(dirs.skill), "{item}": str(dirs.item), "{workspace}": str(dirs.workspace)}
            argv = [_filled(word, values | {"{model}": options.model, "{task}": task}) for word in self._argv]
            return argv, env | ({"SKILLOPT_MODEL": options.model} if options.model else {}), task
        argv = [*self._argv, *preset.model_argv(options.model), *options.args, *preset.last]
        env |= doing.env(dirs.home)
        for name, text in doing.files.items():
            (dirs.home / name).parent.mkdir(parents=True, exist_ok=True)
            (dirs.home / name).write_text(text, encoding="utf-8")
        folders = self._skill_folders(skill, dirs)
        for folder in folders:  # even without a skill, the agent needs the parent folder
            folder.parent.mkdir(parents=True, exist_ok=True)
        if not skill.text.strip() and not skill.is_package:
            return argv, env, task
        for folder in folders:
            skill.write_to(folder, front_matter(options.skill_name, options.description))
            unread(folder)
        return argv, env, f"{doing.use(self._name(skill))}\n\n{task}"

    def _heard(self) -> Callable[[str], AgentOutput]:
        if self._preset is None:
            return parse_text
        return (self._doing.parse if self._doing else None) or self._preset.parse

    def _result(self, done: Finished, skill: Skill, stdin: str) -> WorkedEpisode:
        talk = start(skill, stdin)
        if done.timed_out and self._options.on_timeout == "wrong":
            if done.stdout.strip():
                talk.append({"role": "assistant", "content": redact(done.stdout)[-20_000:]})
            return timed_out(talk, self._options.timeout)
        if done.timed_out:
            raise TransientError(f"env.command: no answer within {self._options.timeout:g} s")
        if done.too_long:
            raise TransientError("env.command: the command printed more than 8 MB and was stopped")
        heard = self._heard()(done.stdout)
        if done.code or heard.error:
            message = "; ".join(filter(None, (heard.error, last_line(done.stderr)))) or last_line(done.stdout)
            trouble = classify_failure(f"{message}\n{done.stderr[-4000:]}")
            if self._preset and trouble.kind == "login":
                keys = ", ".join(self._preset.pass_env[:3])
                raise FatalError(
                    f"env.command: {redact(message)[:300]}; a rollout has a fresh home folder, and {self._argv[0]} "
                    f"finds no login there; set a key ({keys}), or add another key's variable to "
                    "env.agent_options.pass_env"
                )
            what = f"env.command: the command ended with exit code {done.code}: {redact(message)[:500]}"
            raise TransientError(what, retry_after=trouble.wait, overloaded=trouble.kind == "limit")
        messages = [*talk, *(heard.messages or [{"role": "assistant", "content": heard.output}])]
        return WorkedEpisode(output=heard.output, messages=messages, usage=_usage(heard))


def front_matter(name: str, description: str) -> str:
    """Make the front matter of SKILL.md for a skill without front matter."""
    return f"---\nname: {name}\ndescription: {json.dumps(description, ensure_ascii=False)}\n---\n\n"


def _usage(heard: AgentOutput) -> Usage:
    return Usage(prompt=heard.prompt_tokens, completion=heard.completion_tokens, usd=heard.usd)


def _filled(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word
