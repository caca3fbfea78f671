"""Credit: finds the edits that broke items in a rejected candidate, and tries the other edits. One bad edit should not
sink three good ones.

In each try, one edit is left out, and the broken items are done once more with the other edits; all tries run at the
same time. If the items pass again, the edit that was left out is to blame. The candidate without the blamed edits goes
through the whole gate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skillopt.models.call import gather_all
from skillopt.record.events import CreditTried
from skillopt.record.step import CreditTry, ItemEvidence
from skillopt.skill import Applied, Edit, Skill
from skillopt.tasks.base import Item, Trajectory
from skillopt.training.context import Context
from skillopt.training.edits.groups import units
from skillopt.training.edits.update import update
from skillopt.training.gates.base import Gate, Verdict, mean, remeasured
from skillopt.training.gates.strict import shared_words
from skillopt.training.rollout import roll_out_all

MOST_BROKEN = 6
"""The maximum number of broken items that are tried again; items with the largest loss come first."""
MOST_SUSPECTS = 6
"""The maximum number of suspected edits (or groups); each of them is left out in a separate try. Edits that share the
most words with the broken items come first."""


@dataclass(frozen=True, kw_only=True)
class Credited:
    """The candidate that the step continues with, its verdict, and the smaller candidates that were tried."""

    candidate: Applied
    verdict: Verdict
    rejected: Verdict
    """The verdict on the candidate with all edits."""
    left_out: tuple[Edit, ...] = ()
    """Edits that were found to break items."""
    beaten: tuple[Edit, ...] = ()
    """The edits of the complete remedy (all selected edits), if the minimal remedy beat the complete remedy
    (gates/minimal.py)."""
    tries: tuple[CreditTry, ...] = ()
    last: Applied
    """The last candidate that went through the gate: the one with all edits, or one with fewer."""
    last_verdict: Verdict

    @property
    def rejected_edits(self) -> tuple[Edit, ...]:
        """The edits that broke items or lost to the minimal remedy. If the candidate was not accepted, all its edits
        are included."""
        gone = (*self.left_out, *self.beaten)
        return gone if self.verdict.accepted else (*gone, *self.candidate.applied)


async def credit(
    skill: Skill, candidate: Applied, verdict: Verdict, current: Mapping[str, float], ctx: Context, gate: Gate
) -> Credited:
    """Send a rejected candidate through the gate again without the edits that broke items. Repeat this as long as an
    edit is to blame, but at most `evaluation.credit_gates` times.

    The step continues with the first smaller candidate that is accepted. If none is accepted, all edits stay rejected.
    """
    part, tried = candidate, verdict
    scores = {} if verdict.accepted else dict(verdict.known_scores)
    left_out: list[Edit] = []
    tries: list[CreditTry] = []
    while tried.decision in {"reject", "indecisive"} and len(tries) < ctx.config.evaluation.credit_gates:
        tag = f"gate-{ctx.step:04d}-credit-{len(tries) + 1:02d}"
        blamed = await to_blame(skill, part, tried, ctx, tag)
        rest = [edit for edit in part.applied if edit not in blamed]
        if not blamed or not rest:
            break
        left_out += blamed
        part = update(skill, rest, ctx)
        tried = await gate(skill, part, {**current, **scores}, ctx, tag=tag)
        scores |= {} if tried.accepted else tried.known_scores
        evidence = dict(tried.brief())
        left = tuple(edit.id for edit in part.applied)
        tries.append(CreditTry(edits=left, left_out=tuple(edit.id for edit in blamed), **evidence))
        ctx.emit(CreditTried(**evidence, edits=len(left)))
    if tries and tried.accepted:
        decided, step_verdict = part, since(current, tried) if scores else tried
    else:
        learned = {"known_scores": scores, "remeasured": remeasured(current, scores)}
        decided, step_verdict = candidate, verdict if verdict.accepted else verdict.model_copy(update=learned)
    return Credited(
        candidate=decided,
        verdict=step_verdict,
        rejected=verdict,
        left_out=tuple(left_out),
        tries=tuple(tries),
        last=part,
        last_verdict=tried,
    )


def since(current: Mapping[str, float], verdict: Verdict) -> Verdict:
    """The verdict, with the scores at the start of the step as `before`. These scores do not contain the samples that
    the gates of this step took."""
    rows = tuple(row.model_copy(update={"before": current[row.item_id]}) for row in verdict.evidence)
    return verdict.model_copy(update={"evidence": rows, "before": mean([row.before for row in rows])} if rows else {})


async def to_blame(skill: Skill, candidate: Applied, verdict: Verdict, ctx: Context, tag: str) -> list[Edit]:
    """The edits without which broken items pass again. Empty if the candidate has only one edit (or group), or if the
    candidate helped so few items that it would not pass a gate even without these edits."""
    broken = broken_rows(verdict)
    worth_it = len(helped_rows(verdict)) >= (2 if ctx.noisy else 1)  # a single item may have been luck
    if not broken or not worth_it or len(units(candidate.applied)) < 2:
        return []
    items = {item.id: item for item in ctx.env.items("val")}
    asked = [items[row.item_id] for row in broken]
    suspects = suspected(candidate.applied, asked, list(items.values()))
    healed = await gather_all(
        _healed(skill, candidate, together, broken, asked, ctx, f"{tag}-{together[0].id}") for together in suspects
    )
    blamed: list[Edit] = []
    left = {row.item_id for row in broken}
    while left:
        best = max(range(len(suspects)), key=lambda n: (len(healed[n] & left), -n))
        if 2 * len(healed[best] & left) < len(left):
            break
        blamed += suspects[best]
        left -= healed[best]
    return blamed


async def _healed(
    skill: Skill,
    candidate: Applied,
    together: Sequence[Edit],
    broken: Sequence[ItemEvidence],
    asked: Sequence[Item],
    ctx: Context,
    tag: str,
) -> set[str]:
    """The broken items that pass again without the edits in `together`."""
    rest = update(skill, [other for other in candidate.applied if other not in together], ctx).skill
    metric = ctx.config.evaluation.metric
    results = await roll_out_all(rest, asked, ctx, tag=tag, stage="gate")
    return {
        row.item_id
        for row, result in zip(broken, results, strict=True)
        if isinstance(result, Trajectory) and result.score.value(metric) >= sum(row.pair) / 2
    }


def broken_rows(verdict: Verdict) -> list[ItemEvidence]:
    """The items whose score fell clearly, at most MOST_BROKEN; the largest losses come first."""
    rows = [row for row in verdict.evidence if -row.change >= _clear(verdict)]
    return sorted(rows, key=lambda row: (row.change, row.item_id))[:MOST_BROKEN]


def helped_rows(verdict: Verdict) -> list[ItemEvidence]:
    return [row for row in verdict.evidence if row.change >= _clear(verdict)]


def _clear(verdict: Verdict) -> float:
    """An item is regarded as broken or helped if its score changes by at least this much."""
    return 0.5 if verdict.metric == "hard" else 0.2


def suspected(edits: Sequence[Edit], broken: Sequence[Item], every: Sequence[Item]) -> list[list[Edit]]:
    """The groups of edits that may have broken the items, at most MOST_SUSPECTS. Groups that share the most words with
    the broken items come first; among equals, groups that change or delete text come first."""
    touched = shared_words({item.id: item for item in every})
    ids = [item.id for item in broken]

    def rank(together: Sequence[Edit]) -> tuple[float, bool, str]:
        shared = touched(together)
        return -sum(shared[i] for i in ids), all(edit.op == "add" for edit in together), together[0].id

    return sorted(units(edits), key=rank)[:MOST_SUSPECTS]
