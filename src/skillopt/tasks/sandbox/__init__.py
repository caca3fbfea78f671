"""Runs programs that a model wrote. They have no network and no home folder, and every resource is limited.

If a program crashes, is stopped or prints too much, `Sandbox.run` raises no error: its `SandboxResult` says what
happened. If the machine cannot isolate programs, making a `Sandbox` raises an error (docs/sandbox.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from skillopt.config.options import Options
from skillopt.errors import SkillOptError, UserError
from skillopt.tasks.sandbox import jail

Mode = Literal["namespaces", "limits"]
_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/alternatives", "/nix/store")
_OFFICE = ("/etc/fonts", "/etc/libreoffice", "/var/lib/libreoffice", "/opt")
LONGEST_COMMAND = 100_000
"""The maximum number of bytes of a command and its arguments; the kernel's limit is 128 KB."""
_ENDED = {"time": "stopped at the limit of {seconds} s", "memory": "stopped at the limit of {memory_mb} MB of memory"}
_SIGNALS = {128 + 24: "stopped at the limit of {cpu_seconds} s of CPU time", 128 + 25: "wrote a file over {file_mb} MB"}


class SandboxLimits(Options):
    """Limits on the resources of one program."""

    cpu_seconds: int = Field(default=20, ge=1)
    """The maximum number of seconds of CPU time of one process."""
    seconds: int = Field(default=60, ge=1)
    """The maximum number of seconds by the clock. This limit stops programs that only wait. Limit calculations by
    `cpu_seconds`, because their time by the clock depends on the machine."""
    memory_mb: int = Field(default=1024, ge=64)
    """The maximum number of megabytes of address space of one process, and of resident memory of all processes
    together."""
    file_mb: int = Field(default=32, ge=1)
    """The maximum number of megabytes of one file."""
    disk_mb: int = Field(default=64, ge=1)
    """The maximum number of megabytes of all files together."""
    processes: int = Field(default=16, ge=1)
    """The maximum number of processes and threads at once."""
    output_kb: int = Field(default=64, ge=1)
    """The maximum number of kilobytes that are kept of each output: standard output and standard error."""


@dataclass(frozen=True, kw_only=True)
class SandboxResult:
    ok: bool
    """True if the program ended by itself with exit code 0."""
    reason: str
    """Why the program failed, in words; empty if it did not."""
    stdout: str
    stderr: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The `wanted` files that are plain files after the program's end, as name → content."""
    code: int = 0
    """The exit code; if a signal ended the program, 128 plus the signal's number."""
    whole: bool = True
    """False if the program's folder became larger than `disk_mb` and was therefore not copied back."""


class Sandbox:
    """Runs programs, at most one per core at a time. With `office`, programs may also start an office program: they
    then see the files of the office program, and a /proc that shows only the processes of the sandbox.

    The mode `limits` is for machines without user namespaces; it is used only if the user sets it. It has the limits
    and the filter of system calls, but the program can see the machine's files.
    """

    def __init__(self, limits: SandboxLimits | None = None, *, mode: Mode = "namespaces", office: bool = False) -> None:
        self.limits = limits or SandboxLimits()
        self.mode = mode
        self._office = office
        self._turns: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}
        require(mode)

    async def run(
        self, program: str, *, files: Mapping[str, bytes] | None = None, wanted: Sequence[str] = ()
    ) -> SandboxResult:
        """Run a Python program with `files` in a fresh folder; return the `wanted` files."""
        with temporary_folder("skillopt-program-") as folder:
            workspace = folder / "workspace"
            workspace.mkdir()
            for name, content in {**(files or {}), "program.py": program.encode("utf-8", "replace")}.items():
                if not name or Path(name).name != name:
                    raise ValueError(f"'{name}' is not the name of a file")
                (workspace / name).write_bytes(content)
            done = await self.shell([sys.executable, "-I", "-B", "program.py"], workspace)
            left = [name for name in wanted if done.whole and (workspace / name).is_file()]
            return replace(done, files={name: (workspace / name).read_bytes() for name in left})

    async def shell(
        self,
        command: str | Sequence[str],
        workspace: Path,
        *,
        others: Mapping[str, Path] | None = None,
        variables: Mapping[str, str] | None = None,
        links: Mapping[str, str] | None = None,
        keep: str = "workspace",
    ) -> SandboxResult:
        """Run a shell command, or a program with arguments, in a copy of a folder.

        `others` are further folders by name; they are copied next to the workspace. `keep` names the folder that is
        replaced by the program's copy after the run; if it is empty, no folder is replaced. Only plain files are copied
        back, not links; if they have more than `limits.disk_mb` in all, nothing is copied back.

        `variables` (name → folder) are environment variables that contain the path of a folder. `links` (absolute path
        → folder) are further paths at which the program finds a folder.
        """
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else ["/usr/bin/env", *command]
        places = {"workspace": workspace, **(others or {})}
        async with self._turn():
            with temporary_folder("skillopt-sandbox-") as folder:
                spec = _spec(folder, argv, places, self.limits, self.mode, office=self._office)
                home = spec["environment"]["HOME"]
                spec["environment"] |= {name: f"{home}/{relative}" for name, relative in (variables or {}).items()}
                spec["keep"], spec["links"] = keep, dict(links or {})
                outcome = await _run(folder, _prepared(folder, spec), self.limits)
                if keep and outcome.whole:
                    shutil.rmtree(places[keep], ignore_errors=True)
                    shutil.move(folder / "out" / keep, places[keep])
                return outcome

    def _turn(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if loop not in self._turns:  # a semaphore belongs to one event loop
            self._turns = {loop: asyncio.Semaphore(os.cpu_count() or 1)}
        return self._turns[loop]


def command_problem(*words: str) -> str:
    """Why a model's command cannot be started; empty if it can."""
    text = "".join(words)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "the command holds half of a surrogate pair, which is not text"
    if "\0" in text:
        return "the command holds a zero byte"
    if size > LONGEST_COMMAND:
        return f"the command has {size:,} bytes; at most {LONGEST_COMMAND:,} are possible: write a file in parts"
    return ""


@contextlib.contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Make a folder; remove it with all of its content at the end of the block."""
    made = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    try:
        yield Path(made.name)
    finally:
        try:
            made.cleanup()
        except RecursionError:  # thousands of folders within folders
            command = ["/bin/rm", "-rf", "--", made.name]
            subprocess.run(command, stderr=subprocess.DEVNULL, env=_environment(), check=False)  # noqa: S603


def require(mode: Mode) -> None:
    """Raise UserError if this machine cannot run a harmless program in this mode."""
    why = _tried(mode)
    if why and mode == "namespaces":
        raise UserError(
            f"sandbox: programs cannot be isolated on this machine ({why}). The sandbox needs Linux 5.12 or newer, and "
            "this user must be allowed to create user namespaces. To allow this in a container, start the container "
            "with `--security-opt seccomp=unconfined`. To allow this on Ubuntu 24, run "
            "`sysctl kernel.apparmor_restrict_unprivileged_userns=0`. Or set env.options={sandbox: limits}; generated "
            "programs can then read this machine's files"
        )
    if why:
        raise UserError(f"sandbox: programs cannot be run here: {why}")


@cache
def _tried(mode: Mode) -> str:
    """Run a harmless program in this mode, once per process; returns why it failed, or an empty text."""
    with temporary_folder("skillopt-sandbox-") as folder:
        argv = [sys.executable, "-I", "-c", "print('here')"]
        (folder / "workspace").mkdir()
        command = _prepared(folder, _spec(folder, argv, {"workspace": folder / "workspace"}, SandboxLimits(), mode))
        pipe = subprocess.PIPE
        # Keep standard input open: if it ended, the supervisor would conclude that nobody waits for the result.
        with subprocess.Popen(  # noqa: S603
            command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=_environment()
        ) as process:
            assert process.stdout
            status = process.stdout.read().strip()
        return "" if status == "here" else status.removeprefix("sandbox: ") or f"exit code {process.returncode}"


def _spec(
    folder: Path, argv: list[str], trees: Mapping[str, Path], limits: SandboxLimits, mode: Mode, *, office: bool = False
) -> jail.Spec:
    """The request to the supervisor to run a program in a fresh folder."""
    return {
        "folder": str(folder),
        "mode": mode,
        "office": office,
        "argv": argv,
        "environment": _environment(jail.WORK if mode == "namespaces" else f"{folder}/in"),
        "trees": {name: str(path) for name, path in trees.items()},
        "keep": "",
        "links": {},
        "read_only": [*_SYSTEM, *(_OFFICE if office else ()), *_python_folders()],
        "limits": limits.model_dump(),
    }


def _prepared(folder: Path, spec: jail.Spec) -> list[str]:
    """Prepare the folder for the supervisor; returns the supervisor's command line."""
    for name in ("in", "out"):
        (folder / name).mkdir()
    folder.chmod(0o711)  # in `limits` mode the program may run as another user
    spec_file = folder / "spec.json"
    spec_file.write_text(json.dumps(spec), encoding="utf-8")
    return [sys.executable, "-E", "-s", "-S", str(Path(jail.__file__)), str(spec_file)]


def _environment(home: str = jail.WORK) -> dict[str, str]:
    """The environment variables of a program. It gets none of the user's variables, because these may be keys. PATH
    contains this Python."""
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")}
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    places = {"PATH": path, "HOME": home, "TMPDIR": f"{home}/tmp"}  # noqa: S108 - its own
    return {**places, "LANG": "C.UTF-8", "TZ": "UTC", "PYTHONDONTWRITEBYTECODE": "1", **threads}


def _python_folders() -> list[str]:
    """The folders of this Python and its packages. A folder that contains the home folder is left out."""
    paths = {sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parent)}
    paths |= {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    home = Path.home()
    return sorted(path for path in paths if not home.is_relative_to(path))


async def _run(folder: Path, command: list[str], limits: SandboxLimits) -> SandboxResult:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, env=_environment()
    )
    assert process.stdout
    assert process.stderr
    most = limits.output_kb * 1024
    try:
        # The supervisor stops the program. This limit is for a supervisor that hangs.
        async with asyncio.timeout(limits.seconds + 30):
            stdout, stderr, _ = await asyncio.gather(
                _read(process.stdout, most), _read(process.stderr, most), process.wait()
            )
    except TimeoutError:
        raise SkillOptError(
            "sandbox: the supervising process does not answer; is this machine out of memory?"
        ) from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode or not (folder / "result.json").exists():
        raise SkillOptError(f"sandbox: could not start: {stderr.strip()[-500:] or process.returncode}")
    return _outcome(folder, stdout, stderr, limits)


async def _read(stream: asyncio.StreamReader, most: int) -> str:
    """The first `most` bytes of a stream. The rest is read and ignored, so the program does not wait for ever."""
    head = b""
    while chunk := await stream.read(1 << 16):
        head += chunk[: most - len(head)]
    return head.decode("utf-8", "replace")


def _outcome(folder: Path, stdout: str, stderr: str, limits: SandboxLimits) -> SandboxResult:
    result = json.loads((folder / "result.json").read_text())
    status, numbers = int(result["status"]), limits.model_dump()
    if result["ended"] == "exit" and status == jail.SETUP_FAILED and stderr.startswith("sandbox: "):
        raise SkillOptError(stderr.strip()[-500:])
    reason = _ENDED.get(result["ended"], "").format(**numbers) or _SIGNALS.get(status, "").format(**numbers)
    if not reason and status:
        last = stderr.strip().splitlines()[-1:] or [""]
        reason = f"killed by signal {status - 128}" if status > 128 else f"exit code {status}: {last[0]}".rstrip(": ")
    if not reason and not result["whole"]:
        reason = f"left more than {limits.disk_mb} MB of files"
    return SandboxResult(ok=not reason, reason=reason, stdout=stdout, stderr=stderr, code=status, whole=result["whole"])
