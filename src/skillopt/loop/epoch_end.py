"""An epoch's end: slow update (guidance through the gate) and meta skill (notes for the optimizer), in parallel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skillopt.core.context import Context
from skillopt.gates.base import Gate
from skillopt.letters.case import CaseFile
from skillopt.loop.case_file import case_file
from skillopt.loop.commit import accept, learn
from skillopt.loop.meta_skill import meta_skill
from skillopt.loop.record import gate_record
from skillopt.loop.slow_update import Comparison, begin_comparison, slow_update
from skillopt.models.structured import CheckedReply
from skillopt.run.files import write_atomic, write_json, write_jsonl
from skillopt.run.state import State
from skillopt.skill import Applied, Edit, Skill


async def end_epoch(state: State, ctx: Context, gate: Gate, settled: Callable[[int, Skill], None]) -> dict[str, Any]:
    """Brings `state` to the epoch's end and returns what happened, for the history.

    `settled` is called with the step and the skill as soon as that can no longer change.
    """
    optimizer = ctx.config.optimizer
    outcome: dict[str, Any] = {"epoch": ctx.epoch}
    case = case_file(state, optimizer.learning_rate, ctx)
    skill = ctx.run.read_skill(state.current)
    read_later = ctx.epoch < ctx.config.train.num_epochs  # nobody reads notes that the last epoch would write
    notes = ctx.underway.start(meta_skill(skill, case, ctx)) if optimizer.use_meta_skill and read_later else None
    if optimizer.use_slow_update and ctx.epoch >= 2:
        outcome["slow_update"] = await _slow_update(state, case, ctx, gate)
    settled(ctx.step, ctx.run.read_skill(state.current))
    if notes:
        outcome["meta_skill"] = _remember(state, await notes, ctx)
    state.epoch_versions = [*state.epoch_versions, state.current]
    state.epoch = ctx.epoch
    write_json(ctx.run.epoch_end(state.step), outcome)
    return outcome


def look_ahead(state: State, skill: Skill, ctx: Context) -> None:
    """In an epoch's last step: once the epoch has changed the skill, the slow update will want the one before it."""
    before = ctx.run.read_skill(state.epoch_versions[-1])
    if ctx.config.optimizer.use_slow_update and ctx.epoch >= 2 and before.hash != skill.hash:
        begin_comparison(before, ctx)


async def _slow_update(state: State, case: CaseFile, ctx: Context, gate: Gate) -> dict[str, Any]:
    previous = state.epoch_versions[-1]
    before, after = ctx.run.read_skill(previous), ctx.run.read_skill(state.current)
    ctx.emit("slow_update_started", before=previous, after=state.current)
    comparison, trajectories = await slow_update(before, after, (previous, state.current), case, ctx)
    folder = ctx.run.slow_update(ctx.epoch)
    write_json(folder / "comparison.json", comparison)
    write_jsonl(folder / "trajectories.jsonl", trajectories)
    write_atomic(folder / "guidance.md", comparison.guidance)
    outcome: dict[str, Any] = {"equal": comparison.equal, "counts": comparison.counts, "lost": comparison.lost}
    outcome["unusable"] = list(comparison.unusable)
    candidate = after.with_guidance(comparison.guidance) if comparison.guidance else after
    edit = guidance_edit(comparison, after.guidance, ctx)
    applied = Applied(skill=candidate, applied=(edit,) if candidate.hash != after.hash else ())
    rule = ctx.config.optimizer.slow_update_gate
    verdict = await gate(after, applied, state.val, ctx, tag=f"gate-slow-{ctx.epoch:02d}", rule=rule)
    write_jsonl(folder / "gate_trajectories.jsonl", verdict.trajectories)
    write_json(folder / "gate.json", gate_record(verdict, candidate))
    if verdict.accepted:
        accept(state, after, applied, verdict, ctx, kind="guidance")
    else:
        learn(state, verdict)
    ctx.emit("slow_update_finished", counts=comparison.counts, lost=comparison.lost, gate=verdict.brief())
    return outcome | {"decision": verdict.decision, "evidence": verdict.brief(), "version": state.current}


def guidance_edit(comparison: Comparison, earlier: str, ctx: Context) -> Edit:
    """Guidance in the form of an edit, so that the log treats it like any other."""
    cited = tuple(sorted(row.after_id for row in comparison.rows))
    return Edit(
        id=f"guidance-{ctx.epoch:02d}",
        op="modify" if earlier else "add",
        section="(protected region)",
        anchor=earlier,
        text=comparison.guidance,
        rationale="slow update",
        trajectory_ids=cited,
        source="slow_update",
    )


def _remember(state: State, answer: CheckedReply[str], ctx: Context) -> dict[str, Any]:
    if answer.value is not None:
        state.memory = answer.value
    write_atomic(ctx.run.meta_skill(ctx.epoch) / "memory.md", state.memory + "\n" if state.memory else "")
    ctx.emit("meta_skill_finished", lost=answer.lost)
    return {"lost": answer.lost, "unusable": list(answer.unusable)}
