"""The campaign itself: it counts what it tries, and a broken promise cannot pass."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

import campaign

pytestmark = pytest.mark.fuzz


def small(number: int) -> None:
    assert number < 1000


def test_a_broken_promise_gives_its_smallest_example_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = campaign.Promise(small, (st.integers(0, 10_000),))
    monkeypatch.setattr(campaign, "promises", lambda subject: {"small": broken})
    turn = campaign.take_turn("numbers", "small", 500, start=3)
    assert "number=1000," in turn.finding
    assert turn.cases == broken.done > 1
    assert campaign.report([turn], 3) == 1
    assert "1 findings" in capsys.readouterr().out


def test_a_promise_that_holds_is_tried_as_often_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = campaign.Promise(lambda number: None, (st.integers(),))
    monkeypatch.setattr(campaign, "promises", lambda subject: {"kept": kept})
    turn = campaign.take_turn("numbers", "kept", 700, start=3)
    assert (turn.cases, turn.finding) == (700, "")
    assert campaign.report([turn], 3) == 0


def test_every_subject_has_promises_and_a_thousand_cases_in_make_test_all() -> None:
    assert campaign.subjects() == ["config", "http", "replies", "runs", "skill", "tasks", "web"]
    assert all(campaign.promises(subject) for subject in campaign.subjects())
    assert campaign.CASES >= 1000
