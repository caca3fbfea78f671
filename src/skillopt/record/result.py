"""The result that a training returns."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from skillopt.record.base import ROLES
from skillopt.record.directory import RunDirectory
from skillopt.record.history import read_history
from skillopt.record.step import StepRecord
from skillopt.record.summary import Summary
from skillopt.skill import Skill


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """The result of a training. It prints as a short table."""

    path: Path
    """The run's folder."""
    best_skill: Skill
    summary: Summary
    """The figures of the run, as in `summary.json`."""

    @property
    def scores(self) -> dict[str, float | None]:
        """The scores `initial_val`, `best_val`, `initial_test` and `best_test`. A test score that was not measured is
        None."""
        initial, best = self.summary.initial, self.summary.best
        return {"initial_val": initial.val, "best_val": best.val, "initial_test": initial.test, "best_test": best.test}

    @property
    def verdict(self) -> str:
        """The result and the cost in plain words. The result says whether the skill became better; if so, by how much;
        if not, why not."""
        return self.summary.verdict

    @property
    def history(self) -> list[StepRecord]:
        """One record per step, as in `history.json`."""
        return read_history(RunDirectory(self.path).history)

    def __repr__(self) -> str:
        rows = [f"{name:<12}{before:>12}{after:>12}".rstrip() for name, before, after in self._rows()]
        return "\n".join([self.verdict, *rows, f"{'run':<12}{self.path}"])

    def _repr_html_(self) -> str:
        """The result as a table, for notebooks."""
        head, *rows = (
            "".join(f"<{tag}>{html.escape(text)}</{tag}>" for tag, text in zip(("th", "td", "td"), row, strict=True))
            for row in self._rows()
        )
        table = "".join(f"<tr>{row}</tr>" for row in [head, *rows])
        return f"<p>{html.escape(self.verdict)}</p><table>{table}</table><p>{html.escape(str(self.path))}</p>"

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        initial, best, costs = self.summary.initial, self.summary.best, self.summary.cost_usd
        yield "", "initial", "best"
        for name, before, after in (("val score", initial.val, best.val), ("test score", initial.test, best.test)):
            yield name, _score(before), _score(after)
        yield "tokens", f"{initial.tokens:,}", f"{best.tokens:,}"
        yield "step", "", f"{best.step} of {self.summary.steps.run}"
        usd = [costs.of(role) for role in ROLES]
        yield "cost", "", "unknown" if None in usd else f"${sum(each for each in usd if each is not None):,.2f}"


def _score(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
