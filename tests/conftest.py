"""What is quick, a virtual clock, temporary files in memory, property tests that draw the same examples in every run.

`pytest -m quick` is `make test`: every test without one of the markers of pyproject.toml. It runs as if only the light
packages were installed, wherever it runs. `--hypothesis-profile=explore` looks for new examples.
"""

import asyncio
import functools
import importlib.machinery
import os
import shutil
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from hypothesis import settings

from skillopt.models import bound, call
from skillopt.models.base import TransientError
from support.virtual import Clock

settings.register_profile("fixed", deadline=None, max_examples=30, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, max_examples=2000, database=None)
settings.load_profile("fixed")

MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))  # a run syncs its files hundreds of times

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
LONGER = [line.partition(":")[0] for line in PROJECT["tool"]["pytest"]["ini_options"]["markers"]]
HEAVY = {
    "alfworld", "anthropic", "azure", "mcp", "mkdocs", "mlflow", "numpy", "openpyxl", "opentelemetry",
    "playwright", "pydantic_ai", "ray", "reasoning_gym", "tensorboard", "textworld", "wandb", "xllamacpp",
}  # fmt: skip
"""Packages that `make test` does not install."""


class _LightFinder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return None if fullname.partition(".")[0] in HEAVY else super().find_spec(fullname, path, target)


REAL_BACKOFF = call.backoff


def _short_backoff(error: TransientError, attempt: int) -> float:
    """A retry waits as long as an endpoint asks for, and else a fiftieth of what a real one is given."""
    return REAL_BACKOFF(error, attempt) * (0.02 if error.retry_after is None else 1)


def _set_backoff(patch: pytest.MonkeyPatch, backoff: Callable[[TransientError, int], float]) -> None:
    for module in (call, bound):
        patch.setattr(module, "backoff", backoff)


@pytest.fixture(autouse=True, scope="session")
def _quick() -> Iterator[None]:
    """Short waits, and one parser of commands for all tests of a process."""
    with pytest.MonkeyPatch.context() as patch:
        _set_backoff(patch, _short_backoff)
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture
def real_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of how long a retry waits."""
    _set_backoff(monkeypatch, REAL_BACKOFF)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "quick: has none of the markers above (make test)")
    if config.getoption("markexpr") == "quick":
        finders = [_LightFinder if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path]
        sys.meta_path[:] = finders


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not any(item.get_closest_marker(name) for name in LONGER):
            item.add_marker("quick")


@pytest.fixture
def virtual_time(monkeypatch: pytest.MonkeyPatch, real_waits: None) -> Clock:
    """`asyncio.run` and `time.monotonic` on a clock that jumps (support/virtual.py)."""
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    monkeypatch.setattr(asyncio, "run", clock.run)
    return clock
