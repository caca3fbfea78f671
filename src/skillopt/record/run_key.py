"""Finds the run that a command continues, and names new runs: `2026-11-17_22-40-05_seed42-2278d520`."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count, takewhile
from pathlib import Path

from skillopt.errors import Damaged, UserError
from skillopt.record.directory import RunDirectory, make_folder
from skillopt.record.files import read_json
from skillopt.record.state import State

_TIME = "%Y-%m-%d_%H-%M-%S"
_DATE = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_")
EPOCHS = "train.num_epochs"


def now() -> datetime:
    return datetime.now()


def sibling_runs(run: RunDirectory, seed: int | None = None) -> Iterator[RunDirectory]:
    """The runs of the same benchmark (with `seed`, if it is given). Runs of earlier versions, with names such as
    `seed42-2278d520`, are included."""
    name = f"seed{'*' if seed is None else seed}-*"
    for pattern in (name, f"*_{name}"):
        yield from (RunDirectory(path) for path in run.root.parent.glob(pattern))


@dataclass(frozen=True, kw_only=True)
class RunKey:
    """The identity of a run. Runs with the same key differ only in the number of epochs and in settings that do not
    change results."""

    folder: Path
    """The folder of all runs of the benchmark."""
    name: str
    """The end of the runs' names: seed and hash."""
    old_name: str
    """The name, without a date, that earlier versions of SkillOpt gave to a run with this key."""
    epochs: int

    def runs(self) -> list[RunDirectory]:
        """The runs with this key, the oldest first."""
        numbered = (self.folder / (self.old_name if n == 1 else f"{self.old_name}-{n}") for n in count(1))
        dated = (path for path in self.folder.glob(f"*_{self.name}") if _DATE.match(path.name))
        return [RunDirectory(path) for path in (*takewhile(Path.is_dir, numbered), *sorted(dated))]

    def find(self, *, extend: bool = True) -> RunDirectory | None:
        """Find the newest run with this key's number of epochs. If there is none and `extend` is true, find the run
        with the most epochs. If `extend` is false, runs that were extended are ignored, because their learning rate
        had more than one schedule."""
        phases = [(epochs_of(run) or (self.epochs,), run) for run in self.runs()]
        same = [run for epochs, run in phases if epochs[-1] == self.epochs and (extend or len(epochs) == 1)]
        if same or not phases or not extend:
            return same[-1] if same else None
        return max(enumerate(phases), key=lambda row: (row[1][0][-1], row[0]))[1][1]

    def new(self) -> RunDirectory:
        """A new run with this key. Its name sorts after the names of earlier runs, even if the clock was set back."""
        moment = now()
        for run in self.runs():
            if _DATE.match(run.root.name):
                began = datetime.strptime(run.root.name[:19], _TIME)
                moment = max(moment, began + timedelta(seconds=1))
        return RunDirectory(self.folder / f"{moment.strftime(_TIME)}_{self.name}")

    @contextmanager
    def beginning(self, run: RunDirectory, *, extend: bool) -> Iterator[None]:
        """Inside the block, no other process can begin a run of this benchmark. Raise UserError if another process has
        already begun the run that this process wants to begin."""
        make_folder(self.folder, private=False)
        handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with suppress(OSError):  # some network file systems have no locks on folders
                fcntl.flock(handle, fcntl.LOCK_EX)
            other = self.find(extend=extend)
            if other and other.root != run.root:
                raise UserError(
                    f"{other.root}: another process has just begun this run; wait for it, or start a separate run "
                    "with --fresh"
                )
            yield
        finally:
            os.close(handle)


def epochs_of(run: RunDirectory) -> tuple[int, ...]:
    """The planned number of epochs at the run's beginning and after each extension; empty if the run has not begun."""
    with suppress(Damaged):
        if run.state.exists() and (phases := State.read(run.state).phases):
            return tuple(phase.epochs for phase in phases)
    with suppress(OSError, ValueError, LookupError, TypeError):
        return (int(read_json(run.config_json)[EPOCHS]),)
    return ()
