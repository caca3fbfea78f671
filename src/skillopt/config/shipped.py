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
    """Return the path if it exists. Otherwise return the file or folder of that name that comes with the package, such
    as `configs/sim/default.yaml`; if the package has none, return the path."""
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
