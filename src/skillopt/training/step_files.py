"""What a step leaves in its folder, and its line in the history."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from skillopt.record.directory import RunDirectory
from skillopt.record.edits import Asked, EditPool, Patch, Ranked, Selection
from skillopt.record.files import json_text, jsonl_text, write_all
from skillopt.record.state import State
from skillopt.record.step import BatchDigest, EditCounts, LearningRate, ScreeningRun, StepRecord, StepTelemetry
from skillopt.skill import Applied, Skill
from skillopt.tasks.base import RolloutError, Trajectory
from skillopt.training.batches import Step
from skillopt.training.edits.causes import causes
from skillopt.training.edits.review import Reviewed
from skillopt.training.gates.base import Verdict
from skillopt.training.gates.credit import Credited
from skillopt.training.rollout import failed, mean_score, scored


@dataclass(frozen=True)
class StepWork:
    """All values that went through one step, in the order of the stages."""

    step: Step
    skill: Skill
    rates: LearningRate
    results: list[Trajectory | RolloutError]
    patches: list[Patch]
    reviewed: Reviewed
    ranked: list[Ranked]
    screening: tuple[ScreeningRun, ...]
    """The race between candidates; empty if there was one."""
    credited: Credited

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
    """The batch at a glance: each item's score, the causes found."""
    trajectories = scored(work.results)
    counts = {name: len(ids) for name, ids in causes(work.patches, trajectories).items()}
    return BatchDigest(
        skill_hash=work.skill.hash,
        items={t.item_id: t.score.numbers for t in trajectories},
        failed=tuple(sorted(t.item_id for t in trajectories if t.score.hard < 1)),
        errors={error.item_id: error.error for error in failed(work.results)},
        patterns=dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))),
    )


def step_record(work: StepWork, state: State, metric: str, telemetry: StepTelemetry) -> StepRecord:
    """`state` is the one after the step."""
    verdict = work.verdict
    skill = work.candidate.skill if verdict.accepted else work.skill
    return StepRecord(
        step=work.step.number,
        epoch=work.step.epoch,
        train_score=mean_score(scored(work.results), metric),
        rollout_errors=len(failed(work.results)),
        val=state.score,
        val_before=verdict.before,
        val_after=verdict.after,
        verdict=verdict.decision,
        evidence=verdict.brief(),
        learning_rate=work.rates,
        edits=_edit_counts(work),
        review=tuple(work.reviewed.used),
        race=work.screening,
        credit=work.credited.tries,
        applied=work.candidate.applied,
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
        selected=sum(entry.selected for entry in work.ranked),
        applied=len(work.candidate.applied),
        skipped=dict(sorted(Counter(skip.kind for skip in work.candidate.skipped).items())),
        accepted=len(work.candidate.applied) if work.verdict.accepted else 0,
    )
