"""docs/tutorial.md, block by block, as its reader does it: every command runs, and every screen is what it prints.

The endpoint gives the replies that the real one gave in the measured run, and the letters get the replies that they got
then, so that the figures of the page are checked, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from skillopt.models import weights
from support import REPO, until
from support.wire import served

PAGE = (REPO / "docs" / "tutorial.md").read_text(encoding="utf-8")
KEPT = REPO / "tests" / "data" / "tutorial"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SCREEN = re.compile(r"(?:^(?: {4}.*)?\n)+", re.MULTILINE)
BY_CLOCK = re.compile(
    r"answered in [\d.]+ s|about [\d,]+ tokens|optimizer [\d,]+ \([\d,]+–[\d,]+\)|20\d\d-\S+_seed42-\w{8}"
)
"""What another machine or day says otherwise, and the estimates of the letters' tokens, which follow their words."""


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Recorded:
    """The endpoint of the measured run: by skill and question, what it replied, and the tokens that it counted."""

    def __init__(self) -> None:
        self._replies: dict[str, dict[str, list[Any]]] = json.loads((KEPT / "replies.json").read_text())

    async def __call__(self, http: web.Request) -> web.StreamResponse:
        body = await http.json()
        said = [str(message["content"]) for message in body["messages"]]
        text, prompt, completion = "ready", 5, 1  # the doctor asks without a skill
        if len(said) == 2:
            text, prompt, completion = self._replies[digest(said[0])][said[1]]
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        about = {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"]}
        return web.json_response({**about, "choices": [choice], "usage": usage})


def screens() -> list[str]:
    """Every line that the page shows of a terminal, in its order."""
    text = BLOCK.sub("", PAGE)
    return [line.strip() for block in SCREEN.findall(text) for line in block.splitlines() if line.strip()]


def plain(text: str) -> str:
    return BY_CLOCK.sub("#", text)


@pytest.mark.docs
@pytest.mark.timeout(600)
def test_the_tutorial_runs_and_its_screens_are_what_it_prints(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    work, tools = tmp_path / "work", tmp_path / "bin"
    work.mkdir()
    tools.mkdir()
    (work / "data").symlink_to(REPO / "data")
    (tools / "skillopt").write_text(f'#!/bin/bash\nexec {sys.executable} -m skillopt.cli "$@"\n')
    (tools / "skillopt").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(REPO / "src")}
    told = ""
    with served("/v1/chat/completions", Recorded()) as url:

        def run(text: str) -> str:
            command = ["bash", "-euo", "pipefail", "-c", text.replace("http://127.0.0.1:8080", url)]
            done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{text}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
            return done.stdout

        training: subprocess.Popen[str] | None = None
        for block in BLOCK.findall(PAGE):
            if block.startswith("skillopt train "):
                command = ["bash", "-c", f"exec {block}"]
                training = subprocess.Popen(command, cwd=work, env=environment, stdout=subprocess.PIPE, text=True)
                request.addfinalizer(training.kill)
                until(lambda: list(work.glob("outputs/hotel/*/letters/0001.md")))
            elif block.startswith("skillopt letters "):
                for number in (1, 2):
                    shutil.copy(KEPT / f"reply{number}.json", work / "reply.json")
                    told += run(block.replace(" 1 reply", f" {number} reply"))
                assert training
                told += training.communicate()[0]
                assert training.returncode == 0, told[-3000:]
            else:
                told += run(block)
    printed = {plain(line.strip()) for line in told.splitlines()}
    missing = [line for line in screens() if plain(line) not in printed]
    assert not missing, f"{missing}\n{told}"
    figures = re.findall(r"\b[\d,]+ calls\b", PAGE)
    assert [figure for figure in figures if figure not in told] == []
    assert len(screens()) > 30


@pytest.mark.real_model
def test_the_local_server_answers_in_openais_form(request: pytest.FixtureRequest) -> None:
    pytest.importorskip("xllamacpp", reason="needs llama.cpp: pip install 'skillopt[local]'")
    if weights.find("qwen2.5-coder-0.5b") is None:
        pytest.skip("needs the weights: skillopt models pull qwen2.5-coder-0.5b")
    code = "import sys; sys.path.insert(0, 'examples'); from local_server import serve; serve(port=0)"
    environment = {**os.environ, "PYTHONPATH": str(REPO / "src")}
    command = [sys.executable, "-c", code]
    server = subprocess.Popen(command, cwd=REPO, env=environment, stdout=subprocess.PIPE, text=True)
    request.addfinalizer(server.kill)
    assert server.stdout
    url = server.stdout.readline().split(" at ")[1].strip()
    asked = {"model": "any", "max_tokens": 3, "messages": [{"role": "user", "content": "Say yes."}]}
    body = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(body, timeout=300) as answered:
        reply = json.load(answered)
    assert reply["choices"][0]["message"]["content"]
    assert reply["usage"]["completion_tokens"] > 0
