"""Edits that belong together: selection, credit and the learning rate treat a group as one edit."""

from __future__ import annotations

from collections.abc import Iterable

from skillopt.skill import Edit

MOST = 4
"""The maximum number of edits in a group."""


def unit(edit: Edit) -> str:
    """The name of an edit's group. Edits of one reply with the same `group` share a name; any other edit is a group by
    itself."""
    return f"{edit.id.rpartition('-')[0]}/{edit.group}" if edit.group else edit.id


def units(edits: Iterable[Edit]) -> list[list[Edit]]:
    """The groups of edits, in the order of their first edits. An edit without a group is a group by itself."""
    members: dict[str, list[Edit]] = {}
    for edit in edits:
        members.setdefault(unit(edit), []).append(edit)
    return list(members.values())
