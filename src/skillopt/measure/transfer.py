"""A skill from one run on another benchmark or another target: as it is, then trained further from there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skillopt.config import Config
from skillopt.core.initial import initial_of, run_of
from skillopt.envs import open_env
from skillopt.errors import UserError
from skillopt.measure.course import scores_of
from skillopt.measure.evaluate import evaluate
from skillopt.measure.replicate import Train
from skillopt.measure.session import folder_of
from skillopt.measure.verdict import Spent, Verdict, added, more_tasks, paired, say, spent_in, too_few
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_json, write_json
from skillopt.skill import Skill


async def transfer(run: RunDirectory, config: Config, train: Train, *, tune: bool = True) -> dict[str, Any]:
    """Rows of a table, also in `transfer.json`: no skill, zero-shot, fine-tuned, and from scratch where that ran.

    A training from the skill measures it first, so that fine-tuning brings the zero-shot scores with it.
    """
    if not run.best_skill.is_file() or not run.summary.is_file():
        raise UserError(f"{run.root}: is not a run's folder (it has no best_skill.md)")
    started = config.train.model_copy(
        update={"init_skill": str(run.best_package if run.trains_package else run.best_skill)}
    )
    own = config.model_copy(update={"train": started})
    source = read_json(run.summary)
    rows = [{"skill": "the source's own score", "run": str(run.root), "where": source["benchmark"], **_best(source)}]
    measured, verdict = await (_tuned(own, train) if tune else _zero_shot(own, run))
    rows += measured
    if tune and (scratch := _from_scratch(config)):
        rows.append(scratch)
    goal = {"benchmark": config.env.benchmark or config.env.name, "target": config.models.target_model}
    about = {"from": _about(run), "to": goal, "tuned": tune}
    result = {"verdict": verdict.text, "outcome": verdict.word, **about, "rows": rows}
    path = folder_of(config, "transfers", [config.identity(), run.read_best().hash, tune]) / "transfer.json"
    write_json(path, result)
    return result | {"path": str(path)}


async def _tuned(config: Config, train: Train) -> tuple[list[dict[str, Any]], Verdict]:
    result = await train(config)
    summary, run = result.summary, str(result.path)
    where = summary["benchmark"]
    none = summary["baselines"].get("no_skill")
    empty = [{"skill": "no skill", "run": run, "where": where, **_scores(none), "tokens": 0}] if none else []
    zero = {"skill": "zero-shot", "run": run, "where": where, **_scores(summary["initial"])}
    rows = [*empty, zero, {"skill": "fine-tuned", "run": run, "where": where, **_best(summary)}]
    metric = config.evaluation.metric
    without, own = (scores_of(RunDirectory(result.path), f"test_{name}", metric) for name in ("no_skill", "initial"))
    tuned = f"; trained further, {summary['best']['test']:.2f}"
    verdict = _verdict(without, own, spent_in([summary]), tuned)
    return rows, verdict or Verdict(word=summary["outcome"], text=result.verdict)


async def _zero_shot(config: Config, run: RunDirectory) -> tuple[list[dict[str, Any]], Verdict]:
    """The empty skill is measured where the two are compared, on the test split."""
    rows, paid, scores = [], [], []
    for name, skill in (("no skill", Skill("")), ("zero-shot", run.read_best())):
        row: dict[str, Any] = {"skill": name, "run": "", "where": "", "tokens": skill.tokens}
        for split in ("val", "test") if skill.text else ("test",):
            found = await evaluate(config, skill, split=split)
            row |= {"where": found["benchmark"], split: found["score"], f"{split}_interval": found["interval"]}
            paid.append(found["spent"])
        scores.append(found["scores"])
        rows.append(row)
    spent = added([Spent(**one) for one in paid])
    verdict = _verdict(scores[0], scores[1], spent)
    assert verdict, "both were measured on the test split"
    return rows, verdict


def _verdict(none: Mapping[str, float], skill: Mapping[str, float], spent: Spent, then: str = "") -> Verdict | None:
    """Does the skill help there, as it is? None where the empty skill was not measured."""
    gain = paired(none, skill)
    if gain is None:
        return None
    figures = gain.named("no skill", "the skill as it is") + then
    unsure = gain.word == "cannot tell"
    return say(gain.word, figures, because=too_few(gain) * unsure, advice=more_tasks(gain) * unsure, spent=spent)


def _from_scratch(config: Config) -> dict[str, Any] | None:
    """The run of the goal's own config, where it was trained to its end before."""
    run = run_of(config, open_env(config), initial_of(config))
    summary = read_json(run.summary) if run.summary.is_file() else {}
    if summary.get("status") != "finished":
        return None
    return {"skill": "from its own start", "run": str(run.root), "where": summary["benchmark"], **_best(summary)}


def _best(summary: Mapping[str, Any]) -> dict[str, Any]:
    best = summary["best"]
    again = best.get("val_remeasured")
    fresh = {"val": again, "val_interval": best["val_remeasured_interval"]} if again is not None else {}
    return _scores(best) | fresh


def _scores(column: Mapping[str, Any]) -> dict[str, Any]:
    names = ("val", "val_interval", "test", "test_interval", "tokens")
    return {name: column[name] for name in names if name in column}


def _about(run: RunDirectory) -> dict[str, Any]:
    config, summary = read_json(run.config_json), read_json(run.summary)
    return {"run": str(run.root), "benchmark": summary["benchmark"], "target": config["models.target_model"]}
