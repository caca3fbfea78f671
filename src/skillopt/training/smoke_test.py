"""Before a run pays for a batch: does the user's scorer score, and does the user's agent answer?

Only if a user's code is involved. The test makes the first request of the first step: its reply is in the journal then,
and nothing is paid for twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from skillopt.errors import SkillOptError, Stopped, UserError
from skillopt.skill import Skill
from skillopt.tasks.base import Env, Item, Trajectory, is_judged, score_output
from skillopt.training.context import Context
from skillopt.training.rollout import roll_out_one

TRIES = 2
"""Items that are tried before the code is blamed: a single one may be at fault itself."""


async def smoke_test(skill: Skill, items: Sequence[Item], ctx: Context) -> None:
    """Score an empty output, then do one task. Raises if neither of two items can be scored or done."""
    reader_judges = is_judged(ctx.env) and ctx.optimizer.model.human_paced
    if not ctx.env.fingerprint or reader_judges:  # who answers letters gets them all at once
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
        except Exception as error:  # whatever a scorer raises
            trouble = f"the scorer failed on task '{item.id}': {type(error).__name__}: {error}"
        else:
            return
    raise UserError(f"{trouble} (for an empty output; a scorer gives a score for any text; nothing was paid for yet)")
