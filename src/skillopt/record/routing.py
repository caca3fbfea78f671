"""Records of the skill that an agent loads for each request: routing.json, and the table in a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import ClassVar

from skillopt.record.base import Interval, Record
from skillopt.record.results import ResultFile, Spent
from skillopt.record.trajectory import Trajectory

NONE, SEVERAL = "none", "several"


class RoutedRow(Record):
    """What the agent loaded for the requests that are meant for one skill (or for no skill)."""

    expected: str
    """The name of the skill that the requests are meant for, or `none`."""
    loaded: dict[str, int]
    """The number of requests for each loaded skill. The key is the skill's name, `none` or `several`."""

    @property
    def requests(self) -> int:
        return sum(self.loaded.values())

    @property
    def right(self) -> int:
        return self.loaded.get(self.expected, 0)


class Misrouted(Record):
    """A request for which the agent did not load the expected skill."""

    item_id: str
    request: str
    expected: str
    loaded: str


class Confusion(Record):
    """The confusion matrix: one row for each expected skill, and one column for each loaded skill."""

    names: tuple[str, ...]
    """The names of the columns: the skills, then `none` and `several` if they occur."""
    rows: tuple[RoutedRow, ...]
    wrong: tuple[Misrouted, ...]

    def table(self) -> list[tuple[str, ...]]:
        """The rows of the table, one per expected skill: its name, then a count for each of `names` (a dot for 0)."""
        return [(row.expected, *(str(row.loaded.get(name, 0) or "·") for name in self.names)) for row in self.rows]


class Routing(ResultFile):
    """routing.json: how well the descriptions of several skills lead an agent to the right one."""

    optional: ClassVar = frozenset({"test_reads", "path"})

    verdict: str
    """The result in a sentence or two."""
    benchmark: str
    target: str
    split: str
    items: int
    score: float
    """The share of requests for which the agent loaded exactly the expected skill. If no skill was expected, the agent
    must have loaded none."""
    interval: Interval | None
    confusion: Confusion
    set_aside: dict[str, str]
    spent: Spent
    test_reads: int | None = None


def confusion(trajectories: Iterable[Trajectory]) -> Confusion:
    """The confusion matrix of rollouts with a library (`env.options.skills`). Each output names the loaded skills."""
    counts: dict[str, Counter[str]] = {}
    wrong = []
    for each in trajectories:
        expected, loaded = each.answers[0], SEVERAL if ", " in each.output else each.output
        loaded = loaded if not loaded.startswith("(") else NONE
        counts.setdefault(expected, Counter())[loaded] += 1
        if loaded != expected:
            shown = each.output if loaded == SEVERAL else loaded
            wrong.append(Misrouted(item_id=each.item_id, request=each.input, expected=expected, loaded=shown))
    names = {*counts, *(name for row in counts.values() for name in row)}
    last = [name for name in (NONE, SEVERAL) if name in names]
    order = [*sorted(names - {NONE, SEVERAL}), *last]
    rows = [RoutedRow(expected=name, loaded=dict(sorted(counts[name].items()))) for name in order if name in counts]
    return Confusion(names=tuple(order), rows=tuple(rows), wrong=tuple(wrong))
