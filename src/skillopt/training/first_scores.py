"""A first batch in which every score is 0: is there anything to learn from, or is the scorer at fault?

Many good trainings begin at 0, since the form of the answer is what has to be learned. So a run stops only if the
scorer could not reward a right reply either; otherwise it shows a reply next to its expected answer and continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from skillopt.errors import UserError
from skillopt.record.events import Advice
from skillopt.record.forecast import Check
from skillopt.tasks.base import Item, Trajectory
from skillopt.tasks.scorer_check import ScorerFault, can_be_tried, gives_nothing, word_for_word
from skillopt.training.context import Context

_TRIED = 10
_SHOWN = 160
"""Characters of a reply, and of its expected answer."""


async def check_first_scores(items: Sequence[Item], trajectories: Sequence[Trajectory], ctx: Context) -> None:
    """Before the optimizer is asked about the first batch. Raises if the scorer is the reason for the zeros."""
    metric = ctx.config.evaluation.metric
    if not trajectories or any(trajectory.score.value(metric) for trajectory in trajectories):
        return
    says = f"all {len(trajectories)} tasks of the first batch score 0"
    example = _example(trajectories)
    if finding := await _fault(items, trajectories, ctx):
        raise UserError(
            f"{says}, and the scorer is the likely reason: it {finding.says}. {example}. To continue, {finding.fix}; "
            "the replies that are paid for are used again"
        )
    fix = "if the reply is right, change env.scoring; if only its form is wrong, state the form in the initial skill"
    check = Check(name="scores", status="warn", says=f"{says}. {example}", fix=fix)
    ctx.emit(Advice(checks=(check,)))


async def _fault(items: Sequence[Item], trajectories: Sequence[Trajectory], ctx: Context) -> ScorerFault | None:
    """What is wrong with the scorer for certain; a scorer that explains its zeros can be learned from."""
    env, metric = ctx.env, ctx.config.evaluation.metric
    if not can_be_tried(env):
        return None
    with suppress(Exception):  # a scorer that raises sets items aside, and is reported there
        explained = any(trajectory.score.feedback.strip() for trajectory in trajectories)
        silent = None if explained else await gives_nothing(env, items[:_TRIED], metric)
        return silent or await word_for_word(env, items[:_TRIED], metric)
    return None


def _example(trajectories: Sequence[Trajectory]) -> str:
    shown = next((t for t in trajectories if t.answers and t.output.strip()), trajectories[0])
    expected = f", expected “{_cut(shown.answers[0])}”" if shown.answers else ""
    return f"A reply: “{_cut(shown.output)}”{expected}"


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHOWN else f"{flat[: _SHOWN - 1]}…"
