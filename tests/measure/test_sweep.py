"""Sweeps and transfers: trials share budget and journal, the choice is by validation, skills go to other tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skillopt.errors import UserError
from skillopt.measure.sweep import choose, make_trials, parse_axes, split_values
from skillopt.record.journal import Journal, JournalRow
from skillopt.record.results import SweepRow
from support import REPO, SIM, skillopt, train_sim

SMALL = "env.options={rules: 8, train: 24, val: 16, test: 12}"
AXES = ["optimizer.learning_rate=2,8", "optimizer.lr_scheduler=cosine,constant"]


def sweep(out: Path, *more: str) -> tuple[int, dict[str, Any], str]:
    done = skillopt("sweep", "-c", str(SIM), *AXES, SMALL, "train.num_epochs=1", f"env.output_root={out}", *more)
    found = [json.loads(path.read_text()) for path in (out / "sweeps" / "sim").glob("*/sweep.json")]
    return done.returncode, found[0] if found else {}, done.stdout + done.stderr


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """A sweep from its beginning to its end."""
    out = tmp_path_factory.mktemp("whole")
    code, result, told = sweep(out)
    assert code == 0, told
    return out, result, told


def test_a_sweep_tries_the_grid_and_only_the_winner_reads_the_test_split(
    whole: tuple[Path, dict[str, Any], str],
) -> None:
    out, result, told = whole
    assert [row["values"] for row in result["rows"]] == [
        {"optimizer.learning_rate": rate, "optimizer.lr_scheduler": shape}
        for rate in (2, 8)
        for shape in ("cosine", "constant")
    ]
    best = max(result["rows"], key=lambda row: (row["best_val"], -row["rollouts_to_best"]))
    assert result["best"]["trial"] == best["trial"]
    read = [path.parent for path in (out / "sim").glob("*/test_reads.jsonl")]
    assert [str(path) for path in read] == [best["run"]]
    assert "Best by validation, of 4 trials" in told


def test_what_one_trial_paid_for_the_next_ones_do_not(whole: tuple[Path, dict[str, Any], str], tmp_path: Path) -> None:
    _, result, _ = whole
    first, *others = result["rows"]
    alone = train_sim(
        tmp_path / "alone", SMALL, "train.num_epochs=1", "optimizer.learning_rate=8", "optimizer.lr_scheduler=constant"
    )
    last = result["rows"][-1]
    assert last["best_val"] == alone.summary["best"]["val"]
    assert first["from_journal"] < min(row["from_journal"] for row in others)
    assert last["target_calls"] < alone.summary["calls"]["target"]


@pytest.mark.slow
def test_a_sweep_stops_at_the_budget_of_all_trials_and_goes_on_where_it_was(
    whole: tuple[Path, dict[str, Any], str], tmp_path: Path
) -> None:
    code, result, told = sweep(tmp_path, "budget.max_calls=80")
    assert code == 3, told
    finished = len(result["rows"])
    assert 1 <= finished < 4
    code, result, told = sweep(tmp_path)
    assert code == 0
    assert told.count("(already ") >= finished
    _, plain, _ = whole
    assert [row["best_val"] for row in result["rows"]] == [row["best_val"] for row in plain["rows"]]
    assert result["best"]["test"] == plain["best"]["test"]


def test_a_wrong_value_is_refused_before_the_first_trial(tmp_path: Path) -> None:
    code, result, told = sweep(tmp_path, "train.batch_size=12,many")
    assert (code, result) == (2, {})
    assert "train.batch_size" in told
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("raw", "values"),
    [
        ("2,4", ["2", "4"]),
        ("[a,b],[c]", ["[a,b]", "[c]"]),
        ("{x: 1, y: 2}", ["{x: 1, y: 2}"]),
        ("'a,b',c", ["'a,b'", "c"]),
        ("", [""]),
    ],
)
def test_commas_inside_of_a_value_do_not_part_it(raw: str, values: list[str]) -> None:
    assert split_values(raw) == values


def test_axes_are_keys_with_several_values() -> None:
    axes, fixed = parse_axes(["a.d=x,y", "a.b=1,2", "a.e=7"])
    assert fixed == ["a.e=7"]
    assert make_trials(axes) == [["a.d=x", "a.b=1"], ["a.d=x", "a.b=2"], ["a.d=y", "a.b=1"], ["a.d=y", "a.b=2"]]
    for wrong in (["a.b=1,1"], ["a.b=1,2", "a.b=3,4"], ["a.b=1"]):
        with pytest.raises(UserError):
            parse_axes(wrong)


def test_the_choice_looks_at_validation_and_then_at_the_price() -> None:
    def row(trial: int, best_val: float, rollouts: int, test: float) -> SweepRow:
        zero = dict.fromkeys(("accepted", "steps", "tokens", "target_calls", "optimizer_calls", "from_journal"), 0)
        scores = {"initial_val": 0.0, "best_val": best_val, "val_interval": None, "test": test}
        return SweepRow(trial=trial, values={}, run="", rollouts_to_best=rollouts, **zero, **scores)  # type: ignore[arg-type]

    assert choose([row(1, 0.5, 10, 1.0), row(2, 0.7, 30, 0.1), row(3, 0.7, 20, 0.0)]).trial == 3


def test_a_shared_journal_lends_replies_but_no_totals(tmp_path: Path) -> None:
    record = JournalRow(
        key="k", attempt=1, role="target", stage="s", model="m", turn=1, reply={"text": "x"}, prompt_tokens=5
    )
    with Journal(tmp_path / "a", shared=tmp_path / "shared") as a:
        a.put(record)
        assert a.totals()[0].calls == 1
    with Journal(tmp_path / "b", shared=tmp_path / "shared") as b:
        assert b.get("k", 1) == {"text": "x"}
        assert b.get("other", 1) is None
        assert b.totals() == []
    with Journal(tmp_path / "b") as alone:
        assert alone.get("k", 1) == {"text": "x"}


def test_a_skill_goes_to_another_benchmark_zero_shot_and_fine_tuned(tmp_path: Path) -> None:
    source = train_sim(tmp_path, SMALL, "optimizer.learning_rate=8", "train.num_epochs=1")
    goal = [
        "--to",
        str(REPO / "configs/sim/rulebook.yaml"),
        f"env.output_root={tmp_path}",
        "train.num_epochs=1",
        SMALL.replace("8", "10"),
    ]
    done = skillopt("transfer", str(source.path), *goal, "--zero-shot")
    assert done.returncode == 0, done.stderr
    done = skillopt("transfer", str(source.path), *goal)
    assert done.returncode == 0, done.stderr
    found = [json.loads(p.read_text()) for p in (tmp_path / "transfers" / "rulebook").glob("*/transfer.json")]
    tuned, zero = sorted(found, key=lambda result: not result["tuned"])
    rows = {row["skill"]: row for row in tuned["rows"]}
    assert list(rows) == ["the source's own score", "no skill", "zero-shot", "fine-tuned"]
    assert rows["no skill"]["test"] < rows["zero-shot"]["test"] < rows["fine-tuned"]["test"]
    measured = {row["skill"]: row["test"] for row in zero["rows"]}
    assert measured["zero-shot"] == rows["zero-shot"]["test"]
    start = Path(rows["fine-tuned"]["run"]) / "skills" / "skill_v0000.md"
    assert start.read_text() == source.best_skill.text
    assert json.loads((Path(rows["fine-tuned"]["run"]) / "summary.json").read_text())["initial"]["kind"] == "pretrained"
    assert skillopt("transfer", str(tmp_path), *goal).returncode == 2
