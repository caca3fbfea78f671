"""Promises that hold for any input, and how many inputs each is tried on.

    make fuzz                      a million cases, fresh ones every time
    make fuzz SECONDS=600          as many as fit into ten minutes
    make fuzz CASES=50000 ONLY=web

In `make test-all` every promise is tried on the same cases each time; SKILLOPT_FUZZ=random draws others.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import os
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

FOLDER = Path(__file__).parent
CASES = int(os.environ.get("SKILLOPT_FUZZ_CASES", "1000"))
"""Cases of each subject in `make test-all`."""
ROUND = 500
"""Cases of one turn of one promise."""
Check = Callable[..., None]

settings.register_profile(
    "fuzz-fixed", deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
settings.register_profile("fuzz-random", deadline=None, database=None, suppress_health_check=list(HealthCheck))


@dataclass
class Promise:
    check: Check
    strategies: tuple[SearchStrategy[Any], ...]
    done: int = 0
    """Cases so far."""

    def test(self, profile: str, cases: int, start: int | None = None) -> Callable[[], None]:
        @functools.wraps(self.check)
        def tried(*values: Any, **named: Any) -> None:
            self.done += 1
            self.check(*values, **named)

        phases = [phase for phase in Phase if phase is not Phase.explain]  # tracing takes longer than the cases
        chosen = settings(settings.get_profile(profile), max_examples=cases, phases=phases)
        test: Callable[[], None] = chosen(given(*self.strategies)(tried))
        return test if start is None else seed(start)(test)


def holds_for(*strategies: SearchStrategy[Any]) -> Callable[[Check], Check]:
    """A test of a promise. In `make test-all` a subject's promises share its cases."""

    def decorate(check: Check) -> Check:
        promise = Promise(check, strategies)
        profile = f"fuzz-{os.environ.get('SKILLOPT_FUZZ', 'fixed')}"

        def test() -> None:
            own = promises(check.__module__.removeprefix("test_fuzz_"))
            promise.test(profile, -(-CASES // len(own)))()

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        test.promise = promise  # type: ignore[attr-defined]
        return test

    return decorate


def subjects() -> list[str]:
    return sorted(path.stem.removeprefix("test_fuzz_") for path in FOLDER.glob("test_fuzz_*.py"))


def promises(subject: str) -> dict[str, Promise]:
    module = importlib.import_module(f"test_fuzz_{subject}")
    return {name: test.promise for name, test in vars(module).items() if hasattr(test, "promise")}


@dataclass(frozen=True)
class Turn:
    """One round of one promise, as it came back from its process."""

    subject: str
    name: str
    cases: int
    seconds: float
    finding: str = ""


def take_turn(subject: str, name: str, cases: int, start: int) -> Turn:
    promise = promises(subject)[name]
    before, began = promise.done, time.monotonic()
    finding = ""
    warnings.simplefilter("ignore")
    try:
        promise.test("fuzz-random", cases, start)()
    except BaseException as error:  # whatever it is, it is what we look for
        if isinstance(error, KeyboardInterrupt):
            raise
        finding = "".join(traceback.format_exception(error))
    return Turn(subject, name, promise.done - before, time.monotonic() - began, finding)


@dataclass
class Share:
    """One subject's part of a campaign."""

    names: list[str]
    seconds: float = 0.0
    turns: int = 0

    def next(self) -> str:
        self.turns += 1
        return self.names[self.turns % len(self.names)]


def campaign(results: list[Turn], *, cases: int, seconds: float, workers: int, only: str, start: int) -> None:
    """Turns until there are so many cases, or the time is up. Every subject gets the same time; quick ones do more."""
    began = told = time.monotonic()
    ended = began + (seconds or float("inf"))
    draw = random.Random(start)
    shares = {subject: Share(list(promises(subject))) for subject in subjects() if only in ("", subject)}
    waiting: set[Future[Turn]] = set()
    with ProcessPoolExecutor(workers) as pool:
        while True:
            while len(waiting) <= workers and time.monotonic() < ended and sum(turn.cases for turn in results) < cases:
                subject = min(shares, key=lambda name: shares[name].seconds + shares[name].turns / 100)
                waiting.add(pool.submit(take_turn, subject, shares[subject].next(), ROUND, draw.randrange(1 << 32)))
            if not waiting:
                return
            finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for turn in (future.result() for future in finished):
                results.append(turn)
                shares[turn.subject].seconds += turn.seconds
                if turn.finding:
                    print(f"\nFINDING {turn.subject}: {turn.name}\n{turn.finding}", flush=True)
            if time.monotonic() > told + 60:
                told = time.monotonic()
                print(f"{sum(turn.cases for turn in results):,} cases in {told - began:,.0f} s", flush=True)


def report(results: list[Turn], start: int) -> int:
    """The table of what was tried; gives the exit code."""
    print(f"{'subject':10} {'cases':>10} {'seconds':>9} {'a second':>9}  findings")
    for subject in sorted({turn.subject for turn in results}):
        own = [turn for turn in results if turn.subject == subject]
        cases, seconds = sum(turn.cases for turn in own), sum(turn.seconds for turn in own)
        broken = sorted({turn.name for turn in own if turn.finding})
        print(f"{subject:10} {cases:>10,} {seconds:>9,.0f} {cases / max(seconds, 1e-9):>9,.0f}  {', '.join(broken)}")
    findings = sum(bool(turn.finding) for turn in results)
    print(f"{'total':10} {sum(turn.cases for turn in results):>10,} cases, {findings} findings (--seed {start})")
    return int(findings > 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=0, help="stop after so long; 0 does not")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", choices=["", *subjects()])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    asked = parser.parse_args()
    results: list[Turn] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KeyboardInterrupt):  # what was tried is told
        tempfile.tempdir = folder  # of the workers, too, which have no chance to clear up
        campaign(
            results, cases=asked.cases, seconds=asked.seconds, workers=asked.workers, only=asked.only, start=asked.seed
        )
    sys.exit(report(results, asked.seed))
