"""Reads and writes a run's files. After a crash, a file has all of its old or all of its new content. Only regular
files are read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import BaseModel

from skillopt.skill.folder import open_regular


def draft_of(path: Path) -> Path:
    """A temporary name for a file or folder. It is random, so nobody can have put a link there before."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def is_draft(name: str) -> bool:
    return name.startswith(".") and name.endswith(".tmp")


def entries(folder: Path | str, skip: Path | None = None) -> Iterator[os.DirEntry[str]]:
    """All entries below a folder, but not those below `skip`. Links are not followed. Folders may vanish during the
    search."""
    try:
        with os.scandir(folder) as found:
            listed = list(found)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in listed:
        yield entry
        if entry.is_dir(follow_symlinks=False) and entry.path != str(skip):
            yield from entries(entry.path, skip)


def write_atomic(path: Path, text: str) -> None:
    """Replace a file in one move: the text is synced to disk under a temporary name, then renamed to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = draft_of(path)
    try:
        with draft.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()  # on a full disk, half a draft takes the space that the next try needs
        error.filename = str(path)
        raise


def write_brief(path: Path, value: Any) -> None:
    """Replace a short-lived file, such as live.json, without syncing it to disk. Readers never see half a file."""
    draft = draft_of(path)
    try:
        with draft.open("x", encoding="utf-8") as file:
            json.dump(plain(value), file, ensure_ascii=False)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_all(texts: Mapping[Path, str]) -> None:
    """Write several files at once, because syncing many to the disk takes about as long as syncing one."""
    with ThreadPoolExecutor(max_workers=len(texts) or 1) as pool:
        for written in [pool.submit(write_atomic, path, text) for path, text in texts.items()]:
            written.result()


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, json_text(value))


def write_jsonl(path: Path, rows: Iterable[Any]) -> None:
    write_atomic(path, jsonl_text(rows))


def json_text(value: Any) -> str:
    return json.dumps(plain(value), indent=2, ensure_ascii=False) + "\n"


def jsonl_text(rows: Iterable[Any]) -> str:
    return "".join(json.dumps(plain(row), ensure_ascii=False) + "\n" for row in rows)


def append_jsonl(path: Path, rows: Iterable[Any]) -> None:
    """Append lines to a file. They are synced to disk when the function returns."""
    text = jsonl_text(rows)
    if not text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_regular(path, "a+b") as file:
        file.write(b"\n" * torn(file) + text.encode())
        file.flush()
        os.fsync(file.fileno())


def torn(file: BinaryIO) -> bool:
    """Does the file end in half a line? If so, a line break must be written before the next line."""
    if not file.seek(0, os.SEEK_END):
        return False
    file.seek(-1, os.SEEK_END)
    return file.read() != b"\n"


def read_json(path: Path) -> Any:
    return json.loads(read_bytes(path).decode("utf-8"))


def read_jsonl(path: Path) -> list[Any]:
    if not path.exists():
        return []
    return [json.loads(line) for line in read_text(path).split("\n") if line]


def read_bytes(path: Path, most: int = -1) -> bytes:
    """The file's content, or its first `most` bytes. Anything but a regular file raises NotAFileError."""
    with open_regular(path) as file:
        return file.read(most)


def read_text(path: Path, errors: str = "strict") -> str:
    """The file's text with unchanged line ends. If the path comes from a user, the caller must resolve its links."""
    return read_bytes(path).decode("utf-8", errors)


def digest(value: Any) -> str:
    """A checksum of a JSON value. White space and the order of keys do not change it."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path, size: int | None = None) -> str:
    """The SHA-256 of a file, or of its first `size` bytes."""
    with open_regular(path) as file:
        if size is None:
            return hashlib.file_digest(file, "sha256").hexdigest()
        return hashlib.sha256(file.read(size)).hexdigest()


def sync_folder(path: Path) -> None:
    """Sync the names of a folder's files to disk, so a power cut does not undo a rename."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def plain(value: Any) -> Any:
    """Convert pydantic models to plain values, at every level. Characters that are not valid Unicode are replaced."""
    if isinstance(value, BaseModel):
        return plain(value.model_dump(mode="json"))
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    return value
