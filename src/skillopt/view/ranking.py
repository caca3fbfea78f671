"""Explains the ranks of a step's edits. A failure that a higher edit covers does not count for lower edits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skillopt.record.edits import Ranked
from skillopt.view.text import counted

_NAMED = 4


def ranking_words(ranked: Sequence[Ranked]) -> list[str]:
    """A sentence for each row of a step's `selected.json`, in the order of the rows."""
    covered: dict[str, int] = {}
    sentences = []
    for rank, row in enumerate(ranked, 1):
        cited = list(dict.fromkeys(row.edit.trajectory_ids))
        new = [name for name in cited if name not in covered]
        sentences.append(_words(rank, row, new, [name for name in cited if name in covered], covered))
        if row.selected:
            covered |= dict.fromkeys(new, rank)
    return sentences


def _words(rank: int, row: Ranked, new: Sequence[str], again: Sequence[str], covered: Mapping[str, int]) -> str:
    parts = [_covers(new, bool(covered))]
    if again:
        before = sorted({covered[name] for name in again})
        edits = f"edit {before[0]}" if len(before) == 1 else f"edits {', '.join(map(str, before))}"
        parts.append(f"{len(again)} of its {len(new) + len(again)} trajectories are cited by {edits} already")
    if row.parts and not row.parts.new_cause:
        parts.append("an edit before it answers the same cause, so this edit counts only a quarter")
    words = "; ".join(parts)
    if row.selected:
        return f"Selected as number {rank}: {words}."
    return f"Not selected ({row.reason.partition(', ')[2]}): {words}."


def _covers(new: Sequence[str], others: bool) -> str:
    if not new:
        return "covers only failures that edits before it cover already"
    named = ", ".join(new[:_NAMED]) + (f" and {len(new) - _NAMED} more" if len(new) > _NAMED else "")
    that = " that no edit before it covers" if others else ""
    return f"covers {counted(len(new), 'failure')}{that} ({named})"
