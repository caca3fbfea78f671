"""Tries the minimal remedy: one or two sentences that say only what is missing may beat all edits of a step.

The best of its wordings is chosen on training tasks. This wording goes through the gate after the complete remedy (all
edits). If the gate accepted the complete remedy, the wording must beat the complete remedy; else it must beat the
current skill. At an equal score the complete remedy stays, because a shorter text has no advantage.

The two remedies are compared on validation tasks: the optimizer has seen the training tasks with their answers, so a
complete remedy with rules and examples fits the training tasks too well. A wording contains no facts of single tasks,
so wordings can be compared on training tasks.
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

FIRST_TASKS = 8
"""Each wording does this many tasks of the batch."""
MORE_TASKS = 16
"""The two best wordings do this many further training tasks. After 8 tasks alone, chance would decide between the
two."""


async def best_wording(wordings: Sequence[Applied], items: Sequence[Item], ctx: Context) -> Applied | None:
    """The wording with the best score on training tasks. If several are equally good, the first of them; if there are
    no wordings, None.

    Each wording does some tasks of the step's batch (`items`). If the score of any wording is above 0, the two best
    wordings then do further training tasks.
    """
    if len(wordings) < 2:
        return next(iter(wordings), None)
    batch = {item.id for item in items}
    tasks = [*items, *(item for item in ctx.env.items("train") if item.id not in batch)]
    first, more = tasks[:FIRST_TASKS], tasks[FIRST_TASKS : FIRST_TASKS + MORE_TASKS]
    with ctx.timed("wording"):
        scores = [await _score(one, first, f"wording-{ctx.step:04d}-{n}", ctx) for n, one in enumerate(wordings, 1)]
        best = sorted(range(len(wordings)), key=lambda index: (-scores[index], index))[:2]
        if max(scores) > 0:
            for index in best:
                tag = f"wording-{ctx.step:04d}-{index + 1}-more"
                scores[index] += await _score(wordings[index], more, tag, ctx)
    return wordings[max(best, key=lambda index: (scores[index], -index))]


async def _score(wording: Applied, tasks: Sequence[Item], tag: str, ctx: Context) -> float:
    done = scored(await roll_out_all(wording.skill, tasks, ctx, tag=tag, stage="wording"))
    return math.fsum(t.score.value(ctx.config.evaluation.metric) for t in done)


async def try_minimal(
    skill: Skill, minimal: Applied | None, credited: Credited, current: Mapping[str, float], ctx: Context, gate: Gate
) -> tuple[Credited, ShortForm | None]:
    """Try the minimal remedy at the gate. Return the candidate to continue with, and the minimal remedy with its
    scores. If `minimal` is None, `credited` is returned unchanged."""
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
