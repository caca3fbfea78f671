"""A worker process of a scorer, started by scorers.py: it loads one function, then scores one output for each line."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from skillopt.processes import child
from skillopt.tasks import as_score as scores
from skillopt.tasks.load import module_of

if TYPE_CHECKING:
    from skillopt.chat_protocol import JsonObject


class ScorerSetup(TypedDict):
    """The first line that a scorer's worker process reads."""

    reference: str
    memory_mb: int
    path: list[str]
    pass_at: float


class ScorerRequest(TypedDict, total=False):
    """A request to a scorer's worker process. `workspace` is left out if no files are scored. An empty request asks for
    the scorer's parameters and description."""

    item: JsonObject
    output: str
    workspace: str


class ScorerItem(dict):  # type: ignore[type-arg]
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


def load(setup: ScorerSetup) -> Any:
    sys.path[:] = [*(path for path in setup["path"] if path not in sys.path), *sys.path]
    source, _, name = setup["reference"].rpartition(":")
    if source == "built-in":
        from skillopt.tasks.scoring import SCORERS

        return lambda item, output: SCORERS[name](output, item["answers"], **item["options"])
    if source.endswith(".py"):
        sys.path.insert(0, str(Path(source).resolve().parent))
    function = getattr(module_of(source), name, None)
    if not callable(function):
        raise ImportError(f"'{source}' has no function '{name}'")
    return function


def limit_memory(megabytes: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # some systems have no such limits
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if megabytes:
            resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


def score(function: Any, pass_at: float, item: JsonObject, output: str, workspace: str = "") -> scores.ScoreFields:
    folder = {"workspace": Path(workspace)} if workspace else {}
    result = function(ScorerItem(item), output, **folder)
    if inspect.isawaitable(result):
        result = asyncio.run(_awaited(result))
    return scores.as_score(result, pass_at)


async def _awaited(result: Any) -> Any:
    return await result


def begin(setup: ScorerSetup) -> Callable[[ScorerRequest], object]:
    function = load(setup)
    about = {"workspace": scores.takes_workspace(function), "description": scores.described(function)}
    limit_memory(setup["memory_mb"])
    return lambda request: score(function, setup["pass_at"], **request) if request else about


_OURS = {__file__, child.__file__, scores.__file__}


def explain(error: BaseException) -> dict[str, str]:
    """An error as JSON fields, with the line of the user's code that raised it."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename not in _OURS]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return {"error": f"{type(error).__name__}: {error}{where}"[:500]}


if __name__ == "__main__":
    child.serve(begin, explain)
