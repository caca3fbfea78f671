"""What a verdict does to the run: a new version with its provenance, or a roll-back with a lower rate."""

from __future__ import annotations

from typing import Any, Literal

from skillopt.core.context import Context
from skillopt.gates.base import Verdict, changed_types
from skillopt.gates.credit import Credited, broken_rows
from skillopt.run.state import Best, Rejected, State
from skillopt.run.summary import rollouts_paid
from skillopt.skill import Applied, Skill


def apply_verdict(state: State, skill: Skill, credited: Credited, ctx: Context) -> None:
    """The end of a step."""
    candidate, verdict = credited.candidate, credited.verdict
    state.counts.run += 1
    state.telemetry.gate_calls_saved += verdict.telemetry.get("saved", 0)
    if verdict.accepted:
        state.counts.accepted += 1
        state.edits_accepted += len(candidate.applied)
        state.stale_steps = 0
        state.decay = min(1.0, state.decay / ctx.config.optimizer.reject_decay)
        accept(state, skill, candidate, verdict, ctx, kind="edit")
        hold_against(state, credited, ctx)
        return
    state.stale_steps += 1
    learn(state, verdict)
    if verdict.decision == "skipped":
        state.counts.skipped += 1
        return
    if verdict.decision == "indecisive":  # it may be better: neither its edits nor the rate are penalised
        state.counts.indecisive += 1
        return
    state.counts.rejected += 1
    state.decay *= ctx.config.optimizer.reject_decay
    hold_against(state, credited, ctx)


def hold_against(state: State, credited: Credited, ctx: Context) -> None:
    """What is known against each rejected edit. Edits that were found to break items answer for that themselves; the
    others of a rejected candidate were only rejected together."""
    blamed = credited.left_out
    rest = () if credited.verdict.accepted else tuple(e for e in credited.candidate.applied if e not in blamed)
    known = against(credited, ctx)
    entries = [Rejected(step=ctx.step, edit=edit, verdict="reject", blamed=True, **known) for edit in blamed]
    entries += [Rejected(step=ctx.step, edit=edit, verdict="reject", group=len(rest), **known) for edit in rest]
    newest = ctx.config.optimizer.rejected_buffer
    state.rejected = [*state.rejected, *entries][-newest:] if newest else []


def against(credited: Credited, ctx: Context) -> dict[str, Any]:
    """What the gate saw of the whole candidate."""
    verdict = credited.rejected
    helped, broke = changed_types(verdict, ctx)
    broken = tuple(row.item_id for row in broken_rows(verdict))
    types = {"broken_types": broke, "helped_types": helped}
    return {"before": verdict.before, "after": verdict.after, "broken": broken, **types}


def learn(state: State, verdict: Verdict) -> None:
    """A gate that measured the current skill again knows its items better, whatever became of the candidate."""
    if verdict.standing and not verdict.accepted:
        state.val = {**state.val, **verdict.standing}


def accept(
    state: State, skill: Skill, candidate: Applied, verdict: Verdict, ctx: Context, *, kind: Literal["edit", "guidance"]
) -> None:
    """Make the candidate the current version, and the best one: the gate has measured it against the one before.

    At an equal score guided versions also become the best one, so that the result contains what was learned.
    """
    assert verdict.after is not None
    state.version += 1
    state.current = state.version
    state.val = verdict.standing
    state.set_aside = {**state.set_aside, **verdict.set_aside}
    ctx.run.write_skill(state.version, candidate.skill)
    ctx.run.patch_log.append(
        candidate.applied,
        kind=kind,
        step=ctx.step,
        epoch=ctx.epoch,
        version=state.version,
        before=skill,
        after=candidate.skill,
        evidence=verdict.brief(),
    )
    state.patch_log_size = ctx.run.patch_log.size
    improved = verdict.after > verdict.before
    if improved or kind == "guidance":
        if improved:
            state.telemetry.rollouts_to_best = rollouts_paid(ctx.target.journal.totals())
        state.best = Best(version=state.version, step=ctx.step, val=verdict.after)
        ctx.run.write_best(candidate.skill)
