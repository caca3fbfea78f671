"""What CI installs is pinned by hash, and `make audit` says what is known of it, or that it could not ask."""

from __future__ import annotations

import importlib.util
import json
import re
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from conftest import HEAVY
from support import REPO

LOCK = REPO / "requirements.lock"
_ENTRY = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^\s;\\]+)([^\n]*(?:\n    --hash=[^\n]*)*)", re.MULTILINE)


def entries() -> dict[str, tuple[str, str]]:
    return {name: (version, rest) for name, version, rest in _ENTRY.findall(LOCK.read_text())}


def test_everything_that_ci_installs_is_pinned_in_a_version_that_the_project_allows() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]

    def needed(lines: list[str]) -> Iterator[Requirement]:
        for line in lines:
            wanted = Requirement(line)
            if wanted.name != "skillopt":
                yield wanted
            for extra in wanted.extras if wanted.name == "skillopt" else ():
                yield from needed(project["optional-dependencies"][extra])

    locked = entries()
    for wanted in needed([*project["dependencies"], "skillopt[dev-all]"]):
        name = canonicalize_name(wanted.name)
        assert name in locked, f"{name} is not in requirements.lock; run `make lock`"
        assert wanted.specifier.contains(locked[name][0], prereleases=True), f"{wanted}: run `make lock`"


def test_every_pinned_package_has_a_hash_and_no_place_is_named() -> None:
    found = entries()
    assert len(found) > 50
    assert [name for name, (_, rest) in found.items() if "--hash=sha256:" not in rest] == []
    others = [line for line in LOCK.read_text().splitlines() if line and not line.startswith((" ", "#"))]
    assert all(_ENTRY.match(line) for line in others), "only pinned packages: no URL, no index, no option"
    assert "://" not in LOCK.read_text()


def test_the_quick_set_sees_no_heavy_package_even_where_all_are_installed(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("markexpr") != "quick":
        pytest.skip("only `pytest -m quick` hides them")
    assert [name for name in HEAVY if importlib.util.find_spec(name)] == []


# The audit

ADVISORY = {
    "id": "PYSEC-1", "aliases": ["CVE-1"], "summary": "it opens the door",
    "affected": [{"package": {"name": "bad"}, "ranges": [{"type": "ECOSYSTEM", "events": [{"fixed": "1.1"}]}]}],
}  # fmt: skip


class Database(BaseHTTPRequestHandler):
    """OSV's protocol: one answer to each question, and the advisories by their ids."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        self._say({"results": [{"vulns": [{"id": "PYSEC-1"}]} if self._bad(one) else {} for one in asked]})

    def do_GET(self) -> None:
        self._say(ADVISORY)

    @staticmethod
    def _bad(query: Any) -> bool:
        return bool(query == {"package": {"ecosystem": "PyPI", "name": "bad"}, "version": "1.0"})

    def _say(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        return


@contextmanager
def database() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Database)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def audit(lock: Path, url: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REPO / "scripts" / "audit.py"), str(lock), "--database", url]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_audit_lists_what_is_known_and_what_heals_it(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(
        "bad==1.0 ; sys_platform == 'win32' \\\n    --hash=sha256:00\nfine==2.0 \\\n    --hash=…\n"
    )
    with database() as url:
        found = audit(tmp_path / "lock", url)
        clean = audit(LOCK, url)
    assert found.returncode == 1
    assert "bad 1.0: PYSEC-1 (CVE-1): it opens the door; fixed in 1.1" in found.stdout
    assert "2 packages, 1 known vulnerabilities" in found.stdout
    assert clean.returncode == 0, clean.stdout + clean.stderr


def test_the_audit_does_not_take_silence_for_safety(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        told = audit(LOCK, f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert told.returncode == 3
    assert "cannot be reached, so vulnerabilities are unknown" in told.stderr
    assert "Traceback" not in told.stderr
    assert audit(tmp_path / "none", "http://127.0.0.1:1").returncode == 2
