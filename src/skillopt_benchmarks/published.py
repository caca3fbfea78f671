"""The full set of each benchmark in figures: for plans without its data, and for the table of docs/benchmarks.md."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from skillopt_benchmarks.sources import source_of


@dataclass(frozen=True, kw_only=True)
class Published:
    """Facts about a benchmark that need no files."""

    difficulty: str
    """Easy: one short reply; medium: a long document, a page, or a calculation; hard: many turns, or a program."""
    tokens: int
    """The mean length of a task as the target reads it, without a skill."""
    text_tokens: int = 0
    """The length of the text that the analysts read of it; 0: the same."""
    turns: int = 1
    sizes: dict[str, int] = field(default_factory=dict)
    """Items of each split; empty: those of its source."""


_GENERATED = {"train": 40, "val": 20, "test": 40}
"""The sizes that `skillopt data generate` makes by default."""
SETS = {
    "searchqa": Published(difficulty="easy", tokens=820),
    "docvqa": Published(difficulty="medium", tokens=25_500, text_tokens=600),
    "alfworld": Published(difficulty="hard", tokens=400, turns=50),
    "textworld": Published(difficulty="hard", tokens=450, turns=50, sizes=_GENERATED),
    "reasoning_gym": Published(difficulty="easy", tokens=120, sizes=_GENERATED),
    "spreadsheetbench": Published(difficulty="hard", tokens=700),
    "livemathematicianbench": Published(difficulty="hard", tokens=400),
    "officeqa": Published(difficulty="medium", tokens=8000),
    "bbh": Published(difficulty="easy", tokens=120),
    "formula": Published(difficulty="medium", tokens=300, sizes={"train": 500, "val": 300, "test": 200}),
}
"""Lengths are estimates. searchqa: its MRQA form cuts contexts at 800. docvqa: one page as gpt-4o-mini counts it
(2,833, and 5,667 for each of four tiles). officeqa: the config's context_tokens. Others: our mini sets, rounded up;
spreadsheetbench, livemathematicianbench, bbh and formula are assumed."""


def published_set(name: str) -> Published | None:
    """The figures of a benchmark; None if it is not one of these."""
    figures = SETS.get(name)
    return replace(figures, sizes=figures.sizes or source_of(name).sizes) if figures else None
