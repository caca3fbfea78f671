"""Runs child processes: splits the command line, makes the environment, and ends a child together with every process
that the child started."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shlex
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from skillopt.errors import UserError

PLAIN = ("PATH", "LANG", "LANGUAGE", "TZ", "TERM", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
"""Environment variables of proxies. Every child gets these variables, in upper and lower case. It also gets the
variables in `PLAIN`, those that begin with `LC_`, and those that the user names."""
LONGEST_OUTPUT = 8 << 20
"""The maximum number of bytes of a child's output; a child that prints more is ended."""
_SCRIPTS = (".py", ".sh", ".js", ".ts", ".mjs", ".rb")
_GRACE = 1.0
"""Seconds to wait for the rest of a child's output after the child has ended. Processes that the child started may keep
the output open."""


def split_command(command: str | Sequence[str], where: str, hint: str) -> list[str]:
    """The words of a command line. Words that are files become absolute paths. Links are not followed, because they may
    belong to a virtual environment."""
    try:
        words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    except ValueError as error:
        raise UserError(f"{where}: {error}; {hint}") from None
    if not words:
        raise UserError(f"{where}: is empty; {hint}")
    return [str(Path(word).absolute()) if Path(word).is_file() else word for word in words]


def fingerprint(words: Sequence[str], others: Iterable[Path] = ()) -> str:
    """A hash of the scripts among `words` and of the files `others`; empty if there is neither a script nor another
    file."""
    scripts = [Path(word) for word in words if word.endswith(_SCRIPTS)]
    texts = [path.name.encode() + b"\0" + path.read_bytes() for path in [*scripts, *others] if path.is_file()]
    return hashlib.sha256(b"\0".join(texts)).hexdigest() if texts else ""


def minimal_environ(named: Iterable[str]) -> dict[str, str]:
    """The environment variables that are harmless, and those in `named`."""
    wanted = {*PLAIN, *PROXIES, *map(str.lower, PROXIES), *named}
    return {name: value for name, value in os.environ.items() if name in wanted or name.startswith("LC_")}


def end_group(process: subprocess.Popen[bytes] | asyncio.subprocess.Process) -> None:
    """End a child that leads its own process group, and every process that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The result of a command."""

    code: int
    stdout: str
    stderr: str
    timed_out: bool = False
    too_long: bool = False
    raw: bytes = b""
    """Standard output as bytes, unchanged."""


async def run_command(argv: list[str], *, cwd: Path, env: Mapping[str, str], stdin: str, timeout: float) -> Finished:
    """Run a command until it ends or reaches its time limit; then end every process that the command started."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=cwd,
        env=dict(env),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    out, err = bytearray(), bytearray()
    readers = [
        asyncio.create_task(_read(process, process.stdout, out)),
        asyncio.create_task(_read(process, process.stderr, err)),
    ]
    feeder = asyncio.create_task(_feed(process, stdin.encode("utf-8", "replace")))
    timed_out = False
    try:
        async with asyncio.timeout(timeout):
            await _ended(process)
    except TimeoutError:
        timed_out = True
    finally:
        if not timed_out and process.returncode is not None:
            await asyncio.wait(readers, timeout=_GRACE)
        end_group(process)
        feeder.cancel()
        await asyncio.wait(readers, timeout=_GRACE)
        for reader in readers:
            reader.cancel()
        await _ended(process)
        process._transport.close()  # type: ignore[attr-defined]  # else another process may keep the pipe open
    too_long = max(len(out), len(err)) > LONGEST_OUTPUT
    return Finished(
        code=process.returncode if process.returncode is not None else -1,
        stdout=out[:LONGEST_OUTPUT].decode("utf-8", "replace"),
        stderr=err[:LONGEST_OUTPUT].decode("utf-8", "replace"),
        timed_out=timed_out,
        too_long=too_long,
        raw=bytes(out[:LONGEST_OUTPUT]),
    )


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Wait until the child itself has ended. `Process.wait()` would also wait for the pipes to close, but a process
    that the child started may keep the pipes open for ever."""
    while process.returncode is None:  # noqa: ASYNC110 - nothing else reports it
        await asyncio.sleep(0.01)


async def _read(process: asyncio.subprocess.Process, stream: asyncio.StreamReader | None, into: bytearray) -> None:
    assert stream is not None
    while chunk := await stream.read(1 << 16):
        into += chunk
        if len(into) > LONGEST_OUTPUT:
            end_group(process)
            return


async def _feed(process: asyncio.subprocess.Process, data: bytes) -> None:
    """Write data to a child's standard input. A child that does not read it causes no error."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()
