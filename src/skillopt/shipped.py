"""Files that come with the package: configs and data. A name that the working folder lacks may be one of theirs."""

from __future__ import annotations

from pathlib import Path

FOLDERS = ("configs", "data")
_PACKAGE = Path(__file__).parent
ROOTS = (_PACKAGE / "_shipped", _PACKAGE.parent.parent)
"""In an installed package; in a checkout, where they stand at the top."""


def shipped(path: str | Path) -> Path:
    """The path as it is where it exists; else the package's own file of that name (`configs/sim/default.yaml`)."""
    given = Path(path)
    if given.exists() or given.is_absolute() or not given.parts or given.parts[0] not in FOLDERS or ".." in given.parts:
        return given
    for root in ROOTS:
        if (root / given).exists():
            return root / given
    return given
