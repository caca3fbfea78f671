"""Loads parts that are not built in, such as analysts and gates, from other packages by their entry points."""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import is_dataclass
from functools import cache, partial
from importlib.metadata import EntryPoints, distributions
from typing import Any

from skillopt.errors import UserError

GROUPS = {
    kind: f"skillopt.{kind}" for kind in ("agents", "analysts", "envs", "gates", "schedules", "scorers", "trackers")
}
"""The entry-point group of each kind of part that packages can register."""


@cache
def _installed(_path: tuple[str, ...]) -> EntryPoints:
    """Every entry point of every installed package. Cached, because reading them takes longer than the rest of a
    command's start."""
    return EntryPoints(point for package in distributions() for point in package.entry_points)


def registered(kind: str) -> EntryPoints:
    """The entry points of one kind of part."""
    return _installed(tuple(sys.path)).select(group=GROUPS[kind])


def names(kind: str) -> list[str]:
    """Every name that installed packages have registered for a kind of part."""
    return sorted({point.name for point in registered(kind)})


def reference(kind: str, name: str) -> str:
    """The import path `module:name` of a registered part; empty if no package has registered a part with that name."""
    return next((point.value for point in registered(kind).select(name=name)), "")


def load(kind: str, name: str, *, key: str, known: Iterable[str]) -> Any:
    """Return the part that a package has registered under a name. Error messages name the config key `key`."""
    for point in registered(kind).select(name=name):
        try:
            return point.load()
        except Exception as error:
            raise UserError(
                f"{key}: '{name}' ({point.value}) cannot be loaded: {type(error).__name__}: {error}"
            ) from error
    every = sorted({*known, *names(kind)})
    near = difflib.get_close_matches(name, every, n=1, cutoff=0)
    known_ones = f"did you mean '{near[0]}'? Known are: {', '.join(every)}" if near else "no package has registered any"
    raise UserError(f"{key}: unknown '{name}'; {known_ones}")


def instance(part: Any) -> Any:
    """Return a part as an object: a class is called without arguments, anything else is returned as it is."""
    return part() if inspect.isclass(part) else part


async def called(work: Callable[[], Any], threads: Executor | None = None) -> Any:
    """Call a user's function (`work` is a `partial` of it) and return its result. An async function is awaited. Any
    other function runs in a thread, so model calls in flight do not wait for it."""
    if inspect.iscoroutinefunction(work):
        return await work()
    result = await asyncio.get_running_loop().run_in_executor(threads, copy_context().run, work)
    return await result if inspect.isawaitable(result) else result


def named(part: Any) -> str:
    """The name of a part in messages and reports."""
    if isinstance(part, partial):
        return named(part.func)
    return str(getattr(part, "name", "") or getattr(part, "__name__", "") or type(part).__name__)


def fingerprint(part: Any, *, module: bool = True) -> str:
    """A part's name and a hash of its source. Runs store it, so a run is not continued with a different gate than it
    began with.

    Variables in a function's closure are not part of the hash; pass them as a dataclass's fields or as `partial`
    arguments. If `module` is false, the name of the function's module is left out.
    """
    if isinstance(part, partial):
        return f"{fingerprint(part.func, module=module)}{part.args!r}{sorted(part.keywords.items())!r}"
    code = part if inspect.isroutine(part) or inspect.isclass(part) else type(part)
    try:
        source = inspect.getsource(code)
    except (OSError, TypeError):  # the source is not available: typed at a prompt, or compiled
        source = ""
    fields = repr(part) if is_dataclass(part) and not inspect.isclass(part) else ""
    digest = hashlib.sha256(f"{source}\0{fields}".encode()).hexdigest()
    return f"{code.__module__}.{code.__qualname__}:{digest[:12]}" if module else f"{code.__qualname__}:{digest[:12]}"
