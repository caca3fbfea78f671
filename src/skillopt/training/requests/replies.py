"""Defines the form of each stage's reply as a JSON schema with the stage's name, and reads replies.

The usable parts of a reply are used. All other parts are dropped and counted; nothing is guessed. In a schema, each
reason comes before the text that it explains.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue, ValidationError

from skillopt.models.base import Schema
from skillopt.models.structured import FlawedReplyError
from skillopt.record.edits import Dropped, Patch, Pattern
from skillopt.skill import Edit, SizeLimits, Skill
from skillopt.skill.edit import SkillBuilder, unsafe, whole_section
from skillopt.skill.tokens import count_tokens
from skillopt.training.edits import groups
from skillopt.training.edits.losses import loss_problem, unnamed_losses
from skillopt.training.requests.findings import findings_schema, read_findings

TEXT: dict[str, JsonValue] = {"type": "string"}
WORDINGS = 4
"""The maximum number of wordings of a minimal remedy."""
_DROPPED = (
    "Every line, number, quoted string or example of the anchor that the text of a `modify` leaves out, each with the "
    "reason; empty if nothing is left out."
)
_MINIMAL = (
    "Two to four wordings of one edit: only what is missing, in one or two sentences, without worked examples of "
    "tasks. Each is tried alone; the best one is tried against all of `edits` together."
)
_GROUP = (
    f"A short name that up to {groups.MOST} edits share if none of them is of use without the others; else empty. They "
    "are taken, blamed and counted as one edit."
)
OP: dict[str, JsonValue] = {"type": "string", "enum": ["add", "modify", "delete"]}


def reflect_schema(
    stage: str,
    ids: Sequence[str],
    most: int,
    files: Mapping[str, JsonValue] | None = None,
    *,
    minimal: bool = False,
    findings: bool = False,
) -> Schema:
    """The schema of a reflection. Ids and ops are enums, so that a small model cannot cite ids that do not exist.
    `files` is the schema of the field `file` in the edits of a package. If `minimal` or `findings` is true, the schema
    has a field for the minimal remedy or for findings, but a reply may leave it out."""
    cited = _some_of(ids)
    pattern = object_schema({"name": TEXT, "cause": TEXT, "trajectory_ids": cited})
    edit = _edit({"pattern": TEXT, "rationale": TEXT, "trajectory_ids": cited}, files, grouped=True)
    short: dict[str, JsonValue] = {"description": _MINIMAL, **_array(edit), "maxItems": WORDINGS}
    edits: dict[str, JsonValue] = {**_array(edit), "maxItems": 2 * most}  # a group counts as one
    body = object_schema({"job": TEXT, "patterns": _array(pattern), "edits": edits})
    body["properties"] = {
        "job": TEXT,
        "patterns": _array(pattern),
        **({"minimal": short} if minimal else {}),
        "edits": edits,
        **({"findings": findings_schema(cited)} if findings else {}),
    }
    return Schema(name=stage, body=body)


def merge_schema(ids: Sequence[str], most: int, files: Sequence[str] = ()) -> Schema:
    """The schema of a merge: each merged edit names the edits that it replaces, and each conflict names two edits by
    id. `files` has the names of the files that the edits of a package may name."""
    one: dict[str, JsonValue] = {"type": "string", "enum": list(ids)}
    file: dict[str, JsonValue] = {"type": "string", "enum": list(files)}
    edit = _edit({"ids": _some_of(ids), "pattern": TEXT, "rationale": TEXT}, file if files else None)
    conflict = object_schema({"reason": TEXT, "a": one, "b": one})
    return Schema(
        name="merge", body=object_schema({"edits": {**_array(edit), "maxItems": most}, "conflicts": _array(conflict)})
    )


def text_schema(stage: str, field: str) -> Schema:
    """The schema of a reply with a reason and then one text."""
    return Schema(name=stage, body=object_schema({"reason": TEXT, field: TEXT}))


def _edit(
    reasons: dict[str, JsonValue], file: Mapping[str, JsonValue] | None, *, grouped: bool = False
) -> dict[str, JsonValue]:
    """The schema of an edit. The fields `dropped` and `group` are not required, because people who answer a letter, and
    recorded replies, may leave them out."""
    named: dict[str, JsonValue] = {"file": dict(file)} if file else {}
    dropped: dict[str, JsonValue] = {"description": _DROPPED, **_array(object_schema({"text": TEXT, "reason": TEXT}))}
    required = {**reasons, "op": OP, **named, "section": TEXT, "anchor": TEXT, "text": TEXT}
    group: dict[str, JsonValue] = {"group": {"description": _GROUP, **TEXT}} if grouped else {}
    return {**object_schema(required), "properties": {**reasons, **group, **required, "dropped": dropped}}


def _some_of(ids: Sequence[str]) -> dict[str, JsonValue]:
    return _array({"type": "string", "enum": list(ids)})


def _array(items: JsonValue) -> dict[str, JsonValue]:
    return {"type": "array", "items": items}


def object_schema(properties: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


SUPERFLUOUS = {"duplicate", "no_change"}
"""The kinds of skipped edits that do no harm, because the skill already says the same. The optimizer is not asked again
about them."""


_FILLER = re.compile(
    "a|all|any|are|as|at|changes?|currently|done|empty|fine|further|good|guidance|is|it|its|keep|looks?|more|n|na|"
    "necessary|needed|new|nil|no|none|not|nothing|null|okay|ok|required|same|skill|tbd|the|there|this|time|todo|"
    "unchanged|updates?|yes"
)
"""Matches words that say nothing to an agent by themselves: `OK.`, `No further changes needed.`"""


def reflection(skill: Skill, limits: SizeLimits, patch: Patch, most: int) -> Callable[[Any], Patch]:
    """Return a function that reads a reflection on `skill` into `patch`.

    If an edit cannot be applied, the optimizer is asked again: the edits of a step belong together, and some of them
    without the others may do harm. If the second reply also has such edits, they stay in the patch; the update skips
    them and says why.
    """

    ids = patch.trajectory_ids

    def read(value: Any) -> Patch:
        if not isinstance(value, dict) or not isinstance(value.get("edits"), list):
            raise ValueError("it is not an object with patterns and edits")
        patterns = value.get("patterns")
        edits, dropped = read_edits(value["edits"], ids, patch.source, most)
        kept, losing = _without_losses([whole_section(edit, skill) for edit in edits], skill)
        dropped += losing
        causes = read_patterns(patterns if isinstance(patterns, list) else [], ids)
        update = {
            "patterns": causes,
            "edits": kept,
            "dropped": dropped,
            "minimal": _minimal(value.get("minimal"), skill, limits, patch),
            "findings": read_findings(value.get("findings"), ids),
        }
        result = patch.model_copy(update=update)
        if problems := [*(each.reason for each in dropped), *_unfit(skill, kept, limits)]:
            raise FlawedReplyError(f"of its edits, {len(problems)} cannot be used: {'; '.join(problems)}", result)
        return result

    return read


def _minimal(raw: Any, skill: Skill, limits: SizeLimits, patch: Patch) -> tuple[Edit, ...] | None:
    """The usable wordings of a reply's minimal remedy; None if there are none."""
    rows = raw if isinstance(raw, list) else [raw] if isinstance(raw, dict) else []
    edits, _ = read_edits(rows[:WORDINGS], patch.trajectory_ids, patch.source, WORDINGS)
    alone = [whole_section(edit.model_copy(update={"group": ""}), skill) for edit in edits]
    kept, _ = _without_losses(alone, skill)
    return tuple(edit for edit in kept if not SkillBuilder(skill, limits).add(edit)) or None


def _without_losses(edits: Sequence[Edit], skill: Skill) -> tuple[tuple[Edit, ...], tuple[Dropped, ...]]:
    """The edits that name every line that they drop; and separately the other edits, each with the lines that it would
    lose."""
    kept: list[Edit] = []
    losing: list[Dropped] = []
    for edit in edits:
        lines = unnamed_losses(edit) if edit.anchor in (skill.read(edit.file) or "") else []
        if lines:
            reason = f"{_named(edit)}: {loss_problem(lines)}"
            losing.append(Dropped(kind="lines_lost", reason=reason, edit=edit.model_dump(mode="json")))
        else:
            kept.append(edit)
    return tuple(kept), tuple(losing)


def _named(edit: Edit) -> str:
    """A short description of an edit: its op, and its section or anchor."""
    return f"`{edit.op}` at '{' '.join((edit.section or edit.anchor).split())[:60]}'"


def _unfit(skill: Skill, edits: Sequence[Edit], limits: SizeLimits) -> Iterator[str]:
    """For each edit that cannot be applied, the reason."""
    builder = SkillBuilder(skill, limits)
    for edit in edits:
        skip = builder.add(edit)
        if skip and skip.kind not in SUPERFLUOUS:
            yield f"{_named(edit)}: {skip.reason}"


def read_edits(
    raw: Sequence[Any], ids: Sequence[str], source: str, most: int
) -> tuple[tuple[Edit, ...], tuple[Dropped, ...]]:
    """Read at most `most` edits; a group counts as one edit. Of the trajectories that an edit cites, only those in
    `ids` are kept; an edit that cites none of them is dropped."""
    edits: list[Edit] = []
    dropped: list[Dropped] = []
    for row in raw:
        shown = dict(row) if isinstance(row, dict) else {"value": str(row)[:200]}
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
        members = sum(bool(edit.group) and other.group == edit.group for other in edits)
        if members >= groups.MOST or (not members and len({e.group or n for n, e in enumerate(edits)}) == most):
            reason = f"more than {most} edits in one reply, or {groups.MOST} in a group"
            dropped.append(Dropped(kind="too_many", reason=reason, edit={}))
            continue
        anchor = "" if edit.op == "add" else edit.anchor
        edits.append(edit.model_copy(update={"trajectory_ids": cited, "source": source, "id": "", "anchor": anchor}))
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


@dataclass(frozen=True, kw_only=True)
class MergedEdit:
    """One edit of a merge, and the ids of the edits that it replaces."""

    ids: tuple[str, ...]
    edit: Edit | str
    """The merged edit, or a text that says why it is malformed."""


def read_merge(value: Any) -> tuple[list[MergedEdit], list[tuple[str, str, str]]]:
    """Read a merge: its merged edits, and its conflicts (two ids and the reason)."""
    if not isinstance(value, dict) or not isinstance(value.get("edits"), list):
        raise ValueError("it is not an object with edits")
    conflicts = value.get("conflicts")
    rows = [row for row in (conflicts if isinstance(conflicts, list) else []) if isinstance(row, dict)]
    named = [(str(row.get("a")), str(row.get("b")), str(row.get("reason") or "")) for row in rows]
    return [_merged_edit(row) for row in value["edits"] if isinstance(row, dict)], named


def _merged_edit(row: dict[Any, Any]) -> MergedEdit:
    names = row.get("ids")
    ids = tuple(dict.fromkeys(map(str, names if isinstance(names, list) else ())))
    try:
        edit = Edit.model_validate({**row, "id": "", "trajectory_ids": (), "source": ""})
    except ValidationError as error:
        return MergedEdit(ids=ids, edit=str(error.errors()[0]["msg"]))
    return MergedEdit(ids=ids, edit=edit)


def text_of(field: str, most: int) -> Callable[[Any], str]:
    """Return a function that reads one text of at most `most` tokens; the text may be empty."""

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


def says_nothing(text: str) -> bool:
    """True if a text says nothing: it is empty, or has only headings or words such as `ok`, `none`, `no changes
    needed`."""
    lines = (line for line in text.splitlines() if not re.match(r"\s*#{1,6}(?:\s|$)", line))
    return all(_FILLER.fullmatch(word) for line in lines for word in re.findall(r"\w+", line.casefold()))
