"""The step records of a run: one JSON array with one record per line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter

from skillopt.record.files import plain, read_bytes, write_atomic
from skillopt.record.step import EpochEnd, StepRecord

_RECORDS = TypeAdapter(list[StepRecord])


class History:
    """Keeps the step records, and rewrites `history.json` after each step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: tuple[StepRecord, ...] = ()

    def begin(self, records: Sequence[StepRecord]) -> None:
        self.records = tuple(records)
        lines = ",".join(f"\n{json.dumps(plain(record), ensure_ascii=False)}" for record in records)
        write_atomic(self.path, f"[{lines}\n]\n")

    def append(self, record: StepRecord) -> None:
        self.begin([*self.records, record])

    def end_epoch(self, outcome: EpochEnd) -> None:
        """Add the results of the epoch's end to the newest record."""
        if self.records:
            self.begin([*self.records[:-1], self.records[-1].model_copy(update={"epoch_end": outcome})])


def read_history(path: Path) -> list[StepRecord]:
    """The step records in a `history.json`; empty before the first step."""
    return _RECORDS.validate_json(read_bytes(path)) if path.exists() else []
