"""Ends a step: updates the run's state according to the verdict, and writes the files of the step's folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from skillopt.record.costs import rollouts_paid
from skillopt.record.directory import RunDirectory
from skillopt.record.edits import Asked, EditPool, Patch, Ranked, Selection
from skillopt.record.events import EditsCarried
from skillopt.record.files import json_text, jsonl_text, write_all
from skillopt.record.state import Best, Rejected, ShortForm, State
from skillopt.record.step import (
    Acceptance,
    BatchDigest,
    EditCounts,
    LearningRate,
    StepRecord,
    StepTelemetry,
    acceptance_rate,
)
from skillopt.skill import Applied, Edit, Skill
from skillopt.tasks.base import RolloutError, Trajectory
from skillopt.tasks.failure_kinds import count_kinds
from skillopt.training.batches import Step
from skillopt.training.context import Context
from skillopt.training.edits.carry import CARRIED, carried, carry
from skillopt.training.edits.review import Reviewed
from skillopt.training.gates.base import Verdict
from skillopt.training.gates.credit import Credited
from skillopt.training.reflect import causes
from skillopt.training.rollout import failed, mean_score, scored


@dataclass(frozen=True)
class StepWork:
    """The results of all stages of one step, in the order of the stages."""

    step: Step
    skill: Skill
    rates: LearningRate
    results: list[Trajectory | RolloutError]
    patches: list[Patch]
    reviewed: Reviewed
    ranked: list[Ranked]
    credited: Credited
    short_form: ShortForm | None
    """The minimal remedy with its scores; None if the gate did not try a minimal remedy."""

    @property
    def pool(self) -> EditPool:
        return self.reviewed.pool

    @property
    def candidate(self) -> Applied:
        return self.credited.candidate

    @property
    def verdict(self) -> Verdict:
        return self.credited.verdict


def write_step(run: RunDirectory, work: StepWork, record: StepRecord) -> None:
    selected = Selection(ranked=tuple(work.ranked), skipped=work.candidate.skipped)
    texts = {
        "trajectories.jsonl": jsonl_text(work.results),
        "trajectory_digest.json": json_text(digest(work)),
        "patches.json": json_text(work.patches),
        "aggregate.json": json_text(work.pool),
        "selected.json": json_text(selected),
        "candidate_skill.md": work.candidate.skill.text,
        "gate.json": json_text(work.verdict.record(work.candidate.skill)),
        "gate_trajectories.jsonl": jsonl_text(work.verdict.trajectories),
        "step_record.json": json_text(record),
    }
    if work.candidate.skill.is_package:
        texts["candidate_files.json"] = run.changes_text(work.candidate.skill)
    folder = run.step(work.step.number)
    in_force = work.candidate.skill if work.verdict.accepted else work.skill
    write_all({folder / name: text for name, text in texts.items()} | {run.step_skill(work.step.number): in_force.text})


def digest(work: StepWork) -> BatchDigest:
    """A summary of the batch: each item's score, the failed items, and how many failures each cause has."""
    trajectories = scored(work.results)
    counts = {name: len(ids) for name, ids in causes(work.patches, trajectories).items()}
    return BatchDigest(
        skill_hash=work.skill.hash,
        items={t.item_id: t.score.numbers for t in trajectories},
        failed=tuple(sorted(t.item_id for t in trajectories if t.score.hard < 1)),
        errors={error.item_id: error.error for error in failed(work.results)},
        patterns=dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))),
    )


def step_record(
    work: StepWork, state: State, metric: str, telemetry: StepTelemetry, choices: Collection[str]
) -> StepRecord:
    """The record of a step; `state` is the state after the step."""
    verdict = work.verdict
    skill = work.candidate.skill if verdict.accepted else work.skill
    edits = _edit_counts(work)
    return StepRecord(
        step=work.step.number,
        epoch=work.step.epoch,
        train_score=mean_score(scored(work.results), metric),
        rollout_errors=len(failed(work.results)),
        failure_kinds=count_kinds(scored(work.results), choices),
        val=state.score,
        val_before=verdict.before,
        val_after=verdict.after,
        verdict=verdict.decision,
        evidence=verdict.brief(),
        learning_rate=work.rates,
        edits=edits,
        acceptance=Acceptance(
            step=acceptance_rate(edits.accepted, edits.proposed),
            so_far=acceptance_rate(state.edits_accepted, state.edits_proposed),
        ),
        review=tuple(work.reviewed.used),
        credit=work.credited.tries,
        applied=work.candidate.applied,
        pending=tuple(state.pending),
        version=state.current,
        skill_hash=skill.hash,
        skill_tokens=skill.tokens,
        candidate_tokens=work.candidate.skill.tokens,
        telemetry=telemetry,
    )


def _edit_counts(work: StepWork) -> EditCounts:
    dropped = Counter(dropped.kind for patch in work.patches for dropped in patch.dropped)
    asked: list[Patch | Asked] = [*work.patches, *work.pool.asked]
    return EditCounts(
        proposed=work.pool.proposed + dropped.total(),
        dropped=dict(sorted(dropped.items())),
        lost_replies=tuple(each.lost for each in asked if each.lost),
        unusable_replies=tuple(problem for each in asked for problem in each.unusable),
        leaks=sum(bool(entry.leak) for entry in work.ranked),
        merged=work.pool.merged,
        conflicting=sum(conflict.held_back for conflict in work.pool.conflicts),
        selected=sum(entry.selected and _is_new(entry.edit) for entry in work.ranked),
        applied=sum(map(_is_new, work.candidate.applied)),
        skipped=dict(sorted(Counter(skip.kind for skip in work.candidate.skipped).items())),
        accepted=len(work.candidate.applied) if work.verdict.accepted else 0,
    )


def count_changes(state: State, credited: Credited) -> None:
    """Count in the state how often the score of each validation item changed under a candidate."""
    verdicts = {id(verdict): verdict for verdict in (credited.rejected, credited.last_verdict)}
    moved = Counter(row.item_id for verdict in verdicts.values() for row in verdict.evidence if row.change)
    state.changed = dict(sorted((Counter(state.changed) + moved).items()))


def _is_new(edit: Edit) -> bool:
    """True if this step proposed the edit; False if the edit is from an earlier step, which has counted it already."""
    return not edit.source.startswith(CARRIED)


def apply_verdict(state: State, skill: Skill, credited: Credited, ctx: Context) -> None:
    """Update the state at the end of a step: skill, scores, counts and pending edits."""
    count_changes(state, credited)
    kept = carried(credited, state.val)
    _apply_verdict(state, skill, credited, kept, ctx)
    carry(state, credited.candidate.skill if credited.verdict.accepted else skill, credited, kept, ctx)
    if kept:
        ctx.emit(EditsCarried(edits=len(kept), pending=len(state.pending)))


def _apply_verdict(state: State, skill: Skill, credited: Credited, kept: Sequence[Edit], ctx: Context) -> None:
    candidate, verdict = credited.candidate, credited.verdict
    state.counts.run += 1
    state.telemetry.gate_calls_saved += verdict.telemetry.get("saved", 0)
    if verdict.accepted:
        state.counts.accepted += 1
        state.edits_accepted += len(candidate.applied)
        state.stale_steps = 0
        state.decay = min(1.0, state.decay / ctx.config.optimizer.reject_decay)
        accept(state, skill, candidate, verdict, ctx, kind="edit")
        record_rejections(state, credited, kept, ctx)
        return
    state.stale_steps += 1
    update_scores(state, verdict)
    if verdict.decision == "skipped":
        state.counts.skipped += 1
        return
    state.decay *= ctx.config.optimizer.reject_decay
    if verdict.decision == "indecisive":  # the candidate may be better: its edits may come again
        state.counts.indecisive += 1
        return
    state.counts.rejected += 1
    record_rejections(state, credited, kept, ctx)


def record_rejections(state: State, credited: Credited, kept: Sequence[Edit], ctx: Context) -> None:
    """Remember the rejected edits that do not stay pending, so that the exemplar analyst does not propose them
    again."""
    newest = ctx.config.optimizer.rejected_buffer
    gone = dict.fromkeys(edit for edit in credited.rejected_edits if edit not in kept)
    entries = [Rejected(step=ctx.step, edit=edit) for edit in gone]
    state.rejected = [*state.rejected, *entries][-newest:] if newest else []


def update_scores(state: State, verdict: Verdict) -> None:
    """If the gate did not accept the candidate, update the current skill's known scores with the scores that the gate
    measured again."""
    if verdict.known_scores and not verdict.accepted:
        state.val = {**state.val, **verdict.known_scores}


def accept(
    state: State, skill: Skill, candidate: Applied, verdict: Verdict, ctx: Context, *, kind: Literal["edit", "guidance"]
) -> None:
    """Make the candidate the current skill. Make it also the best skill if the gate measured a gain.

    A skill with new guidance becomes the best skill even at an equal score, because guidance is part of the result.
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
