"""Whatever byte changes in a run's folder does no harm, is written anew, or is named, and nothing is trained on it."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from skillopt.errors import Damaged, Stopped
from skillopt.record.damage import find_damage, history_of, journal_problem, refuse_damage
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json
from skillopt.record.history import History
from skillopt.record.journal import Journal, JournalRow
from skillopt.record.state import State
from support import differing, essence, only_run, skillopt, train_sim

SHORT = ("train.num_epochs=2", "env.options={rules: 8, train: 12, val: 10, test: 10}", "train.batch_size=6")
CASES = int(os.environ.get("SKILLOPT_DAMAGE_CASES", "100"))
UNREAD = ("events.jsonl", "test_reads.jsonl", "report.html", "report.md", "plots/", "run.lock", "journal.sqlite-shm")
"""What training never reads: logs for people, and pages that are written anew."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunDirectory]:
    """A finished run, and one that was stopped on the way."""
    out = tmp_path_factory.mktemp("runs")
    train_sim(out / "finished", *SHORT)
    calls = sum(read_json(only_run(out / "finished").summary)["calls"][role] for role in ("target", "optimizer"))
    with pytest.raises(Stopped):
        train_sim(out / "stopped", *SHORT, f"budget.max_calls={calls * 2 // 3}")
    found = {name: only_run(out / name) for name in ("finished", "stopped")}
    assert read_json(found["stopped"].state)["step"] >= 2
    assert all(find_damage(run) == [] for run in found.values())
    return found


@pytest.fixture
def copies(runs: dict[str, RunDirectory], tmp_path: Path) -> dict[str, RunDirectory]:
    """Both runs, to be damaged; in folders from which the same command goes on."""
    made = {}
    for name, run in runs.items():
        shutil.copytree(run.root.parent.parent, tmp_path / name)
        made[name] = only_run(tmp_path / name)
    return made


def replies(run: RunDirectory) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(run.journal)) as db:
        return db.execute("SELECT * FROM replies").fetchall()


def files(run: RunDirectory) -> list[Path]:
    return sorted(path for path in run.root.rglob("*") if path.is_file() and path.stat().st_size)


def hurt(path: Path, draw: random.Random) -> None:
    """Flip a bit somewhere, or cut the file somewhere."""
    data = bytearray(path.read_bytes())
    at = draw.randrange(len(data))
    if draw.random() < 0.6:
        data[at] ^= 1 << draw.randrange(8)
        path.write_bytes(bytes(data))
    else:
        path.write_bytes(bytes(data[:at]))


def go_back(run: RunDirectory) -> None:
    """What a resumed run does before its first step."""
    refuse_damage(run)
    state = State.read(run.state)
    run.roll_back(step=state.step, epoch=state.epoch, version=state.version, patch_log_size=state.patch_log_size)
    History(run.history).begin(history_of(run, state))
    run.write_best(run.read_skill(state.best.version))


@pytest.mark.chaos
@pytest.mark.parametrize("name", ["finished", "stopped"])
def test_no_flipped_bit_and_no_cut_file_is_trained_on_unseen(
    name: str, runs: dict[str, RunDirectory], tmp_path: Path
) -> None:
    whole = RunDirectory(tmp_path / "whole" / runs[name].root.name)
    shutil.copytree(runs[name].root, whole.root)
    go_back(whole)
    sound, paid = essence(whole), replies(whole)
    anew = ("summary.json", "config.") if name == "stopped" else ()  # a run that goes on writes them anew
    draw = random.Random(11)
    outcomes = dict.fromkeys(("harmless", "written anew", "refused"), 0)
    for number in range(CASES):
        copy = RunDirectory(tmp_path / f"{number}" / whole.root.name)
        shutil.copytree(runs[name].root, copy.root)
        victim = draw.choice([copy.journal] if number % 6 == 0 else files(copy))
        before = victim.read_bytes()
        hurt(victim, draw)
        relative = victim.relative_to(copy.root).as_posix()
        found = find_damage(copy)
        assert all(damage.path == victim for damage in found), (relative, found)
        refused = ""
        try:
            go_back(copy)
        except Damaged as refusal:
            refused = str(refusal)
        outcomes["refused" if refused else "written anew" if found else "harmless"] += 1
        if refused:
            assert str(victim) in refused, relative
            assert "delete runtime_state.json" in refused
        elif not relative.startswith((*UNREAD, *anew)):
            left = differing(sound, essence(copy))
            assert left == [], (relative, left)
            assert replies(copy) == paid, relative
            gone = not victim.exists()  # it was of an interrupted step
            assert gone or found or _says_the_same(victim, before), relative
        shutil.rmtree(copy.root.parent)
    assert all(outcomes.values()), outcomes


def _says_the_same(path: Path, before: bytes) -> bool:
    """A changed blank in JSON, or a byte of a journal's page that nothing is stored in."""
    if path.read_bytes() == before:
        return True
    if path.suffix == ".json":
        return bool(json.loads(before) == read_json(path))
    return path.name.startswith("journal.sqlite")


@pytest.mark.parametrize(
    "victim",
    [
        "runtime_state.json",
        "patch_log.jsonl",
        "skills/skill_v0000.md",
        "skills/skill_v0001.md",
        "steps/step_0001/gate.json",
    ],
)
def test_damage_is_refused_and_without_the_state_the_run_ends_as_if_nothing_had_happened(
    victim: str, runs: dict[str, RunDirectory], copies: dict[str, RunDirectory], tmp_path: Path
) -> None:
    run, paid = copies["stopped"], replies(copies["stopped"])
    path = run.root / victim
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(Damaged, match=r"delete runtime_state\.json") as refusal:
        train_sim(tmp_path / "stopped", *SHORT)
    assert str(path) in str(refusal.value)
    run.state.unlink()
    train_sim(tmp_path / "stopped", *SHORT)
    assert differing(essence(runs["finished"]), essence(run)) == []
    assert {row[1:3] for row in paid} <= {row[1:3] for row in replies(run)}
    calls = read_json(run.summary)["calls"]
    finished = read_json(runs["finished"].summary)["calls"]
    assert (calls["target"], calls["optimizer"]) == (finished["target"], finished["optimizer"]), (
        "something was paid twice"
    )


@pytest.mark.parametrize("victim", ["history.json", "best_skill.md", "skills/best_skill.md"])
def test_what_repeats_other_files_is_written_anew_by_the_same_command(
    victim: str, runs: dict[str, RunDirectory], copies: dict[str, RunDirectory], tmp_path: Path
) -> None:
    run = copies["finished"]
    (run.root / victim).write_bytes(b"{")
    assert [(damage.path, damage.derived) for damage in find_damage(run)] == [(run.root / victim, True)]
    train_sim(tmp_path / "finished", *SHORT)
    assert differing(essence(runs["finished"]), essence(run)) == []
    assert find_damage(run) == []


def test_a_run_that_lost_its_state_is_done_again_from_the_journal(
    runs: dict[str, RunDirectory], copies: dict[str, RunDirectory], tmp_path: Path
) -> None:
    run = copies["finished"]
    run.state.unlink()
    train_sim(tmp_path / "finished", *SHORT)
    assert differing(essence(runs["finished"]), essence(run)) == []
    assert replies(run) == replies(runs["finished"])


def test_a_run_that_lost_its_journal_is_refused_and_without_its_state_begins_anew(
    runs: dict[str, RunDirectory], copies: dict[str, RunDirectory], tmp_path: Path
) -> None:
    run = copies["stopped"]
    for path in run.root.glob("journal.sqlite*"):
        path.unlink()
    with pytest.raises(Damaged, match=r"journal\.sqlite: is missing"):
        train_sim(tmp_path / "stopped", *SHORT)
    run.state.unlink()
    train_sim(tmp_path / "stopped", *SHORT)
    assert differing(essence(runs["finished"]), essence(run)) == []


def test_verify_names_the_damage_and_what_to_delete(copies: dict[str, RunDirectory], tmp_path: Path) -> None:
    run = copies["finished"]
    step = run.step(1) / "gate.json"
    step.write_bytes(step.read_bytes()[:-9])
    wrong = skillopt("verify", str(run.root))
    assert wrong.returncode == 1
    assert f"{step}: is too short" in wrong.stdout
    assert "delete runtime_state.json" in wrong.stdout
    gone = skillopt("verify", str(run.root), "--repair")
    assert gone.returncode == 2
    assert "names the files to delete" in gone.stderr
    refused = skillopt(
        "train", "--config", "configs/sim/default.yaml", *SHORT, f"env.output_root={tmp_path / 'finished'}"
    )
    assert refused.returncode == 2
    assert f"{step}: is too short" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_reply_that_is_not_what_was_received_is_found(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with Journal(path) as journal:
        for number in range(200):
            reply = {"text": f"reply {number} " + "x" * 300}
            journal.put(
                JournalRow(key=f"{number:04d}", attempt=1, role="target", stage="s", model="m", turn=1, reply=reply)
            )
    data = bytearray(path.read_bytes())
    at = data.find(b"reply 77 ")
    data[at] ^= 1
    path.write_bytes(bytes(data))
    assert "1 of 200 replies were changed after they were received" in journal_problem(path)
