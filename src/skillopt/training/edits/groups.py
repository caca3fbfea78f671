"""Edits that belong together: selection, credit and the learning rate treat a group as one."""

from __future__ import annotations

from collections.abc import Iterable

from skillopt.skill import Edit

MOST = 4
"""The most edits in a group."""


def unit(edit: Edit) -> str:
    """The name of the group of edits that an edit is treated with. Edits of one reply with the same `group` share a
    name; any other edit has its own."""
    return f"{edit.id.rpartition('-')[0]}/{edit.group}" if edit.group else edit.id


def units(edits: Iterable[Edit]) -> list[list[Edit]]:
    """The edits as groups that are treated as one, in their order."""
    members: dict[str, list[Edit]] = {}
    for edit in edits:
        members.setdefault(unit(edit), []).append(edit)
    return list(members.values())
