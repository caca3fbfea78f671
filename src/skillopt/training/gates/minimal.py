"""Tries the minimal remedy: one or two sentences that say only what was missing may beat all edits of a step.

The best of its wordings is chosen on the step's batch. That wording goes through the gate after the complete remedy
(all edits). It must beat the complete remedy if the gate accepted that, else the current skill. At an equal score the
complete remedy stays, because a shorter text has no advantage. The two are compared on validation, not on the batch:
the optimizer has seen the batch with its answers, so a complete remedy with rules and examples fits the batch too well.
A wording contains no facts of single tasks, so wordings can be compared on the batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from skillopt.record.events import CreditTried
from skillopt.record.state import ShortForm
from skillopt.record.step import CreditTry
from skillopt.skill import Applied, Skill
from skillopt.tasks.base import Item
from skillopt.training.context import Context
from skillopt.training.gates.base import Gate
from skillopt.training.gates.credit import Credited, since
from skillopt.training.rollout import roll_out_all, scored

MOST_TASKS = 8
"""The maximum number of tasks of the batch that each wording does."""


async def best_wording(wordings: Sequence[Applied], items: Sequence[Item], ctx: Context) -> Applied | None:
    """The wording with the best score on the batch, the first if several are equally good; None if there are no
    wordings."""
    if len(wordings) < 2:
        return next(iter(wordings), None)
    metric, scores = ctx.config.evaluation.metric, []
    with ctx.timed("wording"):
        for number, wording in enumerate(wordings, 1):
            tag = f"wording-{ctx.step:04d}-{number}"
            done = scored(await roll_out_all(wording.skill, items[:MOST_TASKS], ctx, tag=tag, stage="wording"))
            scores.append(math.fsum(t.score.value(metric) for t in done))
    return wordings[scores.index(max(scores))]


async def try_minimal(
    skill: Skill, minimal: Applied | None, credited: Credited, current: Mapping[str, float], ctx: Context, gate: Gate
) -> tuple[Credited, ShortForm | None]:
    """Try the minimal remedy at the gate. Return the candidate to continue with, and the minimal remedy with its
    scores; if `minimal` is None, nothing changes."""
    if minimal is None:
        return credited, None
    verdict = credited.verdict
    to_beat = credited.candidate.skill if verdict.accepted else skill
    scores = {**current, **verdict.known_scores}
    tried = await gate(to_beat, minimal, scores, ctx, tag=f"gate-{ctx.step:04d}-minimal")
    evidence = dict(tried.brief())
    beaten = tuple(edit for edit in credited.candidate.applied if edit not in minimal.applied)
    row = CreditTry(
        edits=tuple(edit.id for edit in minimal.applied), left_out=tuple(edit.id for edit in beaten), **evidence
    )
    ctx.emit(CreditTried(**evidence, edits=len(minimal.applied)))
    credited = replace(credited, tries=(*credited.tries, row))
    if tried.accepted:
        step_verdict = since(current, tried)
        credited = replace(
            credited, candidate=minimal, verdict=step_verdict, beaten=beaten, last=minimal, last_verdict=tried
        )
    elif not verdict.accepted:
        learned = {**verdict.known_scores, **tried.known_scores}
        credited = replace(credited, verdict=verdict.model_copy(update={"known_scores": learned}))
    form = ShortForm(
        step=ctx.step,
        text=minimal.applied[-1].text,
        accepted=tried.accepted,
        score=tried.after,
        at_most=tried.at_most,
        complete=verdict.after if verdict.accepted else None,
    )
    return credited, form
