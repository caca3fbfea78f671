"""Reads the reply to a slow update: which lines of the guidance to add, change or delete. Lines that the reply does not
name stay, so a forgotten line is not deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pydantic import JsonValue, ValidationError

from skillopt.models.base import Schema
from skillopt.models.structured import FlawedReplyError
from skillopt.skill import FILE, Applied, Edit, SizeLimits, Skill, Skip, apply_guidance
from skillopt.training.requests.replies import OP, SUPERFLUOUS, TEXT, object_schema, says_nothing

LIMITS = SizeLimits(max_edit_tokens=600, max_skill_tokens=1200)
"""The maximum number of tokens of one line and of all guidance together."""
Problem = Callable[[Edit], str]
"""A function that returns the reason why a line must not be used; empty if it may be used."""


def guidance_schema() -> Schema:
    line = object_schema({"rationale": TEXT, "op": OP, "anchor": TEXT, "text": TEXT})
    lines: dict[str, JsonValue] = {"type": "array", "items": line}
    return Schema(name="slow_update", body=object_schema({"reason": TEXT, "lines": lines}))


def guidance_reply(skill: Skill, name: str, cited: Sequence[str], refused: Problem) -> Callable[[Any], Applied]:
    """Return a function that reads a reply and returns the skill with the new guidance. `name` is the prefix of the ids
    of the lines; `cited` has the ids of the trajectories that the request shows. If a line cannot be used, the
    optimizer is asked again."""

    def read(value: Any) -> Applied:
        edits: list[Edit] = []
        skipped: list[Skip] = []
        for number, row in enumerate(_rows(value, skill.guidance), 1):
            fixed = {"file": FILE, "section": "", "trajectory_ids": tuple(cited), "source": "slow_update"}
            try:
                edit = Edit.model_validate({**row, **fixed, "id": f"{name}-{number}"})
            except ValidationError as error:
                skipped.append(Skip(f"{name}-{number}", "malformed", str(error.errors()[0]["msg"])))
                continue
            edit = edit.model_copy(update={"anchor": "" if edit.op == "add" else edit.anchor.strip()})
            if problem := _problem(edit, skill.guidance) or refused(edit):
                skipped.append(Skip(edit.id, "refused", problem))
            elif edit.op != "add" or not says_nothing(edit.text):
                edits.append(edit)
        result = apply_guidance(skill, edits, LIMITS)
        result = replace(result, skipped=(*skipped, *map(_in_words, result.skipped)))
        unfit = [skip for skip in result.skipped if skip.kind not in SUPERFLUOUS]
        if problems := [f"line {skip.edit_id.rpartition('-')[2]}: {skip.reason}" for skip in unfit]:
            raise FlawedReplyError(f"of its lines, {len(problems)} cannot be used: {'; '.join(problems)}", result)
        return result

    return read


def _rows(value: Any, guidance: str) -> Iterator[dict[str, Any]]:
    """One row for each entry of `lines` in the reply. A reply in the form of earlier versions has the whole guidance as
    a text in `guidance`; then one row adds the lines of this text that are new."""
    lines = value.get("lines") if isinstance(value, dict) else None
    if isinstance(lines, list):
        yield from (row if isinstance(row, dict) else {} for row in lines)
        return
    text = value.get("guidance") if isinstance(value, dict) else None
    if not isinstance(text, str):
        raise ValueError("it is not an object with the list lines")
    known = {line for line in guidance.splitlines() if line.strip()}
    new = "\n".join(line for line in text.strip().splitlines() if line not in known)
    yield from [{"op": "add", "text": new.strip()}] if new.strip() else []


def _problem(edit: Edit, guidance: str) -> str:
    if edit.op == "add":
        return ""
    if not edit.rationale.strip():
        return f"`{edit.op}` of a line needs a reason in `rationale`"
    whole = edit.anchor and f"\n{edit.anchor}\n" in f"\n{guidance}\n"
    return "" if whole else "its anchor is not a whole line of the guidance"


def _in_words(skip: Skip) -> Skip:
    """The skip, with its reason reworded for the optimizer: it speaks of the guidance, not of the skill."""
    if skip.kind != "skill_too_long":
        return skip
    most = LIMITS.max_skill_tokens
    return replace(skip, reason=f"the guidance would be longer than {most} tokens; shorten or remove lines of it")
