"""Persistent failures: items that no version of the skill solved, grouped by pattern, with what they point to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from skillopt.report.traces import Trace, read_traces, result_of
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_json
from skillopt.run.summary import outcomes, persistent_failures

Sign = Literal["empty", "contained", "constant", "varied", "unknown", "untried"]

GENERAL = (
    "No version of the skill solved these items. That points to the task (its wording, its expected answer, its "
    "scorer) or to the target's limits, and not to the skill."
)
ONE_SKILL = (
    "The initial skill does not solve these items, and no other skill was tried on them. That says nothing about the "
    "tasks: the run had nothing to try."
)
ADVICE: dict[Sign, str] = {
    "empty": "The target gives no answer: look at models.target_max_tokens, and at what the task asks for.",
    "contained": "The expected answer is in the output and is not accepted: look at the scorer, or at the form of "
    "the answer that it wants.",
    "constant": "The target answers the same whatever the skill says: look whether the expected answer is right, and "
    "whether the task holds all that it takes to find it.",
    "varied": "Each version fails in another way: the task may be ambiguous, or beyond this target.",
    "unknown": "Look at the items themselves.",
    "untried": "A skill that says how to solve them was never tried.",
}
_PARTICULARS = re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`|\d+")


@dataclass(frozen=True, kw_only=True)
class StuckItem:
    item_id: str
    type: str
    skills: int
    """How many skills it was measured with: versions, and candidates that a gate measured."""
    pattern: str
    sign: Sign
    last: Trace | None
    """The newest trajectory; None where the run kept none."""


@dataclass(frozen=True, kw_only=True)
class FailureGroup:
    pattern: str
    items: tuple[StuckItem, ...]
    advice: str


def failure_groups(run: RunDirectory) -> list[FailureGroup]:
    """The largest group first."""
    stuck = persistent_failures(run)
    if not stuck:
        return []
    measured = outcomes(run)
    traces: dict[str, list[Trace]] = {item: [] for item in stuck}
    for trace in read_traces(run):
        if trace["item_id"] in traces and "score" in trace:
            traces[trace["item_id"]].append(trace)
    named = _patterns(run, {trace["id"]: item for item, own in traces.items() for trace in own})
    items = [_stuck(item, len(measured[item]), traces[item], named.get(item)) for item in stuck]
    groups: dict[str, list[StuckItem]] = {}
    for each in items:
        groups.setdefault(each.pattern, []).append(each)
    ordered = sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    return [FailureGroup(pattern=name, items=tuple(own), advice=_advice(own)) for name, own in ordered]


def lead(groups: Sequence[FailureGroup]) -> str:
    """What these failures mean: nothing at all where only one skill was tried."""
    return GENERAL if any(item.skills > 1 for group in groups for item in group.items) else ONE_SKILL


def _stuck(item: str, skills: int, traces: list[Trace], named: str | None) -> StuckItem:
    last = traces[-1] if traces else None
    return StuckItem(
        item_id=item,
        type=str(last["type"]) if last else "",
        skills=skills,
        pattern=named or _from_feedback(last),
        sign=_sign(traces) if skills > 1 else "untried",
        last=last,
    )


def _patterns(run: RunDirectory, item_of: dict[str, str]) -> dict[str, str]:
    """The cause that analysts named most often for each item. They only ever see training items."""
    votes: dict[str, Counter[str]] = {}
    for path in sorted(run.steps.glob("step_*/patches.json")):
        for patch in read_json(path):
            for pattern in () if patch["source"].endswith("/success") else patch["patterns"]:
                for trace_id in pattern["trajectory_ids"]:
                    if trace_id in item_of:
                        votes.setdefault(item_of[trace_id], Counter())[pattern["name"]] += 1
    return {item: min(own, key=lambda name: (-own[name], name)) for item, own in votes.items()}


def _from_feedback(trace: Trace | None) -> str:
    """What the scorer said, without what is particular to the item, and the kind of task."""
    if trace is None:
        return "no trajectory kept"
    said = " ".join(_PARTICULARS.sub("…", trace["score"].get("feedback", "")).split())[:80]
    return ": ".join(part for part in (trace.get("type", ""), said) if part) or "no feedback"


def _sign(traces: Sequence[Trace]) -> Sign:
    if not traces:
        return "unknown"
    outputs = [_flat(result_of(trace)) for trace in traces]
    if not any(outputs):
        return "empty"
    if sum(map(_contains_answer, traces)) * 2 > len(traces):
        return "contained"
    return "constant" if len(set(outputs)) == 1 else "varied"


def _contains_answer(trace: dict[str, Any]) -> bool:
    output = _flat(trace["output"])
    return any(re.search(rf"(?<!\w){re.escape(_flat(answer))}(?!\w)", output) for answer in trace["answers"] if answer)


def _flat(text: str) -> str:
    return " ".join(text.casefold().split())


def _advice(items: Sequence[StuckItem]) -> str:
    counts = Counter(item.sign for item in items)
    return ADVICE[min(counts, key=lambda sign: (-counts[sign], sign))]
