"""Installs a proposed skill, and can undo the installation.

Before the first file is replaced, the old files are copied into the proposal's folder, and the new files are written
beside the installed files. So if the disk is full, the installed skill stays as it was. SKILL.md is replaced last. If
the process is killed between two files, run the same command again to finish the installation.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from skillopt.errors import UserError
from skillopt.record.base import Document, Record
from skillopt.record.files import draft_of, read_bytes, read_json, read_text, write_atomic, write_json
from skillopt.skill import FILE
from skillopt.skill.folder import path_problem

BEGIN, END = "<!-- skillopt:begin -->", "<!-- skillopt:end -->"
_SECTION = re.compile(rf"{re.escape(BEGIN)}\n(.*?)\n?{re.escape(END)}", re.DOTALL)
INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
"""Names of instruction files. They belong to the user: SkillOpt replaces only its marked section in them."""


class ProposedFile(Record):
    path: str
    """The file's path, relative to the target folder."""
    before: str | None
    """Checksum of the installed file; None if no such file is installed."""
    after: str | None
    """Checksum of the proposed file; None if the file is to be removed."""


class LearnedLine(Record):
    """A line of the skill that training wrote, with the trajectories and tasks behind it."""

    file: str
    number: int
    text: str
    step: int
    trajectories: tuple[str, ...]
    tasks: tuple[str, ...]
    """Ids of items in the tasks file. The id of a harvested item names its session and lines."""


class Proposal(Document):
    """The content of `proposal.json`."""

    run: str
    target: str
    """The folder of the installed files."""
    files: tuple[ProposedFile, ...]
    verdict: str
    outcome: str
    evidence: str
    """The gain with its interval, or the reason why there is no measured gain."""
    cost_usd: float | None
    fixed: tuple[str, ...] = ()
    """Tasks that failed with the initial skill and pass with the best skill."""
    broken: tuple[str, ...] = ()
    lines: tuple[LearnedLine, ...] = ()
    unreviewed: bool = False


def is_instructions(path: Path) -> bool:
    return path.name in INSTRUCTIONS


def section_of(path: Path) -> str:
    """Return the text of SkillOpt's section in an instruction file; empty if the file has no such section."""
    section = _SECTION.search(read_text(path.resolve())) if path.exists() else None
    return f"{section[1]}\n" if section and section[1] else ""


def with_section(text: str, skill: str) -> str:
    """Return the text of an instruction file with SkillOpt's section replaced, or added at the end."""
    block = f"{BEGIN}\n{skill.replace(BEGIN, '').replace(END, '').strip()}\n{END}"
    if _SECTION.search(text):
        return _SECTION.sub(lambda _: block, text, count=1)
    return f"{text.rstrip()}\n\n{block}\n" if text.strip() else f"{block}\n"


def checksum(path: Path) -> str | None:
    try:
        return hashlib.sha256(read_bytes(path)).hexdigest()
    except FileNotFoundError:
        return None


def read_proposal(folder: Path) -> Proposal:
    if not (folder / "proposal.json").is_file():
        raise UserError(f"{folder}: is not a proposal (it has no proposal.json); `skillopt propose RUN` writes one")
    try:
        proposal = Proposal.model_validate(read_json(folder / "proposal.json"))
    except ValueError as error:
        raise UserError(
            f"{folder}/proposal.json: cannot be read ({str(error)[:200]}); run `skillopt propose` again"
        ) from None
    for file in proposal.files:
        if problem := path_problem(file.path):
            raise UserError(f"{folder}/proposal.json: '{file.path}': {problem}")
    return proposal


def adopt(folder: Path) -> list[Path]:
    """Put the proposed files in place. Raise UserError if an installed file has changed since the proposal."""
    proposal = read_proposal(folder)
    for file in proposal.files:
        if file.after and checksum(folder / "new" / file.path) != file.after:
            raise UserError(
                f"{folder / 'new' / file.path}: has changed since it was proposed; run `skillopt propose` again"
            )
    target = Path(proposal.target).expanduser()
    target.mkdir(parents=True, exist_ok=True)
    with _locked(target):
        _refuse_changes(proposal, target, folder / "old", "run `skillopt propose` again")
        return _replace(proposal, target, folder / "new", backup=folder / "old")


def undo(folder: Path) -> list[Path]:
    """Put the old files back. Raise UserError if a file has changed since it was adopted."""
    proposal = read_proposal(folder)
    target = Path(proposal.target).expanduser()
    if not target.is_dir():
        raise UserError(f"{target}: no such folder; there is nothing to undo")
    backwards = proposal.model_copy(
        update={"files": tuple(ProposedFile(path=f.path, before=f.after, after=f.before) for f in proposal.files)}
    )
    with _locked(target):
        _refuse_changes(backwards, target, folder / "new", "undo the change by hand")
        return _replace(backwards, target, folder / "old")


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    """Lock the target folder, so that no other `adopt` can change it. The lock is on the folder itself, so no lock file
    is left behind."""
    handle = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise UserError(
            f"{target}: another `skillopt adopt` is working on this folder; wait until it ends, then look at the result"
        ) from None
    try:
        yield
    finally:
        os.close(handle)


def _refuse_changes(proposal: Proposal, target: Path, backup: Path, remedy: str) -> None:
    """Raise UserError if an installed file has changed since the proposal was written. If the same command was killed
    between two files when it last ran, some files already have their new content. These files are allowed if the
    backup has their old content."""
    replaced = [file for file in proposal.files if checksum(target / file.path) == file.after]
    interrupted = len(replaced) < len(proposal.files) and all(
        checksum(backup / file.path) == file.before for file in replaced if file.before
    )
    for file in proposal.files:
        path = target / file.path
        for part in (path, *path.parents[: len(Path(file.path).parts) - 1]):
            if part.is_symlink():
                raise UserError(f"{part}: is a link; nothing was written. Replace it with what it points to")
        if checksum(path) != file.before and not (interrupted and file in replaced):
            state = "already has the new content" if file in replaced else "has changed since the proposal was written"
            raise UserError(f"{path}: {state}; nothing was written. Look at the difference, then {remedy}")


def _replace(proposal: Proposal, target: Path, source: Path, backup: Path | None = None) -> list[Path]:
    """Write the new files beside the old ones, then put all of them in place, SKILL.md last."""
    drafts = {file.path: draft_of(target / file.path) for file in proposal.files if file.after}
    for path in (target / file.path for file in proposal.files):  # drafts that a killed call left; the folder is locked
        left = re.compile(rf"\.{{1,2}}{re.escape(path.name)}(?:\.[0-9a-f]{{8}}\.tmp){{1,2}}")
        for stale in path.parent.glob(".*.tmp"):
            stale.unlink() if left.fullmatch(stale.name) else None
    try:
        for file in proposal.files:
            if backup and file.before and checksum(target / file.path) == file.before:
                _copy(target / file.path, backup / file.path, target / file.path)
            if file.after:
                _copy(source / file.path, drafts[file.path], target / file.path)
    except OSError as error:
        for name, draft in drafts.items():
            draft.unlink(missing_ok=True)
            _remove_empty(target, name)
        where, why = Path(error.filename or target).parent, error.strerror or str(error)
        raise UserError(f"{where}: {why}; the installed skill is unchanged. Solve this, and try again") from None
    for file in sorted(proposal.files, key=lambda file: (file.path == FILE, file.path)):
        if file.after:
            drafts[file.path].replace(target / file.path)
        else:
            (target / file.path).unlink(missing_ok=True)
            _remove_empty(target, file.path)
    return [target / file.path for file in proposal.files]


def _remove_empty(target: Path, name: str) -> None:
    """After a file was removed, also remove its parent folders if they are now empty."""
    for folder in (target / name).parents:
        if folder == target or (folder.is_dir() and any(folder.iterdir())):
            return
        folder.rmdir() if folder.is_dir() else None


def _copy(source: Path, path: Path, like: Path) -> None:
    """Copy a file. If the file `like` exists, the copy gets the mode of `like`, so that a script stays executable."""
    mode = (like if like.exists() else source).stat().st_mode
    write_atomic(path, read_text(source))
    path.chmod(mode & 0o777)


def write_proposal(folder: Path, proposal: Proposal, texts: Mapping[str, str], page: str, diff: str) -> None:
    """Write the proposal's folder. proposal.json is written last, so a folder with this file is complete."""
    for path, text in texts.items():
        write_atomic(folder / "new" / path, text)
    write_atomic(folder / "proposal.md", page)
    write_atomic(folder / "skill.diff", diff)
    write_json(folder / "proposal.json", proposal)
