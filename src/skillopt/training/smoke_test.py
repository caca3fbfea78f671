"""Checks a run's first tasks: whether the user's scorer and agent work, and whether there is anything to learn from.

If a user's code is involved, the smoke test does one task before the batch. This is the first rollout of the first
step: its reply goes into the journal, so nothing is paid for twice.

In many good trainings, every score of the first batch is 0, because the target must first learn the form of the answer.
So a score of 0 stops the run only if the scorer would give 0 to a right reply, too. If it would not, a message shows a
reply next to its expected answer, and the run continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from skillopt.errors import SkillOptError, Stopped, UserError
from skillopt.record.events import Advice
from skillopt.record.forecast import Check
from skillopt.skill import Skill
from skillopt.tasks.base import Env, Item, Trajectory, is_judged, score_output
from skillopt.tasks.data import shortened
from skillopt.tasks.scorer_check import ScorerFault, can_be_tried, gives_nothing, word_for_word
from skillopt.training.context import Context
from skillopt.training.rollout import roll_out_one

TRIES = 2
"""The user's code is regarded as broken only if this many items fail. If a single item fails, the item may be at
fault."""


async def smoke_test(skill: Skill, items: Sequence[Item], ctx: Context) -> None:
    """Score an empty output, then do one task. If this task fails, try a second one; if both fail, raise an error."""
    reader_judges = is_judged(ctx.env) and ctx.grader.model.human_paced
    if not ctx.env.fingerprint or reader_judges:  # a person who judges should get all letters at once
        return
    await _score_nothing(ctx.env, items[:TRIES])
    failed = []
    for number, item in enumerate(items[:TRIES]):
        result = await roll_out_one(skill, item, ctx, tag=f"{ctx.step:04d}", number=number, stage="rollout")
        if isinstance(result, Trajectory):
            return
        failed.append(result)
    raise Stopped(
        f"the first {len(failed)} tasks gave no score, so the run stopped: {failed[-1].error}; correct this and run "
        "the same command again (paid replies are used again)"
    )


async def _score_nothing(env: Env, items: Sequence[Item]) -> None:
    if is_judged(env) or env.scores_files:
        return
    trouble = ""
    for item in items:
        try:
            await score_output(env, item, env.baseline(item))
        except SkillOptError as error:
            trouble = str(error)
        except Exception as error:  # a scorer may raise anything
            trouble = f"the scorer failed on task '{item.id}': {type(error).__name__}: {error}"
        else:
            return
    raise UserError(
        f"{trouble}. SkillOpt tried the scorer with an empty output, and nothing was paid for yet; "
        "a scorer must score any text"
    )


_TRIED = 10
_SHOWN = 160
"""The maximum number of characters of a reply and of its expected answer in a message."""


async def check_first_scores(items: Sequence[Item], trajectories: Sequence[Trajectory], ctx: Context) -> None:
    """Check the first batch before analysts read it. Raise an error if all scores are 0 and the scorer is the likely
    reason."""
    metric = ctx.config.evaluation.metric
    if not trajectories or any(trajectory.score.value(metric) for trajectory in trajectories):
        return
    says = f"all {len(trajectories)} tasks of the first batch score 0"
    example = _example(trajectories)
    if finding := await _fault(items, trajectories, ctx):
        raise UserError(
            f"{says}, and the scorer is the likely reason: it {finding.says}. {example}. To continue, {finding.fix}; "
            "paid replies are used again"
        )
    fix = "if the reply is right, change env.scoring; if only its form is wrong, state the form in the initial skill"
    check = Check(name="scores", status="warn", says=f"{says}. {example}", fix=fix)
    ctx.emit(Advice(checks=(check,)))


async def _fault(items: Sequence[Item], trajectories: Sequence[Trajectory], ctx: Context) -> ScorerFault | None:
    """A clear fault of the scorer, or None. If a score of 0 has feedback, it is not a fault: the optimizer can learn
    from the feedback."""
    env, metric = ctx.env, ctx.config.evaluation.metric
    if not can_be_tried(env):
        return None
    with suppress(Exception):  # a scorer's error is reported when its items are set aside
        explained = any(trajectory.score.feedback.strip() for trajectory in trajectories)
        silent = None if explained else await gives_nothing(env, items[:_TRIED], metric)
        return silent or await word_for_word(env, items[:_TRIED], metric)
    return None


def _example(trajectories: Sequence[Trajectory]) -> str:
    shown = next((t for t in trajectories if t.answers and t.output.strip()), trajectories[0])
    expected = f", expected “{shortened(shown.answers[0], _SHOWN)}”" if shown.answers else ""
    return f"A reply: “{shortened(shown.output, _SHOWN)}”{expected}"
