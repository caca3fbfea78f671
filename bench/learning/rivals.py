"""The methods that SkillOpt's training is compared with, on the same items, scorer, target, optimizer and rollouts.

gepa: version 0.1.4 in a separate venv. random: random sets of the edits that were proposed in SkillOpt's training of
the same cell, as many as its rollouts pay for; the best set on validation wins. It needs no call to the optimizer.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from skillopt.errors import SkillOptError, UserError
from skillopt.measure.session import measuring_session
from skillopt.models import open_model
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json
from skillopt.record.journal import read_totals
from skillopt.skill import Edit, Skill
from skillopt.training.context import Context
from skillopt.training.edits.update import update
from skillopt.training.initial import initial_of

from .result import CellResult, mean, tokens_of
from .run import Job, sizes, tested
from .serve import Served, finished
from .sets import MINIBATCH, most_rollouts

HERE = Path(__file__).resolve().parent


async def gepa(job: Job) -> CellResult:
    config = job.config()
    run = RunDirectory(job.folder)
    models = job.models("target", "optimizer")
    optimizer = models.pop("optimizer", None) or open_model("optimizer", config, run)
    async with measuring_session(config, job.folder / "measured", models=models) as session:
        ctx = session.ctx
        served = Served(ctx, optimizer, plain_numbers=bool(job.recording and job.recording.head.get("first_form")))
        async with served.listening() as url:
            found = await _optimized(job, ctx, served, url)
        await optimizer.close()
        skills = {"initial": initial_of(config), "best": Skill(found["skill"])}
        test = {which: await tested(skill, "test", ctx) for which, skill in skills.items()}
        tokens = {"target": tokens_of(session.paid(), "target"), "optimizer": served.optimizer_tokens}
        kept = ("val_initial", "val", "val_best", "curve", "rollouts", "requests", "skill")
        own: dict[str, Any] = {name: found[name] for name in kept}
        own["curve"] = [(int(paid), float(score)) for paid, score in found["curve"]]
        return CellResult(cell=job.cell, test=test, tokens=dict(tokens), items=sizes(ctx), **own)


async def _optimized(job: Job, ctx: Context, served: Served, url: str) -> dict[str, Any]:
    splits = {split: [{"split": split, "id": item.id} for item in ctx.env.items(split)] for split in ("train", "val")}
    work = {
        "url": url,
        "letters": str(job.letters or ""),
        "seed": job.cell.seed,
        "start": initial_of(ctx.config).text,
        "minibatch": MINIBATCH,
        "metric_calls": most_rollouts(ctx.config, sizes(ctx)),
        **splits,
    }
    path = job.folder / "gepa" / "job.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(work, indent=1), encoding="utf-8")
    command = [str(gepa_python()), str(HERE / "gepa_cell.py"), str(path)]
    code = await finished(command, dict(os.environ), quiet=bool(job.recording))
    if code:
        raise SkillOptError(served.trouble or f"gepa ended with exit code {code}")
    found: dict[str, Any] = read_json(path.with_name("found.json"))
    return found


def gepa_python() -> Path:
    """Return the Python of gepa's venv, which is made on first use. SKILLOPT_GEPA_VENV names another folder for it."""
    venv = Path(os.environ.get("SKILLOPT_GEPA_VENV", HERE.parent / ".venv-gepa"))
    python = venv / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "gepa==0.1.4"], check=True, timeout=600)
    return python


async def random_search(job: Job) -> CellResult:
    """Run random search: try random sets of the edits from the cell of `ours` with the same optimizer and seed."""
    model_cell = replace(job.cell, method="ours")
    ours = job.out / model_cell.name
    if not (ours / "result.json").exists():
        raise UserError(f"random search needs the proposals of {model_cell.name}: run that cell first")
    [run] = [path.parent for path in ours.glob("runs/*/*/summary.json")]
    paid = CellResult.read(ours / "result.json").rollouts
    config = job.config()
    async with measuring_session(config, job.folder / "measured", models=job.models("target")) as session:
        ctx, initial = session.ctx, initial_of(config)
        seen = _training_rollouts(run)
        best, scores = initial, await tested(initial, "val", ctx)
        top = first = mean(scores)
        rollouts = seen + len(scores)
        val: list[float | None] = []
        curve = [(rollouts, first)]
        for candidate in _drawn(list(proposed(run)), initial, ctx, seed=job.cell.seed):
            if rollouts + len(scores) > paid:
                break
            found = mean(await tested(candidate, "val", ctx))
            rollouts += len(scores)
            val.append(found)
            best, top = (candidate, found) if found > top else (best, top)
            curve.append((rollouts, top))
        test = {"initial": await tested(initial, "test", ctx), "best": await tested(best, "test", ctx)}
        tokens = {"target": tokens_of(session.paid(), "target"), "optimizer": 0}
    return CellResult(
        cell=job.cell,
        test=test,
        val_initial=first,
        val_best=top,
        val=val,
        curve=curve,
        rollouts=rollouts,
        tokens=dict(tokens),
        skill=best.text,
        items=sizes(ctx),
    )


def proposed(run: Path) -> Iterator[Edit]:
    """Yield every edit that an analyst proposed, step after step."""
    for path in sorted(run.glob("steps/*/patches.json")):
        for patch in read_json(path):
            yield from (Edit(**edit) for edit in patch["edits"])


def _training_rollouts(run: Path) -> int:
    """Return the number of rollouts that the proposals needed: those of the batches."""
    totals = read_totals(RunDirectory(run).journal)
    return sum(total.first_turns for total in totals if (total.role, total.stage) == ("target", "rollout"))


def _drawn(edits: list[Edit], initial: Skill, ctx: Context, *, seed: int) -> Iterator[Skill]:
    """Yield skills with random sets of edits, each of a random size. Sets that change nothing are left out."""
    draw = random.Random(f"random search {seed}")
    for _ in range(1000 if edits else 0):
        chosen = draw.sample(range(len(edits)), draw.randint(1, len(edits)))
        skill = initial
        for number in sorted(chosen):  # one after another, since an edit may need an earlier edit
            skill = update(skill, [edits[number]], ctx).skill
        if skill.hash != initial.hash:
            yield skill
