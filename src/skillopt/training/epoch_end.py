"""An epoch's end: slow update (guidance through the gate) and meta skill (notes for the optimizer), in parallel.

The slow update is the momentum: two epochs' skills on the same items, and guidance that keeps the progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from skillopt.models.call import gather_all
from skillopt.models.structured import CheckedReply, ask
from skillopt.record.events import MetaSkillFinished, SlowUpdateFinished, SlowUpdateStarted
from skillopt.record.files import write_atomic, write_json, write_jsonl
from skillopt.record.state import State
from skillopt.record.step import ComparedItem, EpochComparison, EpochEnd, ItemClass, MetaSkillOutcome, SlowUpdateOutcome
from skillopt.skill import Applied, Edit, Skill
from skillopt.tasks.base import Item, RolloutError, Trajectory
from skillopt.training import prompts
from skillopt.training.batches import in_id_order
from skillopt.training.context import Context
from skillopt.training.edits.risk import new_risk
from skillopt.training.gates.base import Gate
from skillopt.training.optimizer_context import optimizer_context
from skillopt.training.requests.compose import meta_skill_request, slow_update_request
from skillopt.training.requests.context import OptimizerContext, Pair
from skillopt.training.requests.replies import says_nothing, text_of, text_schema
from skillopt.training.rollout import begin_ahead, require_most, rollout, scored
from skillopt.training.step_files import accept, update_scores

LONGEST_MEMORY = 1500
"""Tokens; longer notes are asked for again."""


async def end_epoch(
    state: State, previous: Skill, skill: Skill, ctx: Context, gate: Gate, settled: Callable[[int, Skill], None]
) -> tuple[Skill, EpochEnd]:
    """Bring `state` to the epoch's end. Returns the skill that training continues with, and the record for the history.

    `previous` is the skill at the end of the epoch before. `settled` is called with the step and the skill as soon as
    the skill can no longer change.
    """
    optimizer = ctx.config.optimizer
    knowledge = optimizer_context(state, optimizer.learning_rate, ctx)
    read_later = ctx.epoch < ctx.config.train.num_epochs  # nobody reads notes that the last epoch would write
    notes = ctx.background.start(meta_skill(skill, knowledge, ctx)) if optimizer.use_meta_skill and read_later else None
    slow = None
    if optimizer.use_slow_update and ctx.epoch >= 2:
        skill, slow = await _slow_update(state, previous, skill, knowledge, ctx, gate)
    settled(ctx.step, skill)
    meta = _remember(state, await notes, ctx) if notes else None
    outcome = EpochEnd(epoch=ctx.epoch, slow_update=slow, meta_skill=meta)
    state.epoch_versions = [*state.epoch_versions, state.current]
    state.epoch = ctx.epoch
    write_json(ctx.run.epoch_end(state.step), outcome)
    return skill, outcome


def look_ahead(previous: Skill, skill: Skill, ctx: Context) -> None:
    """In an epoch's last step: if the epoch has changed the skill, the slow update will compare it with the previous
    epoch's, which can be rolled out already."""
    if ctx.config.optimizer.use_slow_update and ctx.epoch >= 2 and previous.hash != skill.hash:
        begin_ahead(previous, _sample(ctx), ctx, tag=_tag("before", ctx), stage="slow_update")


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


async def meta_skill(skill: Skill, knowledge: OptimizerContext, ctx: Context) -> CheckedReply[str]:
    """The optimizer's memory: new notes from the old ones and the results of the epoch's edits, for later reflection,
    never put into the skill. Without a usable reply the old ones stay."""
    epoch = [tried for tried in knowledge.tried if tried.epoch == ctx.epoch]
    request = meta_skill_request(prompts.load("meta_skill", ctx.config.gradient.prompts_dir), knowledge, skill, epoch)
    label = f"{ctx.config.train.seed}/meta_skill/{ctx.epoch}"
    read = text_of("memory", LONGEST_MEMORY)
    return await ask(ctx.optimizer, request, text_schema("meta_skill", "memory"), read, label=label)


def _remember(state: State, answer: CheckedReply[str], ctx: Context) -> MetaSkillOutcome:
    if answer.value is not None:
        state.memory = answer.value
    write_atomic(ctx.run.meta_skill(ctx.epoch) / "memory.md", state.memory + "\n" if state.memory else "")
    ctx.emit(MetaSkillFinished(lost=answer.lost))
    return MetaSkillOutcome(lost=answer.lost, unusable=answer.unusable)


_EQUAL = "both epochs ended with the same skill"
_OPEN = ("regressed", "persistent_fail")
"""Guidance is for these items; without any, it is not asked for."""
LONGEST_GUIDANCE = 600
"""Tokens; longer guidance is refused, like an edit that is too large."""


async def slow_update(
    before: Skill, after: Skill, versions: tuple[int, int], knowledge: OptimizerContext, ctx: Context
) -> tuple[EpochComparison, list[Trajectory]]:
    """Compare the previous epoch's skill with the current one and ask for guidance."""
    equal = before.hash == after.hash
    comparison = EpochComparison(
        epoch=ctx.epoch,
        before_version=versions[0],
        after_version=versions[1],
        equal=equal,
        lost=_EQUAL if equal else "",
    )
    if equal:
        return comparison, []
    items = _sample(ctx)
    old, new = await gather_all(
        rollout(skill, items, ctx, tag=_tag(name, ctx), stage="slow_update")
        for name, skill in (("before", before), ("after", after))
    )
    require_most([*old, *new], "slow update")
    rows = _rows(old, new)
    trajectories = {t.id: t for t in [*scored(old), *scored(new)]}
    counts: dict[str, int] = dict(Counter(str(row.class_) for row in rows))
    comparison = comparison.model_copy(update={"counts": counts, "rows": tuple(rows)})
    if any(row.class_ in _OPEN for row in rows):
        answer = await _guidance(before, after, rows, trajectories, knowledge, ctx)
        reply = {"guidance": answer.value or "", "lost": answer.lost, "unusable": answer.unusable}
        comparison = comparison.model_copy(update=reply)
    return comparison, list(trajectories.values())


def _sample(ctx: Context) -> list[Item]:
    items = ctx.env.items("train")
    positions = in_id_order(items)
    drawn = ctx.rng("slow_update").sample(positions, min(len(positions), ctx.config.optimizer.slow_update_samples))
    return [items[position] for position in drawn]


def _tag(name: str, ctx: Context) -> str:
    return f"slow-{ctx.epoch:02d}-{name}"


def _rows(old: list[Trajectory | RolloutError], new: list[Trajectory | RolloutError]) -> list[ComparedItem]:
    """Only items that both skills were measured on."""
    rows = []
    for a, b in zip(old, new, strict=True):
        if isinstance(a, Trajectory) and isinstance(b, Trajectory):
            rows.append(
                ComparedItem(
                    item_id=a.item_id,
                    class_=classify(a.score.hard, b.score.hard),
                    before=a.score.hard,
                    after=b.score.hard,
                    before_id=a.id,
                    after_id=b.id,
                )
            )
    return sorted(rows, key=lambda row: row.item_id)


def classify(before: float, after: float) -> ItemClass:
    if after >= 1:
        return "stable_success" if before >= 1 else "improved"
    return "regressed" if before >= 1 else "persistent_fail"


async def _guidance(
    before: Skill,
    after: Skill,
    rows: list[ComparedItem],
    trajectories: dict[str, Trajectory],
    knowledge: OptimizerContext,
    ctx: Context,
) -> CheckedReply[str]:
    pairs = [
        Pair(change=row.class_, before=trajectories[row.before_id], after=trajectories[row.after_id]) for row in rows
    ]
    request = slow_update_request(
        prompts.load("slow_update", ctx.config.gradient.prompts_dir), knowledge, before, after, pairs
    )
    read = text_of("guidance", LONGEST_GUIDANCE)

    def check(value: Any) -> str:
        guidance = read(value)
        if says_nothing(guidance):
            return ""
        if ctx.config.gradient.review_risky and (risk := new_risk(guidance, after)):
            raise ValueError(f"guidance holds {risk}")
        return guidance

    label = f"{ctx.config.train.seed}/slow_update/{ctx.epoch}"
    return await ask(ctx.optimizer, request, text_schema("slow_update", "guidance"), check, label=label)
