"""The edit funnel: what became of the edits that analysts proposed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

STAGES = ("proposed", "usable", "distinct", "selected", "applied", "accepted")
"""usable: could be read and fits the document; distinct: left after merging those that say the same and setting
opposite ones aside; selected: within the learning rate; applied: in the candidate; accepted: the gate let it in."""


def step_funnel(record: Mapping[str, Any]) -> dict[str, int]:
    """One step's edits, stage by stage."""
    edits = record["edits"]
    usable = edits["proposed"] - sum(edits["dropped"].values())
    return {
        "proposed": edits["proposed"],
        "usable": usable,
        "distinct": usable - edits["merged"] - edits["conflicting"],
        "selected": edits["selected"],
        "applied": edits["applied"],
        "accepted": edits["accepted"],
    }


def funnel(history: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The whole run's."""
    totals = dict.fromkeys(STAGES, 0)
    for record in history:
        for stage, count in step_funnel(record).items():
            totals[stage] += count
    return totals


def dropped(history: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Why edits could not be used, most frequent first: dropped when read, or skipped when applied."""
    reasons: dict[str, int] = {}
    for record in history:
        for kind, count in (*record["edits"]["dropped"].items(), *record["edits"]["skipped"].items()):
            reasons[kind] = reasons.get(kind, 0) + count
    return dict(sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0])))
