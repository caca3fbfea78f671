"""history.json grows by a record a step, and is whole whenever somebody reads it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from skillopt.run.files import read_json, write_json
from skillopt.run.history import History


def record(step: int, epoch: int = 1) -> dict[str, Any]:
    return {"step": step, "epoch": epoch, "text": "ümläut\n]"}


def begun(path: Path, *records: dict[str, Any]) -> History:
    history = History(path / "history.json")
    history.begin()
    for row in records:
        history.append(row)
    return history


def read(history: History) -> Any:
    return json.loads(history.path.read_text(encoding="utf-8"))


def test_the_file_is_a_json_array_after_every_step(tmp_path: Path) -> None:
    history = begun(tmp_path)
    assert read(history) == []
    for step in range(1, 6):
        history.append(record(step))
        assert [row["step"] for row in read(history)] == list(range(1, step + 1))


def test_a_reader_that_meets_a_write_reads_again(tmp_path: Path) -> None:
    history = begun(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(lambda: [history.append({**record(step), "long": "x" * 9000}) for step in range(200)])
        seen = [len(read_json(history.path))]
        while not writing.done():
            seen.append(len(read_json(history.path)))
    assert seen == sorted(seen)
    history.path.write_text("[1")
    with pytest.raises(ValueError, match="delimiter"):
        read_json(history.path)


def test_a_step_writes_as_much_in_a_long_run_as_in_a_short_one(tmp_path: Path) -> None:
    history = begun(tmp_path, *(record(step) for step in range(1, 2000)))
    before = history.path.read_bytes()
    history.append(record(2000))
    after = history.path.read_bytes()
    shared = next(at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a != b)
    assert len(before) - shared <= 3, "what stood there was rewritten"


def test_only_the_newest_epoch_is_kept_in_memory_and_its_end_amends_the_last_record(tmp_path: Path) -> None:
    history = begun(tmp_path, record(1, 1), record(2, 1), record(3, 2), record(4, 2))
    history.amend(epoch_end={"guidance": "…"})
    assert [row["step"] for row in history.epoch] == [3, 4]
    assert read(history)[-1] == {**record(4, 2), "epoch_end": {"guidance": "…"}}
    assert len(read(history)) == 4


@pytest.mark.parametrize("step", [0, 1, 3])
def test_a_run_that_goes_on_forgets_what_was_not_finished(tmp_path: Path, step: int) -> None:
    begun(tmp_path, *(record(n, (n + 1) // 2) for n in range(1, 5)))
    history = History(tmp_path / "history.json")
    history.roll_back(step)
    assert [row["step"] for row in read(history)] == list(range(1, step + 1))
    history.append(record(step + 1, 9))
    history.amend(mark=1)
    assert [row["step"] for row in read(history)] == list(range(1, step + 2))
    assert [row["step"] for row in history.epoch] == [step + 1]


def test_a_history_written_with_indents_is_read_all_the_same(tmp_path: Path) -> None:
    write_json(tmp_path / "history.json", [record(1), record(2)])
    history = History(tmp_path / "history.json")
    history.roll_back(2)
    history.append(record(3))
    assert [row["step"] for row in read(history)] == [1, 2, 3]


def test_going_on_writes_the_file_once_so_that_no_reader_misses_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(tmp_path, *(record(step) for step in range(1, 5)))
    written: list[str] = []

    def keep(path: Path, text: str) -> None:
        written.append(text)
        path.write_text(text, encoding="utf-8")

    monkeypatch.setattr("skillopt.run.history.write_atomic", keep)
    history = History(tmp_path / "history.json")
    history.roll_back(3)
    assert written == [history.path.read_text(encoding="utf-8")]
    assert [row["step"] for row in read(history)] == [1, 2, 3]
