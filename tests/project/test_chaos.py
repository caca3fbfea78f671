"""A short chaos: what `make chaos` does two hundred times, a few times over."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from chaos import Chaos

pytestmark = pytest.mark.chaos


def test_kills_and_signals_change_nothing(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path, random.Random(3))
    chaos.kills(4, a_run=4)
    assert chaos.done["runs"] >= 1


def test_a_power_cut_takes_nothing_that_was_finished(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path, random.Random(4))
    chaos.power_cuts(1)
    assert chaos.done["power cuts"] >= 1


def test_a_server_that_dies_and_returns_changes_nothing(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path, random.Random(5))
    chaos.server_deaths(1)
    assert chaos.done["server deaths"] == 1
