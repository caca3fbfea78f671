"""Reads files from a commit of a git repository. Nothing is checked out, and no filter, hook or alias runs."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from skillopt.errors import UserError
from skillopt.keys import no_secrets
from skillopt.skill.folder import LARGEST_FILE, MOST_FILES

Files = dict[str, tuple[bytes, bool]]
"""Files by path: the content, and whether the file is executable."""
_TIMEOUT = 60


@dataclass(frozen=True)
class Repository:
    top: Path

    @classmethod
    def around(cls, place: Path) -> Repository:
        """The repository that contains a folder."""
        done = _git(place, "rev-parse", "--show-toplevel")
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().removeprefix("fatal: ")
            raise UserError(
                f"{place.absolute()}: not in a git repository ({said}), so commits cannot be looked up; give an "
                "existing file, or `none` for no skill"
            )
        return cls(Path(os.fsdecode(done.stdout.rstrip(b"\n"))))

    def commit(self, ref: str) -> str:
        """The commit that a branch, tag or hash names."""
        done = None if ref.startswith("-") else _git(self.top, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
        if done is None or done.returncode:
            raise UserError(
                f"'{ref}': there is no such file, and {self.top} has no such commit; give a file, `none` for no skill, "
                "or a branch, tag or commit. If the commit is not fetched yet, run `git fetch origin` (in CI, check "
                "out the full history)"
            )
        return done.stdout.decode().strip()

    def inside(self, path: Path) -> str:
        """The path relative to the top folder of the repository. Raise UserError if the path is outside."""
        place = path.resolve()
        if not place.is_relative_to(self.top.resolve()) or "\n" in str(place):
            raise UserError(f"{path}: is outside of the repository {self.top}; choose a file inside the repository")
        return place.relative_to(self.top.resolve()).as_posix()

    def files(self, commit: str, path: str) -> Files | None:
        """The files at a path of a commit. For a folder, the keys are the paths in this folder; for a single file, the
        key is "". None if the path does not exist.

        Links and submodules are left out, because they may lead anywhere.
        """
        listed = _git(self.top, "ls-tree", "-r", "-z", "-l", f"{commit}:{path}")
        if listed.returncode:
            size = _git(self.top, "cat-file", "-s", f"{commit}:{path}")
            return None if size.returncode else {"": (self._content(f"{commit}:{path}", int(size.stdout)), False)}
        found: Files = {}
        for row in filter(None, listed.stdout.split(b"\0")):
            about, _, name = row.partition(b"\t")
            mode, _, blob, size_text = about.decode().split()
            if mode in {"100644", "100755"}:
                found[os.fsdecode(name)] = (self._content(blob, int(size_text)), mode == "100755")
            if len(found) > MOST_FILES:
                raise UserError(f"{path}: has more than {MOST_FILES} files, the most that a skill package may have")
        return found

    def has(self, commit: str, path: str) -> bool:
        return not _git(self.top, "cat-file", "-e", f"{commit}:{path}").returncode

    def _content(self, name: str, size: int) -> bytes:
        if size > LARGEST_FILE:
            raise UserError(
                f"{name}: is longer than {LARGEST_FILE:,} bytes, the most that a file of a package may have"
            )
        return _git(self.top, "cat-file", "blob", name).stdout


def _git(place: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run a read-only git command. The command gets no secrets, asks no questions and waits for no lock."""
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(place), *arguments]
    environment = {**no_secrets(), "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        return subprocess.run(  # noqa: S603 - git, with arguments of ours
            command, capture_output=True, env=environment, timeout=_TIMEOUT, check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise UserError(
            "git is not installed, so commits cannot be looked up; give an existing file, or `none` for no skill"
        ) from None
    except subprocess.TimeoutExpired:
        raise UserError(f"git {arguments[0]} did not answer within {_TIMEOUT} s") from None
