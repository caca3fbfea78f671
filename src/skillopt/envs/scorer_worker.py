"""One worker process for scorers, started by scorers.py: loads one function, then scores an output a line."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from skillopt import child


class Item(dict):  # type: ignore[type-arg]
    """An item's fields, as keys and as attributes; `answer` is the first of its answers."""

    def __missing__(self, name: str) -> Any:
        if name == "answer":
            return next(iter(self.get("answers") or ()), "")
        raise KeyError(f"the item '{self.get('id')}' has no field '{name}'")

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the item '{self.get('id')}' has no field '{name}'") from None


def load(setup: dict[str, Any]) -> Any:
    sys.path[:] = [*(path for path in setup["path"] if path not in sys.path), *sys.path]
    place, _, name = setup["reference"].rpartition(":")
    if place == "built-in":
        from skillopt.envs.scoring import SCORERS

        return lambda item, output: SCORERS[name](output, item["answers"], **item["options"])
    if place.endswith(".py"):
        sys.path.insert(0, str(Path(place).resolve().parent))
        spec = importlib.util.spec_from_file_location(Path(place).stem, place)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    function = getattr(module, name, None)
    if not callable(function):
        raise ImportError(f"'{place}' has no function '{name}'")
    return function


def limit_memory(megabytes: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on every system
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if megabytes:
            resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


def score(function: Any, item: dict[str, Any], output: str, workspace: str = "") -> dict[str, Any]:
    found = function(Item(item), output, Path(workspace)) if workspace else function(Item(item), output)
    if inspect.isawaitable(found):
        found = asyncio.run(_awaited(found))
    return as_score(found)


async def _awaited(found: Any) -> Any:
    return await found


def as_score(found: Any) -> dict[str, Any]:
    """A number, (number, feedback), a dict or a Score as plain fields; what they mean is checked on the other side."""
    feedback = ""
    if isinstance(found, tuple | list) and len(found) == 2:
        found, feedback = found
    if hasattr(found, "hard") and hasattr(found, "soft"):
        found = {"hard": found.hard, "soft": found.soft, "feedback": getattr(found, "feedback", "") or feedback}
    if isinstance(found, dict):
        return {**found, "feedback": str(found.get("feedback") or feedback)}
    return {"value": found if isinstance(found, int | float) else _number(found), "feedback": str(feedback or "")}


def _number(found: Any) -> float:
    """Numbers of other libraries are numbers, too; None and texts are a mistake."""
    if found is None or isinstance(found, str):
        raise TypeError(f"returned {found!r}; a scorer returns a number from 0 to 1, or (number, feedback)")
    return float(found)


def begin(setup: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    function = load(setup)
    limit_memory(setup["memory_mb"])
    return lambda request: score(function, **request)


def explain(error: BaseException) -> dict[str, Any]:
    """The error and the user's own line that raised it."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename not in {__file__, child.__file__}]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return {"error": f"{type(error).__name__}: {error}{where}"[:500]}


if __name__ == "__main__":
    child.serve(begin, explain)
