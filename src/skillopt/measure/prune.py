"""Prunes the best skill: removes the rules without worth, if the shorter skill is shown to be no worse.

The ablation finds the rules that are worth nothing on the validation items. Then the paired test of `check` compares
the best skill with the skill without these rules, on the same items. If the test does not show "no worse", the most
valuable of these rules are put back: first one, then three, then seven. The test split is not used.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from skillopt.config import Config
from skillopt.measure.ablate import NOISY_REPEATS, Unit, ablate, best_version, units_of, without_units
from skillopt.measure.check import PairMeasurement, measure_pair
from skillopt.measure.check_result import Question, SkillVersion
from skillopt.measure.session import MeasuringSession, measuring_session
from skillopt.measure.usage import UsageLog
from skillopt.measure.verdict import spent_on, spent_sentence
from skillopt.models.base import ChatModel
from skillopt.record.directory import RunDirectory
from skillopt.record.events import Listener
from skillopt.record.files import draft_of, write_atomic, write_json
from skillopt.record.pruning import PruneOutcome, PruneTrial, Pruning
from skillopt.record.results import Ablation
from skillopt.skill import Skill
from skillopt.skill.trained import total_tokens
from skillopt.statistics import gain_interval
from skillopt.tasks import using_env
from skillopt.tasks.base import Env, is_noisy

TRIALS = 5
"""The default for the maximum number of shorter skills that are measured."""


@dataclass(frozen=True, kw_only=True)
class PrunePlan:
    """The maximum number of rollouts that a pruning can need. Rollouts in the journal cost nothing."""

    rules: int
    items: int
    ablation: int
    """The number of rollouts of the ablation."""
    trials: int
    """The number of rollouts of all shorter skills, and of the best skill, which is measured again."""


def plan(
    run: RunDirectory, config: Config, *, noisy_target: bool, repeats: int | None = None, trials: int = TRIALS
) -> PrunePlan:
    """The plan of a pruning. No model is called."""
    units = list(units_of(best_version(run)[0]))
    with using_env(config) as env:
        items, noisy = len(env.items("val")), noisy_target or is_noisy(env)
    samples = repeats or (NOISY_REPEATS if noisy else 1)
    rounds = 1 + config.evaluation.max_repeats if noisy else 1
    return PrunePlan(
        rules=len(units), items=items, ablation=(len(units) + 3) * items * samples, trials=(trials + 1) * items * rounds
    )


async def prune(
    run: RunDirectory,
    config: Config,
    *,
    margin: float,
    repeats: int | None = None,
    trials: int = TRIALS,
    env: Env | None = None,
    models: dict[str, ChatModel] | None = None,
    listeners: Sequence[Listener] = (),
) -> Pruning:
    """Find the shortest skill that is shown to be no worse, and write it to `pruned/`. best_skill.md does not change.

    Pruning uses the journal and the budget of the ablation. A repeated pruning pays only for missing rollouts.
    """
    ablation = await ablate(run, config, repeats=repeats, env=env, models=models, listeners=listeners)
    skill, version = best_version(run)
    units = {unit.name: unit for unit in units_of(skill)}
    idle = [units[name] for name in _worthless(ablation)]
    async with measuring_session(config, run.ablation, env=env, models=models, listeners=listeners) as session:
        bench = _Trials(run, session, skill, margin, config.evaluation.alpha / trials)
        removed: list[Unit] = []
        for number in range(trials):
            rest = idle[2**number - 1 :]
            if not rest or await bench.holds(rest):
                removed = rest
                break
        shorter = without_units(skill, removed)
        outcome = _outcome(idle, removed, bench.done)
        result = Pruning(
            verdict="",
            outcome=outcome,
            benchmark=ablation.benchmark,
            target=config.models.target_model,
            version=version,
            skill_hash=skill.hash,
            pruned_hash=shorter.hash if removed else "",
            tokens=total_tokens(skill),
            pruned_tokens=total_tokens(shorter),
            margin=margin,
            metric=config.evaluation.metric,
            removed=tuple(unit.name for unit in removed),
            put_back=tuple(unit.name for unit in idle if unit not in removed),
            trials=tuple(bench.done),
            spent=spent_on(session.paid()),
        )
        result = result.model_copy(update={"verdict": f"{_sentence(result)} {spent_sentence(result.spent)}"})
        path = _write(run, shorter if removed else None, result)
    return result.model_copy(update={"path": path})


def _worthless(ablation: Ablation) -> list[str]:
    """The rules whose removal does not lower the score, the most valuable first. Of rules with the same worth, the
    shortest is first."""
    return [row.name for row in ablation.rows if row.worth <= 1e-9]


@dataclass
class _Trials:
    """Compares shorter skills with the best skill. `alpha` is the allowed error of one comparison: the config's alpha,
    divided by the maximum number of comparisons."""

    run: RunDirectory
    session: MeasuringSession
    skill: Skill
    margin: float
    alpha: float

    def __post_init__(self) -> None:
        self.done: list[PruneTrial] = []
        self._usage = UsageLog(self.run.ablation / "readings.jsonl")

    async def holds(self, removed: Sequence[Unit]) -> bool:
        shorter = without_units(self.skill, removed)
        base = SkillVersion(skill=self.skill, path=str(self.run.best_skill), where="best")
        question = Question(
            skill=SkillVersion(skill=shorter, path="", where="pruned"), base=base, margin=self.margin, split="val"
        )
        pair = await measure_pair(self.session, question, self._usage, alpha=self.alpha)
        self.done.append(_trial(shorter, removed, pair))
        return pair.word in {"better", "no worse"}


def _trial(shorter: Skill, removed: Sequence[Unit], pair: PairMeasurement) -> PruneTrial:
    trial = pair.trial
    before, after = (
        {item: fmean(each[side] for each in trial.pairs[item]) for item in trial.measured} for side in (0, 1)
    )
    differences = [after[item] - before[item] for item in trial.measured]
    return PruneTrial(
        removed=tuple(unit.name for unit in removed),
        tokens=total_tokens(shorter),
        verdict=pair.word,
        score=fmean(after.values()) if after else 0.0,
        base=fmean(before.values()) if before else 0.0,
        difference=fmean(differences) if differences else 0.0,
        difference_interval=gain_interval(differences),
        measured=len(differences),
        repeats=trial.repeats,
    )


def _outcome(idle: Sequence[Unit], removed: Sequence[Unit], trials: Sequence[PruneTrial]) -> PruneOutcome:
    if removed:
        return "pruned"
    if not idle:
        return "nothing to prune"
    return "cannot tell" if trials[-1].verdict == "cannot tell" else "worse"


def _sentence(result: Pruning) -> str:
    """The verdict, such as `Pruned: 1,240 → 610 tokens, no worse: 0.84 against 0.85, margin 0.05.`"""
    if result.outcome == "nothing to prune":
        return "Nothing to prune: if any single rule is removed, the validation score falls."
    last = result.trials[-1]
    figures = f"{last.score:.2f} against {last.base:.2f}, margin {result.margin:g}"
    if result.outcome == "pruned":
        count = len(result.put_back)
        back = f" {count} rule{'s were' if count > 1 else ' was'} put back first." if count else ""
        return f"Pruned: {result.tokens:,} → {result.pruned_tokens:,} tokens, {last.verdict}: {figures}.{back}"
    tried = f"{len(result.trials)} shorter skills were" if len(result.trials) > 1 else "one shorter skill was"
    how = "worse" if result.outcome == "worse" else "possibly worse"
    return f"Nothing was pruned: {tried} measured, and the last one ({last.tokens:,} tokens) is {how}: {figures}."


def _write(run: RunDirectory, shorter: Skill | None, result: Pruning) -> str:
    """Write the folder `pruned` in one move; it replaces an earlier folder. Return the path of the shorter skill or, if
    there is none, the path of `prune.json`."""
    draft = draft_of(run.pruned)
    draft.mkdir()
    place = run.pruned / ("skill" if shorter and shorter.is_package else "skill.md")
    if shorter and shorter.is_package:
        shorter.write_to(draft / place.name)
    elif shorter:
        write_atomic(draft / place.name, shorter.text)
    write_json(draft / "prune.json", result)
    shutil.rmtree(run.pruned, ignore_errors=True)
    draft.replace(run.pruned)
    return str(place if shorter else run.pruned / "prune.json")
