"""What a verdict does to the run: a new version with its provenance, or a roll-back with a lower rate."""

from __future__ import annotations

from typing import Literal

from skillopt.record.costs import rollouts_paid
from skillopt.record.state import Best, Rejected, State
from skillopt.skill import Applied, Skill
from skillopt.training.context import Context
from skillopt.training.gates.base import Verdict
from skillopt.training.gates.credit import Credited


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
        record_rejections(state, credited, ctx)
        return
    state.stale_steps += 1
    update_scores(state, verdict)
    if verdict.decision == "skipped":
        state.counts.skipped += 1
        return
    if verdict.decision == "indecisive":  # it may be better: neither its edits nor the rate are penalised
        state.counts.indecisive += 1
        return
    state.counts.rejected += 1
    state.decay *= ctx.config.optimizer.reject_decay
    record_rejections(state, credited, ctx)


def record_rejections(state: State, credited: Credited, ctx: Context) -> None:
    """Edits that were left out, and all edits of a rejected candidate: the exemplar analyst does not repeat them."""
    blamed = credited.left_out
    rest = () if credited.verdict.accepted else tuple(e for e in credited.candidate.applied if e not in blamed)
    newest = ctx.config.optimizer.rejected_buffer
    entries = [Rejected(step=ctx.step, edit=edit) for edit in (*blamed, *rest)]
    state.rejected = [*state.rejected, *entries][-newest:] if newest else []


def update_scores(state: State, verdict: Verdict) -> None:
    """Take over the current skill's scores that a gate measured again."""
    if verdict.known_scores and not verdict.accepted:
        state.val = {**state.val, **verdict.known_scores}


def accept(
    state: State, skill: Skill, candidate: Applied, verdict: Verdict, ctx: Context, *, kind: Literal["edit", "guidance"]
) -> None:
    """Make the candidate the current version, and the best one: the gate has measured it against the one before.

    At an equal score guided versions also become the best one, so that the result contains what was learned.
    """
    state.version += 1
    state.current = state.version
    state.score = verdict.after
    state.val = state.val if verdict.after is None else verdict.known_scores
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
        evidence=verdict.brief().model_dump(mode="json"),
    )
    state.patch_log_size = ctx.run.patch_log.size
    improved = verdict.gain > 0
    if improved or kind == "guidance":
        if improved:
            state.telemetry.rollouts_to_best = rollouts_paid(ctx.target.journal.totals())
        state.best = Best(version=state.version, step=ctx.step, val=verdict.after)
        ctx.run.write_best(candidate.skill)
