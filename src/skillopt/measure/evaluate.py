"""Measuring any skill on any split, outside of a training."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from skillopt.config import Config
from skillopt.core.callers import closing_env, make_callers, measuring_roles, opened_models
from skillopt.core.context import Context
from skillopt.core.rollout import mean_score
from skillopt.core.split import Measured, measure
from skillopt.envs import open_env
from skillopt.envs.base import SPLITS, Env, Trajectory, check_splits, data_hash
from skillopt.errors import UserError
from skillopt.executor import open_executor
from skillopt.measure.baselines import do_nothing, majority
from skillopt.models.base import ChatModel
from skillopt.run.directory import RunDirectory, is_private, safe_name
from skillopt.run.events import Events, Listener
from skillopt.run.files import append_jsonl, read_jsonl, write_json, write_jsonl
from skillopt.run.journal import Journal
from skillopt.run.summary import usage
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
    """The skill's scores on a split, also written to `eval_summary.json`. An interrupted evaluation goes on."""
    if split not in SPLITS:
        raise UserError(f"--split: '{split}' is not one of {', '.join(SPLITS)}")
    opened_here = env is None
    env = env or open_env(config)
    check_splits(env)
    folder = RunDirectory(out or _folder(config, env, skill, split))
    started = time.monotonic()
    roles = measuring_roles(config)
    async with (
        opened_models(config, models, roles=roles, run=folder) as opened,
        closing_env(env, opened_here),
        open_executor(config, env, own=opened_here) as executor,
    ):
        with (
            folder.held(private=is_private(config.env.private, config.env.output_root)),
            Journal(folder.journal) as journal,
            Events(folder.events, tuple(listeners)) as events,
        ):
            callers, budget, _ = make_callers(config, journal, opened)
            target, judge = callers["target"], callers[roles[-1]]
            ctx = Context(config=config, env=env, target=target, optimizer=judge, run=folder, events=events)
            ctx = replace(ctx, executor=executor)
            ctx.emit("evaluation_started", split=split, name="skill", items=len(env.items(split)))
            measured = await measure(skill, env.items(split), ctx, tag=f"eval-{split}", stage="evaluate")
            ctx.emit("evaluation_finished", split=split, name="skill", score=measured.score)
            paid = usage(journal.totals(), budget.cost)["target"]
            seconds = round(time.monotonic() - started, 2)
            summary = await _summary(config, env, skill, split, measured, paid, seconds, skill_path)
            if split == "test":
                summary["test_reads"] = note_read("eval", skill_path, folder, summary["items"], measured.score)
            write_jsonl(folder.root / "trajectories.jsonl", measured.trajectories)
            write_json(folder.root / "eval_summary.json", summary)
    return summary | {"path": str(folder.root / "eval_summary.json")}


async def _summary(
    config: Config,
    env: Env,
    skill: Skill,
    split: str,
    measured: Measured,
    paid: dict[str, Any],
    seconds: float,
    skill_path: Path | None,
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
        "failed": sorted(t.item_id for t in trajectories if t.score.hard < 1),
        "set_aside": measured.set_aside,
        "by_type": _by_type(trajectories, config.evaluation.metric),
        "paid": paid,
        "seconds": seconds,
    }


def _folder(config: Config, env: Env, skill: Skill, split: str) -> Path:
    """One folder for one question: the same evaluation again finds its own journal."""
    identity = {"config": config.identity(), "data": data_hash(env), "skill": skill.hash, "split": split}
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()
    return Path(config.env.output_root) / "evaluations" / safe_name(env.name) / f"{split}-{digest[:8]}"


def _by_type(trajectories: list[Trajectory], metric: str) -> dict[str, dict[str, float]]:
    groups: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        groups.setdefault(trajectory.type, []).append(trajectory)
    return {name: {"score": mean_score(group, metric), "items": len(group)} for name, group in sorted(groups.items())}


def note_read(who: str, skill_path: Path | None, folder: RunDirectory, items: int, score: float) -> int:
    """The test split is sealed: every read is written down, beside the run that the skill is from."""
    log = folder.test_reads
    for place in list(skill_path.resolve().parents)[:2] if skill_path else []:
        if (place / "patch_log.jsonl").exists():
            log = RunDirectory(place).test_reads
    append_jsonl(log, [{"who": who, "when": datetime.now(UTC).isoformat(), "items": items, "score": score}])
    return len(read_jsonl(log))
