"""Reading replies: what fits is taken, what does not is dropped and counted, nothing is guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from skillopt.models.structured import FlawedReplyError
from skillopt.skill import Edit, Limits, Skill, apply_edits
from skillopt.skill.edit import unsafe, whole_section
from skillopt.skill.tokens import count_tokens

SUPERFLUOUS = {"duplicate", "no_change"}
"""Kinds of edits that cannot be applied and are not missed."""


class Pattern(BaseModel):
    """A cause of failure, and the trajectories that show it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    cause: str = ""
    trajectory_ids: tuple[str, ...] = ()


class Dropped(BaseModel):
    """An edit that could not be used as it was, and why."""

    model_config = ConfigDict(frozen=True)

    kind: str
    reason: str
    edit: dict[str, object]


@dataclass(frozen=True, kw_only=True)
class Reflection:
    """What an analyst proposes. Edits that cannot be applied are among `edits`: the update skips them and says why."""

    patterns: tuple[Pattern, ...]
    edits: tuple[Edit, ...]
    dropped: tuple[Dropped, ...]


def reflection(skill: Skill, limits: Limits, ids: Sequence[str], source: str, most: int) -> Callable[[Any], Reflection]:
    """Reads a reflection on `skill`. Where an edit could not be applied, the reply is flawed and asked for again: the
    edits of a step are one remedy, and a part of it may do harm."""

    def read(value: Any) -> Reflection:
        if not isinstance(value, dict) or not isinstance(value.get("edits"), list):
            raise ValueError("it is not an object with patterns and edits")
        patterns = value.get("patterns")
        edits, dropped = read_edits(value["edits"], ids, source, most)
        whole = tuple(whole_section(edit, skill) for edit in edits)
        known = read_patterns(patterns if isinstance(patterns, list) else [], ids)
        found = Reflection(patterns=known, edits=whole, dropped=dropped)
        if problems := [*(each.reason for each in dropped), *_unfit(skill, whole, limits)]:
            raise FlawedReplyError(f"of its edits, {len(problems)} cannot be applied: {'; '.join(problems)}", found)
        return found

    return read


def _unfit(skill: Skill, edits: Sequence[Edit], limits: Limits) -> Iterator[str]:
    """Why edits cannot be applied, each named as its writer knows it."""
    named = {str(place): edit for place, edit in enumerate(edits)}
    tried = apply_edits(skill, [edit.model_copy(update={"id": name}) for name, edit in named.items()], limits)
    for skip in tried.skipped:
        edit = named[skip.edit_id]
        place = " ".join((edit.section or edit.anchor).split())[:60]
        if skip.kind not in SUPERFLUOUS:
            yield f"`{edit.op}` at '{place}': {skip.reason}"


def read_edits(
    raw: Sequence[Any], ids: Sequence[str], source: str, most: int
) -> tuple[tuple[Edit, ...], tuple[Dropped, ...]]:
    """At most `most` edits, each with the trajectories of `ids` that it cites."""
    edits: list[Edit] = []
    dropped: list[Dropped] = []
    for row in raw:
        shown = dict(row) if isinstance(row, dict) else {"value": str(row)[:200]}
        if len(edits) == most:
            dropped.append(Dropped(kind="too_many", reason=f"more than {most} edits in one reply", edit={}))
            continue
        try:
            edit = Edit.model_validate(row)
        except ValidationError as error:
            reason = str(error.errors()[0]["msg"])
            dropped.append(Dropped(kind="malformed", reason=reason, edit={k: str(v)[:500] for k, v in shown.items()}))
            continue
        cited = tuple(sorted(set(edit.trajectory_ids) & set(ids)))
        if not cited:
            dropped.append(Dropped(kind="no_trajectory", reason="cites no trajectory that was shown", edit=shown))
            continue
        own: dict[str, Any] = {"trajectory_ids": cited, "source": source, "id": ""}
        if edit.op == "add":
            own["anchor"] = ""
        edits.append(edit.model_copy(update=own))
    return tuple(edits), tuple(dropped)


def read_patterns(raw: Sequence[Any], ids: Sequence[str]) -> tuple[Pattern, ...]:
    patterns = []
    for row in raw[: len(ids)]:
        try:
            pattern = Pattern.model_validate(row)
        except ValidationError:
            continue
        cited = tuple(sorted(set(pattern.trajectory_ids) & set(ids)))
        if cited:
            patterns.append(pattern.model_copy(update={"trajectory_ids": cited}))
    return tuple(patterns)


def merged_rows(value: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The merged edits and the conflicts of a merge, as they came."""
    if not isinstance(value, dict) or not isinstance(value.get("edits"), list):
        raise ValueError("it is not an object with edits")
    conflicts = value.get("conflicts")
    named = conflicts if isinstance(conflicts, list) else []
    return [row for row in value["edits"] if isinstance(row, dict)], [row for row in named if isinstance(row, dict)]


def ranked_ids(value: Any) -> list[str]:
    if not isinstance(value, dict) or not isinstance(value.get("order"), list):
        raise ValueError("it is not an object with the list order")
    return [str(name) for name in value["order"]]


def text_of(field: str, most: int) -> Callable[[Any], str]:
    """Reads one text of at most `most` tokens, which may be empty."""

    def read(value: Any) -> str:
        text = value.get(field) if isinstance(value, dict) else None
        if not isinstance(text, str):
            raise ValueError(f"it is not an object with the text field {field}")
        if problem := unsafe(text):
            raise ValueError(f"{field} {problem[1]}")
        if len(text) > 20 * most or count_tokens(text) > most:
            raise ValueError(f"{field} is longer than {most} tokens")
        return text.strip()

    return read
