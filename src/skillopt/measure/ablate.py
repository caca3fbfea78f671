"""Ablation: what each part of a skill is worth. The score with it minus the score without it, on the selection split.

It measures and reports; it never changes a skill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Any, Literal

from skillopt.config import Config
from skillopt.core.context import Context
from skillopt.core.retry import all_measured
from skillopt.core.rollout import require_few, roll_out_one
from skillopt.envs.base import Env, Item, Trajectory
from skillopt.errors import SkillOptError, UserError
from skillopt.measure.session import measuring_session
from skillopt.models.base import ChatModel
from skillopt.run.directory import RunDirectory
from skillopt.run.events import Listener
from skillopt.run.files import write_json
from skillopt.skill import FILE, Entry, PatchLogError, Skill, apply_edits, replay
from skillopt.skill.edit import UNLIMITED
from skillopt.skill.parts import rules, sections, without_lines
from skillopt.skill.trained import PARTS, editable, part_of, total_tokens
from skillopt.statistics import gain_interval, permutation_p

By = Literal["rule", "section", "step"]
Verdict = Literal["earns", "harmful", "nothing", "mixed"]
"""nothing: no measurable effect; mixed: it wins some items and loses as many."""
NOISY_REPEATS = 3
"""Samples of each item where the target is noisy and nobody says how many."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A part, and the skill without it."""

    name: str
    text: str
    without: Skill
    note: str = ""
    lines: tuple[int, int] | None = None
    file: str = FILE
    """The package's file that it is in."""


@dataclass
class _Known:
    """What was measured: by skill hash, item by item, the samples' scores."""

    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


async def ablate(
    run: RunDirectory,
    config: Config,
    *,
    by: By = "rule",
    repeats: int | None = None,
    env: Env | None = None,
    models: dict[str, ChatModel] | None = None,
    listeners: Sequence[Listener] = (),
) -> dict[str, Any]:
    """Measure the best version and each of its parts' absence. What is measured is kept, also when a budget ends it:
    the same call again asks only for what is missing. The journal is the ablation's own, and so is the budget's count.
    """
    skill, version, units = units_of(run, by)
    async with measuring_session(config, run.ablation, env=env, models=models, listeners=listeners) as session:
        ctx = session.ctx
        samples = repeats or (NOISY_REPEATS if ctx.noisy else 1)
        items = ctx.env.items("val")
        ctx.emit("ablation_started", by=by, units=len(units), items=len(items), repeats=samples, version=version)
        known, stopped, together = _Known(), None, None
        try:
            await _measure_all(skill, units, items, samples, ctx, known)
            together = await _together(skill, units, items, samples, ctx, known) if by == "rule" else None
        except SkillOptError as error:
            stopped = error
        result: dict[str, Any] = {
            "by": by,
            "benchmark": ctx.env.name,
            "version": version,
            "skill_hash": skill.hash,
            "tokens": skill.tokens,
            "metric": config.evaluation.metric,
            "items": len(items),
            "repeats": samples,
            "deterministic": not ctx.noisy,
            "score": _mean(known, skill),
            "rows": _ranked(list(_rows(skill, units, known, ctx))),
            "not_measured": [unit.name for unit in units if _samples(known, skill, unit) is None],
            "together": together,
            "set_aside": known.refused,
            "paid": session.paid()["target"],
        }
        path = session.folder / f"{by}_v{version:04d}.json"
        write_json(path, result)
        if stopped is not None:
            raise stopped
    return result | {"path": str(path)}


def units_of(run: RunDirectory, by: By) -> tuple[Skill, int, list[Unit]]:
    """The best version's skill, its number, and its parts."""
    try:
        entries = list(run.patch_log.entries())
        versions = replay(run.read_skill(0), entries)
    except (OSError, PatchLogError) as error:
        raise UserError(f"{run.root}: {error}; `skillopt verify` shows more") from None
    best = run.read_best()
    version = next((n for n in sorted(versions, reverse=True) if versions[n].hash == best.hash), None)
    if version is None:
        raise UserError(f"{run.best_skill}: is not one of the run's versions, so its origin is unknown")
    if by == "step":
        units = list(_steps(versions, [entry for entry in entries if entry.version <= version]))
    else:
        units = list(_parts(best, by))
    if not units:
        raise UserError(f"{run.root}: the best skill has no {by} that could be left out")
    return best, version, units


def _parts(skill: Skill, by: By) -> Iterator[Unit]:
    """The rules or sections of each file; a script is one part."""
    for path in editable(skill, PARTS):
        document = Skill(skill.read(path) or "")
        where = "" if path == FILE else f"{path} "
        if part_of(path) == "scripts":
            yield Unit(name=path, text=document.text, without=skill.with_file(path, ""), file=path)
            continue
        for part in rules(document) if by == "rule" else sections(document):
            without = skill.with_file(path, part.without.text)
            yield Unit(name=f"{where}{part.name}", text=part.text, without=without, lines=part.lines, file=path)


def _steps(versions: dict[int, Skill], entries: Sequence[Entry]) -> Iterator[Unit]:
    """The log replayed without one version; what later edits need of it falls away with it, and is counted."""
    numbers = sorted({entry.version for entry in entries})
    for left_out in numbers:
        skill, fallen = versions[left_out - 1], 0
        for number in (n for n in numbers if n > left_out):
            group = [entry for entry in entries if entry.version == number]
            if group[0].kind == "guidance":
                skill = skill.with_guidance(group[0].edit.text)
                continue
            applied = apply_edits(skill, [entry.edit for entry in group], UNLIMITED)
            skill, fallen = applied.skill, fallen + len(applied.skipped)
        own = [entry for entry in entries if entry.version == left_out]
        text = "\n".join(f"{entry.edit.op}: {entry.edit.text or entry.edit.anchor}" for entry in own)
        note = f"{fallen} later edits fall with it" if fallen else ""
        kind = " (guidance)" if own[0].kind == "guidance" else ""
        yield Unit(name=f"step {own[0].step}{kind}, version {left_out}", text=text, without=skill, note=note)


async def _measure_all(
    skill: Skill, units: Sequence[Unit], items: Sequence[Item], repeats: int, ctx: Context, known: _Known
) -> None:
    await _measure(skill, items, repeats, ctx, known)
    for number, unit in enumerate(units, 1):
        await _measure(unit.without, items, repeats, ctx, known)
        worth = (_mean(known, skill) or 0.0) - (_mean(known, unit.without) or 0.0)
        ctx.emit("part_measured", number=number, units=len(units), name=unit.name, text=unit.text, worth=worth)


async def _measure(skill: Skill, items: Sequence[Item], repeats: int, ctx: Context, known: _Known) -> None:
    """A document is measured once, whichever parts it is without."""
    if skill.hash in known.values:
        return
    work: list[Callable[[], Any]] = [
        partial(
            roll_out_one, skill, item, ctx, tag=f"ablate-{skill.hash[:12]}-r{repeat}", number=number, stage="ablate"
        )
        for repeat in range(1, repeats + 1)
        for number, item in enumerate(items)
    ]
    results = await all_measured(work, ctx, "ablate")
    known.refused |= {r.item_id: r.error for r in results if not isinstance(r, Trajectory)}
    require_few(known.refused, len(items))
    values: dict[str, list[float]] = {}
    for result in results:
        if isinstance(result, Trajectory):
            values.setdefault(result.item_id, []).append(result.score.value(ctx.config.evaluation.metric))
    known.values[skill.hash] = values


async def _together(
    skill: Skill, units: Sequence[Unit], items: Sequence[Item], repeats: int, ctx: Context, known: _Known
) -> dict[str, Any] | None:
    """Two rules that say the same each earn nothing alone: so those that earn nothing are also left out all at once."""
    idle = {row["name"] for row in _rows(skill, units, known, ctx) if row["verdict"] == "nothing"}
    if len(idle) < 2:
        return None
    chosen = [unit for unit in units if unit.name in idle]
    left = _without(skill, chosen)
    await _measure(left, items, repeats, ctx, known)
    row = _row(skill, Unit(name="all of these", text="", without=left), known, ctx)
    return row | {"names": [unit.name for unit in chosen]}


def _without(skill: Skill, units: Sequence[Unit]) -> Skill:
    """The skill without all of these parts, file by file."""
    left = skill
    for path in sorted({unit.file for unit in units}):
        own = [unit.lines for unit in units if unit.file == path and unit.lines]
        left = left.with_file(path, without_lines(Skill(skill.read(path) or ""), own).text if own else "")
    return left


def _samples(known: _Known, skill: Skill, unit: Unit) -> list[tuple[list[float], list[float]]] | None:
    """Item by item: the scores without the part, and with it. Items that the endpoint refused count for neither."""
    with_it, without = known.values.get(skill.hash), known.values.get(unit.without.hash)
    if with_it is None or without is None:
        return None
    shared = sorted((with_it.keys() & without.keys()) - known.refused.keys())
    return [(without[item], with_it[item]) for item in shared]


def _mean(known: _Known, skill: Skill) -> float | None:
    values = known.values.get(skill.hash)
    kept = [fmean(own) for item, own in (values or {}).items() if item not in known.refused]
    return fmean(kept) if kept else None


def _rows(skill: Skill, units: Sequence[Unit], known: _Known, ctx: Context) -> Iterator[dict[str, Any]]:
    """A row for each part that was measured; where chance plays a part, many looks are paid for (Holm)."""
    rows = [_row(skill, unit, known, ctx) for unit in units if _samples(known, skill, unit) is not None]
    if ctx.noisy:
        for side, verdict in (("p_useful", "earns"), ("p_harmful", "harmful")):
            for place, row in enumerate(sorted(rows, key=lambda row: row[side])):
                if row[side] * (len(rows) - place) > ctx.config.evaluation.alpha:
                    break
                row["verdict"] = verdict
    yield from rows


def _row(skill: Skill, unit: Unit, known: _Known, ctx: Context) -> dict[str, Any]:
    samples = _samples(known, skill, unit) or []
    differences = [fmean(after) - fmean(before) for before, after in samples]
    worth = fmean(differences) if differences else 0.0
    wins, losses = (sum(sign * each > 1e-9 for each in differences) for sign in (1, -1))
    verdict: Verdict = "nothing"
    if not ctx.noisy:  # every difference is one that will come again
        verdict = "earns" if worth > 1e-9 else "harmful" if worth < -1e-9 else "mixed" if wins else "nothing"
    return {
        "name": unit.name,
        "text": unit.text,
        "lines": unit.lines,
        "note": unit.note,
        "tokens": total_tokens(skill) - total_tokens(unit.without),
        "worth": worth,
        "interval": gain_interval(differences),
        "wins": wins,
        "losses": losses,
        "p_useful": permutation_p(samples),
        "p_harmful": permutation_p([(after, before) for before, after in samples]),
        "verdict": verdict,
    }


def _ranked(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (-row["worth"], row["tokens"], row["name"]))
