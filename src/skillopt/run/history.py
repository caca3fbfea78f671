"""The step records of a run: a JSON array that grows by a step's own record, whatever the run's length."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from skillopt.run.files import plain, read_json, write_atomic

_END = b"\n]\n"


class History:
    """`history.json`. Only the running epoch's records are kept in memory.

    A record is one line, added by one write over the closing bracket; a reader that meets the write reads again
    (files.read_json). A file that a crash of the machine damages is rebuilt from the steps' folders when the run
    continues (repair.py).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.epoch: list[dict[str, Any]] = []
        """The records of the newest epoch."""
        self._last = 0
        """Where the newest record begins in the file, the comma before it included."""

    def begin(self) -> None:
        write_atomic(self.path, f"[{_END.decode()}")

    def roll_back(self, step: int) -> None:
        """Forget records after that step, the last that was finished."""
        kept = [record for record in read_json(self.path) if record["step"] <= step] if step else []
        earlier = "[" + ",".join(f"\n{_line(record)}" for record in kept[:-1])
        newest = "".join(f"{',' if kept[1:] else ''}\n{_line(record)}" for record in kept[-1:])
        write_atomic(self.path, earlier + newest + _END.decode())
        self.epoch = [record for record in kept if record["epoch"] == kept[-1]["epoch"]]
        self._last = len(earlier.encode())

    def append(self, record: dict[str, Any]) -> None:
        if self.epoch and self.epoch[-1]["epoch"] != record["epoch"]:
            self.epoch = []
        self.epoch.append(record)
        self._last = self.path.stat().st_size - len(_END)
        self._write(record)

    def amend(self, **fields: Any) -> None:
        """Add the results of the epoch's end to the newest record."""
        if self.epoch:
            self.epoch[-1] = {**self.epoch[-1], **fields}
            self._write(self.epoch[-1])

    def _write(self, record: dict[str, Any]) -> None:
        comma = b",\n" if self._last > 1 else b"\n"
        body = _line(record).encode()
        with self.path.open("r+b") as file:
            file.seek(self._last)
            file.write(comma + body + _END)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())


def _line(record: dict[str, Any]) -> str:
    return json.dumps(plain(record), ensure_ascii=False)
