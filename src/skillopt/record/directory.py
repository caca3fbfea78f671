"""The folder of a run: its paths, and the lock that allows only one trainer at a time."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from skillopt.errors import Damaged, SkillOptError, UserError
from skillopt.record.files import (
    draft_of,
    entries,
    is_draft,
    json_text,
    read_bytes,
    read_jsonl,
    read_text,
    write_atomic,
    write_jsonl,
)
from skillopt.record.state import WAY_OUT
from skillopt.skill import FILE, PatchLog, PatchLogError, Skill
from skillopt.skill.folder import PackageChanges, changes, open_regular, read_folder, with_changes
from skillopt.skill.package import PackageError

ALTERED = (PatchLogError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError,
            StopIteration)  # fmt: skip
"""The types of errors that a damaged file may cause in code that does not check the file's content."""


class RunDirectory:
    """The paths of one run. No other code builds paths inside a run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config_yaml = root / "config.yaml"
        self.config_json = root / "config.json"
        self.history = root / "history.json"
        self.state = root / "runtime_state.json"
        self.summary = root / "summary.json"
        self.report = root / "report.html"
        self.report_md = root / "report.md"
        self.trackers = root / "trackers"
        self.ablation = root / "ablation"
        self.pruned = root / "pruned"
        self.plots = root / "plots"
        self.best_skill = root / "best_skill.md"
        self.best_package = root / "best_skill"
        self.package = root / "package"
        self.skills = root / "skills"
        self.patch_log = PatchLog(root / "patch_log.jsonl")
        self.events = root / "events.jsonl"
        self.live = root / "live.json"
        self.letters = root / "letters"
        self.journal = root / "journal.sqlite"
        self.conflicts = root / "review" / "conflicts.jsonl"
        self.decisions = root / "review" / "decisions.jsonl"
        self.steps = root / "steps"
        self.evaluations = root / "evaluations"
        self.test_reads = root / "test_reads.jsonl"
        self.labels = root / "labels.json"
        self.comments = root / "comments.jsonl"
        self.feedback = root / "feedback.jsonl"
        self._lock_path = root / "run.lock"
        self._lock: int | None = None
        self._base: Skill | None = None

    def step(self, step: int) -> Path:
        return self.steps / f"step_{step:04d}"

    def epoch_end(self, step: int) -> Path:
        """Path of the record of the epoch's end, in the folder of the epoch's last step."""
        return self.step(step) / "epoch_end.json"

    def slow_update(self, epoch: int) -> Path:
        return self.root / "slow_update" / f"epoch_{epoch:02d}"

    def meta_skill(self, epoch: int) -> Path:
        return self.root / "meta_skill" / f"epoch_{epoch:02d}"

    def snapshot(self, version: int) -> Path:
        return self.skills / f"skill_v{version:04d}.md"

    def step_skill(self, step: int) -> Path:
        """Path of a copy of the skill's text after a step's gate. The copy's name has the step's number, not the
        version's."""
        return self.skills / f"step_{step:04d}.md"

    def changes(self, version: int) -> Path:
        """Path of the file with a version's changes to all files of the package except the main document. A run of a
        single document has no such file."""
        return self.skills / f"skill_v{version:04d}.files.json"

    @property
    def trains_package(self) -> bool:
        """Does this run train a package, and not a single document?"""
        return self.changes(0).is_file()

    def base(self) -> Skill:
        """The package that the run began with."""
        if self._base is None:
            self._base = _read_own(self.package)
        return self._base

    def read_skill(self, version: int) -> Skill:
        text = read_text(self.snapshot(version))
        if not self.changes(version).is_file():
            return Skill(text)
        try:
            return with_changes(
                self.base(), text, PackageChanges.model_validate_json(read_bytes(self.changes(version)))
            )
        except (PackageError, ValueError) as error:
            raise Damaged(
                f"{self.changes(version)}: version {version} cannot be built from this file ({error}); {WAY_OUT}"
            ) from None

    def read_best(self) -> Skill:
        """The best skill: `best_skill/` if a package is trained, else `best_skill.md`."""
        if not self.trains_package:
            return Skill(read_text(self.best_skill))
        try:
            return _read_own(self.best_package)
        except PackageError as error:
            raise Damaged(f"{error}; {WAY_OUT}") from None

    def versions(self) -> list[int]:
        """The numbers of the stored versions of the skill, in order."""
        return sorted(number for number, _ in _numbered(self.skills, "skill_v", ".md"))

    def write_skill(self, version: int, skill: Skill) -> None:
        if skill.is_package:
            write_atomic(self.changes(version), self.changes_text(skill))
        write_atomic(self.snapshot(version), skill.text)

    def changes_text(self, skill: Skill) -> str:
        return json_text(changes(self.base(), skill))

    def write_best(self, skill: Skill) -> None:
        """Write the best skill as targets read it: without the markers of protected regions."""
        skill = skill.shown
        write_atomic(self.best_skill, skill.text)
        write_atomic(self.skills / "best_skill.md", skill.text)
        if skill.is_package:
            draft = draft_of(self.best_package)
            skill.write_to(draft)
            shutil.rmtree(self.best_package, ignore_errors=True)
            draft.replace(self.best_package)

    def roll_back(self, *, step: int, epoch: int, version: int, patch_log_size: int) -> None:
        """Remove the files that an interrupted step or epoch end left behind: those with a higher number than the given
        step, epoch or version."""
        self.patch_log.truncate(patch_log_size)
        if self.conflicts.exists():
            rows = read_jsonl(self.conflicts) if step else []  # if a run is repeated, the file may be damaged
            write_jsonl(self.conflicts, [row for row in rows if row["step"] <= step])
        for last, folder, before, after in (
            (version, self.skills, "skill_v", ".md"),
            (version, self.skills, "skill_v", ".files.json"),
            (step, self.skills, "step_", ".md"),
            (step, self.steps, "step_", ""),
            (epoch, self.root / "slow_update", "epoch_", ""),
            (epoch, self.root / "meta_skill", "epoch_", ""),
        ):
            for number, path in _numbered(folder, before, after):
                if number > last:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    def irregular(self) -> Path | None:
        """The first entry in the folder that is neither a folder nor a regular file; None if there is none.

        The folder of Weights & Biases is not searched, because it has links to the newest logs.
        """
        found = entries(self.root, self.trackers / "wandb" / "wandb")
        strange = (e for e in found if not e.is_file(follow_symlinks=False) and not e.is_dir(follow_symlinks=False))
        return next((Path(entry.path) for entry in strange), None)

    def check_files(self) -> None:
        """Raise Damaged if the run contains links, pipes or devices, which could lead out of the run's folder."""
        if path := self.irregular():
            raise Damaged(
                f"{path}: is a link, a pipe or a device, but a run may have only folders and regular files; remove it, "
                "or replace a link with a copy of the file"
            )

    @contextmanager
    def held(self, *, private: bool = False) -> Iterator[None]:
        """Lock this run inside the block. A second trainer gets an error that names the first trainer. If `private` is
        true, other users of the machine cannot open the folder.

        The kernel removes the lock when the process ends, for whatever reason. The process id in the lock file is only
        for the error message. So an old id does not lock the run, even if a new process has the same id.
        """
        make_folder(self.root, private=private)
        self.check_files()
        handle = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                holder = os.read(handle, 200).decode(errors="replace").strip() or "unknown"
                raise UserError(
                    f"{self.root}: another trainer (process {holder}) is working on this run; wait for it, stop it, "
                    "or start a separate run with --fresh"
                ) from None
            since = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
            os.ftruncate(handle, 0)
            os.write(handle, f"{os.getpid()} on {socket.gethostname()}, since {since}".encode())
            self._lock = handle
            self._remove_drafts()
            yield
        finally:
            self._lock = None
            os.close(handle)

    def _remove_drafts(self) -> None:
        """Remove temporary files that killed processes left behind."""
        for entry in list(entries(self.root)):
            if is_draft(entry.name) and entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif is_draft(entry.name):
                Path(entry.path).unlink(missing_ok=True)

    def check_held(self) -> None:
        """Raise UserError if the locked folder no longer exists, or was replaced by another folder."""
        if self._lock is None:
            return
        held = os.fstat(self._lock)
        there = self._lock_path.stat() if self._lock_path.exists() else None
        if there is None or (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino):
            raise UserError(
                f"{self.root}: the run's folder was removed or replaced during the run; put the folder back and run "
                "the same command again, or start a separate run with --fresh"
            )

    @contextmanager
    def as_written(self) -> Iterator[None]:
        """If a damaged file of the run causes an error inside the block, raise Damaged instead, with the advice to run
        `skillopt verify`."""
        try:
            yield
        except SkillOptError:
            raise
        except (*ALTERED, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.ENAMETOOLONG:  # a version's name is too long
                raise
            words = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            way_out = f"`skillopt verify {self.root}` names the file"
            raise Damaged(f"{self.root}: a file of this run is not as it was written ({words}); {way_out}") from error

    @property
    def begun(self) -> bool:
        """Has a process ever worked on this run?"""
        return self._lock_path.exists()

    def busy(self) -> bool:
        """Is a process working on this run? This call does not change the lock."""
        if not self._lock_path.exists():
            return False
        with open_regular(self._lock_path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
        return False


ANNOUNCED_IN = "SKILLOPT_ANNOUNCED_IN"
"""The environment variable that names a file. A command writes the path of its results' folder into this file, so the
program that started the command knows the folder."""


def announce(folder: Path, *, finished: bool = False) -> None:
    """Tell two facts to the program that started this command (see `ANNOUNCED_IN`): the path of the folder with the
    command's results, and whether the work was already finished when the command started. Only the first call writes,
    because a command may start other commands."""
    if file := os.environ.pop(ANNOUNCED_IN, ""):
        write_atomic(Path(file), json_text({"folder": str(folder.resolve()), "finished": finished}))


def _read_own(folder: Path) -> Skill:
    if folder.is_symlink():  # a run from another machine may contain anything
        raise PackageError(f"{folder}: is a link, but must be a folder")
    return read_folder(folder)


def make_folder(path: Path, *, private: bool) -> None:
    """Create a folder. If `private` is true, other users cannot open the folder, even if it existed already."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o777)
    if private and path.stat().st_mode & 0o077:
        with suppress(PermissionError):  # a folder of another user can be closed only by that user
            path.chmod(0o700)


def is_private(chosen: bool | None, output_root: str) -> bool:
    """True if other users must not open the runs. `chosen` decides. If `chosen` is None, the answer is True if there is
    a `.env` in the working folder, in the output folder or next to the output folder."""
    root = Path(output_root).absolute()
    near = any((folder / ".env").exists() for folder in (Path.cwd(), root, root.parent))
    return near if chosen is None else chosen


def _numbered(folder: Path, before: str, after: str = "") -> Iterator[tuple[int, Path]]:
    """The numbered files of a folder, each with its number; files with other names are left out."""
    for path in folder.glob(f"{before}*{after}"):
        number = path.name.removeprefix(before).removesuffix(after)
        if number.isdecimal() and len(number) < 10:
            yield int(number), path


def run_name(seed: int, identity: object) -> str:
    """The end of a run's name. It depends on the settings that change results, but not on the number of epochs or on
    settings that may change before a resume."""
    return f"seed{seed}-{short_hash(identity)}"


def short_hash(identity: object) -> str:
    """A hash for the name of a folder. The same identity always has the same hash."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:8]


def resolve_run(path: Path) -> Path:
    """The folder of a run. `path` is this folder itself, or a folder of several runs; of several runs, the newest is
    taken. Raise Damaged if the run contains links, pipes or devices."""
    run = RunDirectory(path)
    if not run.config_json.exists():
        runs = [(each.stat().st_mtime, each.parent) for each in path.glob("*/config.json")]
        run = RunDirectory(max(runs)[1]) if runs else run
    if any(os.path.lexists(each) for each in (run.config_json, run.best_skill, run.skills, run.patch_log.path)):
        run.check_files()
    return run.root


def best_in(path: Path) -> Path:
    """Path of the best skill if `path` names a run (see `resolve_run`); any other path is returned unchanged."""
    if not path.is_dir() or (path / FILE).is_file():
        return path
    run = RunDirectory(resolve_run(path))
    if run.trains_package and run.best_package.is_dir():
        return run.best_package
    return run.best_skill if run.best_skill.is_file() else path


def safe_name(name: str) -> str:
    """A benchmark's name in a form that is safe as a folder's name: it cannot lead out of the output folder."""
    kept = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".-")
    return kept[:80] or "benchmark"
