"""Measures the worth of each rule of a skill: the validation score with the rule minus the score without the rule.

An ablation only measures and reports. It never changes a skill.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean

from skillopt.config import Config
from skillopt.errors import SkillOptError, UserError
from skillopt.measure.session import measuring_session, written
from skillopt.models.base import ChatModel
from skillopt.record.directory import RunDirectory
from skillopt.record.events import AblationStarted, Listener, PartMeasured
from skillopt.record.results import AblatedPart, Ablation, PartVerdict
from skillopt.skill import FILE, PatchLogError, Skill, replay
from skillopt.skill.parts import rules, without_lines
from skillopt.skill.trained import PARTS, editable, part_of, total_tokens
from skillopt.statistics import gain_interval
from skillopt.tasks.base import Env, Item, Trajectory
from skillopt.training.context import Context
from skillopt.training.rollout import all_measured, require_few, roll_out_one

NOISY_REPEATS = 3
"""The default number of samples of each item if the target is noisy."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A rule, and the skill without it."""

    name: str
    text: str
    without: Skill
    lines: tuple[int, int] | None = None
    file: str = FILE
    """The file of the package that contains the rule."""


async def ablate(
    run: RunDirectory,
    config: Config,
    *,
    repeats: int | None = None,
    env: Env | None = None,
    models: dict[str, ChatModel] | None = None,
    listeners: Sequence[Listener] = (),
) -> Ablation:
    """Measure the best version. Then, for each rule, measure the best version without this rule.

    The results are stored even if the budget ends the ablation. A second call measures only what is missing. The
    ablation has its own journal, and the budget applies to the ablation alone.
    """
    skill, version = best_version(run)
    units = list(units_of(skill))
    if not units:
        raise UserError(f"{run.root}: the best skill has no rule that could be left out; there is nothing to measure")
    async with measuring_session(config, run.ablation, env=env, models=models, listeners=listeners) as session:
        ctx = session.ctx
        variants = _Variants(skill, ctx.env.items("val"), repeats or (NOISY_REPEATS if ctx.noisy else 1), ctx)
        stopped, together = None, []
        start = AblationStarted(
            by="rule", units=len(units), items=len(variants.items), repeats=variants.repeats, version=version
        )
        ctx.emit(start)
        try:
            await variants.measure_all(units)
            for verdict in ("nothing", "unclear"):
                together += await variants.measure_together(verdict, units)
        except SkillOptError as error:
            stopped = error
        rows = {unit.name: variants.row(unit) for unit in units}
        result = Ablation(
            by="rule",
            benchmark=ctx.env.name,
            version=version,
            skill_hash=skill.hash,
            tokens=skill.tokens,
            metric=config.evaluation.metric,
            items=len(variants.items),
            repeats=variants.repeats,
            deterministic=not ctx.noisy,
            score=variants.mean(skill),
            rows=_ranked([row for row in rows.values() if row], together),
            not_measured=tuple(name for name, row in rows.items() if row is None),
            together=tuple(together),
            set_aside=variants.refused,
            paid=session.paid().target,
        )
        result = written(result, session.folder / f"rule_v{version:04d}.json")
        if stopped is not None:
            raise stopped
    return result


def best_version(run: RunDirectory) -> tuple[Skill, int]:
    """The best skill, and the number of its version."""
    try:
        versions = replay(run.read_skill(0), list(run.patch_log.entries()))
    except (OSError, PatchLogError) as error:
        raise UserError(f"{run.root}: {error}; `skillopt verify` shows more") from None
    best = run.read_best().shown
    version = next((n for n in sorted(versions, reverse=True) if versions[n].shown.hash == best.hash), None)
    if version is None:
        raise UserError(f"{run.best_skill}: is not one of the run's versions; `skillopt verify` shows more")
    return best, version


def units_of(skill: Skill) -> Iterator[Unit]:
    """The rules of each file of a skill. A script is treated as one rule."""
    for path in editable(skill, PARTS):
        document = Skill(skill.read(path) or "")
        where = "" if path == FILE else f"{path} "
        if part_of(path) == "scripts":
            yield Unit(name=path, text=document.text, without=skill.with_file(path, ""), file=path)
            continue
        for part in rules(document):
            without = skill.with_file(path, part.without.text)
            yield Unit(name=f"{where}{part.name}", text=part.text, without=without, lines=part.lines, file=path)


def without_units(skill: Skill, units: Sequence[Unit]) -> Skill:
    """The skill without any of the rules in `units`."""
    left = skill
    for path in sorted({unit.file for unit in units}):
        lines = [unit.lines for unit in units if unit.file == path and unit.lines]
        document = Skill(skill.read(path) or "")
        left = left.with_file(path, without_lines(document, lines).text if lines else "")
    return left


@dataclass
class _Variants:
    """Measures a skill and the same skill without some rules, and stores the scores of each variant."""

    skill: Skill
    items: Sequence[Item]
    repeats: int
    ctx: Context
    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """Scores of the samples, by skill hash and item."""
    refused: dict[str, str] = field(default_factory=dict)

    async def measure_all(self, units: Sequence[Unit]) -> None:
        await self._measure(self.skill)
        for number, unit in enumerate(units, 1):
            await self._measure(unit.without)
            worth = (self.mean(self.skill) or 0.0) - (self.mean(unit.without) or 0.0)
            done = PartMeasured(number=number, units=len(units), name=unit.name, text=unit.text, worth=worth)
            self.ctx.emit(done)

    async def measure_together(self, verdict: str, units: Sequence[Unit]) -> list[AblatedPart]:
        """Measure the skill without any of the rules that have this verdict. This shows whether two rules say the same
        (then the score changes only if both are missing), and whether several small effects add up to a clear
        effect."""
        chosen = [unit for unit in units if (row := self.row(unit)) and row.verdict == verdict]
        if len(chosen) < 2:
            return []
        left = without_units(self.skill, chosen)
        await self._measure(left)
        row = self.row(Unit(name=verdict, text="", without=left))
        return [row.model_copy(update={"names": tuple(unit.name for unit in chosen)})] if row else []

    async def _measure(self, skill: Skill) -> None:
        """Measure a skill. Variants with the same text are measured only once."""
        if skill.hash in self.values:
            return
        ctx, tag = self.ctx, f"ablate-{skill.hash[:12]}-r"
        work = [
            partial(roll_out_one, skill, item, ctx, tag=f"{tag}{repeat}", number=number, stage="ablate")
            for repeat in range(1, self.repeats + 1)
            for number, item in enumerate(self.items)
        ]
        values: dict[str, list[float]] = {}
        for result in await all_measured(work, ctx, "ablate"):
            if isinstance(result, Trajectory):
                values.setdefault(result.item_id, []).append(result.score.value(ctx.config.evaluation.metric))
            else:
                self.refused[result.item_id] = result.error
        require_few(self.refused, len(self.items))
        self.values[skill.hash] = values

    def mean(self, skill: Skill) -> float | None:
        values = self.values.get(skill.hash, {})
        means = [fmean(each) for item, each in values.items() if item not in self.refused]
        return fmean(means) if means else None

    def row(self, unit: Unit) -> AblatedPart | None:
        """The worth of a rule; None if it was not measured. Items that the endpoint refused are ignored."""
        with_it, without = self.values.get(self.skill.hash), self.values.get(unit.without.hash)
        if with_it is None or without is None:
            return None
        shared = sorted((with_it.keys() & without.keys()) - self.refused.keys())
        differences = [fmean(with_it[item]) - fmean(without[item]) for item in shared]
        wins, losses = (sum(sign * each > 1e-9 for each in differences) for sign in (1, -1))
        interval = gain_interval(differences)
        low, high = interval or (0.0, 0.0)
        changed: PartVerdict = "unclear" if wins or losses else "nothing"
        return AblatedPart(
            name=unit.name,
            text=unit.text,
            lines=unit.lines,
            tokens=total_tokens(self.skill) - total_tokens(unit.without),
            worth=fmean(differences) if differences else 0.0,
            interval=interval,
            wins=wins,
            losses=losses,
            verdict="earns" if low > 0 else "harmful" if high < 0 else changed,
        )


def _ranked(rows: Sequence[AblatedPart], together: Sequence[AblatedPart]) -> tuple[AblatedPart, ...]:
    """The rules, the most valuable first. Rules that matter only together get the verdict `together`."""
    names = {name for group in together if group.verdict == "earns" for name in group.names or ()}
    named = [row.model_copy(update={"verdict": "together"}) if row.name in names else row for row in rows]
    return tuple(sorted(named, key=lambda row: (-row.worth, row.tokens, row.name)))
