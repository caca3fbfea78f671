"""A finished run in a folder of its own, made once, of which tests change a file and put it back."""

from __future__ import annotations

import atexit
import contextlib
import functools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hypothesis import strategies as st

import hostile
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json, read_jsonl
from skillopt.view.html import write_report
from support import only_run, train_sim

SHORT = ("train.num_epochs=2", "env.options={rules: 8, train: 12, val: 10, test: 10}", "train.batch_size=6")
UNREAD = ("events.jsonl", "test_reads.jsonl", "report.html", "report.md", "plots/", "run.lock", "journal.sqlite-shm")
"""What training never reads."""


@functools.cache
def workspace() -> Path:
    """Ends with the process. Runs lie below `outputs`, as the web page wants them."""
    base = Path(tempfile.mkdtemp(prefix="skillopt-fuzz-"))
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    folder = base / "work"
    done = train_sim(folder / "outputs", *SHORT, "models.optimizer_model=sim:world?duds=0.35&opposites=1")
    write_report(RunDirectory(done.path))
    return folder


@functools.cache
def finished() -> RunDirectory:
    return only_run(workspace() / "outputs")


@functools.cache
def names() -> list[str]:
    """The run's files."""
    root = finished().root
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


@contextlib.contextmanager
def changed(name: str, data: bytes | None) -> Iterator[RunDirectory]:
    """The run with that file as it should not be; None takes it out."""
    path = finished().root / name
    before = path.read_bytes()
    try:
        path.unlink()
        if data is not None:
            path.write_bytes(data)
        yield finished()
    finally:
        path.write_bytes(before)


@st.composite
def altered(draw: st.DrawFn, *suffixes: str) -> tuple[str, bytes | None]:
    """A file of the run and what stands in it now: other bytes, another shape, or nothing."""
    wanted = [name for name in names() if name.endswith(suffixes or "") and not name.startswith("journal")]
    name = wanted[draw(st.integers(0, len(wanted) - 1))]
    path = finished().root / name
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return name, None
    if kind <= 2:
        return name, draw(hostile.raw)
    if kind <= 7 and path.suffix == ".json":
        return name, hostile.as_json(draw(hostile.misshapen(read_json(path))))
    if kind <= 7 and path.suffix == ".jsonl":
        rows = draw(hostile.misshapen(read_jsonl(path)))
        return name, b"".join(hostile.as_json(row) + b"\n" for row in rows) if isinstance(rows, list) else b"{}\n"
    return name, draw(hostile.mutated(path.read_bytes()))


def deferred(*suffixes: str) -> st.SearchStrategy[tuple[str, bytes | None]]:
    """The run is made when the first case is drawn, not when the tests are collected."""
    return st.deferred(lambda: altered(*suffixes))
