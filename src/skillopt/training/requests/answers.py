"""Hands in the reply to a letter (a request that waits in a file). First it checks the edits in the reply."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from skillopt.models.handoff.box import BadReply, Box, Letter
from skillopt.skill import FILE, Edit, Skill
from skillopt.skill.edit import whole_section
from skillopt.training.edits.losses import loss_problem, unnamed_losses
from skillopt.training.requests.blocks import LEFT_OUT, blocks_in

_EDITS = {"reflect": "edits", "deep_reflect": "edits", "slow_update": "lines"}
"""The stages whose letters show the skill and ask for edits to the skill. The value is the field of the reply that
contains the edits."""


def hand_in(box: Box, number: int, data: bytes) -> Letter:
    """Hand in a reply. If an anchor is not in the skill, or if an edit loses lines without naming them, the reply is
    refused now; otherwise the run would have to ask again."""
    letter = box.letter(number)
    if letter.open and (field := _EDITS.get(letter.stage)):
        edits = json.loads(letter.checked(data))[field]
        if problems := list(_problems(letter, field, edits)):
            raise BadReply(letter.name, problems)
    return box.hand_in(number, data)


def _problems(letter: Letter, field: str, edits: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """A message for each edit that could not be used. Files that the letter shows only in part are not checked."""
    text = "\n\n".join(str(message["content"]) for message in letter.messages if message.get("role") == "user")
    files = {name: inner for name, inner in blocks_in(text, "file") if LEFT_OUT not in inner}
    skill = "\n".join(inner for _, inner in blocks_in(text, "skill"))
    for number, edit in enumerate(edits):
        file, anchor = edit.get("file") or FILE, edit["anchor"].strip("\r\n")
        shown = skill if file == FILE else files.get(json.dumps(file), anchor)
        if edit["op"] != "add" and anchor not in shown:
            where = "the skill" if file == FILE else f"'{file}'"
            yield f"{field}[{number}].anchor: copy it verbatim; {json.dumps(anchor[:80])} is not in {where}"
        elif file == FILE and field == "edits":
            whole = whole_section(Edit.model_validate(edit), Skill(f"{skill}\n"))
            if lines := unnamed_losses(whole):
                yield f"{field}[{number}]: {loss_problem(lines)}"
