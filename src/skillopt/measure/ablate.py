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
from skillopt.errors import SkillOptError, UserError
from skillopt.measure.session import measuring_session
from skillopt.models.base import ChatModel
from skillopt.record.directory import RunDirectory
from skillopt.record.events import AblationStarted, Listener, PartMeasured
from skillopt.record.files import write_json
from skillopt.record.results import AblatedPart, Ablation, PartVerdict
from skillopt.skill import FILE, Entry, PatchLogError, Skill, apply_edits, replay
from skillopt.skill.edit import UNLIMITED
from skillopt.skill.parts import rules, sections, without_lines
from skillopt.skill.trained import PARTS, editable, part_of, total_tokens
from skillopt.statistics import gain_interval
from skillopt.tasks.base import Env, Item, Trajectory
from skillopt.training.context import Context
from skillopt.training.rollout import all_measured, require_few, roll_out_one

By = Literal["rule", "section", "step"]
NOISY_REPEATS = 3
"""Samples of each item if the target is noisy and nobody says how many."""


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
class _Samples:
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
) -> Ablation:
    """Measure the best version and each of its parts' absence. What is measured is kept, also when a budget ends it:
    the same call again asks only for what is missing. The journal is the ablation's own, and so is the budget's count.
    """
    skill, version, units = units_of(run, by)
    async with measuring_session(config, run.ablation, env=env, models=models, listeners=listeners) as session:
        ctx = session.ctx
        samples = repeats or (NOISY_REPEATS if ctx.noisy else 1)
        items = ctx.env.items("val")
        ctx.emit(AblationStarted(by=by, units=len(units), items=len(items), repeats=samples, version=version))
        scores, stopped = _Samples(), None
        together: list[AblatedPart] = []
        try:
            await _measure_all(skill, units, items, samples, ctx, scores)
            for verdict in ("nothing", "unclear") if by == "rule" else ():
                together += await _together(verdict, skill, units, items, samples, ctx, scores)
        except SkillOptError as error:
            stopped = error
        result = Ablation(
            by=by,
            benchmark=ctx.env.name,
            version=version,
            skill_hash=skill.hash,
            tokens=skill.tokens,
            metric=config.evaluation.metric,
            items=len(items),
            repeats=samples,
            deterministic=not ctx.noisy,
            score=_mean(scores, skill),
            rows=_ranked(_rows(skill, units, scores), together),
            not_measured=tuple(unit.name for unit in units if _samples(scores, skill, unit) is None),
            together=tuple(together),
            set_aside=scores.refused,
            paid=session.paid().target,
        )
        path = session.folder / f"{by}_v{version:04d}.json"
        write_json(path, result)
        if stopped is not None:
            raise stopped
    return result.model_copy(update={"path": str(path)})


def units_of(run: RunDirectory, by: By) -> tuple[Skill, int, list[Unit]]:
    """The best version's skill, its number, and its parts."""
    try:
        entries = list(run.patch_log.entries())
        versions = replay(run.read_skill(0), entries)
    except (OSError, PatchLogError) as error:
        raise UserError(f"{run.root}: {error}; `skillopt verify` shows more") from None
    best = run.read_best().shown
    version = next((n for n in sorted(versions, reverse=True) if versions[n].shown.hash == best.hash), None)
    if version is None:
        raise UserError(f"{run.best_skill}: is not one of the run's versions, so its origin is unknown")
    skill = best if by == "rule" else versions[version]  # only a version says which lines are guidance
    if by == "step":
        units = list(_steps(versions, [entry for entry in entries if entry.version <= version]))
    else:
        units = list(_parts(skill, by))
    if not units:
        raise UserError(f"{run.root}: the best skill has no {by} that could be left out")
    return skill, version, units


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
        edits = [entry for entry in entries if entry.version == left_out]
        text = "\n".join(f"{entry.edit.op}: {entry.edit.text or entry.edit.anchor}" for entry in edits)
        note = f"{fallen} later edits fall with it" if fallen else ""
        kind = " (guidance)" if edits[0].kind == "guidance" else ""
        yield Unit(name=f"step {edits[0].step}{kind}, version {left_out}", text=text, without=skill, note=note)


async def _measure_all(
    skill: Skill, units: Sequence[Unit], items: Sequence[Item], repeats: int, ctx: Context, scores: _Samples
) -> None:
    await _measure(skill, items, repeats, ctx, scores)
    for number, unit in enumerate(units, 1):
        await _measure(unit.without, items, repeats, ctx, scores)
        worth = (_mean(scores, skill) or 0.0) - (_mean(scores, unit.without) or 0.0)
        ctx.emit(PartMeasured(number=number, units=len(units), name=unit.name, text=unit.text, worth=worth))


async def _measure(skill: Skill, items: Sequence[Item], repeats: int, ctx: Context, scores: _Samples) -> None:
    """A document is measured once, whichever parts it is without."""
    if skill.hash in scores.values:
        return
    work: list[Callable[[], Any]] = [
        partial(
            roll_out_one, skill, item, ctx, tag=f"ablate-{skill.hash[:12]}-r{repeat}", number=number, stage="ablate"
        )
        for repeat in range(1, repeats + 1)
        for number, item in enumerate(items)
    ]
    results = await all_measured(work, ctx, "ablate")
    scores.refused |= {r.item_id: r.error for r in results if not isinstance(r, Trajectory)}
    require_few(scores.refused, len(items))
    values: dict[str, list[float]] = {}
    for result in results:
        if isinstance(result, Trajectory):
            values.setdefault(result.item_id, []).append(result.score.value(ctx.config.evaluation.metric))
    scores.values[skill.hash] = values


async def _together(
    verdict: str,
    skill: Skill,
    units: Sequence[Unit],
    items: Sequence[Item],
    repeats: int,
    ctx: Context,
    scores: _Samples,
) -> list[AblatedPart]:
    """All rules of one verdict left out at once. Two that say the same change nothing one by one, and of many small
    effects none is clear."""
    names = {row.name for row in _rows(skill, units, scores) if row.verdict == verdict}
    if len(names) < 2:
        return []
    chosen = [unit for unit in units if unit.name in names]
    left = _without(skill, chosen)
    await _measure(left, items, repeats, ctx, scores)
    row = _row(skill, Unit(name=verdict, text="", without=left), scores)
    return [row.model_copy(update={"names": tuple(unit.name for unit in chosen)})]


def _without(skill: Skill, units: Sequence[Unit]) -> Skill:
    """The skill without all of these parts, file by file."""
    left = skill
    for path in sorted({unit.file for unit in units}):
        lines = [unit.lines for unit in units if unit.file == path and unit.lines]
        left = left.with_file(path, without_lines(Skill(skill.read(path) or ""), lines).text if lines else "")
    return left


def _samples(scores: _Samples, skill: Skill, unit: Unit) -> list[tuple[list[float], list[float]]] | None:
    """Item by item: the scores without the part, and with it. Items that the endpoint refused count for neither."""
    with_it, without = scores.values.get(skill.hash), scores.values.get(unit.without.hash)
    if with_it is None or without is None:
        return None
    shared = sorted((with_it.keys() & without.keys()) - scores.refused.keys())
    return [(without[item], with_it[item]) for item in shared]


def _mean(scores: _Samples, skill: Skill) -> float | None:
    values = scores.values.get(skill.hash)
    means = [fmean(each) for item, each in (values or {}).items() if item not in scores.refused]
    return fmean(means) if means else None


def _rows(skill: Skill, units: Sequence[Unit], scores: _Samples) -> list[AblatedPart]:
    """A row for each part that was measured."""
    return [_row(skill, unit, scores) for unit in units if _samples(scores, skill, unit) is not None]


def _row(skill: Skill, unit: Unit, scores: _Samples) -> AblatedPart:
    samples = _samples(scores, skill, unit) or []
    differences = [fmean(after) - fmean(before) for before, after in samples]
    wins, losses = (sum(sign * each > 1e-9 for each in differences) for sign in (1, -1))
    interval = gain_interval(differences)
    low, high = interval or (0.0, 0.0)
    changed: PartVerdict = "unclear" if wins or losses else "nothing"
    verdict: PartVerdict = "earns" if low > 0 else "harmful" if high < 0 else changed
    return AblatedPart(
        name=unit.name,
        text=unit.text,
        lines=unit.lines,
        note=unit.note,
        tokens=total_tokens(skill) - total_tokens(unit.without),
        worth=fmean(differences) if differences else 0.0,
        interval=interval,
        wins=wins,
        losses=losses,
        verdict=verdict,
    )


def _ranked(rows: Sequence[AblatedPart], together: Sequence[AblatedPart]) -> tuple[AblatedPart, ...]:
    """The most valuable first; parts that matter together have that as their verdict."""
    names = {name for group in together if group.verdict == "earns" for name in group.names or ()}
    named = [row.model_copy(update={"verdict": "together"}) if row.name in names else row for row in rows]
    return tuple(sorted(named, key=lambda row: (-row.worth, row.tokens, row.name)))
