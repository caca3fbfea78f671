"""An epoch's end: slow update (guidance through the gate) and meta skill (notes for the optimizer)."""

from __future__ import annotations

from skillopt.models.structured import ask
from skillopt.record.events import MetaSkillFinished, SlowUpdateFinished, SlowUpdateStarted
from skillopt.record.files import write_atomic, write_json, write_jsonl
from skillopt.record.state import State
from skillopt.record.step import EpochComparison, EpochEnd, MetaSkillOutcome, SlowUpdateOutcome
from skillopt.skill import Applied, Edit, Skill
from skillopt.training import prompts
from skillopt.training.commit import accept, update_scores
from skillopt.training.context import Context
from skillopt.training.gates.base import Gate
from skillopt.training.optimizer_context import optimizer_context
from skillopt.training.requests.compose import meta_skill_request
from skillopt.training.requests.context import OptimizerContext
from skillopt.training.requests.replies import text_of
from skillopt.training.requests.schemas import text_schema
from skillopt.training.slow_update import slow_update

LONGEST_MEMORY = 1500
"""Tokens; longer notes are asked for again."""


async def end_epoch(state: State, previous: Skill, skill: Skill, ctx: Context, gate: Gate) -> tuple[Skill, EpochEnd]:
    """Bring `state` to the epoch's end. Returns the skill that training continues with, and the record for the history.

    `previous` is the skill at the end of the epoch before.
    """
    optimizer = ctx.config.optimizer
    knowledge = optimizer_context(state, optimizer.learning_rate, ctx)
    slow = meta = None
    if optimizer.use_meta_skill and ctx.epoch < ctx.config.train.num_epochs:  # nobody reads notes of the last epoch
        meta = await meta_skill(state, skill, knowledge, ctx)
    if optimizer.use_slow_update and ctx.epoch >= 2:
        skill, slow = await _slow_update(state, previous, skill, knowledge, ctx, gate)
    outcome = EpochEnd(epoch=ctx.epoch, slow_update=slow, meta_skill=meta)
    state.epoch_versions = [*state.epoch_versions, state.current]
    state.epoch = ctx.epoch
    write_json(ctx.run.epoch_end(state.step), outcome)
    return skill, outcome


async def _slow_update(
    state: State, before: Skill, after: Skill, knowledge: OptimizerContext, ctx: Context, gate: Gate
) -> tuple[Skill, SlowUpdateOutcome]:
    versions = state.epoch_versions[-1], state.current
    ctx.emit(SlowUpdateStarted(before=versions[0], after=versions[1]))
    comparison, trajectories = await slow_update(before, after, versions, knowledge, ctx)
    folder = ctx.run.slow_update(ctx.epoch)
    write_json(folder / "comparison.json", comparison)
    write_jsonl(folder / "trajectories.jsonl", trajectories)
    write_atomic(folder / "guidance.md", comparison.guidance)
    candidate = after.with_guidance(comparison.guidance) if comparison.guidance else after
    edit = guidance_edit(comparison, after.guidance, ctx)
    applied = Applied(skill=candidate, applied=(edit,) if candidate.hash != after.hash else ())
    rule = ctx.config.optimizer.slow_update_gate
    verdict = await gate(after, applied, state.val, ctx, tag=f"gate-slow-{ctx.epoch:02d}", rule=rule)
    write_jsonl(folder / "gate_trajectories.jsonl", verdict.trajectories)
    write_json(folder / "gate.json", verdict.record(candidate))
    if verdict.accepted:
        accept(state, after, applied, verdict, ctx, kind="guidance")
    else:
        update_scores(state, verdict)
    evidence = verdict.brief()
    ctx.emit(SlowUpdateFinished(counts=comparison.counts, lost=comparison.lost, gate=evidence))
    outcome = SlowUpdateOutcome(
        equal=comparison.equal,
        counts=comparison.counts,
        lost=comparison.lost,
        unusable=comparison.unusable,
        decision=evidence.decision,
        evidence=evidence,
        version=state.current,
    )
    return candidate if verdict.accepted else after, outcome


def guidance_edit(comparison: EpochComparison, earlier: str, ctx: Context) -> Edit:
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


async def meta_skill(state: State, skill: Skill, knowledge: OptimizerContext, ctx: Context) -> MetaSkillOutcome:
    """The optimizer's memory: new notes from the old ones and the results of the epoch's edits, for later reflection,
    never put into the skill. Without a usable reply the old ones stay."""
    epoch = [tried for tried in knowledge.tried if tried.epoch == ctx.epoch]
    request = meta_skill_request(prompts.load("meta_skill", ctx.config.gradient.prompts_dir), knowledge, skill, epoch)
    label = f"{ctx.config.train.seed}/meta_skill/{ctx.epoch}"
    read = text_of("memory", LONGEST_MEMORY)
    answer = await ask(ctx.optimizer, request, text_schema("meta_skill", "memory"), read, label=label)
    if answer.value is not None:
        state.memory = answer.value
    write_atomic(ctx.run.meta_skill(ctx.epoch) / "memory.md", state.memory + "\n" if state.memory else "")
    ctx.emit(MetaSkillFinished(lost=answer.lost))
    return MetaSkillOutcome(lost=answer.lost, unusable=answer.unusable)
