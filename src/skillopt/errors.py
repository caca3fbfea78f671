"""The errors that a user sees. Each message says what was wrong, where, and how to fix it."""

import errno
import sqlite3


class SkillOptError(Exception):
    """Base of all errors that SkillOpt raises for users."""


class UserError(SkillOptError):
    """Bad input in a config, a data file or a command. A command then ends with exit code 2."""


class MissingKey(UserError):  # noqa: N818 - says it all
    """The environment has no key for a model. With `--skip-without-key`, `skillopt check` then only lints."""


class Damaged(UserError):  # noqa: N818 - says it all
    """A file of a run is not as training wrote it, so training does not use the file."""


BY_HAND = "interrupted"
"""The text of the error `Stopped` if Ctrl-C stopped the run. Any other text of that error describes a problem."""


class Stopped(SkillOptError):  # noqa: N818 - not a fault
    """A run ended early, because of a budget, Ctrl-C or an endpoint that is down. Everything paid for is kept."""

    @property
    def by_hand(self) -> bool:
        return str(self) == BY_HAND


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_SHUT = {errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
_SQLITE = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN")
DiskError = (OSError, sqlite3.Error)
"""Types of errors that a disk problem may cause. `is_disk_trouble` says whether a disk problem caused a given error."""


def is_disk_trouble(error: OSError | sqlite3.Error) -> bool:
    if isinstance(error, OSError):
        return error.errno in _FULL | _SHUT
    return getattr(error, "sqlite_errorname", "").startswith(_SQLITE)


def disk_trouble(error: OSError | sqlite3.Error) -> str:
    """The message for a disk error: the problem, and how to fix it."""
    room, leave = "free some space or raise the quota", "make the folder writable again"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        message = f"{where}{error.strerror or error}; {room if error.errno in _FULL else leave}"
    else:  # SQLite may report a full disk and a read-only disk in the same way
        message = f"the journal cannot be written ({error}); {room}, or {leave}"
    return f"{message}. Everything that was finished before is on disk"
