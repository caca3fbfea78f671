"""The report's held-out answers, the cost of the skill in use, and the score against cost of every version."""

from __future__ import annotations

import re

import pytest

from skillopt.config import Price
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_jsonl
from skillopt.training.use import use_of
from skillopt.view.html import write_report
from skillopt.view.run_facts import Facts
from support import train_short, trajectory

CONSTANT = "optimizer.lr_scheduler=constant"
"""One step has the full rate."""


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    settings = ("train.num_epochs=1", "train.batch_size=24", CONSTANT, "evaluation.baselines=false")
    result = train_short(tmp_path_factory.mktemp("use"), *settings)
    assert result.summary.best.version > 0
    return write_report(RunDirectory(result.path))


def test_three_held_out_answers_are_shown_before_and_after_and_the_cases_are_not_picked_by_hand(facts: Facts) -> None:
    answers = facts.use.answers
    assert len(answers) == 3
    change = [pair.after.score.hard - pair.before.score.hard for pair in answers]
    assert change[0] == 1
    assert {pair.before.item_id for pair in answers} <= {pair.after.item_id for pair in answers}
    page = facts.run.files.report.read_text()
    for pair in answers:
        assert pair.before.input[:40] in page
        assert f"<b>before</b> {pair.before.output}" in page
        assert f"<b>after</b> {pair.after.output}" in page
    assert "Scored with exact; the metric is hard." in page
    assert "## The skill in use" in facts.run.files.report_md.read_text()


def test_the_cost_in_use_is_that_of_the_recorded_usage(facts: Facts) -> None:
    rows = read_jsonl(facts.run.files.evaluations / "test_best.jsonl")
    calls = [call for row in rows for call in row["telemetry"]["calls"]]
    tokens = sum(call["prompt"] + call["completion"] for call in calls) / len(calls)
    assert facts.use.best is not None
    assert facts.use.best.tokens_per_call == pytest.approx(tokens)
    assert facts.use.initial is not None
    assert facts.use.initial.tokens < facts.use.best.tokens  # the skill grew: its cost is shown, and never punished
    assert f"{tokens:,.0f}" in facts.run.files.report.read_text()


def test_without_a_price_the_dollars_are_not_known_and_with_one_they_are() -> None:
    calls = [{"prompt": 900, "completion": 100, "cached": 0, "seconds": 1.0}]
    rows = [trajectory(n, telemetry={"calls": calls * 2}) for n in range(3)]
    unknown, known = use_of(rows, None), use_of(rows, Price(input=1, output=10))
    assert unknown is not None
    assert (unknown.turns, unknown.tokens, unknown.tokens_per_call, unknown.usd) == (2, 2000, 1000, None)
    assert known is not None
    assert known.usd_per_call == pytest.approx((900 * 1 + 100 * 10) / 1e6)
    assert use_of([], None) is None


def test_every_accepted_version_has_a_point_of_score_against_cost(facts: Facts) -> None:
    versions = facts.use.versions
    accepted = [record.version for record in facts.history if record.verdict == "accept"]
    assert [each.version for each in versions] == [0, *accepted]
    assert versions[0].score == facts.summary.initial.val
    page = facts.run.files.report.read_text()
    assert len(re.findall(r"<title>v\d+: \d\.\d\d, [\d,]+ tokens per call</title>", page)) == len(versions)
