"""Coding agents for the doctor: which are installed, and whether the one that does the tasks answers."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from skillopt.config import Config
from skillopt.errors import SkillOptError
from skillopt.models import open_model
from skillopt.models.bound import BoundChat
from skillopt.processes.coding_agents import preset_of, presets
from skillopt.record.journal import Journal
from skillopt.skill import Skill
from skillopt.tasks.base import Item
from skillopt.tasks.command import CommandAgent
from skillopt.tasks.workspace import Workspaces
from skillopt.training.callers import make_callers

_ASKED = Item(id="doctor", question="Reply with the word ready. Do nothing else.")


def installed_agents() -> str:
    """Which of the agents of the table are on PATH."""
    every = presets()
    found = [name for name, preset in every.items() if shutil.which(preset.program)]
    missing = [name for name in every if name not in found]
    parts = [
        f"installed: {', '.join(found)}" if found else "",
        f"not installed: {', '.join(missing)}" if missing else "",
    ]
    return "; ".join(part for part in parts if part)


def does_tasks(config: Config) -> bool:
    """Is the target a coding agent that is known by name?"""
    return isinstance(config.env.command, str) and preset_of(config.env.command) is not None


async def agent_answers(config: Config) -> tuple[str, str]:
    """One short task for the target; gives what it said, and what went wrong."""
    started = time.monotonic()
    quick = config.model_copy(update={"hardware": config.hardware.model_copy(update={"max_retries": 0})})
    try:
        agent = CommandAgent(quick.env, Workspaces(Path()))
        with Journal(":memory:") as journal:
            callers, _, _ = make_callers(quick, journal, {"target": open_model("target", quick)})
            chat = BoundChat(callers["target"], label="doctor", stage="doctor")
            episode = await agent.run(_ASKED, Skill(""), chat)
    except SkillOptError as error:
        return "", str(error)
    if episode.score is not None or not episode.output.strip():
        return "", episode.score.feedback if episode.score else "it gave an empty answer"
    return f"{config.env.command} answered in {time.monotonic() - started:.1f} s", ""
