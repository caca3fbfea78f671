"""The patch log of a skill: an append-only, hash-chained log of every accepted edit.

Every version can be rebuilt byte for byte from the initial skill and this log.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from skillopt.skill.document import Skill
from skillopt.skill.edit import UNLIMITED, Edit, apply_edits
from skillopt.skill.folder import open_regular
from skillopt.skill.guidance import apply_guidance

GENESIS = "0" * 64


class PatchLogError(Exception):
    """The log was altered, or does not belong to these skills."""


class Entry(BaseModel):
    """One accepted edit, of a step or of the slow update's guidance."""

    model_config = ConfigDict(frozen=True)

    seq: int
    kind: Literal["edit", "guidance"]
    step: int
    epoch: int
    version: int
    """The skill version that this edit is part of."""
    skill_before: str
    skill_after: str
    """The hash of the skill after the whole step; `skill_before` is the hash before the step."""
    edit: Edit
    evidence: dict[str, JsonValue]
    """The gate's measurements for the step."""
    prev: str
    hash: str = ""

    def digest(self) -> str:
        body = self.model_dump(mode="json", exclude={"hash"})
        return hashlib.sha256(json.dumps(body, sort_keys=True, ensure_ascii=False).encode()).hexdigest()

    def line(self) -> bytes:
        return self.model_dump_json().encode() + b"\n"


class PatchLog:
    """The file `patch_log.jsonl`. The entries of a step are written together. `truncate` cuts the file to an earlier
    `size`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tail: tuple[int, str] | None = None
        """Number and hash of the last entry; None before they have been read."""

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def append(
        self,
        edits: Sequence[Edit],
        *,
        kind: Literal["edit", "guidance"],
        step: int,
        epoch: int,
        version: int,
        before: Skill,
        after: Skill,
        evidence: dict[str, JsonValue],
    ) -> None:
        if self._tail is None:
            tails = [(entry.seq, entry.hash) for entry in self.entries()]
            self._tail = tails[-1] if tails else (0, GENESIS)
        seq, prev = self._tail
        lines = []
        for edit in edits:
            seq += 1
            entry = Entry(
                seq=seq,
                kind=kind,
                step=step,
                epoch=epoch,
                version=version,
                skill_before=before.hash,
                skill_after=after.hash,
                edit=edit,
                evidence=evidence,
                prev=prev,
            )
            entry = entry.model_copy(update={"hash": entry.digest()})
            prev = entry.hash
            lines.append(entry.line())
        with open_regular(self.path, "ab") as file:
            file.write(b"".join(lines))
            file.flush()
            os.fsync(file.fileno())
        self._tail = (seq, prev)

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, to remove entries that were written after the last finished step."""
        if self.path.exists() and self.size > size:
            with open_regular(self.path, "r+b") as file:
                file.truncate(size)
            self._tail = None

    def entries(self) -> Iterator[Entry]:
        """All entries in order. If the chain of hashes is broken, a PatchLogError names the first entry that breaks
        it."""
        prev = GENESIS
        if not self.path.exists():
            return
        with open_regular(self.path) as file:
            for number, line in enumerate(file, 1):
                try:
                    entry = Entry.model_validate_json(line)
                except (ValidationError, ValueError) as error:
                    raise PatchLogError(f"{self.path}: entry {number} is not readable") from error
                intact = line == entry.line()  # compare keys as well as values: a renamed key could read as its default
                if not intact or entry.prev != prev or entry.seq != number or entry.hash != entry.digest():
                    raise PatchLogError(
                        f"{self.path}: entry {number} (step {entry.step}) was altered or is out of place"
                    )
                prev = entry.hash
                yield entry


def replay(initial: Skill, entries: Sequence[Entry]) -> dict[int, Skill]:
    """Every version of the skill, rebuilt from the log: `{0: initial, 1: …}`. Raises PatchLogError if a hash differs
    from the log."""
    versions = {0: initial}
    skill = initial
    for version in sorted({entry.version for entry in entries}):
        group = [entry for entry in entries if entry.version == version]
        if group[0].skill_before != skill.hash:
            raise PatchLogError(
                f"version {version}: the edits in the log start from a different skill, not from the previous version"
            )
        skill = applied_in_order(skill, group)[-1]
        if skill.hash != group[0].skill_after:
            raise PatchLogError(f"version {version}: the edits in the log do not produce this version")
        versions[version] = skill
    return versions


def applied_in_order(before: Skill, group: Sequence[Entry]) -> list[Skill]:
    """The skills after the first edit of a version, after its first two edits, and so on. The last one is the version
    itself."""
    if group[0].kind == "guidance":
        edits = [entry.edit for entry in group]
        return [apply_guidance(before, edits[:count], UNLIMITED).skill for count in range(1, len(edits) + 1)]
    skills = _prefixes(before, group, in_order=True)
    if skills[-1].hash == group[0].skill_after:
        return skills
    earlier = _prefixes(before, group, in_order=False)  # earlier versions of SkillOpt put every new section at the end
    return earlier if earlier[-1].hash == group[0].skill_after else skills


def _prefixes(before: Skill, group: Sequence[Entry], *, in_order: bool) -> list[Skill]:
    edits = [entry.edit for entry in group]
    counts = range(1, len(edits) + 1)
    return [apply_edits(before, edits[:count], UNLIMITED, in_order=in_order).skill for count in counts]
