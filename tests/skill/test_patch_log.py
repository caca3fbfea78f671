"""The patch log proves where each line came from: it rebuilds every version, and no byte of it changes unseen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt.skill import Edit, Entry, PatchLog, PatchLogError, Skill, apply_edits, replay
from skillopt.skill.patch_log import GENESIS

INITIAL = Skill("# Rules\n\n- One.\n- Two.\n")
STEPS = [
    [Edit(id="e1", op="add", section="Rules", text="- Three, “quoted” \u2028 é.", trajectory_ids=("0001-003",))],
    [
        Edit(
            id="e2",
            op="modify",
            anchor="- One.",
            text="- 1\t\\n.",
            trajectory_ids=("0002-001", "0002-007"),
            impact=1e-7,
        ),
        Edit(id="e3", op="add", section="New", text="Say `x`.", trajectory_ids=("0002-002",)),
        Edit(id="e4", op="delete", anchor="- Two.", trajectory_ids=("0002-002",), rationale="broken \ud83d"),
    ],
]


def write(path: Path) -> tuple[PatchLog, dict[int, Skill]]:
    """A log of two steps and a slow update, and the versions that it tells of."""
    log = PatchLog(path)
    versions = {0: INITIAL}
    skill = INITIAL
    for step, edits in enumerate(STEPS, 1):
        outcome = apply_edits(skill, edits)
        assert not outcome.skipped
        log.append(
            outcome.applied,
            kind="edit",
            step=step,
            epoch=1,
            version=step,
            before=skill,
            after=outcome.skill,
            evidence={"before": 0.5, "after": 0.1 + 0.2, "note": "π\x7f", "tiny": 1e-9},
        )
        skill = versions[step] = outcome.skill
    guided = skill.with_guidance("Keep the form.")
    guidance = Edit(id="g1", op="add", text="Keep the form.", trajectory_ids=("slow-000",))
    log.append([guidance], kind="guidance", step=2, epoch=1, version=3, before=skill, after=guided, evidence={})
    return log, {**versions, 3: guided}


def test_entries_form_a_chain_and_name_step_version_and_trajectories(tmp_path: Path) -> None:
    entries = list(write(tmp_path / "log.jsonl")[0].entries())
    assert [entry.seq for entry in entries] == [1, 2, 3, 4, 5]
    assert [entry.prev for entry in entries] == [GENESIS, *(entry.hash for entry in entries[:-1])]
    assert [(e.step, e.version, e.edit.id) for e in entries] == [
        (1, 1, "e1"),
        (2, 2, "e2"),
        (2, 2, "e3"),
        (2, 2, "e4"),
        (2, 3, "g1"),
    ]
    assert entries[1].edit.trajectory_ids == ("0002-001", "0002-007")
    assert entries[1].evidence["after"] == 0.1 + 0.2


def test_replay_rebuilds_every_version_byte_for_byte(tmp_path: Path) -> None:
    log, versions = write(tmp_path / "log.jsonl")
    assert replay(INITIAL, list(log.entries())) == versions


def test_replay_refuses_another_beginning_and_a_log_with_a_hole(tmp_path: Path) -> None:
    entries = list(write(tmp_path / "log.jsonl")[0].entries())
    with pytest.raises(PatchLogError, match=r"version 1: .*a different skill"):
        replay(Skill("# Other\n"), entries)
    with pytest.raises(PatchLogError, match=r"version 2: the edits in the log do not produce"):
        replay(INITIAL, [entry for entry in entries if entry.seq != 3])


def test_a_log_goes_on_after_reopening(tmp_path: Path) -> None:
    log, versions = write(tmp_path / "log.jsonl")
    last = list(log.entries())[-1]
    again = PatchLog(tmp_path / "log.jsonl")
    after = versions[3].with_guidance("Other.")
    again.append(
        [
            Edit(
                op="modify", section="(protected region)", anchor="Keep the form.", text="Other.", trajectory_ids=("s",)
            )
        ],
        kind="guidance",
        step=3,
        epoch=2,
        version=4,
        before=versions[3],
        after=after,
        evidence={},
    )
    newest = list(again.entries())[-1]
    assert (newest.seq, newest.prev) == (last.seq + 1, last.hash)
    assert replay(INITIAL, list(again.entries()))[4] == after


def test_every_flipped_byte_is_found_and_its_entry_named(tmp_path: Path) -> None:
    log, _ = write(tmp_path / "log.jsonl")
    log.truncate(len(b"".join(log.path.read_bytes().splitlines(keepends=True)[:2])))
    intact = log.path.read_bytes()
    with log.path.open("r+b", buffering=0) as file:
        for at, byte in enumerate(intact):
            number = intact[:at].count(b"\n") + 1
            for bit in {0x20, 1 << at % 8}:  # 0x20 turns A into a, and some spellings of one value into another
                file.seek(at)
                file.write(bytes([byte ^ bit]))
                with pytest.raises(PatchLogError, match=f"entry {number} "):
                    list(log.entries())
            file.seek(at)
            file.write(bytes([byte]))
    assert len(list(log.entries())) == 2


@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=3), st.integers(0, 3))
def test_no_replaced_inserted_or_removed_bytes_go_unseen(
    tmp_path_factory: pytest.TempPathFactory, at: int, new: bytes, cut: int
) -> None:
    log, _ = write(tmp_path_factory.mktemp("log") / "log.jsonl")
    intact = log.path.read_bytes()
    at %= len(intact)
    altered = intact[:at] + new + intact[at + cut :]
    if altered == intact:
        return
    log.path.write_bytes(altered)
    with pytest.raises(PatchLogError, match=r"entry \d+ "):
        list(log.entries())


@pytest.mark.parametrize(
    "rearrange", [lambda e: e[1:], lambda e: [e[1], e[0], *e[2:]], lambda e: [e[0], *e[2:]], lambda e: [e[0], *e]]
)
def test_entries_that_are_moved_doubled_or_missing_are_found(tmp_path: Path, rearrange: object) -> None:
    log, _ = write(tmp_path / "log.jsonl")
    lines = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(b"".join(rearrange(lines)))  # type: ignore[operator]
    with pytest.raises(PatchLogError, match="out of place"):
        list(log.entries())


def test_an_entry_rewritten_with_a_fresh_hash_breaks_the_next_one(tmp_path: Path) -> None:
    log, _ = write(tmp_path / "log.jsonl")
    first, *rest = log.path.read_bytes().splitlines(keepends=True)
    forged = Entry.model_validate({**json.loads(first), "step": 7, "hash": ""})
    forged = forged.model_copy(update={"hash": forged.digest()})
    log.path.write_bytes(forged.line() + b"".join(rest))
    with pytest.raises(PatchLogError, match="entry 2 "):
        list(log.entries())


def test_truncate_goes_back_to_the_last_finished_step_and_the_chain_holds(tmp_path: Path) -> None:
    log, versions = write(tmp_path / "log.jsonl")
    whole = log.path.read_bytes()
    size = len(b"".join(whole.splitlines(keepends=True)[:1]))
    log.truncate(size)
    assert [entry.edit.id for entry in log.entries()] == ["e1"]
    assert log.size == size
    log.append(STEPS[1], kind="edit", step=2, epoch=1, version=2, before=versions[1], after=versions[2], evidence={})
    assert replay(INITIAL, list(log.entries())) == {n: versions[n] for n in (0, 1, 2)}


def test_truncate_removes_a_torn_line(tmp_path: Path) -> None:
    log, _ = write(tmp_path / "log.jsonl")
    size = log.size
    with log.path.open("ab") as file:
        file.write(b'{"seq":6,"kind":"ed')
    with pytest.raises(PatchLogError, match="entry 6 is not readable"):
        list(log.entries())
    log.truncate(size)
    assert len(list(log.entries())) == 5


def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    log = PatchLog(tmp_path / "log.jsonl")
    log.truncate(0)
    assert (list(log.entries()), log.size) == ([], 0)
    assert replay(INITIAL, []) == {0: INITIAL}
