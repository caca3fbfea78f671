"""Does an agent pick this skill for the right requests, and leave it for the wrong ones? The description is trained.

An item is a request (`question`) and whether the skill is for it (`answers`: use or leave). A model is shown the names
and descriptions of the skills, as agents that load such packages are, and names the one to load, or none. A coding
agent (`env.command`) gets the request with the packages where it looks for skills; what counts is what it loads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
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


class TriggerOptions(Options):
    """`env.options` of the trigger metric."""

    package: str
    """Folder of the package whose description is trained."""
    others: str = ""
    """Folder of further packages that the agent has, too; empty for none."""


class TriggerEnv(Env):
    """The skill that is trained is the description; a wrong pick is a failure in either direction."""

    task = "Each task is a request; the agent reads the descriptions of its skills and names the one to load, or none."
    scoring = "A task is solved when the trained skill is picked for a request that it is for, and left for any other."
    patterns: Mapping[str, str] = {
        "left out": "the agent did not pick the skill for a request that it is for",
        "picked wrongly": "the agent picked the skill for a request that it is not for",
    }

    def __init__(self, config: EnvConfig) -> None:
        options = TriggerOptions.read(config.options, "env.options")
        self.name = config.benchmark or config.name
        self._own = checked_package(Path(options.package)).name
        self._others = _others(options.others, self._own)
        self.fingerprint = repr(sorted(self._others.items()))
        self._agent = _coding_agent(config) if config.command else None
        if self._agent:
            self._package = whole_package(Path(options.package))
            folders = [file.parent for file in sorted(Path(options.others).glob(f"*/{FILE}"))] if options.others else []
            self._beside = {folder.name: whole_package(folder) for folder in folders if folder.name != self._own}
            hashes = [self._package.hash, *(skill.hash for skill in self._beside.values())]
            self.fingerprint += self._agent.fingerprint + "".join(hashes)
            self.task = "Each task is a request to a coding agent, which may load skills by their descriptions."
            self.scoring = "Solved when the agent loads the trained skill for a request that it is for, and no other."
        loaded = load_items(config)
        self._splits = {split: [_request(item, split) for item in items] for split, items in loaded.items()}

    def items(self, split: str) -> Sequence[Item]:
        return self._splits[split]

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        description = plain_description(skill.text)
        if not description or len(description) > MAX_DESCRIPTION:
            return Episode(messages=[], output=f"(no agent loads a description of {len(description)} characters)")
        if self._agent:
            front = read_package(self._package.front).with_description(description).front
            own = {self._own: replace(self._package, front=front)}
            return await self._agent.watched(item, {**self._beside, **own}, chat)
        known = sorted({**self._others, self._own: description}.items())
        messages: list[Message] = [
            {"role": "system", "content": f"{_ASKED}\n\n{available_skills(known)}"},
            {"role": "user", "content": item.question},
        ]
        reply = await chat(messages)
        return Episode(messages=[*messages, {"role": "assistant", "content": reply.text}], output=reply.text)

    def score(self, item: Item, output: str) -> Score:
        wanted = item.answers[0] == "use"
        if output.startswith("(no agent loads"):
            return Score(hard=0, soft=0, feedback=f"a description has 1 to {MAX_DESCRIPTION} characters")
        used = self._own in output.split(", ") if self._agent else self.picked(output) == self._own
        if used == wanted:
            return Score(hard=1, soft=1)
        feedback = "the skill is for this request, and was left out" if wanted else "the skill is not for this request"
        return Score(hard=0, soft=0, feedback=feedback)

    def picked(self, output: str) -> str:
        """The skill that a reply names; empty where it names none, or several."""
        named = [
            name
            for name in (*self._others, self._own)
            if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", output.lower())
        ]
        longest = [name for name in named if not any(name != other and name in other for other in named)]
        return longest[0] if len(longest) == 1 else ""


def _coding_agent(config: EnvConfig) -> CommandAgent:
    preset = preset_of(config.command) if isinstance(config.command, str) else None
    if preset is None or preset.task_mode is None:
        known = ", ".join(task_presets())
        raise UserError(f"env.command: env.name trigger takes a coding agent ({known}), or none to ask a model")
    return CommandAgent(config, Workspaces(Path()))


def available_skills(known: Sequence[tuple[str, str]]) -> str:
    """The list of skills in the form in which agents are shown it."""
    rows = (
        f"<skill>\n<name>{escape(name)}</name>\n<description>{escape(text)}</description>\n</skill>"
        for name, text in known
    )
    return "<available_skills>\n" + "\n".join(rows) + "\n</available_skills>"


def _request(item: Item, split: str) -> Item:
    said = item.answers[0].strip().lower()
    if said not in _USE | _LEAVE:
        raise UserError(f"{split}: '{item.id}': answers: must be use or leave, not '{item.answers[0]}'")
    use = said in _USE
    kind = item.type or ("right task" if use else "wrong task")
    return item.model_copy(update={"answers": ("use" if use else "leave",), "type": kind})


def _others(folder: str, own: str) -> dict[str, str]:
    if not folder:
        return {}
    if not Path(folder).is_dir():
        raise UserError(f"env.options.others: '{folder}' is not a folder of packages")
    found = [checked_package(file.parent) for file in sorted(Path(folder).glob(f"*/{FILE}"))]
    return {package.name: package.description for package in found if package.name != own}
