"""The first batch: does the user's scorer score, does the user's agent answer, is there anything to learn from?

The smoke test comes before the batch, if a user's code is involved. It makes the first request of the first step: its
reply is in the journal then, and nothing is paid for twice.

Many good trainings begin with a batch in which every score is 0, since the form of the answer is what has to be
learned. So a run stops only if the scorer could not reward a right reply either; otherwise it shows a reply next to its
expected answer and continues.
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
"""The most items that are tried before the code counts as broken: a single item may be at fault itself."""


async def smoke_test(skill: Skill, items: Sequence[Item], ctx: Context) -> None:
    """Score an empty output, then do one task. Raises if neither of two items can be scored or done."""
    reader_judges = is_judged(ctx.env) and ctx.grader.model.human_paced
    if not ctx.env.fingerprint or reader_judges:  # a person who answers letters gets them all at once
        return
    await _score_nothing(ctx.env, items[:TRIES])
    failed = []
    for number, item in enumerate(items[:TRIES]):
        result = await roll_out_one(skill, item, ctx, tag=f"{ctx.step:04d}", number=number, stage="rollout")
        if isinstance(result, Trajectory):
            return
        failed.append(result)
    raise Stopped(
        f"the first {len(failed)} tasks gave no score, so no other was begun: {failed[-1].error}; when that is "
        "corrected, run the same command again: replies are kept"
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
    raise UserError(f"{trouble} (for an empty output; a scorer gives a score for any text; nothing was paid for yet)")


_TRIED = 10
_SHOWN = 160
"""The most characters of a reply and of its expected answer in a message."""


async def check_first_scores(items: Sequence[Item], trajectories: Sequence[Trajectory], ctx: Context) -> None:
    """Runs before the optimizer is asked about the first batch. Raises if the scorer is the reason for the zeros."""
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
    """A certain fault of the scorer. Zeros with an explanation are not a fault: the optimizer can learn from them."""
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
    expected = f", expected “{shortened(shown.answers[0], _SHOWN)}”" if shown.answers else ""
    return f"A reply: “{shortened(shown.output, _SHOWN)}”{expected}"
