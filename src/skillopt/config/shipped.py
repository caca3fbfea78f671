"""Finds configs and data that come with the package, for names that do not exist in the working folder."""

from __future__ import annotations

from pathlib import Path

FOLDERS = ("configs", "data")
_PACKAGE = Path(__file__).parent.parent
ROOTS = (_PACKAGE / "_shipped", _PACKAGE.parent.parent)
"""Folders that may contain configs and data: `_shipped` in an installed package, the top folder in a checkout."""


def is_there(path: Path) -> bool:
    """True if the path exists. False also for a name that no file can have (too long, or with a zero byte)."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def is_file(path: Path) -> bool:
    return is_there(path) and path.is_file()


def shipped(path: str | Path) -> Path:
    """The path if it exists; else the file of that name that comes with the package (`configs/sim/default.yaml`)."""
    given = Path(path)
    if (
        is_there(given)
        or given.is_absolute()
        or not given.parts
        or given.parts[0] not in FOLDERS
        or ".." in given.parts
    ):
        return given
    for root in ROOTS:
        if is_there(root / given):
            return root / given
    return given
