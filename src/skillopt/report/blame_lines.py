"""Blame on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from skillopt.errors import UserError
from skillopt.report.blame import BlamedLine
from skillopt.report.console import gate_line
from skillopt.skill import Entry


def blame_lines(lines: Sequence[BlamedLine]) -> list[str]:
    """A line of blame for each line of the skill: `  9  step 4  0004-00-00 add     - For amber, …`."""
    if not lines:
        return ["The skill is empty."]
    wide = max(len(_who(line)) for line in lines)
    digits = len(str(lines[-1].number))
    return [f"{line.number:>{digits}}  {_who(line):<{wide}}  {line.text}" for line in lines]


def _who(line: BlamedLine) -> str:
    if line.entry is None:
        return "initial skill"
    return f"step {line.entry.step}  {line.entry.edit.id}  {line.entry.edit.op}"


def line_story(lines: Sequence[BlamedLine], number: int) -> list[str]:
    """All that the log knows of one line."""
    if number > len(lines):
        raise UserError(f"--line {number}: the skill has {len(lines)} lines")
    line = lines[number - 1]
    if line.entry is None:
        return [f"line {number}: {line.text}", "from: the initial skill"]
    return [f"line {number}: {line.text}", *entry_story(line.entry)]


def entry_story(entry: Entry) -> list[str]:
    edit = entry.edit
    told = {
        "from": f"step {entry.step}, epoch {entry.epoch}, version {entry.version}; log entry {entry.seq}",
        "edit": f"{edit.id}, {edit.op}" + (f" in section '{edit.section}'" if edit.section else ""),
        "instead of": edit.anchor,
        "rationale": edit.rationale,
        "pattern": edit.pattern,
        "proposed by": edit.source,
        "gate": f"{gate_line(entry.evidence)}; measured on {entry.evidence['measured']} items",
        "trajectories": ", ".join(edit.trajectory_ids),
    }
    return [f"{name}: {said}" for name, said in told.items() if said]
