"""Chooses the advice in the prompt for a batch. The choice depends only on observations, never on the name of a
model."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from skillopt.skill import Skill
from skillopt.tasks.base import Trajectory
from skillopt.tasks.failure_kinds import FORM, failure_kind, is_calculated
from skillopt.training.requests.context import OptimizerContext
from skillopt.training.requests.shared import shared_text

SOME = 0.25
"""A kind of failure gets its own advice if it makes up at least this share of the failures."""
MOST = 0.5
FEW = 0.2
SEVERAL = 3
"""If there are fewer failures than this, a majority of them says nothing."""
GOOD = 0.9
"""The minimum share of solved tasks that shows that the target follows the skill."""


def advice_for(skill: Skill, knowledge: OptimizerContext, trajectories: Sequence[Trajectory]) -> tuple[str, ...]:
    """The names of the prompt parts for a batch. One part is for the way in which the target learns; each frequent kind
    of failure has a part of its own."""
    failures = [t for t in trajectories if t.score.hard < 1]
    if not failures:
        return ("reflect_imitator",)
    choices = knowledge.choices_in(trajectories)
    kinds = [failure_kind(t, choices) for t in failures]
    form = sum(kind in FORM for kind in kinds) / len(kinds)
    cut_off = kinds.count("cut_off") / len(kinds)
    if knowledge.first_step:  # an agent that does not know the form of an answer talks until it is cut off
        form, cut_off = form + cut_off, 0.0
    calculated = sum(map(is_calculated, failures)) / len(failures)
    shared = shared_text([t.input for t in trajectories])
    unseen = [t for t in trajectories if not shared.is_example(t.input, skill)]
    weak = form + cut_off > FEW or calculated >= SOME or not all(t in unseen for t in failures)
    competent = not weak and _able(skill, knowledge, trajectories, unseen)
    parts = {
        "reflect_imitator": not competent,
        "reflect_competent": competent,
        "reflect_form": form >= MOST and len(failures) >= SEVERAL,
        "reflect_cut_off": cut_off >= SOME,
        "reflect_steps": calculated >= SOME,
    }
    return tuple(name for name, fits in parts.items() if fits)


def _able(
    skill: Skill, knowledge: OptimizerContext, trajectories: Sequence[Trajectory], unseen: Sequence[Trajectory]
) -> bool:
    """True in two cases. With the initial skill, the target solved most tasks, well above chance. Or with the current
    skill, it solves nearly all validation tasks, and nearly all tasks of the batch that are not examples in the
    skill."""
    start = knowledge.initial
    if start is None and not skill.shown.text.strip():
        start = mean(t.score.soft for t in trajectories)
    different = len({t.answers[0] for t in trajectories if t.answers})
    chance = 1 / different if different and knowledge.choices_in(trajectories) else 0.0
    able = start is not None and start >= MOST + chance / 2
    follows = bool(skill.shown.text.strip() and unseen) and knowledge.validation is not None
    return able or (follows and min(knowledge.validation or 0.0, mean(t.score.hard for t in unseen)) >= GOOD)
