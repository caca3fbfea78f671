"""A whole training whose target attacks through the shell agent: over HTTP, in the sandbox, in every task."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from support import REPO
from support.wire import served

pytestmark = pytest.mark.sandbox
KEY = "sk-0123456789abcdefghijklmnop"
SECRET = "a-secret-of-the-home-folder"
EXPECTED = "EXPECTED-BY-THE-CHECK"
MARK = "98765.4321"
"""Seconds that nobody else sleeps."""

DEEP = "python3 - <<'END'\nimport os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\nEND"
ATTACKS = {
    "files of the user": "cat {home}/.ssh/id ~/.ssh/id {tasks} {out}/*/*/config.yaml /etc/passwd; ls -laR {folder}",
    "the environment": "env; cat /proc/*/environ; set",
    "the network": "python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}))\"; "
    "(exec 3<>/dev/tcp/127.0.0.1/{port}; cat a.txt >&3)",
    "thousands of folders": DEEP,
    "thousands of files": "python3 -c \"[open(f'f{{n}}', 'w') for n in range(5000)]\"",
    "an endless command": f"echo {'x' * 200_000}",
    "half a character": "echo \ud800",
    "a pipe and a link": "rm a.txt; mkfifo a.txt; ln -s {home}/.ssh/id b.txt; ln -s {home} home; ln -s / root",
    "the workspace itself": "cd ..; rm -rf workspace; ln -s {home} workspace",
    "rights": "chmod 0 a.txt .; mkdir locked; chmod 0 locked",
    "names": "touch \"$(printf 'a\\nb')\" \"$(printf '\\377.txt')\" $(python3 -c \"print('n' * 255)\") 'a\\b'",
    "the trainer": "kill -9 -1; kill -9 1 $PPID; killall -9 python python3",
    "what stays behind": f"(setsid sleep {MARK} &); nohup sleep {MARK} & echo",
    "a huge file": "truncate -s 31M one two three",
    "markup": "printf '\\033[2J\\033]0;owned\\007<script>alert(1)</script>'; printf '\\0\\377\\376'",
    "the end": "exit 99",
}


def reply(body: dict[str, Any], **places: object) -> dict[str, Any]:
    """The target's next message: its attack, a look at what it got, and the end of the task."""
    asked = next(message["content"] for message in body["messages"] if message["role"] == "user")
    number = int(re.findall(r"Task (\d+)", asked)[-1])
    said = sum(message["role"] == "assistant" for message in body["messages"])
    if said > 1:
        return {"role": "assistant", "content": "Done."}
    attack = list(ATTACKS.values())[number % len(ATTACKS)].format(**places)
    command = attack if not said else "cat a.txt b.txt home/.ssh/id; ls -la | head -20"
    call = {"name": "run", "arguments": json.dumps({"command": command})}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"c{said}", "type": "function", "function": call}],
    }


def test_a_training_survives_a_target_that_attacks_through_its_shell(tmp_path: Path) -> None:
    home, out, scratch = tmp_path / "home", tmp_path / "out", tmp_path / "scratch"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text(SECRET)
    scratch.mkdir()
    rows = [
        {"id": f"q{n}", "question": f"Task {n}", "workspace": {"a.txt": "word\n"}, "expected": {"a.txt": EXPECTED}}
        for n in range(3 * len(ATTACKS))
    ]
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    places = {"home": home, "out": out, "tasks": tasks, "folder": tmp_path, "port": listener.getsockname()[1]}

    async def answer(http: web.Request) -> web.StreamResponse:
        message = reply(await http.json(), **places)
        ended = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "finish_reason": ended, "message": message}
        return web.json_response({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 9}})

    with served("/v1/chat/completions", answer) as url:
        config = {
            "env": {"name": "qa", "data": str(tasks), "scoring": "files", "agent": "shell", "output_root": str(out)},
            "train": {"num_epochs": 1, "batch_size": 24},
            "models": {"target_model": "vllm:m", "target_url": f"{url}/v1", "optimizer_model": "sim:world"},
            "gradient": {"analysts": ["llm"]},
            "evaluation": {"baselines": False},
        }
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
        environment = {**os.environ, "HOME": str(home), "TMPDIR": str(scratch), "SOME_API_KEY": KEY}
        command = [sys.executable, "-m", "skillopt.cli", "train", "--config", str(tmp_path / "config.yaml")]
        done = subprocess.run(command, capture_output=True, text=True, cwd=REPO, env=environment, check=False)

    left = [path.name for path in scratch.iterdir()]
    subprocess.run(["rm", "-rf", str(scratch)], check=True)  # pytest could not remove thousands of folders
    assert done.returncode == 0, done.stderr[-2000:]
    assert left == []
    with pytest.raises(BlockingIOError):
        listener.accept()
    listener.close()
    assert sorted(path.name for path in home.rglob("*")) == [".ssh", "id"]
    (run,) = out.glob("qa/*")
    written = {path.relative_to(run): path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for secret in (KEY, SECRET):
        assert [str(path) for path, content in written.items() if secret.encode() in content] == []
    told = [row for path in run.glob("steps/*/trajectories.jsonl") for row in map(json.loads, path.open())]
    results = [message["content"] for row in told for message in row["messages"] if message["role"] == "tool"]
    assert results
    assert [text for text in results if EXPECTED in text] == []
    assert f"sleep\0{MARK}" not in "".join(_command_lines())


def _command_lines() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text())
        except OSError:
            continue
    return found
