"""How well mined tasks match what was planted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from skillopt_harvest.records import MinedTask
from support.planted_history import PlantedSession


@dataclass(frozen=True)
class MiningScore:
    found: frozenset[str]
    proposed: int
    invented: int
    """Proposed rules most of whose occurrences are not one planted rule."""
    repeated: int
    """Proposed rules that state a planted rule once more."""


def mining_score(tasks: list[MinedTask], history: list[PlantedSession]) -> MiningScore:
    truth = {session.id: session.rules for session in history}
    found: Counter[str] = Counter()
    proposed = [task for task in tasks if task.is_rule]
    for task in proposed:
        # line of the request is 1-based on turns; the correcting turn is two later, whose index is line + 1
        names = Counter(truth[each.session].get(each.line + 1, "") for each in task.occurrences)
        name, count = names.most_common(1)[0]
        if name not in {"", "once"} and count * 2 > len(task.occurrences):
            found[name] += 1
    matched = sum(found.values())
    return MiningScore(frozenset(found), len(proposed), len(proposed) - matched, matched - len(found))
