"""Copies files into and out of the sandbox, with only the standard library. Links are not followed."""

from __future__ import annotations

import os
import shutil
import stat

DEEPEST = 64
"""The maximum number of levels of folders that are copied out of the sandbox."""


def copy_in(work: str, trees: dict[str, str], nobody: int) -> None:
    """Copy folders of the machine into the sandbox, under the names that the program sees."""
    for name, path in trees.items():
        shutil.copytree(path, os.path.join(work, name), symlinks=True)
    os.makedirs(f"{work}/tmp", exist_ok=True)
    if os.getuid() == 0:
        for folder, _, files in os.walk(work):
            for path in [folder, *(os.path.join(folder, name) for name in files)]:
                os.chown(path, nobody, nobody, follow_symlinks=False)


def copy_tree_out(work: int, folder: int, name: str, most: int) -> bool:
    """Copy a folder's plain files and folders to `out/<name>`; returns False if they have more than `most` bytes.
    Folders deeper than DEEPEST levels are left out."""
    os.mkdir(f"out/{name}", dir_fd=folder)
    target = os.open(f"out/{name}", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
    try:
        source = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=work)
    except OSError:  # the program has removed it
        return True
    return _copied(source, target, most, 1) >= 0


def _copied(source: int, target: int, left: int, depth: int) -> int:
    """Copy a folder's content. `left` is the number of bytes that may be copied. Returns the number that remains; a
    negative number means that the content is too large. Closes both folders."""
    try:
        for name in sorted(os.listdir(source)):
            info = os.stat(name, dir_fd=source, follow_symlinks=False)
            left -= 4096  # count empty files, too: a million of them are too many
            if stat.S_ISREG(info.st_mode):
                left -= info.st_size
            if left < 0:
                return left
            if stat.S_ISDIR(info.st_mode) and depth < DEEPEST:
                os.mkdir(name, 0o700, dir_fd=target)
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
                inner, copy = os.open(name, flags, dir_fd=source), os.open(name, flags, dir_fd=target)
                left = _copied(inner, copy, left, depth + 1)
            elif stat.S_ISREG(info.st_mode):
                _copy_file(source, target, name, 0o700 if info.st_mode & 0o111 else 0o600)
        return left
    finally:
        os.close(source)
        os.close(target)


def _copy_file(source: int, target: int, name: str, mode: int) -> None:
    origin = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=source)
    try:
        with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=target), "wb") as file:
            while chunk := os.read(origin, 1 << 20):
                file.write(chunk)
    finally:
        os.close(origin)
