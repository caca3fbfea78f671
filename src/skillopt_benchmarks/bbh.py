"""BIG-Bench Hard: questions with answers, for the env `qa`. Each kind of task has its own file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from skillopt.tasks.base import Item
from skillopt_benchmarks.rows import plain_item
from skillopt_benchmarks.sources import DataSource

_OBJECTS = ("three", "five", "seven")
KINDS = (
    "boolean_expressions",
    "causal_judgement",
    "date_understanding",
    "disambiguation_qa",
    "dyck_languages",
    "formal_fallacies",
    "geometric_shapes",
    "hyperbaton",
    *(f"logical_deduction_{number}_objects" for number in _OBJECTS),
    "movie_recommendation",
    "multistep_arithmetic_two",
    "navigate",
    "object_counting",
    "penguins_in_a_table",
    "reasoning_about_colored_objects",
    "ruin_names",
    "salient_translation_error_detection",
    "snarks",
    "sports_understanding",
    "temporal_sequences",
    *(f"tracking_shuffled_objects_{number}_objects" for number in _OBJECTS),
    "web_of_lies",
    "word_sorting",
)
"""The kinds of tasks in BIG-Bench Hard, which are also the names of its files."""


def published(path: Path) -> Iterator[Item]:
    """Yield the items of one kind of BIG-Bench Hard. The file's name is the kind."""
    rows = json.loads(path.read_text(encoding="utf-8"))["examples"]
    yield from (plain_item(path.stem, number, row["input"], row["target"]) for number, row in enumerate(rows, 1))


def canary(path: Path) -> str:
    """Return the canary line, which every copy of the set must contain. The authors of the set use it to find copies in
    training data."""
    return str(json.loads(path.read_text(encoding="utf-8")).get("canary", ""))


SOURCE = DataSource(
    sizes={"train": 100, "val": 50, "test": 100},
    files="**/{kind}.json",
    read=published,
    url="https://raw.githubusercontent.com/suzgunmirac/BIG-Bench-Hard/main/bbh/{kind}.json",
    how="{kind}.json from the folder bbh/ of BIG-Bench Hard (github.com/suzgunmirac/BIG-Bench-Hard)",
    kinds=KINDS,
    canary=canary,
    mini=False,
)
