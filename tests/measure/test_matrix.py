"""Skills × targets: the word of each cell, what is recorded, and what `--watch` says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skillopt.record.files import read_json, write_json
from skillopt.record.pruning import Pruning
from skillopt.skill import Skill
from support import SIM
from support.checking import Done, run_check, skill_text, write_skill

FLIPPED = "sim:world?noise=1"
"""A target that does the opposite: right without a skill, wrong with the rules."""
TARGETS = f"sim:world,{FLIPPED}"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_skill(tmp_path / "good.md", 14)
    write_skill(tmp_path / "idle.md", 0)
    (tmp_path / "config.yaml").write_text(SIM.read_text().replace("init_skill: ../../data/sim/seed_skill.md", ""))
    (tmp_path / "skillopt.toml").write_text(
        '[check]\nconfig = "config.yaml"\nmax_items = 30\n[skills."good.md"]\n[skills."idle.md"]\n'
    )
    return tmp_path


def checked(project: Path, *arguments: str) -> Done:
    return run_check(project, "--project", "skillopt.toml", *arguments)


def words(text: str) -> dict[tuple[str, str], str]:
    return {(cell["skill"], cell["target"]): cell["word"] for cell in json.loads(text)["cells"]}


def test_each_cell_has_the_word_that_its_measured_verdict_gives(project: Path) -> None:
    done = checked(project, "--targets", TARGETS)
    assert done.returncode == 1, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()[-3:]]
    assert lines == [["skill", "sim:world", FLIPPED], ["good.md", "keep", "retrain"], ["idle.md", "retire", "retire"]]
    assert words(checked(project, "--targets", TARGETS, "--json").stdout) == {
        ("good.md", "sim:world"): "keep",
        ("good.md", FLIPPED): "retrain",
        ("idle.md", "sim:world"): "retire",
        ("idle.md", FLIPPED): "retire",
    }


def test_the_former_name_of_the_option_works_and_says_the_new_one(project: Path) -> None:
    done = checked(project, "--all-targets", TARGETS)
    assert done.returncode == 1
    assert "--all-targets is now --targets" in done.stderr
    assert "retrain" in done.stdout.splitlines()[-2]


def test_prune_is_only_said_of_a_text_and_a_target_that_a_pruning_measured(project: Path) -> None:
    def note(target: str, text: str) -> None:
        zero = {"calls": 0, "tokens": 0, "usd": 0.0}
        write_json(
            project / "out" / "sim" / target.replace(":", "-") / "pruned" / "prune.json",
            Pruning.model_validate(
                {
                    **{"verdict": "Pruned: 90 → 60 tokens.", "outcome": "pruned", "benchmark": "sim", "target": target},
                    **{
                        "version": 1,
                        "skill_hash": Skill(text).hash,
                        "pruned_hash": "x",
                        "tokens": 90,
                        "metric": "hard",
                    },
                    **{"pruned_tokens": 60, "margin": 0.05, "removed": ["line 9"], "put_back": [], "trials": []},
                    "spent": zero,
                }
            ),
        )

    note("sim:other", skill_text(14))
    note("sim:world", skill_text(13))
    assert words(checked(project, "--json").stdout)["good.md", "sim:world"] == "keep"
    note("sim:world", skill_text(14))
    assert words(checked(project, "--json").stdout)["good.md", "sim:world"] == "prune"


def test_watch_prints_everything_once_and_then_only_what_changed(project: Path) -> None:
    first = checked(project, "--targets", TARGETS, "--watch", "matrix.json")
    assert first.returncode == 0, first.stdout + first.stderr
    assert len(first.stdout.splitlines()) == 4
    recorded = read_json(project / "matrix.json")
    again = checked(project, "--targets", TARGETS, "--watch", "matrix.json")
    assert (again.returncode, again.stdout) == (0, "")
    assert "every reply came from the journal" in again.stderr
    assert read_json(project / "matrix.json") == recorded
    one = checked(project, "--watch", "matrix.json", "--target-model", "sim:world?seed=3")
    assert [line.split(":")[0] for line in one.stdout.splitlines()] == ["changed", "changed"]
    assert len(read_json(project / "matrix.json")["cells"]) == 6, "cells that were not asked for stay"


def test_watch_ends_with_1_if_a_skill_falls_below_its_recorded_score(project: Path) -> None:
    """It is still better than no skill, and not what it was."""
    few, many = (f"env.options={{rules: {n}, train: 8, val: 40, test: 8}}" for n in (8, 20))
    write_skill(project / "good.md", 8)
    assert checked(project, "--watch", "matrix.json", few).returncode == 0
    done = checked(project, "--watch", "matrix.json", many)
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("worse: good.md on sim:world: keep → retrain. Scores 0.")
    assert "1.00 was recorded for this text" in line
    assert checked(project, "--watch", "matrix.json", many).returncode == 0, "it is said once"
    write_skill(project / "good.md", 9)
    changed = checked(project, "--watch", "matrix.json", many)
    assert "good.md on sim:world: retrain → keep" in changed.stdout, "another text has a recorded score of its own"


def test_what_could_not_be_measured_keeps_its_recorded_word(project: Path) -> None:
    checked(project, "--watch", "matrix.json")
    recorded = read_json(project / "matrix.json")
    stopped = checked(project, "--watch", "matrix.json", "budget.max_calls=1", "train.seed=7")
    assert stopped.returncode == 3, stopped.stdout + stopped.stderr
    assert stopped.stdout == ""
    assert read_json(project / "matrix.json") == recorded


def test_a_file_that_is_no_matrix_and_an_empty_list_of_targets_are_refused_before_anything_is_asked(
    project: Path,
) -> None:
    (project / "bad.json").write_text("rot")
    for arguments, said in {
        ("--watch", "bad.json"): "--watch: bad.json was not written by",
        ("--watch", "."): "--watch: . is a folder",
        ("--targets", ","): "--targets ',': has no model name",
        ("--targets", "sim:world", "--target_model", "sim:world"): "use only one of these options",
    }.items():
        done = checked(project, *arguments)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert not (project / "out").exists()
    assert (project / "bad.json").read_text() == "rot"


def test_a_target_that_is_listed_twice_is_one_and_a_damaged_record_of_a_pruning_is_left_out(project: Path) -> None:
    record = project / "out" / "sim" / "run" / "pruned" / "prune.json"
    record.parent.mkdir(parents=True)
    record.write_text('{"verdict')
    with pytest.warns(UserWarning, match=r"prune\.json: is not as it was written \(Invalid JSON"):
        done = checked(project, "--targets", "sim:world,sim:world", "--json")
    assert words(done.stdout) == {("good.md", "sim:world"): "keep", ("idle.md", "sim:world"): "retire"}


def test_the_matrix_is_against_no_skill(project: Path) -> None:
    done = checked(project, "--watch", "matrix.json", "--base", "idle.md")
    assert done.returncode == 2
    assert "leave out --base" in done.stderr
