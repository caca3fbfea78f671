"""What a task folder starts from: its files, and what of its Dockerfile can be followed without Docker."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from skillopt.envs.docker import Machine
from skillopt.envs.workspace import Content, Files, checked_name, read_files
from skillopt.errors import UserError

_MOST = 64 << 20
_BUILDS = {"Dockerfile", "docker-compose.yaml", "docker-compose.yml", ".dockerignore"}
_HARMLESS = {"FROM", "WORKDIR", "COPY", "ENV", "LABEL", "CMD", "ENTRYPOINT", "EXPOSE", "ARG"}
"""Instructions that install nothing; any other needs Docker."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The workspace of a task folder."""

    folder: Path
    files: Files
    workdir: str
    """Where the task's own tests expect the workspace; of a container, its image knows."""
    machine: Machine | None = None
    """The container of a task that needs Docker."""


class NeedsDocker(UserError):  # noqa: N818 - says it all
    """The environment is more than files at a place."""


def read_recipe(folder: Path) -> Recipe:
    """The files and their place; raises NeedsDocker where there is more to it."""
    start = folder / "environment"
    files = read_files("environment", folder, f"{folder}: environment", _MOST) if start.is_dir() else {}
    if any(name.startswith("docker-compose") for name in files):
        raise UserError(
            f"{folder}: environment/docker-compose.yaml starts services, which needs Docker Compose; this version runs "
            "tasks of one container: leave the task out"
        )
    plain = {name: content for name, content in files.items() if name not in _BUILDS}
    if "Dockerfile" not in files:
        return Recipe(folder=folder, files=plain, workdir="/app")
    return _followed(folder, plain, (start / "Dockerfile").read_text(encoding="utf-8", errors="replace"))


def _followed(folder: Path, files: Files, dockerfile: str) -> Recipe:
    """Its COPY lines, as Docker would follow them."""
    placed: dict[str, Content] = {}
    workdir = ""
    joined = re.sub(r"\\\s*\n", " ", dockerfile)
    for number, line in enumerate(joined.splitlines(), 1):
        word, _, rest = line.strip().partition(" ")
        word = word.upper()
        if not word or word.startswith("#"):
            continue
        if word not in _HARMLESS:
            raise NeedsDocker(f"{folder}: environment/Dockerfile: '{line.strip()[:80]}' needs Docker")
        if word == "WORKDIR":
            workdir = str(PurePosixPath(workdir or "/") / rest.strip())
        elif word == "COPY":
            where = f"{folder}: environment/Dockerfile, line {number}"
            placed |= _copied(files, rest, workdir or "/", where)
    workdir = workdir or "/app"
    below = {
        checked_name(PurePosixPath(path).relative_to(workdir).as_posix(), str(folder)): content
        for path, content in placed.items()
        if PurePosixPath(path).is_relative_to(workdir)
    }
    if len(below) < len(placed):
        raise NeedsDocker(f"{folder}: environment/Dockerfile: a file outside of its WORKDIR ({workdir}) needs Docker")
    return Recipe(folder=folder, files=dict(sorted(below.items())), workdir=workdir)


def _copied(files: Files, rest: str, workdir: str, where: str) -> dict[str, Content]:
    words = shlex.split(rest)
    if len(words) < 2 or words[0].startswith(("--", "[")) or any(set(word) & set("*?[$") for word in words):
        raise NeedsDocker(f"{where}: 'COPY {rest[:60]}' needs Docker")
    target = str(PurePosixPath(workdir) / words[-1])
    many = words[-1].endswith("/") or words[-1] in {".", ".."} or len(words) > 2
    placed: dict[str, Content] = {}
    for word in words[:-1]:
        source = PurePosixPath(word).as_posix().removeprefix("./").strip("/")
        if source in files:
            inside = many or target == workdir
            placed[str(PurePosixPath(target) / PurePosixPath(source).name) if inside else target] = files[source]
            continue
        prefix = "" if source in {"", "."} else f"{source}/"
        below = {name.removeprefix(prefix): content for name, content in files.items() if name.startswith(prefix)}
        if not below:
            raise UserError(f"{where}: COPY: '{source}' is not in environment/")
        placed |= {str(PurePosixPath(target) / name): content for name, content in below.items()}
    return placed
