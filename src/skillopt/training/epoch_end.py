"""Does the work at the end of an epoch: first it compares the skills of two epochs. Then the slow update writes
guidance, which must pass the gate. In parallel, the meta skill writes notes for the optimizer.

The slow update corresponds to momentum: the target does the same items with both skills, and the optimizer writes
guidance that keeps the progress.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

from skillopt.models.base import NoModel
from skillopt.models.call import gather_all
from skillopt.models.structured import CheckedReply, ask
from skillopt.record.events import MetaSkillFinished, SlowUpdateFinished, SlowUpdateStarted
from skillopt.record.files import write_atomic, write_json, write_jsonl
from skillopt.record.state import State
from skillopt.record.step import ComparedItem, EpochComparison, EpochEnd, ItemClass, MetaSkillOutcome, SlowUpdateOutcome
from skillopt.skill import Applied, Edit, Skill
from skillopt.tasks.base import Item, RolloutError, Trajectory, is_judged
from skillopt.training import prompts
from skillopt.training.batches import in_id_order
from skillopt.training.context import Context
from skillopt.training.edits.risk import judge_talk, new_risk
from skillopt.training.gates.base import EPSILON, Gate, Verdict
from skillopt.training.optimizer_context import optimizer_context
from skillopt.training.requests.compose import meta_skill_request, slow_update_request
from skillopt.training.requests.context import OptimizerContext, Pair
from skillopt.training.requests.guidance import guidance_reply, guidance_schema
from skillopt.training.requests.replies import text_of, text_schema
from skillopt.training.rollout import begin_ahead, require_most, rollout, scored
from skillopt.training.step_files import accept, update_scores

LONGEST_MEMORY = 1500
"""The maximum number of tokens of the notes; if the notes are longer, the optimizer is asked again."""


async def end_epoch(
    state: State,
    previous: Skill,
    skill: Skill,
    ctx: Context,
    gate: Gate,
    settled: Callable[[int, Skill], None],
    *,
    finished: bool = True,
) -> tuple[Skill, EpochEnd]:
    """Do the work at the end of an epoch and update `state`. Return the skill to continue with, and the epoch's record.

    `previous` is the skill at the end of the previous epoch. `settled` is called with the step and the skill as soon as
    the skill can no longer change. If the run ends within the epoch (`finished` is false), only notes are written.
    """
    optimizer = ctx.config.optimizer
    knowledge = optimizer_context(state, optimizer.learning_rate, ctx)
    compared = finished and optimizer.use_slow_update and ctx.epoch >= 2
    comparison, pairs = await compare(state, previous, skill, ctx) if compared else (None, [])
    skipped = state.counts.run == state.counts.skipped and not state.tried  # no failures, or no edits: nothing to note
    asked = not skipped and optimizer.use_meta_skill and not isinstance(ctx.optimizer.model, NoModel)
    notes = ctx.background.start(meta_skill(previous, skill, pairs, knowledge, ctx)) if asked else None
    slow = None
    if comparison:
        skill, slow = await _slow_update(state, comparison, pairs, previous, skill, knowledge, ctx, gate)
    settled(ctx.step, skill)
    meta = _remember(state, await notes if notes else None, ctx)
    outcome = EpochEnd(epoch=ctx.epoch, slow_update=slow, meta_skill=meta)
    state.epoch_versions = [*state.epoch_versions, state.current]
    state.epoch = ctx.epoch
    write_json(ctx.run.epoch_end(state.step), outcome)
    return skill, outcome


def look_ahead(previous: Skill, skill: Skill, ctx: Context) -> None:
    """During the last step of the epoch, start the slow update's rollouts with the previous epoch's skill. If the epoch
    has not changed the skill, start nothing."""
    if ctx.config.optimizer.use_slow_update and ctx.epoch >= 2 and previous.hash != skill.hash:
        begin_ahead(previous, _sample(ctx), ctx, tag=_tag("before", ctx), stage="slow_update")


async def compare(state: State, before: Skill, after: Skill, ctx: Context) -> tuple[EpochComparison, list[Pair]]:
    """Compare the previous epoch's skill and the current one on the same training items. If the two skills have the
    same text, no rollouts are run."""
    versions, equal = (state.epoch_versions[-1], state.current), before.hash == after.hash
    ctx.emit(SlowUpdateStarted(before=versions[0], after=versions[1]))
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
    pairs = [
        Pair(change=row.class_, before=trajectories[row.before_id], after=trajectories[row.after_id]) for row in rows
    ]
    counts: dict[str, int] = dict(Counter(str(row.class_) for row in rows))
    return comparison.model_copy(update={"counts": counts, "rows": tuple(rows)}), pairs


async def _slow_update(
    state: State,
    comparison: EpochComparison,
    pairs: Sequence[Pair],
    before: Skill,
    after: Skill,
    knowledge: OptimizerContext,
    ctx: Context,
    gate: Gate,
) -> tuple[Skill, SlowUpdateOutcome]:
    comparison, applied = await slow_update(comparison, pairs, before, after, knowledge, ctx)
    folder, candidate = ctx.run.slow_update(ctx.epoch), applied.skill
    write_json(folder / "comparison.json", comparison)
    write_jsonl(folder / "trajectories.jsonl", [t for side in ("before", "after") for t in _side(pairs, side)])
    write_atomic(folder / "guidance.md", comparison.guidance)
    rule = ctx.config.optimizer.slow_update_gate
    verdict = await gate(after, applied, state.val, ctx, tag=f"gate-slow-{ctx.epoch:02d}", rule=rule)
    verdict = holding(verdict, state.guidance_won)
    write_jsonl(folder / "gate_trajectories.jsonl", verdict.trajectories)
    write_json(folder / "gate.json", verdict.record(candidate))
    if verdict.accepted:
        accept(state, after, applied, verdict, ctx, kind="guidance")
        won = {row.item_id for row in verdict.evidence if row.pair[0] < SOLVED <= row.pair[1]}
        state.guidance_won = sorted({*state.guidance_won, *won})
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


SOLVED = 0.5
"""The minimum score of a solved item."""


def holding(verdict: Verdict, won: Collection[str]) -> Verdict:
    """The gate's verdict on new guidance, or a rejection if the guidance lowers the total score of the items that
    earlier guidance improved (`won`). If the target is noisy, fresh samples of both skills are compared."""
    rows = [row for row in verdict.evidence if row.item_id in won and row.before >= SOLVED]
    if not verdict.accepted or sum(row.change for row in rows) >= -EPSILON:
        return verdict
    lost = sum(row.change < 0 for row in rows)
    reason = f"loses {lost} of {len(rows)} items that earlier guidance won"
    return verdict.model_copy(update={"decision": "reject", "reason": reason, "known_scores": {}})


async def meta_skill(
    before: Skill, skill: Skill, pairs: Sequence[Pair], knowledge: OptimizerContext, ctx: Context
) -> CheckedReply[str]:
    """Ask the optimizer to renew its notes for later requests, from the old notes, the epoch's changes and the results
    of the epoch's edits. Notes are never part of the skill. If there is no usable reply, the old notes stay."""
    epoch = [tried for tried in knowledge.tried if tried.epoch == ctx.epoch]
    prompt = prompts.load("meta_skill", ctx.config.gradient.prompts_dir)
    request = meta_skill_request(prompt, knowledge, before, skill, epoch, pairs)
    label = f"{ctx.config.train.seed}/meta_skill/{ctx.epoch}"
    read = text_of("memory", LONGEST_MEMORY)
    return await ask(ctx.optimizer, request, text_schema("meta_skill", "memory"), read, label=label)


def _remember(state: State, answer: CheckedReply[str] | None, ctx: Context) -> MetaSkillOutcome | None:
    """Write memory.md: the epoch's notes, or the reason why there are none. Return None if the optimizer was not asked
    for notes."""
    if answer and answer.value is not None:
        state.memory = answer.value
    notes = state.memory or f"No notes: {_why_none(answer, ctx)}."
    write_atomic(ctx.run.meta_skill(ctx.epoch) / "memory.md", f"{notes}\n")
    if state.findings:
        write_json(ctx.run.meta_skill(ctx.epoch) / "findings.json", state.findings)
    if answer is None:
        return None
    ctx.emit(MetaSkillFinished(lost=answer.lost or ("" if answer.value else _why_none(answer, ctx))))
    return MetaSkillOutcome(lost=answer.lost, unusable=answer.unusable)


def _why_none(answer: CheckedReply[str] | None, ctx: Context) -> str:
    if answer:
        return "the optimizer's reply could not be used" if answer.lost else "the optimizer wrote none"
    if not ctx.config.optimizer.use_meta_skill:
        return "optimizer.use_meta_skill is false"
    without = isinstance(ctx.optimizer.model, NoModel)
    return "this run has no optimizer model" if without else "no edit was tried"


_EQUAL = "both epochs ended with the same skill"


async def slow_update(
    comparison: EpochComparison,
    pairs: Sequence[Pair],
    before: Skill,
    after: Skill,
    knowledge: OptimizerContext,
    ctx: Context,
) -> tuple[EpochComparison, Applied]:
    """Ask the optimizer for guidance and apply it to the current skill; if both skills solve all items, do nothing."""
    told = [pair.after.id for pair in pairs if pair.change != "stable_success"]
    if not told:
        return comparison, Applied(skill=after)
    prompt = prompts.load("slow_update", ctx.config.gradient.prompts_dir)
    request = slow_update_request(prompt, knowledge, before, after, pairs)

    def refused(edit: Edit) -> str:
        risk = new_risk(edit.text, after) if ctx.config.gradient.review_risky else ""
        talk = judge_talk(edit.text, after) if is_judged(ctx.env) else ""
        return f"guidance holds {risk}" if risk else f"speaks to the judge: {talk!r}" if talk else ""

    read = guidance_reply(after, f"guidance-{ctx.epoch:02d}", told, refused)
    label = f"{ctx.config.train.seed}/slow_update/{ctx.epoch}"
    answer = await ask(ctx.optimizer, request, guidance_schema(), read, label=label)
    applied = answer.value or Applied(skill=after)
    reply = {
        "guidance": applied.skill.guidance if applied.applied else "",
        "edits": applied.applied,
        "skipped": applied.skipped,
        "lost": answer.lost,
        "unusable": answer.unusable,
    }
    return comparison.model_copy(update=reply), applied


def _side(pairs: Sequence[Pair], side: str) -> list[Trajectory]:
    return [getattr(pair, side) for pair in pairs]


def _sample(ctx: Context) -> list[Item]:
    items = ctx.env.items("train")
    positions = in_id_order(items)
    drawn = ctx.rng("slow_update").sample(positions, min(len(positions), ctx.config.optimizer.slow_update_samples))
    return [items[position] for position in drawn]


def _tag(name: str, ctx: Context) -> str:
    return f"slow-{ctx.epoch:02d}-{name}"


def _rows(old: list[Trajectory | RolloutError], new: list[Trajectory | RolloutError]) -> list[ComparedItem]:
    """The results of the items that were measured with both skills."""
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
