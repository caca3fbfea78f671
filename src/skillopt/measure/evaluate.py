"""Measuring any skill on any split, outside of a training."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from skillopt.config import Config
from skillopt.core.rollout import mean_score
from skillopt.core.split import Measured, measure
from skillopt.envs.base import SPLITS, Env, Trajectory, data_hash
from skillopt.errors import UserError
from skillopt.measure.baselines import do_nothing, majority
from skillopt.measure.session import folder_of, measuring_session
from skillopt.measure.verdict import Spent, Verdict, measured_once, spent_on
from skillopt.models.base import ChatModel
from skillopt.run.directory import RunDirectory
from skillopt.run.events import Listener
from skillopt.run.files import append_jsonl, read_jsonl, write_json, write_jsonl
from skillopt.skill import Skill
from skillopt.statistics import interval


async def evaluate(
    config: Config,
    skill: Skill,
    *,
    split: str = "test",
    skill_path: Path | None = None,
    env: Env | None = None,
    models: dict[str, ChatModel] | None = None,
    listeners: Sequence[Listener] = (),
    out: Path | None = None,
) -> dict[str, Any]:
    """The skill's scores on a split, also written to `eval_summary.json`. An interrupted evaluation is continued."""
    if split not in SPLITS:
        raise UserError(f"--split: '{split}' is not one of {', '.join(SPLITS)}")
    started = time.monotonic()

    def place(env: Env) -> Path:
        identity = {"config": config.identity(), "data": data_hash(env), "skill": skill.hash, "split": split}
        return folder_of(config, "evaluations", identity, env.name, f"{split}-")

    async with measuring_session(config, out or place, env=env, models=models, listeners=listeners) as session:
        ctx = session.ctx
        items = ctx.env.items(split)
        ctx.emit("evaluation_started", split=split, name="", items=len(items))
        measured = await measure(skill, items, ctx, tag=f"eval-{split}", stage="evaluate")
        ctx.emit("evaluation_finished", split=split, name="", score=measured.score)
        found = await _summary(config, ctx.env, skill, split, measured, skill_path)
        spent = spent_on(session.paid())
        verdict = _verdict(found, spent)
        summary = {
            "verdict": verdict.text,
            "outcome": verdict.word,
            **found,
            "paid": session.paid()["target"],
            "spent": asdict(spent),
            "seconds": round(time.monotonic() - started, 2),
        }
        if split == "test":
            summary["test_reads"] = note_read("eval", skill_path, ctx.run, summary["items"], measured.score)
        write_jsonl(session.folder / "trajectories.jsonl", measured.trajectories)
        write_json(session.folder / "eval_summary.json", summary)
    return summary | {"path": str(session.folder / "eval_summary.json")}


async def _summary(
    config: Config, env: Env, skill: Skill, split: str, measured: Measured, skill_path: Path | None
) -> dict[str, Any]:
    trajectories = measured.trajectories
    return {
        "benchmark": env.name,
        "split": split,
        "skill": {"path": str(skill_path or ""), "hash": skill.hash, "tokens": skill.tokens},
        "metric": config.evaluation.metric,
        "score": measured.score,
        "interval": interval(list(measured.values.values())),
        "majority": await majority(env, split, config.evaluation.metric),
        "do_nothing": await do_nothing(env, split, config.evaluation.metric),
        "hard": mean_score(trajectories, "hard"),
        "soft": mean_score(trajectories, "soft"),
        "items": len(trajectories),
        "scores": measured.values,
        "failed": sorted(t.item_id for t in trajectories if t.score.hard < 1),
        "set_aside": measured.set_aside,
        "by_type": _by_type(trajectories, config.evaluation.metric),
    }


def _verdict(found: Mapping[str, Any], spent: Spent) -> Verdict:
    """Against always giving the most frequent answer, or doing nothing, where that scores anything."""
    always, idle = found["majority"], found["do_nothing"]
    than, other = "", 0.0
    if always:
        than, other = f"always answering {always['answer']!r}", always["score"]
    elif idle and idle["score"]:
        than, other = "doing nothing", idle["score"]
    return measured_once(
        found["score"], found["interval"], found["items"], found["split"], than=than, other=other, spent=spent
    )


def _by_type(trajectories: list[Trajectory], metric: str) -> dict[str, dict[str, float]]:
    groups: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        groups.setdefault(trajectory.type, []).append(trajectory)
    return {name: {"score": mean_score(group, metric), "items": len(group)} for name, group in sorted(groups.items())}


def note_read(who: str, skill_path: Path | None, folder: RunDirectory, items: int, score: float) -> int:
    """The test split is sealed: every read is recorded in the folder of the run that the skill is from."""
    log = folder.test_reads
    for place in list(skill_path.resolve().parents)[:2] if skill_path else []:
        if (place / "patch_log.jsonl").exists():
            log = RunDirectory(place).test_reads
    append_jsonl(log, [{"who": who, "when": datetime.now(UTC).isoformat(), "items": items, "score": score}])
    return len(read_jsonl(log))
