"""Measures whether an agent loads a skill for the right requests, and for no others. Training changes the skill's
description.

An item has a request (`question`) and says whether the skill fits (`answers`: `use` or `leave`). With a library of
skills (`env.options.skills`), `answers` is the name of the skill that fits, or `none`. A model gets the names and
descriptions of the skills and replies with the name of the skill to load, or `none`. A coding agent (`env.command`)
gets the request and finds the packages in its folder of skills; its score depends on the skills that it loads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from xml.sax.saxutils import escape

from skillopt.chat_protocol import Message
from skillopt.config import EnvConfig
from skillopt.config.options import Options
from skillopt.errors import UserError
from skillopt.processes.coding_agents import preset_of, task_presets
from skillopt.record.package import checked_package, whole_package
from skillopt.skill import FILE, Skill
from skillopt.skill.package import MAX_DESCRIPTION, plain_description, read_package
from skillopt.tasks.base import Chat, Env, Episode, Item, Score
from skillopt.tasks.command import CommandAgent
from skillopt.tasks.qa import load_items
from skillopt.tasks.workspace import Workspaces

_USE, _LEAVE = {"use", "yes", "true"}, {"leave", "no", "false"}
_ASKED = (
    "Before you begin a request you may load one of these skills. Decide by their descriptions alone. Reply with the "
    "name of the skill that the request calls for and nothing else, or with none if no skill is for it."
)


NO_SKILL = "none"
"""The output of an agent that loaded no skill of the library."""


class TriggerOptions(Options):
    """Options of the trigger metric (`env.options`)."""

    package: str = ""
    """The folder of the package whose description is trained. If it is empty, the library `skills` is only measured."""
    others: str = ""
    """A folder of further packages that the agent may load; empty for none."""
    skills: str = ""
    """A folder of packages (a library). The answer to a request is then the name of the skill that fits, or `none`."""


class TriggerEnv(Env):
    """Trains a skill's description. The agent fails a task if it loads the skill for a request that the skill does not
    fit, or does not load it for a request that the skill fits."""

    task = "Each task is a request; the agent reads the descriptions of its skills and names the one to load, or none."
    scoring = "A task is solved when the trained skill is picked for a request that it is for, and left for any other."
    patterns: Mapping[str, str] = {
        "left out": "the agent did not pick the skill for a request that it is for",
        "picked wrongly": "the agent picked the skill for a request that it is not for",
    }

    def __init__(self, config: EnvConfig) -> None:
        options = TriggerOptions.read(config.options, "env.options")
        if not (options.package or options.skills) or (options.others and options.skills):
            raise UserError(
                "env.options: set `package` (the package to train), `skills` (a library to measure), or both; "
                "`others` cannot be set together with `skills`"
            )
        self.name = config.benchmark or config.name
        beside = options.skills or options.others
        self._own = checked_package(Path(options.package)).name if options.package else ""
        self._others = _others(beside, self._own, "skills" if options.skills else "others")
        self.library = tuple(sorted({*self._others, self._own} - {""})) if options.skills else ()
        """The names of the library's skills; empty if the answers are `use` and `leave`."""
        self.fingerprint = repr(sorted(self._others.items())) + repr(self.library) * bool(options.skills)
        self._agent = _coding_agent(config) if config.command else None
        if self._agent:
            self._package = whole_package(Path(options.package)) if self._own else Skill()
            folders = [file.parent for file in sorted(Path(beside).glob(f"*/{FILE}"))] if beside else []
            self._beside = {folder.name: whole_package(folder) for folder in folders if folder.name != self._own}
            hashes = [self._package.hash, *(skill.hash for skill in self._beside.values())]
            self.fingerprint += self._agent.fingerprint + "".join(hashes)
            self.task = "Each task is a request to a coding agent, which may load skills by their descriptions."
            self.scoring = "Solved when the agent loads the trained skill for a request that it is for, and no other."
        if self.library and not self._own:
            self.scoring = "A task is solved when the agent loads the skill that the request is for, and no other."
        request = partial(_named_request, names=self.library) if self.library else _request
        self._splits = {split: [request(item, split) for item in items] for split, items in load_items(config).items()}

    def items(self, split: str) -> Sequence[Item]:
        return self._splits[split]

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        description = plain_description(skill.text)
        if self._own and (not description or len(description) > MAX_DESCRIPTION):
            return Episode(messages=[], output=f"(no agent loads a description of {len(description)} characters)")
        if self._agent:
            return await self._agent.watched(item, {**self._beside, **self._trained(description)}, chat)
        own = {self._own: description} if self._own else {}
        skills = sorted({**self._others, **own}.items())
        messages: list[Message] = [
            {"role": "system", "content": f"{_ASKED}\n\n{available_skills(skills)}"},
            {"role": "user", "content": item.question},
        ]
        reply = await chat(messages)
        output = (", ".join(self._named(reply.text)) or NO_SKILL) if self.library else reply.text
        return Episode(messages=[*messages, {"role": "assistant", "content": reply.text}], output=output)

    def _trained(self, description: str) -> dict[str, Skill]:
        """The trained package with this description, as {name: package}; empty if no package is trained."""
        if not self._own:
            return {}
        front = read_package(self._package.front).with_description(description).front
        return {self._own: replace(self._package, front=front)}

    def score(self, item: Item, output: str) -> Score:
        if output.startswith("(no agent loads"):
            return Score(hard=0, soft=0, feedback=f"a description has 1 to {MAX_DESCRIPTION} characters")
        if self.library:
            return self._routed(item.answers[0], output)
        wanted = item.answers[0] == "use"
        used = self._own in output.split(", ") if self._agent else self.picked(output) == self._own
        if used == wanted:
            return Score(hard=1, soft=1)
        feedback = "the skill is for this request, and was left out" if wanted else "the skill is not for this request"
        return Score(hard=0, soft=0, feedback=feedback)

    def _routed(self, wanted: str, output: str) -> Score:
        """The score of a request to a library. A request for another skill is solved if the agent does not load the
        trained skill, because the trained description has no influence on the choice among the other skills."""
        own = self._own
        right = own not in output.split(", ") if own and wanted != own else output == wanted
        said = "no skill was loaded" if output == NO_SKILL else f"{output} was loaded"
        feedback = f"{said}; the request is for {wanted}"
        if own:
            feedback = (
                f"the skill is for this request, and was left out: {said}"
                if wanted == own
                else f"the skill is not for this request, which is for {wanted}"
            )
        return Score(hard=right, soft=right, feedback="" if right else feedback)

    def picked(self, output: str) -> str:
        """The skill that a reply names; empty if the reply names no skill or several skills."""
        named = self._named(output)
        return named[0] if len(named) == 1 else ""

    def _named(self, output: str) -> list[str]:
        names = [
            name
            for name in (*self._others, self._own)
            if name and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", output.lower())
        ]
        return [name for name in names if not any(name != other and name in other for other in names)]


def _coding_agent(config: EnvConfig) -> CommandAgent:
    preset = preset_of(config.command) if isinstance(config.command, str) else None
    if preset is None or preset.task_mode is None:
        agents = ", ".join(task_presets())
        raise UserError(
            f"env.command: must be a coding agent ({agents}) with env.name=trigger; to ask a model, remove env.command"
        )
    return CommandAgent(config, Workspaces(Path()))


def available_skills(skills: Sequence[tuple[str, str]]) -> str:
    """The list of skills in the form that agents see."""
    rows = (
        f"<skill>\n<name>{escape(name)}</name>\n<description>{escape(text)}</description>\n</skill>"
        for name, text in skills
    )
    return "<available_skills>\n" + "\n".join(rows) + "\n</available_skills>"


def _request(item: Item, split: str) -> Item:
    answer = item.answers[0].strip().lower()
    if answer not in _USE | _LEAVE:
        raise UserError(f"{split}: '{item.id}': answers: must be 'use' or 'leave', not '{item.answers[0]}'")
    use = answer in _USE
    kind = item.type or ("right task" if use else "wrong task")
    return item.model_copy(update={"answers": ("use" if use else "leave",), "type": kind})


def _named_request(item: Item, split: str, names: Sequence[str]) -> Item:
    """A request to a library: its answer is the name of a skill, or `none`. An item without a type gets its answer as
    its type."""
    answer = item.answers[0].strip().lower()
    answer = NO_SKILL if answer in _LEAVE else answer
    if answer not in {*names, NO_SKILL}:
        known = ", ".join((*names, NO_SKILL))
        raise UserError(f"{split}: '{item.id}': answers: must name a skill ({known}), not '{item.answers[0]}'")
    return item.model_copy(update={"answers": (answer,), "type": item.type or answer})


def _others(folder: str, trained: str, option: str) -> dict[str, str]:
    if not folder:
        return {}
    if not Path(folder).is_dir() or (option == "skills" and not any(Path(folder).glob(f"*/{FILE}"))):
        raise UserError(f"env.options.{option}: '{folder}' is not a folder of packages")
    for name in (NO_SKILL, "several", *sorted(_LEAVE)) if option == "skills" else ():
        if (Path(folder) / name / FILE).is_file():
            raise UserError(
                f"env.options.skills: '{folder}/{name}': a skill cannot have this name, because '{name}' is a reserved "
                "answer; rename the package"
            )
    packages = [checked_package(file.parent) for file in sorted(Path(folder).glob(f"*/{FILE}"))]
    return {package.name: package.description for package in packages if package.name != trained}
