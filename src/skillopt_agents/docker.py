"""Runs tasks that need Docker. Each task has an image, and each rollout has a container.

No folder of this machine is mounted; files are copied in and out. A container is removed at the end of its rollout. If
the run is killed, the container ends by itself when the task's time limits are over.
"""

from __future__ import annotations

import asyncio
import io
import secrets
import shutil
import subprocess
import tarfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict, Field

from skillopt.errors import SkillOptError, UserError
from skillopt.models.base import RefusedError
from skillopt.processes.process import Finished, minimal_environ, run_command
from skillopt.tasks.sandbox import SandboxResult
from skillopt.tasks.workspace import WorkspaceStart, checked_name

PREFIX = "skillopt-"
SKILL_DIR = "/skillopt/skill"
_ALSO = ("HOME", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH",
         "DOCKER_TLS_VERIFY")  # fmt: skip
"""Environment variables that the Docker client needs. None of them contains a key."""
_KILLED = 137


class DockerError(SkillOptError):
    """Raised if Docker or a container failed. Such a failure is not the target's fault."""


class Machine(BaseModel):
    """The resources of a task's container: the section `[environment]` of task.toml."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    cpus: float = Field(default=1, gt=0)
    memory_mb: int = Field(default=2048, ge=16)
    memory: str = Field(default="", pattern=r"^(\d+[bkmgBKMG]?)?$")
    """The memory limit in the notation of older task.toml files, such as `2G`. If it is set, `memory_mb` is ignored."""
    allow_internet: bool = False
    build_timeout_sec: float = Field(default=600, gt=0)

    def options(self) -> list[str]:
        network = [] if self.allow_internet else ["--network", "none"]
        limits = ["--cpus", f"{self.cpus:g}", "--memory", self.memory or f"{self.memory_mb}m", "--pids-limit", "512"]
        return [*network, *limits, "--security-opt", "no-new-privileges"]


def docker_problem() -> str:
    """Return the reason why Docker cannot be used on this machine; empty if it can."""
    if shutil.which("docker") is None:
        return "there is no `docker` command on PATH"
    argv, env = ["docker", "version"], minimal_environ(_ALSO)
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, env=env, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"`docker version` fails: {error}"
    return f"`docker version` fails: {_end(done.stderr, 1)}" if done.returncode else ""


class Container:
    """A running container. A command in it returns a SandboxResult. If the container itself fails, DockerError is
    raised."""

    def __init__(self, name: str, workdir: str) -> None:
        self.name, self.workdir = name, workdir

    async def run(self, argv: Sequence[str], seconds: float, *, options: Sequence[str] = ()) -> SandboxResult:
        done = await _call("exec", *options, "-e", f"SKILLOPT_SKILL_DIR={SKILL_DIR}", self.name, *argv, seconds=seconds)
        code, reason = done.code, f"exit code {done.code}" if done.code else ""
        if done.timed_out or done.too_long:
            # The client has ended, but its command has not. This kills all but the container's first process.
            await _call("exec", "-u", "0", "-w", "/", self.name, "sh", "-c", "kill -9 -1")
            code, reason = _KILLED, f"stopped at the limit of {seconds:g} s" if done.timed_out else "printed too much"
        if code:
            await self._check()
        return SandboxResult(ok=not reason, reason=reason, stdout=done.stdout, stderr=done.stderr, code=code)

    async def _check(self) -> None:
        done = await _call("inspect", "--format", "{{.State.Running}}", self.name)
        if done.code or done.stdout.strip() != "true":
            raise DockerError(f"the container ended too early: {_end(done.stderr, 1) or 'is its memory too small?'}")

    async def setup(self, command: str) -> None:
        """Run a command of SkillOpt as root in `/`, because the task's WORKDIR may be gone."""
        done = await self.run(["sh", "-c", command], 60, options=("-u", "0", "-w", "/"))
        if not done.ok:
            raise DockerError(f"'{command}' fails in the container: {_end(done.stderr, 1) or done.reason}")

    async def put(self, folder: Path, path: str) -> None:
        """Copy the content of a folder into the container, as the new folder `path`."""
        await self.setup(f"rm -rf {path} && mkdir -p {path}")
        await _must("cp", f"{folder}/.", f"{self.name}:{path}/")

    async def get(self, path: str) -> WorkspaceStart | None:
        """Return the regular files of a folder in the container; None if the folder cannot be read or is too large."""
        done = await _call("cp", f"{self.name}:{path}", "-") if path != "/" else None
        if done is None or done.code or done.timed_out or done.too_long:
            return None
        files: dict[str, bytes] = {}
        executable = set()
        with suppress(tarfile.TarError), tarfile.open(fileobj=io.BytesIO(done.raw)) as tar:
            for member in tar:
                with suppress(UserError):  # a name that leads out of the folder
                    name = checked_name("/".join(PurePosixPath(member.name).parts[1:]), path)
                    if member.isreg() and (inside := tar.extractfile(member)):
                        files[name] = inside.read()
                        executable |= {name} if member.mode & 0o111 else set()
        return WorkspaceStart(files=files, executable=frozenset(executable), digest="")

    async def changed(self) -> list[tuple[str, str]]:
        """Return the paths that were added (A), changed (C) or deleted (D) since the container's start. The parent
        folders of such paths are left out."""
        lines = (await _must("diff", self.name)).stdout.splitlines()
        entries = sorted((path, kind) for kind, _, path in (line.partition(" ") for line in lines) if path)
        around = {str(parent) for path, _ in entries for parent in PurePosixPath(path).parents}
        return [(path, kind) for path, kind in entries if path not in around and not path.startswith("/skillopt")]


class Docker:
    """Images and containers of one set of tasks."""

    def __init__(self) -> None:
        self._locks: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Lock] = {}

    @asynccontextmanager
    async def container(self, tag: str, context: Path, machine: Machine, life: float) -> AsyncIterator[Container]:
        """Start a new container, and remove it at the end of the block. After `life` seconds it ends by itself."""
        async with self._locks.setdefault((asyncio.get_running_loop(), tag), asyncio.Lock()):
            await _build(tag, context, machine.build_timeout_sec)
        name = f"{PREFIX}{secrets.token_hex(8)}"
        try:
            await _must(
                "run", "-d", "--rm", "--name", name, *machine.options(), "--entrypoint", "sleep", tag, f"{life:.0f}"
            )
            workdir = (await _must("inspect", "--format", "{{.Config.WorkingDir}}", name)).stdout.strip()
            yield Container(name, workdir or "/")
        finally:
            await asyncio.shield(_call("rm", "-f", name))


async def _build(tag: str, context: Path, seconds: float) -> None:
    if not (await _call("image", "inspect", tag)).code:
        return
    done = await _call("build", "-t", tag, str(context.resolve()), seconds=seconds)
    if done.timed_out:
        raise RefusedError(f"{context}: docker build takes longer than {seconds:g} s (build_timeout_sec in task.toml)")
    if done.code:
        await _must("version")  # raises DockerError if Docker itself has stopped
        raise RefusedError(f"{context}: docker build fails:\n{_end(done.stderr or done.stdout, 10)}")


async def _call(*words: str, seconds: float = 120) -> Finished:
    try:
        return await run_command(
            ["docker", *words], cwd=Path("/"), env=minimal_environ(_ALSO), stdin="", timeout=seconds
        )
    except OSError as error:
        raise DockerError(f"docker cannot be started: {error.strerror or error}") from None


async def _must(*words: str) -> Finished:
    done = await _call(*words)
    if done.timed_out or done.code:
        raise DockerError(f"docker {words[0]}: {'no answer' if done.timed_out else _end(done.stderr, 3)}")
    return done


def _end(text: str, lines: int) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])[-1000:]
