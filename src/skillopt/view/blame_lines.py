"""Shows on the terminal which edit wrote each line of a skill."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from skillopt.errors import UserError
from skillopt.record.run import Run
from skillopt.record.step import Evidence
from skillopt.skill import FILE, Entry
from skillopt.view.blame import BlamedLine, by_file, where
from skillopt.view.console import gate_line
from skillopt.view.skill_diff import file_line
from skillopt.view.traces import find_trace


def blame_lines(lines: Sequence[BlamedLine]) -> list[str]:
    """The lines of the skill. Before each line are its number and the edit that wrote it, such as
    `  9  step 4  0004-00-00 add     - For amber, …`."""
    if not lines:
        return ["The skill is empty."]
    wide = max(len(_who(line)) for line in lines)
    digits = len(str(max(line.number for line in lines)))
    files = by_file(lines)
    rows_shown: list[str] = []
    for path, own in files.items():
        rows_shown += [file_line(path)] if len(files) > 1 or path != FILE else []
        rows_shown += [f"{line.number:>{digits}}  {_who(line):<{wide}}  {line.text}" for line in own]
    return rows_shown


def _who(line: BlamedLine) -> str:
    if line.entry is None:
        return "initial skill"
    return f"step {line.entry.step}  {line.entry.edit.id}  {line.entry.edit.op}"


def tasks_of(run: Run, trajectory_ids: Iterable[str]) -> dict[str, str]:
    """A dict from trajectory ids to the ids of their tasks. Trajectories that are not on disk are left out."""
    traces = ((name, find_trace(run, name)) for name in dict.fromkeys(trajectory_ids))
    return {name: trace.item_id for name, trace in traces if trace is not None}


def line_story(lines: Sequence[BlamedLine], number: int, file: str = FILE, run: Run | None = None) -> list[str]:
    """Everything in the patch log about one line of a file. If `run` is given, also the tasks that led to the line."""
    own = lines_of(lines, file)
    if number > len(own):
        raise UserError(f"--line {number}: {'the skill' if file == FILE else file} has only {len(own)} lines")
    line = own[number - 1]
    head = f"line {number}{'' if file == FILE else f' of {file}'}: {line.text}"
    if line.entry is None:
        return [head, "from: the initial skill"]
    tasks = tasks_of(run, line.entry.edit.trajectory_ids) if run else {}
    named = [f"tasks: {', '.join(dict.fromkeys(tasks.values()))}"] if tasks else []
    return [head, *entry_story(line.entry), *named]


def lines_of(lines: Sequence[BlamedLine], file: str) -> list[BlamedLine]:
    known = by_file(lines)
    if file not in known and file != FILE:
        raise UserError(f"--file: '{file}' is not a text file of this skill; its text files are: {', '.join(known)}")
    return known.get(file, [])


def entry_story(entry: Entry) -> list[str]:
    edit, evidence = entry.edit, Evidence.model_validate(entry.evidence)
    rows = {
        "from": f"step {entry.step}, epoch {entry.epoch}, version {entry.version}; log entry {entry.seq}",
        "edit": f"{edit.id}, {edit.op}{where(edit)}",
        "instead of": edit.anchor,
        "rationale": edit.rationale,
        "pattern": edit.pattern,
        "proposed by": edit.source,
        "gate": f"{gate_line(evidence)}; measured on {evidence.measured} items",
        "trajectories": ", ".join(edit.trajectory_ids),
    }
    return [f"{name}: {value}" for name, value in rows.items() if value]
