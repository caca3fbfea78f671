"""Property tests draw the same examples in every run; `--hypothesis-profile=explore` looks for new ones."""

import asyncio
import time

import pytest
from hypothesis import settings

from virtual import Clock

settings.register_profile("fixed", deadline=None, max_examples=60, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, max_examples=2000, database=None)
settings.load_profile("fixed")


@pytest.fixture
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """`asyncio.run` and `time.monotonic` on a clock that jumps (virtual.py)."""
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    monkeypatch.setattr(asyncio, "run", clock.run)
    return clock
