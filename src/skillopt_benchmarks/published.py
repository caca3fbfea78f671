"""Facts about the full set of each benchmark. `skillopt plan` uses them if the data is missing; docs/benchmarks.md
shows them in a table."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from skillopt_benchmarks.sources import source_of


@dataclass(frozen=True, kw_only=True)
class Published:
    """Facts about a benchmark's full set, known without its files."""

    difficulty: str
    """`easy` (one short reply), `medium` (a long document, a page, a calculation) or `hard` (many turns, a program)."""
    tokens: int
    """The mean number of tokens that the target reads in a task, without the skill."""
    text_tokens: int = 0
    """The mean number of tokens that the analysts read of a task; 0 if it equals `tokens`."""
    turns: int = 1
    sizes: dict[str, int] = field(default_factory=dict)
    """The number of items in each split. If this is empty, the `sizes` of the benchmark's DataSource are used."""


_GENERATED = {"train": 40, "val": 20, "test": 40}
"""The default sizes of the splits that `skillopt data generate` makes."""
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
"""The benchmarks. The numbers of tokens are estimates. searchqa: in MRQA's format, contexts are cut at 800 tokens.
docvqa: one page, as gpt-4o-mini counts it (2,833 tokens, and 5,667 tokens for each of four tiles). officeqa:
`context_tokens` in the config. The numbers of spreadsheetbench, livemathematicianbench, bbh and formula are assumed.
All others come from SkillOpt's mini sets and are rounded up."""


def published_set(name: str) -> Published | None:
    """Return the facts about a benchmark's full set; None if the name is not in `SETS`."""
    figures = SETS.get(name)
    return replace(figures, sizes=figures.sizes or source_of(name).sizes) if figures else None
