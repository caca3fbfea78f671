"""Writing files so that a crash leaves the old one or the new one, never half of one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import BaseModel


def write_atomic(path: Path, text: str) -> None:
    """Replace `path` by `text` at once; the bytes are on disk before the name is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.tmp")
    try:
        with draft.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()  # on a full disk, half a draft takes the room that the next try needs
        error.filename = str(path)
        raise


def write_brief(path: Path, value: Any) -> None:
    """Replace a file that shows the current moment: readers never see half of it, and it does not wait for the disk."""
    draft = path.with_name(f".{path.name}.tmp")
    draft.write_text(json.dumps(plain(value), ensure_ascii=False), encoding="utf-8")
    draft.replace(path)


def write_all(texts: Mapping[Path, str]) -> None:
    """Several files at once: a disk makes many durable in about the time of one."""
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
    """Add lines at the end, durable when this returns."""
    text = jsonl_text(rows)
    if not text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if torn(path):
        text = "\n" + text
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def torn(path: Path) -> bool:
    """Does a file of lines end in half a line? What is added next must not run into it."""
    if not path.exists() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


A_WRITE = 0.1
"""Seconds after which a half-written file is no longer being written, even on a busy machine."""


def read_json(path: Path) -> Any:
    """What the file says. One that grew while it was read (history.json of a running training) is read again."""
    raw = path.read_bytes()
    while True:
        try:
            return json.loads(raw.decode("utf-8"))
        except ValueError:
            time.sleep(A_WRITE)
            now = path.read_bytes()
            if now == raw:
                raise
            raw = now


def read_jsonl(path: Path) -> list[Any]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def read_text(path: Path) -> str:
    """The file's text with its line ends as they are."""
    return path.read_bytes().decode("utf-8")


def digest(value: Any) -> str:
    """A checksum of a JSON value, whatever its layout on disk."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path, size: int | None = None) -> str:
    """The SHA-256 of a file, or of its first `size` bytes."""
    with path.open("rb") as file:
        if size is None:
            return hashlib.file_digest(file, "sha256").hexdigest()
        return hashlib.sha256(file.read(size)).hexdigest()


def free_name(path: Path) -> Path:
    """The path, or one with a number, that nothing has yet."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable, so that a power cut does not take back a rename."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def plain(value: Any) -> Any:
    """Models to plain values, all the way down; text that is not valid Unicode is made so."""
    if isinstance(value, BaseModel):
        return plain(value.model_dump(mode="json"))
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    return value
