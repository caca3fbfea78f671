"""What a step leaves in its folder, and its line in the history."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from skillopt.analysts.base import Patch
from skillopt.core.batches import Step
from skillopt.core.rollout import failed, mean_score, scored
from skillopt.edits.aggregate import Asked, Pool
from skillopt.edits.causes import causes
from skillopt.edits.review import Reviewed
from skillopt.edits.select import Ranked
from skillopt.envs.base import RolloutError, Trajectory
from skillopt.gates.base import Verdict
from skillopt.gates.credit import Credited
from skillopt.run.directory import RunDirectory
from skillopt.run.files import json_text, jsonl_text, write_all
from skillopt.run.state import State
from skillopt.skill import Applied, Skill


@dataclass(frozen=True)
class StepWork:
    """All values that went through one step, in the order of the stages."""

    step: Step
    skill: Skill
    rates: dict[str, float]
    """The learning rate: scheduled, and used after decay."""
    results: list[Trajectory | RolloutError]
    patches: list[Patch]
    reviewed: Reviewed
    ranked: list[Ranked]
    asked: list[Asked]
    """How the optimizer answered when it was asked to rank."""
    heats: list[dict[str, Any]]
    """The race between candidates; empty where there was one."""
    credited: Credited

    @property
    def pool(self) -> Pool:
        return self.reviewed.pool

    @property
    def candidate(self) -> Applied:
        return self.credited.candidate

    @property
    def verdict(self) -> Verdict:
        return self.credited.verdict


def write_step(run: RunDirectory, work: StepWork, record: dict[str, Any]) -> None:
    selected = {"ranked": work.ranked, "skipped": [vars(s) for s in work.candidate.skipped]}
    texts = {
        "trajectories.jsonl": jsonl_text(work.results),
        "trajectory_digest.json": json_text(digest(work)),
        "patches.json": json_text(work.patches),
        "aggregate.json": json_text(work.pool),
        "selected.json": json_text(selected),
        "candidate_skill.md": work.candidate.skill.text,
        "gate.json": json_text(gate_record(work.verdict, work.candidate.skill)),
        "gate_trajectories.jsonl": jsonl_text(work.verdict.trajectories),
        "step_record.json": json_text(record),
    }
    if work.candidate.skill.is_package:
        texts["candidate_files.json"] = run.changes_text(work.candidate.skill)
    folder = run.step(work.step.number)
    in_force = work.candidate.skill if work.verdict.accepted else work.skill
    write_all({folder / name: text for name, text in texts.items()} | {run.step_skill(work.step.number): in_force.text})


def digest(work: StepWork) -> dict[str, Any]:
    """The batch at a glance: each item's score, the causes found."""
    trajectories = scored(work.results)
    counts = {name: len(ids) for name, ids in causes(work.patches, trajectories).items()}
    return {
        "skill_hash": work.skill.hash,
        "items": {t.item_id: {"hard": t.score.hard, "soft": t.score.soft} for t in trajectories},
        "failed": sorted(t.item_id for t in trajectories if t.score.hard < 1),
        "errors": {error.item_id: error.error for error in failed(work.results)},
        "patterns": dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))),
    }


def gate_record(verdict: Verdict, candidate: Skill) -> dict[str, Any]:
    return {**verdict.model_dump(mode="json"), "candidate_hash": candidate.hash}


def step_record(work: StepWork, state: State, metric: str, telemetry: dict[str, Any]) -> dict[str, Any]:
    """`state` is the one after the step."""
    verdict = work.verdict
    kept = work.candidate.skill if verdict.accepted else work.skill
    dropped = Counter(dropped.kind for patch in work.patches for dropped in patch.dropped)
    asked: list[Patch | Asked] = [*work.patches, *work.pool.asked, *work.asked]
    edits = {
        "proposed": work.pool.proposed + dropped.total(),
        "dropped": dict(sorted(dropped.items())),
        "lost_replies": [each.lost for each in asked if each.lost],
        "unusable_replies": [problem for each in asked for problem in each.unusable],
        "leaks": sum(bool(entry.leak) for entry in work.ranked),
        "merged": work.pool.merged,
        "conflicting": sum(conflict.held_back for conflict in work.pool.conflicts),
        "selected": sum(entry.selected for entry in work.ranked),
        "applied": len(work.candidate.applied),
        "skipped": dict(sorted(Counter(skip.kind for skip in work.candidate.skipped).items())),
        "accepted": len(work.candidate.applied) if verdict.accepted else 0,
    }
    return {
        "step": work.step.number,
        "epoch": work.step.epoch,
        "train_score": mean_score(scored(work.results), metric),
        "rollout_errors": len(failed(work.results)),
        "val_before": verdict.before,
        "val_after": verdict.after,
        "verdict": verdict.decision,
        "evidence": verdict.brief(),
        "learning_rate": work.rates,
        "edits": edits,
        "review": [decision.model_dump(mode="json") for decision in work.reviewed.used],
        "race": work.heats,
        "credit": work.credited.tries,
        "applied": [edit.model_dump(mode="json") for edit in work.candidate.applied],
        "version": state.current,
        "skill_hash": kept.hash,
        "skill_tokens": kept.tokens,
        "candidate_tokens": work.candidate.skill.tokens,
        "telemetry": telemetry,
    }
