"""Meta skill, the optimizer's memory: notes across epochs for later reflection, never put into the skill."""

from __future__ import annotations

from skillopt import prompts
from skillopt.core.context import Context
from skillopt.letters.case import CaseFile
from skillopt.letters.compose import meta_skill_letter
from skillopt.letters.replies import text_of
from skillopt.letters.schemas import text_schema
from skillopt.models.structured import CheckedReply, ask
from skillopt.skill import Skill

LONGEST_MEMORY = 1500
"""Tokens; longer notes are asked for again."""


async def meta_skill(skill: Skill, case: CaseFile, ctx: Context) -> CheckedReply[str]:
    """New notes from the old ones and the fates of the epoch's edits; the old ones stay where none come."""
    epoch = [tried for tried in case.tried if tried.epoch == ctx.epoch]
    letter = meta_skill_letter(prompts.load("meta_skill", ctx.config.gradient.prompts_dir), case, skill, epoch)
    label = f"{ctx.config.train.seed}/meta_skill/{ctx.epoch}"
    read = text_of("memory", LONGEST_MEMORY)
    return await ask(ctx.optimizer, letter, text_schema("meta_skill", "memory"), read, label=label)
