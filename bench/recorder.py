"""Records the times of a run's calls, and computes the least time that these calls could have taken.

`recorded()` records every paid call of all trainings inside it. `critical_path` is a lower bound. It divides the run at
the points for which all later work must wait (initial skill → first candidate → verdict → … → final scores). For each
part it adds the longer of two times: the longest chain of calls, and the work divided by the workers. It counts only
the calls and the endpoint's latencies. So the ratio of wall time to this bound shows everything else: SkillOpt's own
time, waves that are not full, and waiting. The ratio can be a little below 1, because rollouts may begin before the end
of a gate whose result is certain.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from skillopt.models.base import ChatReply
from skillopt.models.call import Caller

_label: ContextVar[str] = ContextVar("label", default="")


@dataclass(frozen=True)
class Call:
    role: str
    stage: str
    label: str
    start: float
    end: float

    @property
    def step(self) -> int:
        """The number in the call's label: a step or, for slow update and meta skill, an epoch; 0 if there is none."""
        found = re.search(r"(?<=[/-])\d{1,4}(?=[/-]|$)", self.label.partition("/")[2].join(["/", ""]))
        return int(found[0]) if found else 0


@dataclass
class Recorder:
    calls: list[Call] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def concurrency(self, seconds: float) -> float:
        """Return the mean number of calls at once over the run."""
        return sum(call.end - call.start for call in self.calls) / seconds

    def seconds_with(self, at_most: int, seconds: float) -> float:
        """Return the seconds during which at most `at_most` calls were running."""
        marks = sorted([(c.start, 1) for c in self.calls] + [(c.end, -1) for c in self.calls])
        busy, level, last = 0.0, 0, self.started
        for at, change in [*marks, (self.started + seconds, 0)]:
            busy += at - last if level <= at_most else 0.0
            level, last = level + change, at
        return busy


@contextmanager
def recorded() -> Iterator[Recorder]:
    recorder = Recorder()
    call, once = Caller.__call__, Caller._once

    async def labelled(self: Caller, messages: Any, **given: Any) -> ChatReply:
        _label.set(given["label"])
        return await call(self, messages, **given)

    async def timed(self: Caller, asked: Any, *rest: Any) -> ChatReply:
        start = time.monotonic()
        reply = await once(self, asked, *rest)
        recorder.calls.append(Call(self.role, asked.stage, _label.get(), start, time.monotonic()))
        return reply

    Caller.__call__, Caller._once = labelled, timed  # type: ignore[method-assign]
    try:
        yield recorder
    finally:
        Caller.__call__, Caller._once = call, once  # type: ignore[method-assign]


def critical_path(calls: list[Call], *, workers: int, target: float, optimizer: float) -> float:
    """Return the least seconds that these calls need (a lower bound; see the module's docstring)."""
    counts = Counter((call.stage, call.role, call.step) for call in calls)
    chain = _chains(calls)

    def waves(number: int) -> float:
        return math.ceil(number / workers) * target

    def asked(stage: str, step: int) -> float:
        """Return the seconds of a stage's requests. Repeated tries of one request follow one another."""
        return chain[stage, step] * optimizer

    baseline = sum(_evaluated(call, "val-initial") for call in calls)
    finals = sum(call.stage == "evaluate" for call in calls) - baseline
    last = max((step for stage, _, step in counts if stage in {"rollout", "reflect"}), default=0)
    ends = sorted(step for stage, _, step in counts if stage == "meta_skill")
    total, notes_since = 0.0, -math.inf
    steps_an_epoch = last // max(1, len(ends)) if ends else last
    for step in range(1, last + 1):
        rolled = counts["rollout", "target", step]
        to_reflect = max(waves(rolled), 0.0)
        begun = total
        total += to_reflect
        total = max(total, notes_since) if counts["reflect", "optimizer", step] else total
        total += asked("reflect", step) + asked("deep_reflect", step) + asked("merge", step)
        if step == 1:
            total = max(total, begun + waves(rolled + baseline))
        total += waves(sum(c.stage == "gate" and _gate_step(c) == step for c in calls))
        if steps_an_epoch and step % steps_an_epoch == 0:
            epoch = step // steps_an_epoch
            notes_since = total + asked("meta_skill", epoch)
            compared = counts["slow_update", "target", epoch]
            if compared:
                total += waves(compared) + asked("slow_update", epoch)
                total += waves(sum(c.stage == "gate" and _slow_gate(c) == epoch for c in calls))
    return max(total + waves(finals), notes_since)


def _chains(calls: list[Call]) -> Counter[tuple[str, int]]:
    """Count the calls of each stage and step that had to follow one another: tries of one request share a label."""
    same = Counter((call.stage, call.step, call.label) for call in calls if call.role == "optimizer")
    longest: Counter[tuple[str, int]] = Counter()
    for (stage, step, _), number in same.items():
        longest[stage, step] = max(longest[stage, step], number)
    return longest


def _evaluated(call: Call, tag: str) -> bool:
    return call.stage == "evaluate" and f"/{tag}/" in call.label


def _gate_step(call: Call) -> int:
    found = re.search(r"/gate-(\d{4})", call.label)
    return int(found[1]) if found else 0


def _slow_gate(call: Call) -> int:
    found = re.search(r"/gate-slow-(\d+)", call.label)
    return int(found[1]) if found else 0
