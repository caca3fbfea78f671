"""Finds the edit that wrote each line of a skill, from the initial skill and the patch log alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby

from skillopt.errors import Damaged, UserError
from skillopt.record.directory import RunDirectory
from skillopt.skill import FILE, Edit, Entry, PatchLogError, Skill, replay
from skillopt.skill.patch_log import applied_in_order
from skillopt.skill.trained import PARTS, editable

_Line = tuple[str, Entry | None]


@dataclass(frozen=True, kw_only=True)
class BlamedLine:
    file: str = FILE
    """The line's file in the package."""
    number: int
    """The line's number in its file, from 1."""
    text: str
    """The line's text, without its line end."""
    entry: Entry | None
    """The accepted edit that wrote the line as it is now; None for a line of the initial skill."""

    @property
    def step(self) -> int:
        """The step that wrote the line; 0 for the initial skill."""
        return self.entry.step if self.entry else 0

    @property
    def version(self) -> int:
        return self.entry.version if self.entry else 0


def blame_run(run: RunDirectory, version: int | None = None) -> list[BlamedLine]:
    """The lines of a run's best version, or of `version`, each with the edit that wrote it. A package's lines are
    grouped by file."""
    entries = read_entries(run)
    with run.as_written():
        initial = initial_skill(run, entries)
        return blame(initial, entries, best_version(run, replay(initial, entries)) if version is None else version)


def blame(initial: Skill, entries: Sequence[Entry], version: int) -> list[BlamedLine]:
    """Every line of `version`, with the edit that wrote it. Raises PatchLogError if the entries, applied to `initial`,
    do not give the versions that the log records."""
    versions = replay(initial, entries)
    if version not in versions:
        raise UserError(f"version {version} does not exist; the versions are 0 to {max(versions)}")
    lines: dict[str, list[_Line]] = {
        path: [(text, None) for text in _lines(initial, path)] for path in editable(initial, PARTS)
    }
    for entry, skill in _one_by_one(versions, [entry for entry in entries if entry.version <= version]):
        path = entry.edit.file
        lines[path] = _rewritten(lines.get(path, []), _lines(skill, path), entry)
    return [
        BlamedLine(file=path, number=number, text=text, entry=entry)
        for path in editable(versions[version], PARTS)
        for number, (text, entry) in enumerate(lines[path], 1)
    ]


def _one_by_one(versions: dict[int, Skill], entries: Sequence[Entry]) -> Iterator[tuple[Entry, Skill]]:
    """Yield each edit with the skill as it was right after this edit, so the edits of one step can be told
    apart."""
    for version in sorted({entry.version for entry in entries}):
        group = [entry for entry in entries if entry.version == version]
        yield from zip(group, applied_in_order(versions[version - 1], group), strict=True)


def _rewritten(before: list[_Line], after: list[str], entry: Entry) -> list[_Line]:
    """The lines of `after` with their authors: a line of `before` keeps its author, and `entry` wrote the new lines."""
    matcher = SequenceMatcher(None, [text for text, _ in before], after)
    lines: list[_Line] = []
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        lines += before[start:end] if tag == "equal" else [(text, entry) for text in after[new_start:new_end]]
    return lines


def _lines(skill: Skill, path: str) -> list[str]:
    """The lines of a file without their line breaks, so an edit that only adds a line break after a line does not
    become the author of this line."""
    lines = [line.removesuffix("\r") for line in (skill.shown.read(path) or "").split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def read_entries(run: RunDirectory) -> list[Entry]:
    """The entries of the patch log. Raises UserError if the chain of hashes is broken."""
    try:
        return list(run.patch_log.entries())
    except PatchLogError as error:
        raise UserError(f"{error}; `skillopt verify {run.root}` shows more") from None


def initial_skill(run: RunDirectory, entries: Sequence[Entry]) -> Skill:
    """Version 0 of the skill. If version 0 is empty, the run may have no file for it."""
    if run.snapshot(0).exists():
        return run.read_skill(0)
    if entries and entries[0].skill_before == Skill("").hash:
        return Skill("")
    raise UserError(f"{run.root}: is not a run's folder (it has no {run.snapshot(0).relative_to(run.root)})")


def best_version(run: RunDirectory, versions: Mapping[int, Skill]) -> int:
    """The number of the best version; if the best skill's files are missing or match no version, the newest version."""
    if run.best_skill.exists():
        best = _best_hash(run)
        for version in sorted(versions, reverse=True):
            if versions[version].shown.hash == best:
                return version
    return max(versions)


def _best_hash(run: RunDirectory) -> str:
    try:
        return run.read_best().shown.hash
    except (Damaged, UnicodeDecodeError):
        return ""


def by_file(lines: Iterable[BlamedLine]) -> dict[str, list[BlamedLine]]:
    return {path: list(own) for path, own in groupby(lines, key=lambda line: line.file)}


def spread(lines: Iterable[BlamedLine]) -> dict[int, int]:
    """For each step, the number of lines that it wrote; step 0 is the initial skill."""
    counts: dict[int, int] = {}
    for line in lines:
        counts[line.step] = counts.get(line.step, 0) + 1
    return dict(sorted(counts.items()))


def where(edit: Edit) -> str:
    """The place of an edit, such as ` in references/rules.md, section 'Rules'`; empty if the edit names neither file
    nor section."""
    file = "" if edit.file == FILE else f" in {edit.file}"
    section = f"section '{edit.section}'" if edit.section else ""
    return f"{file}, {section}" if file and section else file or (f" in {section}" if section else "")
