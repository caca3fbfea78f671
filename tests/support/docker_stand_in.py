"""A stand-in for the `docker` command on plain folders: `docker_stand_in.py STATE WORDS…`.

An image is a folder, a container a copy of one. Nothing is isolated: in commands and scripts the paths /app, /tests,
/logs and /skillopt are replaced by those of the container's folder. Every call is a line of STATE/calls.jsonl.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

STATE = Path(sys.argv[1])
PATHS = re.compile(r"(?<![\w./])/(?=(?:app|tests|logs|skillopt)\b)")


def fail(text: str, code: int = 1) -> None:
    print(text, file=sys.stderr)
    sys.exit(code)


def box(name: str) -> Path:
    folder = STATE / "containers" / name
    if not folder.is_dir():
        fail(f"Error response from daemon: No such container: {name}")
    return folder


def inside(name: str, text: str) -> str:
    return PATHS.sub(f"{box(name)}/root/", text)


def build(words: list[str]) -> None:
    tag, context = words[1], Path(words[2])
    dockerfile = (context / "Dockerfile").read_text()
    if "RUN false" in dockerfile:
        fail("#5 RUN false\nERROR: process did not complete successfully: exit code: 1")
    shutil.copytree(context, STATE / "images" / tag.replace(":", "_") / "app", ignore=lambda *_: ["Dockerfile"])


def run(words: list[str]) -> None:
    given = dict(itertools.pairwise(words))
    folder = STATE / "containers" / given["--name"]
    image = STATE / "images" / words[-2].replace(":", "_")
    for part in ("root", "start"):
        shutil.copytree(image, folder / part)
    print(given["--name"])


def execute(words: list[str]) -> None:
    variables = {}
    while words[0].startswith("-"):
        if words[0] == "-e":
            key, _, value = words[1].partition("=")
            variables[key] = value
        words = words[2:]
    name, argv = words[0], words[1:]
    folder = box(name)
    running = folder / "running"
    if "kill -9 -1" in " ".join(argv):  # of a real container; here it would end everything
        if running.is_file():
            os.killpg(int(running.read_text()), signal.SIGKILL)
        sys.exit(137)
    if "DIE" in argv[-1]:
        shutil.rmtree(folder)
        sys.exit(137)
    running.unlink(missing_ok=True)  # of the command before
    workdir = folder / "root" / "app"
    env = {"PATH": os.environ["PATH"], **{key: inside(name, value) for key, value in variables.items()}}
    argv = [inside(name, word) for word in argv]
    process = subprocess.Popen(argv, cwd=workdir if workdir.is_dir() else "/", env=env, start_new_session=True)
    running.write_text(str(process.pid))
    code = process.wait()
    sys.exit(code if code >= 0 else 128 - code)


def copy(words: list[str]) -> None:
    source, target = words
    if target == "-":
        name, _, path = source.partition(":")
        folder = Path(inside(name, path))
        if not folder.exists():
            fail(f"Error response from daemon: Could not find the file {path} in container {name}")
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            tar.add(folder, folder.name)
        sys.stdout.buffer.write(data.getvalue())
        return
    name, _, path = target.partition(":")
    folder = Path(inside(name, path))
    shutil.copytree(source.removesuffix("/."), folder, dirs_exist_ok=True)
    for file in folder.rglob("*.sh"):
        file.write_text(inside(name, file.read_text()))


def diff(words: list[str]) -> None:
    start, root = (
        {"/" + str(p.relative_to(box(words[0]) / part)): p for p in (box(words[0]) / part).rglob("*")}
        for part in ("start", "root")
    )
    for path in sorted({*start, *root}):
        if path not in start:
            print("A", path)
        elif path not in root:
            print("D", path)
        elif start[path].is_dir() or start[path].read_bytes() != root[path].read_bytes():
            print("C", path)


def main(words: list[str]) -> None:
    with (STATE / "calls.jsonl").open("a") as file:
        file.write(json.dumps(words) + "\n")
    if (STATE / "down").exists():
        fail("Cannot connect to the Docker daemon. Is the docker daemon running?")
    verb, rest = words[0], words[1:]
    if verb == "image":
        sys.exit(0 if (STATE / "images" / rest[-1].replace(":", "_")).is_dir() else 1)
    elif verb == "inspect":
        box(rest[-1])
        print("true" if "Running" in rest[1] else "/app")
    elif verb == "rm":
        shutil.rmtree(STATE / "containers" / rest[-1], ignore_errors=True)
    elif verb != "version":
        {"build": build, "run": run, "exec": execute, "cp": copy, "diff": diff}[verb](rest)


main(sys.argv[2:])
