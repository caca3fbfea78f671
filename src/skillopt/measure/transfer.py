"""Transfers a run's skill to a different benchmark or target: measures the skill as it is, then trains it further."""

from __future__ import annotations

from collections.abc import Mapping

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.measure.evaluate import evaluate
from skillopt.measure.replicate import Train, require_test
from skillopt.measure.session import folder_of, written
from skillopt.measure.verdict import Sentence, added, more_tasks, named_figures, say, spent_in, too_few
from skillopt.record.base import Interval
from skillopt.record.directory import RunDirectory
from skillopt.record.results import Spent, Transfer, TransferGoal, TransferRow, TransferSource
from skillopt.record.run import Run
from skillopt.record.summary import Summary
from skillopt.skill import Skill
from skillopt.tasks import using_env
from skillopt.training.final_scores import paired, scores_of
from skillopt.training.initial import given_notes, initial_of, run_key


async def transfer(run: RunDirectory, config: Config, train: Train, *, tune: bool = True) -> Transfer:
    """Measure a transfer, and write it to `transfer.json`. Its rows are: the source's own score, no skill, zero-shot
    (the skill as it is) and fine-tuned (the skill trained further). If a finished run began with the config's own
    initial skill, that run is a further row.

    The fine-tuning first measures the skill as it is, so the zero-shot scores are taken from the fine-tuning.
    """
    require_test(config, "transfer")
    source = Run(run).summary if run.best_skill.is_file() else None
    if source is None:
        raise UserError(f"{run.root}: is not a run's folder (it has no best_skill.md)")
    skill = str(run.best_package if run.trains_package else run.best_skill)
    state = Run(run).state
    notes = config.train.init_notes or (str(run.root) if state and state.memory else "")
    start = {"init_skill": skill, "init_notes": notes if tune else ""}
    goal = config.model_copy(update={"train": config.train.model_copy(update=start)})
    rows = [_best("the source's own score", str(run.root), source)]
    measured, verdict = await (_tuned(goal, train) if tune else _zero_shot(goal, run))
    rows += measured
    if tune and (scratch := _from_scratch(config)):
        rows.append(scratch)
    given = [run.read_best().hash, tune, *([given_notes(goal)] if goal.train.init_notes else [])]
    path = folder_of(config, "transfers", [config.identity(), *given]) / "transfer.json"
    target = str(Run(run).settings["models.target_model"])
    result = Transfer(
        verdict=verdict.text,
        outcome=verdict.word,
        source=TransferSource(run=str(run.root), benchmark=source.benchmark, target=target),
        to=TransferGoal(benchmark=config.env.benchmark or config.env.name, target=config.models.target_model),
        tuned=tune,
        rows=tuple(rows),
    )
    return written(result, path)


async def _tuned(config: Config, train: Train) -> tuple[list[TransferRow], Sentence]:
    result = await train(config)
    summary, run = result.summary, str(result.path)
    none, initial, where = summary.baselines.no_skill, summary.initial, summary.benchmark
    empty = [_row("no skill", where, run, test=(none.test, none.test_interval), tokens=none.tokens)] if none else []
    val, test = (initial.val, initial.val_interval), (initial.test, initial.test_interval)
    zero = _row("zero-shot", where, run, val=val, test=test, tokens=initial.tokens)
    metric = config.evaluation.metric
    without, zero_shot = (
        scores_of(RunDirectory(result.path), f"test_{name}", metric) for name in ("no_skill", "initial")
    )
    verdict = _verdict(without, zero_shot, spent_in([summary]), f"; trained further, {summary.best.test or 0.0:.2f}")
    if verdict is None:
        verdict = Sentence(word=summary.gain.test.word if summary.gain.test else "not finished", text=result.verdict)
    return [*empty, zero, _best("fine-tuned", run, summary)], verdict


async def _zero_shot(config: Config, run: RunDirectory) -> tuple[list[TransferRow], Sentence]:
    """Measure the run's skill as it is. The empty skill is measured only on the test split, for the comparison."""
    best = run.read_best()
    none = await evaluate(config, Skill(""), split="test")
    val, test = [await evaluate(config, best, split=split) for split in ("val", "test")]
    val_score, test_score = (val.score, val.interval), (test.score, test.interval)
    rows = [
        _row("no skill", none.benchmark, test=(none.score, none.interval), tokens=0),
        _row("zero-shot", test.benchmark, val=val_score, test=test_score, tokens=best.tokens),
    ]
    verdict = _verdict(none.scores, test.scores, added([none.spent, val.spent, test.spent]))
    assert verdict, "both were measured on the test split"
    return rows, verdict


def _verdict(none: Mapping[str, float], skill: Mapping[str, float], spent: Spent, then: str = "") -> Sentence | None:
    """The verdict on the skill as it is, against no skill; None if the empty skill was not measured."""
    gain = paired(none, skill)
    if gain is None:
        return None
    shown = named_figures(gain, "no skill", "the skill as it is") + then
    unsure = gain.word == "cannot tell"
    return say(gain.word, shown, because=too_few(gain) * unsure, advice=more_tasks(gain) * unsure, spent=spent)


def _from_scratch(config: Config) -> TransferRow | None:
    """The row of a finished run that began with the config's own initial skill, not with the transferred skill; None if
    there is no such run."""
    with using_env(config) as env:
        run = run_key(config, env, initial_of(config)).find(extend=False)
    summary = Run(run).summary if run else None
    if run is None or summary is None or summary.status != "finished":
        return None
    return _best("from its own start", str(run.root), summary)


def _best(name: str, run: str, summary: Summary) -> TransferRow:
    best = summary.best
    test = (best.test, best.test_interval)
    return _row(name, summary.benchmark, run, val=best.confirmed, test=test, tokens=best.tokens)


_Scored = tuple[float | None, Interval | None]


def _row(
    name: str, where: str, run: str = "", *, val: _Scored = (None, None), test: _Scored, tokens: int
) -> TransferRow:
    return TransferRow(
        skill=name,
        run=run,
        where=where,
        val=val[0],
        val_interval=val[1],
        test=test[0],
        test_interval=test[1],
        tokens=tokens,
    )
