"""history.json grows by a record a step, and is whole whenever somebody reads it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from skillopt.record.base import ByRole
from skillopt.record.costs import Paid
from skillopt.record.history import History, read_history
from skillopt.record.step import (
    EditCounts,
    EpochEnd,
    Evidence,
    LearningRate,
    MetaSkillOutcome,
    StepRecord,
    StepTelemetry,
)


def record(step: int, reason: str = "ümläut\n]") -> StepRecord:
    paid = Paid(
        calls=0,
        rollouts=0,
        prompt_tokens=0,
        completion_tokens=0,
        cached_tokens=0,
        estimated=False,
        usd=None,
        by_stage={},
        usd_by_stage={},
        tokens_by_stage={},
    )
    edits = EditCounts(
        proposed=0,
        dropped={},
        lost_replies=(),
        unusable_replies=(),
        leaks=0,
        merged=0,
        conflicting=0,
        selected=0,
        applied=0,
        skipped={},
        accepted=0,
    )
    evidence = Evidence(
        decision="reject", rule="strict", metric="hard", before=0.5, after=0.4, at_most=0.4, items=4, measured=4
    )
    return StepRecord(
        step=step,
        epoch=1,
        train_score=0.5,
        rollout_errors=0,
        val=0.5,
        val_before=0.5,
        val_after=0.4,
        verdict="reject",
        evidence=evidence.model_copy(update={"reason": reason}),
        learning_rate=LearningRate(scheduled=4.0, used=4.0),
        edits=edits,
        version=0,
        skill_hash="",
        skill_tokens=0,
        candidate_tokens=0,
        telemetry=StepTelemetry(seconds={}, paid_so_far=ByRole[Paid](target=paid, optimizer=paid)),
    )


def begun(path: Path, *records: StepRecord) -> History:
    history = History(path / "history.json")
    history.begin([])
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


def test_a_reader_never_meets_half_a_write(tmp_path: Path) -> None:
    history = begun(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(lambda: [history.append(record(step, "x" * 9000)) for step in range(50)])
        seen = [len(read(history))]
        while not writing.done():
            seen.append(len(read(history)))
    assert seen == sorted(seen)


def test_the_end_of_an_epoch_is_part_of_the_last_record(tmp_path: Path) -> None:
    history = begun(tmp_path, record(1), record(2))
    history.end_epoch(EpochEnd(epoch=1, meta_skill=MetaSkillOutcome(lost="", unusable=())))
    first, last = read(history)
    assert "epoch_end" not in first
    assert last["epoch_end"] == {"epoch": 1, "meta_skill": {"lost": "", "unusable": []}}


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    history = begun(tmp_path, record(1), record(2))
    assert tuple(read_history(history.path)) == history.records
    assert history.records[0]["evidence"]["reason"] == "ümläut\n]"
