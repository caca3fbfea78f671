"""Measures any skill on any split, outside of a training."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from skillopt.config import Config
from skillopt.measure.session import check_split, folder_of, measuring_session, written
from skillopt.measure.verdict import measured_once
from skillopt.models.base import ChatModel
from skillopt.record.directory import RunDirectory
from skillopt.record.events import EvaluationFinished, EvaluationStarted, Listener
from skillopt.record.files import append_jsonl, read_jsonl, write_jsonl
from skillopt.record.results import EvalSummary, SkillFile, TypeScore
from skillopt.skill import Skill
from skillopt.statistics import interval
from skillopt.tasks.base import Env, Trajectory, data_hash
from skillopt.training.final_scores import do_nothing, majority
from skillopt.training.rollout import mean_score, measure


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
) -> EvalSummary:
    """Measure a skill on a split, and write the scores to `eval_summary.json`. An interrupted evaluation is
    continued."""
    check_split(split)
    started = time.monotonic()
    metric = config.evaluation.metric

    def folder(env: Env) -> Path:
        identity = {"config": config.identity(), "data": data_hash(env), "skill": skill.hash, "split": split}
        return folder_of(config, "evaluations", identity, env.name, f"{split}-")

    async with measuring_session(config, out or folder, env=env, models=models, listeners=listeners) as session:
        ctx = session.ctx
        items = ctx.env.items(split)
        ctx.emit(EvaluationStarted(split=split, name="", items=len(items)))
        measured = await measure(skill, items, ctx, tag=f"eval-{split}", stage="evaluate")
        ctx.emit(EvaluationFinished(split=split, name="", score=measured.score))
        always, idle = await majority(ctx.env, split, metric), await do_nothing(ctx.env, split, metric)
        trajectories, spent = measured.trajectories, session.spent()
        bounds = interval(list(measured.values.values()))
        than, constant = "", 0.0
        if always:
            than, constant = f"always answering {always.answer!r}", always.score
        elif idle and idle.score:
            than, constant = "doing nothing", idle.score
        verdict = measured_once(
            measured.score, bounds, len(trajectories), split, than=than, constant=constant, spent=spent
        )
        reads = note_read("eval", skill_path, ctx.run, len(trajectories), measured.score) if split == "test" else None
        summary = EvalSummary(
            verdict=verdict.text,
            outcome=verdict.word,
            benchmark=ctx.env.name,
            split=split,
            skill=SkillFile(path=str(skill_path or ""), hash=skill.hash, tokens=skill.tokens),
            metric=metric,
            score=measured.score,
            interval=bounds,
            majority=always,
            do_nothing=idle,
            hard=mean_score(trajectories, "hard"),
            soft=mean_score(trajectories, "soft"),
            items=len(trajectories),
            scores=measured.values,
            failed=tuple(sorted(t.item_id for t in trajectories if t.score.hard < 1)),
            set_aside=measured.set_aside,
            by_type=_by_type(trajectories, metric),
            paid=session.paid().target,
            spent=spent,
            seconds=round(time.monotonic() - started, 2),
            test_reads=reads,
        )
        write_jsonl(session.folder / "trajectories.jsonl", trajectories)
    return written(summary, session.folder / "eval_summary.json")


def _by_type(trajectories: list[Trajectory], metric: str) -> dict[str, TypeScore]:
    groups: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        groups.setdefault(trajectory.type, []).append(trajectory)
    return {
        name: TypeScore(score=mean_score(group, metric), items=len(group)) for name, group in sorted(groups.items())
    }


def note_read(who: str, skill_path: Path | None, folder: RunDirectory, items: int, score: float) -> int:
    """Write down in the folder of the skill's run (or in `folder`, if the skill is not from a run) that the test split
    was read. Return the number of reads so far."""
    log = folder.test_reads
    for parent in list(skill_path.resolve().parents)[:2] if skill_path else []:
        if (parent / "patch_log.jsonl").exists():
            log = RunDirectory(parent).test_reads
    append_jsonl(log, [{"who": who, "when": datetime.now(UTC).isoformat(), "items": items, "score": score}])
    return len(read_jsonl(log))
