"""The errors that a user sees. Each message says what was wrong, where, and how to fix it."""

import errno
import sqlite3


class SkillOptError(Exception):
    """Base of all errors that SkillOpt raises for users."""


class UserError(SkillOptError):
    """Bad input: a config, a data file, a command line. The command line exits with code 2."""


class MissingKey(UserError):  # noqa: N818 - says it all
    """The environment has no key for a model. A check in CI may then do its offline part."""


class Damaged(UserError):  # noqa: N818 - says it all
    """A file of a run has changed since training wrote it. Nothing is trained on it."""


BY_HAND = "interrupted"
"""The reason of a stop by Ctrl-C; any other reason is the text of a problem."""


class Stopped(SkillOptError):  # noqa: N818 - not a fault
    """A run that ends early, with everything paid kept: a budget, Ctrl-C, an endpoint that is down."""

    @property
    def by_hand(self) -> bool:
        return str(self) == BY_HAND


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_SHUT = {errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
_SQLITE = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN")
DiskError = (OSError, sqlite3.Error)
"""Errors that a disk problem may cause; `is_disk_trouble` says whether one did."""


def is_disk_trouble(error: OSError | sqlite3.Error) -> bool:
    if isinstance(error, OSError):
        return error.errno in _FULL | _SHUT
    return getattr(error, "sqlite_errorname", "").startswith(_SQLITE)


def disk_trouble(error: OSError | sqlite3.Error) -> str:
    """The meaning of a disk error, and how to fix it."""
    room, leave = "free some space or raise the quota", "make the folder writable again"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        message = f"{where}{error.strerror or error}; {room if error.errno in _FULL else leave}"
    else:  # SQLite does not always distinguish the two
        message = f"the journal cannot be written ({error}); {room}, or {leave}"
    return f"{message}. Everything that was finished before is on disk"
