"""`compare` and `replicate`: two skills on the same items, one training under several seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skillopt.errors import Stopped
from skillopt.measure.replicate import report
from skillopt.record.files import read_json, read_jsonl
from skillopt.record.results import ReplicatedRun, Spent
from skillopt.statistics import sign_test
from support import SIM, only_run, skillopt, train_sim

SHORT = ("train.num_epochs=1", "evaluation.baselines=false")


def run(command: str, out: Path, *arguments: str) -> Any:
    return skillopt(command, *arguments, "--config", str(SIM), f"env.output_root={out}", *SHORT)


def written(stdout: str) -> dict[str, Any]:
    path = stdout.rpartition("Written: ")[2].strip()
    found: dict[str, Any] = read_json(Path(path))
    return found


def test_compare_shows_the_paired_test_and_the_four_lists_and_notes_the_test_read(tmp_path: Path) -> None:
    result = train_sim(tmp_path, *SHORT)
    done = run("compare", tmp_path, "initial", "best", "--split", "test")
    assert done.returncode == 0, done.stderr
    found = written(done.stdout)
    lists = found["lists"]
    assert sum(map(len, lists.values())) == found["items"] == 60
    assert lists["improved"]
    assert (found["outcome"], found["verdict"] in done.stdout) == ("better", True)
    assert found["difference"] == pytest.approx(result.summary["best"]["test"] - result.summary["initial"]["test"])
    wins, losses = len(lists["improved"]), len(lists["regressed"])
    assert found["p"] == pytest.approx(min(1.0, 2 * sign_test(wins, losses)))
    reads = read_jsonl(only_run(tmp_path).test_reads)
    assert [read["who"] for read in reads] == ["train", "compare", "compare"]
    assert "read 3 times" in done.stdout


def test_the_same_skill_twice_shows_the_targets_noise(tmp_path: Path) -> None:
    skill = tmp_path / "skill.md"
    skill.write_text("- For maple, answer XX-11.\n")
    noisy = "models.target_model=sim:world?noise=0.2"
    done = run("compare", tmp_path, str(skill), str(skill), noisy, "--repeats", "1")
    assert done.returncode == 0, done.stderr
    found = written(done.stdout)
    assert found["same_skill"]
    assert 0 < found["differing"] < found["items"]
    assert "No better: both are the same skill, and " in done.stdout


def test_compare_takes_a_runs_folder_and_says_which_run_it_compares(tmp_path: Path) -> None:
    root = train_sim(tmp_path, *SHORT).path
    for sides in (("initial", "best"), (f"{root}@0", str(root)), ("initial", str(tmp_path / "sim"))):
        done = run("compare", tmp_path, *sides)
        assert done.returncode == 0, done.stderr
        assert f"{root}/best_skill.md" in done.stdout, "which run is it?"
        found = written(done.stdout)
        assert (found["a"]["name"], found["b"]["name"]) == ("initial", "best")
        assert found["difference"] > 0


@pytest.mark.parametrize(
    ("sides", "message"),
    [(("initial", "best"), "train first"), (("nowhere.md", "best"), "nor a skill file or package")],
)
def test_compare_says_what_is_missing(tmp_path: Path, sides: tuple[str, str], message: str) -> None:
    done = run("compare", tmp_path, *sides)
    assert done.returncode == 2
    assert message in done.stderr


def test_replicate_reports_every_seed_and_runs_none_twice(tmp_path: Path) -> None:
    done = run("replicate", tmp_path, "--seeds", "2")
    assert done.returncode == 0, done.stderr
    found = written(done.stdout)
    assert [row["seed"] for row in found["rows"]] == [42, 43]
    assert found["improved"] == {"val": 1.0, "test": 1.0}
    low, high = found["interval"]["best_test"]
    assert low <= found["mean"]["best_test"] <= high
    assert "100% of 2 seeds improved" in done.stdout
    again = run("replicate", tmp_path, "--seeds", "2")
    assert again.stdout.count("already finished") == 2
    assert json.dumps(written(again.stdout)) == json.dumps(found)


def test_a_budget_is_that_of_all_seeds_together(tmp_path: Path) -> None:
    alone = train_sim(tmp_path / "alone", *SHORT).summary["calls"]
    limit = alone["target"] + alone["optimizer"] + 20
    done = run("replicate", tmp_path / "many", "--seeds", "3", f"budget.max_calls={limit}")
    assert done.returncode == 3
    assert "budget.max_calls" in done.stderr
    summaries = [read_json(path) for path in (tmp_path / "many" / "sim").glob("*/summary.json")]
    assert sum(s["calls"][role] for s in summaries for role in ("target", "optimizer")) <= limit
    with pytest.raises(Stopped):
        train_sim(tmp_path / "alone2", *SHORT, "budget.max_calls=20")


def test_seeds_are_ranked_by_validation_never_by_test() -> None:
    rows = [
        ReplicatedRun(seed=1, initial_val=0.1, best_val=0.9, initial_test=0.1, best_test=0.2),
        ReplicatedRun(seed=2, initial_val=0.1, best_val=0.5, initial_test=0.1, best_test=1.0),
    ]
    assert report(rows, (1, 2), Spent(calls=0, tokens=0, usd=None)).best_seed_by_validation == 1
