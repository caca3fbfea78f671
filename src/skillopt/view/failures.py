"""Persistent failures: items that no skill solved, grouped by their likely cause."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from skillopt.record.run import Run
from skillopt.record.step import StepRecord
from skillopt.record.trajectory import Trajectory
from skillopt.skill import Skill
from skillopt.view.diagnosis import improved
from skillopt.view.text import counted
from skillopt.view.traces import result_of

Sign = Literal["empty", "contained", "constant", "varied", "unknown", "untried"]
Standing = Literal["task", "ended", "few", "untried", "one"]
"""The conclusion about an item that no skill solved. `task`: several skills failed, among them the newest version, and
the last steps brought no new version, so the task itself may be the cause. `ended`: the newest version failed, but the
last step still improved the skill. `few`: there were too few skills or steps to blame the task. `untried`: the newest
version was not tried on the item. `one`: only one skill was tried on the item."""

GENERAL = "No skill that was tried on these items solved them."
ONE_SKILL = (
    "The initial skill does not solve these items, and the run had no other skill to try. So these failures do not "
    "show that the tasks are at fault."
)
ADVICE: dict[Sign, str] = {
    "empty": "The target gives no answer: check models.target_max_tokens, and that the task asks for an answer.",
    "contained": "The output contains the expected answer, but the scorer does not accept it: check the scorer, and "
    "the form of answer that it expects.",
    "constant": "The target gives the same answer with every skill: check that the expected answer is right, and that "
    "the task contains everything that is needed to find it.",
    "varied": "The target gives different wrong answers: the task may be ambiguous, or too hard for this target.",
    "unknown": "Look at the items themselves.",
    "untried": "No skill that says how to solve these items was tried.",
}
NOT_THE_TASK: dict[Standing, str] = {
    "ended": "The last step still improved the skill, so a longer training may solve these items. These failures do "
    "not show yet that the tasks are at fault.",
    "few": "Too few skills were tried on these items, or too few steps followed the last accepted step, to doubt the "
    "tasks.",
    "untried": "The newest skill was not tried on these items and may solve them: measure it with `skillopt eval`.",
    "one": ADVICE["untried"],
}
_CAUSES: dict[Sign, str] = {
    "empty": "no answer",
    "contained": "the expected answer is in the output, but not accepted",
    "constant": "the same wrong answer under every skill",
    "varied": "a different wrong answer under each skill",
    "unknown": "no trajectory kept",
    "untried": "only the initial skill was tried",
}
NO_SKILL = Skill("").hash
REST = 3
"""If the last `REST` steps brought no new version, the training is treated as settled."""
_SEVERAL = 3
"""The minimum number of skills that must have failed before the report doubts the task itself."""


@dataclass(frozen=True, kw_only=True)
class StuckItem:
    item_id: str
    type: str
    skills: int
    """The number of skills that the item was measured with: versions, and candidates that a gate measured."""
    versions: tuple[int, ...]
    """The versions that the item was measured with."""
    pattern: str
    sign: Sign
    standing: Standing
    said: str
    """The evidence in words."""
    last: Trajectory | None
    """The item's newest trajectory; None if the run kept no trajectory of this item."""


@dataclass(frozen=True, kw_only=True)
class FailureGroup:
    pattern: str
    items: tuple[StuckItem, ...]
    advice: str


def failure_groups(run: Run) -> list[FailureGroup]:
    """The persistent failures, grouped by cause and conclusion. Groups that blame the task come first; otherwise,
    larger groups come first."""
    stuck = run.persistent_failures
    if not stuck:
        return []
    measured, history = run.outcomes, run.history
    traces: dict[str, list[Trajectory]] = {item: [] for item in stuck}
    for trace in run.traces():
        if trace.item_id in traces:
            traces[trace.item_id].append(trace)
    causes = named_causes(run, {trace.id: item for item, rollouts in traces.items() for trace in rollouts})
    ending = (at_rest(history), bool(history) and improved(history[-1]))
    groups: dict[tuple[Standing, str], list[StuckItem]] = {}
    for item_id in stuck:
        item = _stuck(
            item_id, list(measured[item_id]), run.versions_by_hash, ending, traces[item_id], causes.get(item_id)
        )
        groups.setdefault((item.standing, item.pattern), []).append(item)
    ordered = sorted(groups.items(), key=lambda pair: (pair[0][0] != "task", -len(pair[1]), pair[0]))
    return [FailureGroup(pattern=key[1], items=tuple(items), advice=_advice(items)) for key, items in ordered]


def lead(groups: Sequence[FailureGroup]) -> str:
    """The sentence above the failures in a report. If only one skill was tried, the sentence says so."""
    return GENERAL if any(item.skills > 1 for group in groups for item in group.items) else ONE_SKILL


def at_rest(history: Sequence[StepRecord]) -> bool:
    """True if the last `REST` steps brought no new version."""
    changed = [n for n, record in enumerate(history, 1) if improved(record)]
    return len(history) - max(changed, default=0) >= REST


def _stuck(
    item: str,
    hashes: Sequence[str],
    version_of: Mapping[str, int],
    ending: tuple[bool, bool],
    traces: list[Trajectory],
    cause: str | None,
) -> StuckItem:
    last = traces[-1] if traces else None
    versions = tuple(sorted(version_of[skill] for skill in hashes if skill in version_of))
    newest = max(version_of.values(), default=0)
    standing: Standing = "untried" if newest not in versions else "one" if len(hashes) < 2 else "task"
    rested, rises = ending
    if standing == "task" and not (rested and len(hashes) >= _SEVERAL):
        standing = "ended" if rises else "few"
    sign = _sign(traces) if standing != "one" else "untried"
    kind = last.type if last else ""
    return StuckItem(
        item_id=item,
        type=kind,
        skills=len(hashes),
        versions=versions,
        pattern=cause or ": ".join(part for part in (kind, _CAUSES[sign]) if part),
        sign=sign,
        standing=standing,
        said=_said(versions, [skill for skill in hashes if skill not in version_of], standing),
        last=last,
    )


def _said(versions: Sequence[int], others: Sequence[str], standing: Standing) -> str:
    """The evidence in words: `failed under all 4 versions tried, not tried since version 9`."""
    tried = f"all {len(versions)} versions tried" if len(versions) > 1 else "the one version tried"
    parts = [f"under {tried}"] if versions else []
    candidates = len(others) - (NO_SKILL in others)
    parts += [f"under {counted(candidates, 'rejected candidate')}"] if candidates else []
    parts += ["without a skill"] if NO_SKILL in others else []
    since = f", not tried since version {versions[-1]}" if versions else ", never tried under a version"
    ending = {"task": "", "one": "", "untried": since, **dict.fromkeys(("ended", "few"), "; the training ended first")}
    listed = " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)
    return f"failed {listed}{ending[standing]}"


def named_causes(run: Run, item_of: Mapping[str, str]) -> dict[str, str]:
    """For each item, the cause that analysts named most often. Only training items can have a cause, because analysts
    read no others."""
    votes: dict[str, Counter[str]] = {}
    for path in sorted(run.files.steps.glob("step_*/patches.json")):
        for patch in run.patches(int(path.parent.name.removeprefix("step_"))):
            for pattern in () if patch.source.endswith("/success") else patch.patterns:
                for trace_id in pattern.trajectory_ids:
                    if trace_id in item_of:
                        votes.setdefault(item_of[trace_id], Counter())[pattern.name] += 1
    return {item: min(counts, key=lambda name: (-counts[name], name)) for item, counts in votes.items()}


def _sign(traces: Sequence[Trajectory]) -> Sign:
    if not traces:
        return "unknown"
    outputs = [_flat(result_of(trace)) for trace in traces]
    if not any(outputs):
        return "empty"
    if sum(map(_contains_answer, traces)) * 2 > len(traces):
        return "contained"
    return "constant" if len(set(outputs)) == 1 else "varied"


def _contains_answer(trace: Trajectory) -> bool:
    output = _flat(trace.output)
    return any(re.search(rf"(?<!\w){re.escape(_flat(answer))}(?!\w)", output) for answer in trace.answers if answer)


def _flat(text: str) -> str:
    return " ".join(text.casefold().split())


def _advice(items: Sequence[StuckItem]) -> str:
    if items[0].standing != "task":
        return NOT_THE_TASK[items[0].standing]
    counts = Counter(item.sign for item in items)
    return ADVICE[min(counts, key=lambda sign: (-counts[sign], sign))]
