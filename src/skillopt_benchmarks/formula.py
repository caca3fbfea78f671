"""ACE's Formula set: questions with answers, for the env `qa`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from skillopt.tasks.base import Item
from skillopt_benchmarks.rows import plain_item
from skillopt_benchmarks.sources import DataSource


def published(path: Path) -> Iterator[Item]:
    """Yield the items of a split of the Formula set. The file has one JSON object per line."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        row = json.loads(line)
        yield plain_item(path.stem, number, row["context"], row["target"])


def split_of(path: Path) -> str:
    """Return the split of a file's items. The authors of the set put the split into the file's name."""
    return path.stem.split("_")[1]


SOURCE = DataSource(
    files="**/formula_*.jsonl",
    read=published,
    url="https://github.com/ace-agent/ace/archive/refs/heads/main.tar.gz",
    how="formula_train_subset_500.jsonl, formula_val_subset_300.jsonl and formula_test.jsonl of ACE's finance data "
    "(github.com/ace-agent/ace)",
    split=split_of,
    mini=False,
)
