"""The bill of a run, made again from its journal: with prices that were given later, or after a run was cut short."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skillopt.config import Price
from skillopt.errors import UserError
from skillopt.measure.course import gains_of, training_verdict
from skillopt.models.budget import total_cost
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_json, write_json
from skillopt.run.journal import Journal, read_totals
from skillopt.run.seals import Seals
from skillopt.run.state import State
from skillopt.run.summary import ROLES, bill, usage


def parse_prices(texts: Sequence[str]) -> dict[str, Price]:
    """`MODEL=INPUT,OUTPUT[,CACHED]`, in dollars for a million tokens."""
    return dict(_price(text) for text in texts)


def _price(text: str) -> tuple[str, Price]:
    model, equals, given = text.rpartition("=")
    try:
        numbers = [float(number) for number in given.split(",")]
        if not (model and equals and len(numbers) in {2, 3}):
            raise ValueError("not a model with two or three numbers")
        return model, Price(input=numbers[0], output=numbers[1], cached=numbers[2] if numbers[2:] else None)
    except ValueError:
        raise UserError(
            f"--prices: '{text}': give MODEL=INPUT,OUTPUT or MODEL=INPUT,OUTPUT,CACHED in dollars for a million "
            "tokens, such as vllm:my-model=0.2,0.4"
        ) from None


def billed(run: RunDirectory, summary: Mapping[str, Any], prices: Mapping[str, Price] | None = None) -> dict[str, Any]:
    """The summary with the bill of this moment: what the journal holds, at the run's prices and those given."""
    known = {**_recorded(run), **(prices or {})}
    paid = usage(read_totals(run.journal), lambda total: total_cost(total, known))
    fresh = dict(summary) | bill(paid)
    fresh["calls"] = {**fresh["calls"], "from_journal": summary["calls"]["from_journal"]}
    if "plan" in summary:
        fresh["plan"] = _beside(summary["plan"], fresh)
    history = read_json(run.history) if run.history.exists() else []
    verdict = training_verdict(fresh, history, gains_of(run, fresh), read_json(run.config_json))
    return {**fresh, "verdict": verdict.text, "outcome": verdict.word}


def _beside(plan: Mapping[str, Any], fresh: Mapping[str, Any]) -> dict[str, Any]:
    tokens = {role: fresh["tokens"][role]["prompt"] + fresh["tokens"][role]["completion"] for role in ROLES}
    real = {"calls": fresh["calls"], "tokens": tokens, "usd": fresh["cost_usd"]}
    return {**plan} | {
        what: {role: {**plan[what][role], "real": figures[role]} for role in ROLES} for what, figures in real.items()
    }


def _recorded(run: RunDirectory) -> dict[str, Price]:
    """The prices in the run's config, from the flat form that it is stored in."""
    given: Mapping[str, Any] = read_json(run.config_json).get("budget.prices") or {}
    return {model: Price.model_validate(price) for model, price in given.items()}


def reprice(path: Path, texts: Sequence[str]) -> dict[str, Any]:
    """Write a run's summary again with other prices; a finished run is sealed again."""
    prices, run = parse_prices(texts), RunDirectory(path)
    if not run.summary.is_file():
        raise UserError(f"{path}: is not a run's folder (it has no summary.json)")
    with run.held():
        totals = read_totals(run.journal)
        unknown = sorted(prices.keys() - {total.model for total in totals})
        if unknown:
            names = ", ".join(sorted({total.model for total in totals})) or "none"
            raise UserError(f"--prices: '{unknown[0]}' was not called in this run; its models are: {names}")
        summary = billed(run, read_json(run.summary), prices)
        summary["prices"] = {model: price.model_dump(exclude_none=True) for model, price in prices.items()}
        write_json(run.summary, summary)
        state = State.read(run.state) if run.state.exists() else None
        if state and state.status == "finished":
            with Journal(run.journal) as journal:
                Seals(run, state).seal(state, journal.sync())
            state.write(run.state)
    return summary
