"""A change that only moves code leaves every decision, score, skill and request as it was; see frozen.py."""

from __future__ import annotations

import json

import pytest

import frozen

SLOW = {"workspace": pytest.mark.sandbox, "skill_package": pytest.mark.slow}


@pytest.mark.parametrize("case", [pytest.param(name, marks=SLOW.get(name, ())) for name in frozen.CASES])
def test_results_and_requests_are_those_that_were_frozen(case: str) -> None:
    assert frozen.facts_of(case) == json.loads(frozen.KNOWN.read_text())[case]
