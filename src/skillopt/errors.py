"""The errors that a user sees. Each message says what was wrong, where, and how to fix it."""

import errno
import sqlite3
from enum import StrEnum


class SkillOptError(Exception):
    """Base of all errors that SkillOpt raises for users."""


class UserError(SkillOptError):
    """Bad input: a config, a data file, a command line. The command line exits with code 2."""


class MissingKey(UserError):  # noqa: N818 - says it all
    """The environment has no key for a model. A check in CI may then do its offline part."""


class Damaged(UserError):  # noqa: N818 - says it all
    """A file of a run is not as it was written. Nothing is trained on it."""


class StopReason(StrEnum):
    """Why a run ends before its last step. `stop_reason` in summary.json and runtime_state.json is one of these values,
    or the text of a PROBLEM."""

    PATIENCE = "patience"
    ALL_RIGHT = "all validation tasks are right"
    BY_HAND = "interrupted"
    SEALED = "trained; the test split is left sealed"
    PROBLEM = "problem"
    """A budget, a disk, an endpoint: the error's text says which."""

    @classmethod
    def of(cls, text: str) -> "StopReason":
        """From `stop_reason` of a file."""
        return cls(text) if text in set(cls) else cls.PROBLEM


class Stopped(SkillOptError):  # noqa: N818 - not a fault
    """A run that ends early, with everything paid kept: a budget, Ctrl-C, an endpoint that is down."""

    def __init__(self, text: str) -> None:
        """`text` is a StopReason, or says what the problem is."""
        super().__init__(str(text))
        self.reason = StopReason.of(text)


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_SHUT = {errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
_SQLITE = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN")
DiskError = (OSError, sqlite3.Error)
"""Errors that a disk problem may cause; `is_disk_trouble` checks whether it did."""


def is_disk_trouble(error: OSError | sqlite3.Error) -> bool:
    if isinstance(error, OSError):
        return error.errno in _FULL | _SHUT
    return getattr(error, "sqlite_errorname", "").startswith(_SQLITE)


def disk_trouble(error: OSError | sqlite3.Error) -> str:
    """What a disk error means, and what to do."""
    room, leave = "free some space or raise the quota", "make the folder writable again"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        message = f"{where}{error.strerror or error}; {room if error.errno in _FULL else leave}"
    else:  # SQLite does not always distinguish the two
        message = f"the journal cannot be written ({error}); {room}, or {leave}"
    return f"{message}. What was finished before is on disk"
