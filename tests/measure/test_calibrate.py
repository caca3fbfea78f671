"""A judge is compared with people: planted biases are found, noise is measured, and a training reads the record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skillopt.config import Config
from skillopt.record.calibration import JudgeCalibration
from skillopt.tasks.judge import JudgeOptions, setup_hash
from skillopt.training.judging import flips, standing_of
from support import skillopt
from support.biased_judge import FlipsSometimes, is_right, judge_server, prefers_first, prefers_long

CONFIG = """env: {{data: tasks.jsonl, scoring: judge, scoring_options: {options}, output_root: out}}
evaluation: {{gate: paired}}
models: {{judge_model: "openai:grader", judge_url: "{url}"}}
"""


def setting(folder: Path, url: str, options: str = "{rubric: It is good.}") -> Path:
    """A config, and 40 answers that a person graded: good ones pass, whatever their length."""
    rows = []
    for n in range(40):
        good, long = n % 2 == 0, n % 4 < 2
        output = f"{'good' if good else 'bad'} answer {n}" + " and some more words that say nothing at all" * 2 * long
        rows.append(
            {"id": f"a{n}", "question": f"Task {n}?", "answer": "the reference", "output": output, "grade": good}
        )
    (folder / "graded.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "tasks.jsonl").write_text(
        "".join(json.dumps({"id": f"q{n}", "question": f"Q {n}?"}) + "\n" for n in range(12))
    )
    (folder / "config.yaml").write_text(CONFIG.format(url=url, options=options))
    return folder / "config.yaml"


def calibrate(folder: Path, *more: str) -> tuple[str, JudgeCalibration]:
    done = skillopt("judge", "calibrate", "--config", "config.yaml", "--graded", "graded.jsonl", *more, cwd=folder)
    assert done.returncode == 0, done.stderr
    text = (folder / "judge_calibration.json").read_text()
    return done.stdout, JudgeCalibration.model_validate_json(text)


def test_a_judge_that_prefers_long_answers_is_found_to(tmp_path: Path) -> None:
    with judge_server(prefers_long) as (url, _):
        setting(tmp_path, url)
        printed, record = calibrate(tmp_path)
    assert record.biases == ("gives long answers more than people do",)
    assert record.length.difference > 0.5
    assert record.kappa is not None
    assert abs(record.kappa) < 0.2
    assert "It gives long answers more than people do." in printed
    assert (record.flip_rate, record.deviation) == (0, 0)


def test_a_judge_that_prefers_the_first_position_is_found_to_and_each_pair_is_a_tie(tmp_path: Path) -> None:
    with judge_server(prefers_first) as (url, seen):
        setting(tmp_path, url, "{form: pairwise, rubric: It is good.}")
        printed, record = calibrate(tmp_path, "--repeats", "2")
    assert record.position is not None
    assert (record.position.pairs, record.position.first, record.position.second) == (40, 40, 0)
    assert record.biases == ("prefers the first position",)
    assert "the answer in first position won in both orders 40 times" in printed
    assert record.spearman is None  # every pair is a tie
    shown = [(each["first_answer"], each["second_answer"]) for each in seen]
    assert len(shown) == 40 * 2 * 2
    assert all((second, first) in shown for first, second in shown)


def test_a_judge_without_a_bias_agrees_with_people_and_none_is_found(tmp_path: Path) -> None:
    with judge_server(is_right) as (url, _):
        setting(tmp_path, url)
        _, record = calibrate(tmp_path)
    assert (record.agreement, record.kappa, record.spearman) == (1, 1, pytest.approx(1))
    assert record.biases == ()
    assert record.disagreements == ()


def test_the_noise_is_measured_on_repeats_and_overrules_a_judge_that_calls_itself_deterministic(tmp_path: Path) -> None:
    with judge_server(FlipsSometimes()) as (url, seen):
        path = setting(tmp_path, url)
        _, record = calibrate(tmp_path, "models.judge_deterministic=true", "models.judge_workers=1")
        before = len(seen)
        _, again = calibrate(tmp_path, "models.judge_deterministic=true", "models.judge_workers=1")
        assert len(seen) == before == 120  # the second time, every judgement comes from the journal
    assert again == record
    assert record.flip_rate > 0.1
    config = Config.load(path, ["models.judge_deterministic=true"])
    assert flips(config)
    assert standing_of(config).calibration == "done"
    other = Config.load(path, ["env.scoring_options={rubric: It is short.}"])
    assert not flips(other)
    assert standing_of(other).calibration == "of another judge"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"question": "Q?", "grade": 1}, "output: is missing"),
        ({"question": "Q?", "output": "a", "grade": 7}, "grade: 7 must be 'pass', 'fail' or a number from 0 to 1"),
        ({"question": "Q?", "output": "a"}, "grade: None must be 'pass', 'fail' or a number from 0 to 1"),
    ],
)
def test_a_graded_row_that_cannot_be_used_is_named_and_nothing_is_written(
    tmp_path: Path, row: dict[str, Any], said: str
) -> None:
    setting(tmp_path, "http://127.0.0.1:9/v1")
    (tmp_path / "graded.jsonl").write_text(json.dumps({"id": "bad", **row}) + "\n")
    done = skillopt("judge", "calibrate", "--config", "config.yaml", "--graded", "graded.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert "item 'bad'" in done.stderr
    assert said in done.stderr
    assert not (tmp_path / "judge_calibration.json").exists()


def test_answers_of_one_grade_a_rubric_without_criteria_and_an_endless_top_are_refused(tmp_path: Path) -> None:
    setting(tmp_path, "http://127.0.0.1:9/v1")
    for more, said in {
        "env.scoring_options={rubric: []}": "env.scoring_options.rubric.list: Tuple should have at least 1 item",
        "env.scoring_options={rubric: [{criterion: x, weight: 0}]}": "rubric.list.0.weight: Input should be greater",
        "--top=inf": "--top: inf is not a finite number",
    }.items():
        done = skillopt("judge", "calibrate", "--config", "config.yaml", "--graded", "graded.jsonl", more, cwd=tmp_path)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    text = (tmp_path / "graded.jsonl").read_text().replace('"grade": false', '"grade": true')
    (tmp_path / "graded.jsonl").write_text(text)
    done = skillopt("judge", "calibrate", "--config", "config.yaml", "--graded", "graded.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert "all answers have the same grade" in done.stderr
    assert not (tmp_path / "judge_calibration.json").exists()


def test_a_calibration_holds_for_one_judge_alone() -> None:
    options = JudgeOptions(rubric="It is good.")
    assert setup_hash("openai:a", options) != setup_hash("openai:b", options)
    assert setup_hash("openai:a", options) != setup_hash("openai:a", JudgeOptions(rubric="It is short."))
