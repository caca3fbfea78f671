"""A command line as words, and what distinguishes it from another with the same words."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from skillopt.errors import UserError

_SCRIPTS = (".py", ".sh", ".js", ".ts", ".mjs", ".rb")


def words_of(command: str | Sequence[str], where: str, hint: str) -> list[str]:
    """The words; those that are files as absolute paths (links are not followed: they may be a virtual env's)."""
    try:
        words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    except ValueError as error:
        raise UserError(f"{where}: {error}; {hint}") from None
    if not words:
        raise UserError(f"{where}: is empty; {hint}")
    return [str(Path(word).absolute()) if Path(word).is_file() else word for word in words]


def fingerprint(words: Sequence[str], others: Iterable[Path] = ()) -> str:
    """The user's own scripts among the words, and other files: another text of them is another command."""
    scripts = [Path(word) for word in words if word.endswith(_SCRIPTS)]
    texts = [path.name.encode() + b"\0" + path.read_bytes() for path in [*scripts, *others] if path.is_file()]
    return hashlib.sha256(b"\0".join(texts)).hexdigest() if texts else ""
