"""A run's folder in which anything was changed: told in words, never a traceback, never taken for what it was."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

import hostile
from campaign import holds_for
from folders import UNREAD, changed, deferred, finished
from skillopt.cli import main
from skillopt.errors import Damaged, SkillOptError, UserError
from skillopt.record.damage import find_damage, journal_problem, refuse_damage
from skillopt.record.directory import RunDirectory
from skillopt.record.journal import Journal
from skillopt.record.state import State
from skillopt.view.html import write_report
from skillopt.view.run_rows import list_runs
from skillopt.view.runs_table import runs_table

pytestmark = pytest.mark.fuzz

Change = tuple[str, bytes | None]


def value_of(name: str, data: bytes | None) -> Any:
    """What a file says, so that a changed blank is no change."""
    try:
        return json.loads(data or b"") if name.endswith(".json") else data
    except (ValueError, RecursionError):
        return data


@holds_for(deferred())
def test_a_changed_file_is_found_and_named_unless_it_says_the_same_or_is_never_read(change: Change) -> None:
    name, data = change
    before = (finished().root / name).read_bytes()
    with changed(name, data) as run:
        found = find_damage(run)
    assert all(damage.path == run.root / name for damage in found), found
    if not name.startswith(UNREAD) and value_of(name, data) != value_of(name, before):
        assert found, "nobody noticed"


@holds_for(deferred())
def test_a_run_goes_on_only_as_it_was_or_is_refused_by_name(change: Change) -> None:
    name, data = change
    with tempfile.TemporaryDirectory() as folder:
        copy = RunDirectory(Path(folder) / finished().root.name)
        shutil.copytree(finished().root, copy.root)
        (copy.root / name).unlink()
        if data is not None:
            (copy.root / name).write_bytes(data)
        try:
            refuse_damage(copy)
        except Damaged as refusal:
            assert str(copy.root / name) in str(refusal)  # noqa: PT017
            copy.state.unlink(missing_ok=True)
            copy.journal.unlink(missing_ok=True)
            refuse_damage(copy)
        if copy.state.exists():
            assert all(damage.derived for damage in find_damage(copy))
            State.read(copy.state)


COMMANDS = (
    ["verify"],
    ["blame"],
    ["blame", "--trace", "0001-001"],
    ["blame", "--line", "1"],
    ["review"],
    ["review", "--choose", "1-1=a"],
    ["diff"],
    ["runs"],
    ["runs", "--json"],
)


@holds_for(deferred(), st.sampled_from(COMMANDS))
def test_commands_that_look_into_a_run_end_with_words_and_not_with_a_traceback(
    change: Change, words: list[str]
) -> None:
    decided = finished().decisions
    with changed(*change) as run, contextlib.redirect_stdout(io.StringIO()) as out:
        with contextlib.redirect_stderr(io.StringIO()) as errors, contextlib.suppress(SystemExit):
            main([words[0], str(run.root), *words[1:]])
        decided.unlink(missing_ok=True)
    assert "Traceback" not in out.getvalue() + errors.getvalue()


@holds_for(deferred(".json", ".jsonl", ".md"))
def test_a_report_is_written_or_says_what_is_wrong(change: Change) -> None:
    report, pages = finished().report.read_bytes(), finished().report_md.read_bytes()
    with changed(*change) as run:
        try:
            write_report(run)
        except (SkillOptError, FileNotFoundError) as refusal:
            assert str(refusal)  # noqa: PT017
        finally:
            run.report.write_bytes(report)
            run.report_md.write_bytes(pages)


@holds_for(deferred("summary.json", "config.json", "history.json"))
def test_a_table_of_runs_shows_every_run_and_says_which_cannot_be_read(change: Change) -> None:
    with changed(*change) as run:
        rows = list_runs(run.root.parent.parent)
        assert len(rows) == (change != ("config.json", None))
        assert len(runs_table(rows, run.root)) == 1 + len(rows)


@holds_for(st.one_of(hostile.raw, hostile.json_values.map(hostile.as_json)))
def test_a_state_is_read_as_it_was_written_or_is_refused(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.json"
        path.write_bytes(data)
        try:
            State.read(path)
        except Damaged as refusal:
            assert str(path) in str(refusal)  # noqa: PT017
        else:
            raise AssertionError("a state that nobody wrote was taken")


def replies(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return sorted(db.execute("SELECT * FROM replies").fetchall())


@holds_for(st.deferred(lambda: hostile.mutated(finished().journal.read_bytes(), 2)))
def test_a_journal_holds_what_was_received_or_is_found_damaged(data: bytes) -> None:
    known = replies(finished().journal)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.sqlite"
        path.write_bytes(data)
        problem = journal_problem(path, least=len(known))
        assert problem or replies(path) == known
        with contextlib.suppress(UserError), Journal(path) as journal:
            journal.totals()
