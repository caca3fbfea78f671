"""The errors that a user sees. Each message says what was wrong, where, and how to fix it."""

import errno


class SkillOptError(Exception):
    """Base of all errors that are ours to explain."""


class UserError(SkillOptError):
    """Bad input: a config, a data file, a command line. The command line exits with code 2."""


class Damaged(UserError):  # noqa: N818 - says it all
    """A file of a run is not as it was written. Nothing is trained on it."""


class Stopped(SkillOptError):  # noqa: N818 - not a fault
    """A run that ends early, with everything paid kept: a budget, Ctrl-C, an endpoint that is down."""


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_SHUT = {errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}


def is_disk_trouble(error: OSError) -> bool:
    return error.errno in _FULL | _SHUT


def disk_trouble(error: OSError) -> str:
    """What a disk's refusal means, and the way out."""
    way_out = "free some space or raise the quota" if error.errno in _FULL else "make the folder writable again"
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}; {way_out}. What was finished before is on disk"
