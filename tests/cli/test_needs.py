"""What `train` does when data or keys are missing, and the names of the original tool."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt_benchmarks import searchqa
from support import REPO, SIM, SMALL, skillopt
from support.searchqa import published_file

CONFIG = str(REPO / "configs" / "searchqa" / "default.yaml")
FILE = published_file(60)
SIMULATED = ("--target_model", "sim:world", "--optimizer_model", "sim:world")
SHORT = ("train.num_epochs=1", "train.batch_size=10", "optimizer.use_meta_skill=false")


class _Files(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(FILE)))
        self.end_headers()
        self.wfile.write(FILE)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """SearchQA's published file on a loopback server instead of its authors' own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Files)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/SearchQA.jsonl.gz"
    published = replace(searchqa.SOURCE, url=url, sha256=hashlib.sha256(FILE).hexdigest(), bytes=len(FILE))
    monkeypatch.setattr(searchqa, "SOURCE", published)
    yield
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("source")
def test_train_fetches_a_benchmarks_data_if_it_is_told_to(tmp_path: Path) -> None:
    done = skillopt("train", "--config", CONFIG, "--yes", *SIMULATED, *SHORT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "searchqa: 100 %" in done.stderr
    assert "data/searchqa: 12 train, 6 val, 42 test" in done.stderr
    assert "[Step 1/2] Rollout: 10 items" in done.stdout
    again = skillopt("train", "--config", CONFIG, *SIMULATED, *SHORT, cwd=tmp_path)
    assert again.returncode == 0
    assert "fetching" not in again.stderr


@pytest.mark.usefixtures("source")
def test_a_file_with_another_hash_is_refused_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searchqa, "SOURCE", replace(searchqa.SOURCE, sha256="0" * 64))
    done = skillopt("train", "--config", CONFIG, "--yes", *SIMULATED, cwd=tmp_path)
    assert done.returncode == 2
    assert f"expected {'0' * 64}; the file was removed" in done.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_without_a_terminal_the_error_has_the_command_and_nothing_is_fetched(tmp_path: Path) -> None:
    done = skillopt("train", "--config", CONFIG, *SIMULATED, cwd=tmp_path)
    assert done.returncode == 2
    assert "has no train/ folder; run `skillopt data prepare searchqa` (fetches https://" in done.stderr
    assert "or repeat your own command with --yes" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_on_a_terminal_train_asks_before_it_fetches(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "skillopt.cli", "train", "--config", CONFIG, *SIMULATED]
    environment = {**os.environ, "PYTHONPATH": str(REPO / "src")}
    asking = subprocess.Popen(command, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    text = ""
    while "Fetch it now? [Y/n]" not in text:
        text += os.read(ours, 1000).decode()
    os.write(ours, b"n\n")
    assert asking.wait(timeout=60) == 2
    os.close(ours)
    assert "`skillopt data prepare searchqa` fetches https://" in " ".join(text.split())
    assert list(tmp_path.iterdir()) == []


def test_without_a_key_train_says_three_commands_and_each_of_them_is_one(tmp_path: Path) -> None:
    done = skillopt("train", "--config", CONFIG, "train.seed=3", cwd=tmp_path, env={"OPENAI_API_KEY": ""})
    assert done.returncode == 2
    first, _, key, local, handoff, _ = done.stderr.splitlines()
    assert first == "error: openai:gpt-4o-mini: no key; set OPENAI_API_KEY in the environment or in .env"
    again = f"skillopt train --config {CONFIG} train.seed=3"
    assert key.split() == f"a key: export OPENAI_API_KEY=YOUR-KEY && {again}".split()
    for line, optimizer in ((local, "local:qwen2.5-coder-1.5b"), (handoff, "handoff")):
        arguments = shlex.split(line.partition("skillopt train ")[2])
        assert again in line
        assert Config.load(CONFIG, [word for word in arguments if "=" in word]).train.seed == 3
        assert arguments[arguments.index("--target_model") + 1] == "local:qwen2.5-coder-0.5b"
        assert arguments[arguments.index("--optimizer_model") + 1] == optimizer
    shown = skillopt("train", "--config", "configs/searchqa/default.yaml", cwd=tmp_path, env={"OPENAI_API_KEY": ""})
    page = (REPO / "docs" / "first_experiment.md").read_text(encoding="utf-8")
    assert "".join(f"    {line}\n" for line in shown.stderr.splitlines()) in page
    assert list(tmp_path.iterdir()) == [], "the key is looked for before anything is fetched"


def test_the_original_tools_options_are_understood(tmp_path: Path) -> None:
    options = ("--cfg-options", *SMALL, "--out_root", str(tmp_path / "runs"))
    done = skillopt("train", "--config", str(SIM), *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "note: --out_root is now env.output_root=" in done.stderr
    assert (tmp_path / "runs" / "sim").is_dir()
    skill = str(REPO / "data" / "sim" / "seed_skill.md")
    measure = ("eval", "--config", str(SIM), "--skill", skill, SMALL[-1], "--out_root", str(tmp_path / "eval"))
    done = skillopt(*measure, "--split", "valid_seen", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "eval" / "eval_summary.json").read_text())["split"] == "val"
    done = skillopt(*measure, "--split", "all", cwd=tmp_path)
    assert done.returncode == 2
    assert "eval --split all: no longer exists; one split is measured at a time" in done.stderr


def test_the_original_tools_keys_are_understood_or_answered(tmp_path: Path) -> None:
    (tmp_path / "seed.md").write_text("Answer briefly.\n")
    keys = "{env: {skill_init: seed.md, out_root: runs}, evaluation: {gate_metric: soft, sel_env_num: 0}}"
    (tmp_path / "config.yaml").write_text(keys)
    with pytest.warns(FutureWarning) as notes:
        config = Config.load(tmp_path / "config.yaml")
    assert "env.skill_init is now train.init_skill" in {str(note.message) for note in notes}
    assert config.train.init_skill == str(tmp_path / "seed.md"), "next to the config, as ours"
    assert (config.env.output_root, config.evaluation.metric) == ("runs", "soft")
    (tmp_path / "config.yaml").write_text("{}")
    with pytest.raises(UserError, match=r"evaluation.sel_env_num: is no longer a key; set env.options.limit"):
        Config.load(tmp_path / "config.yaml", ["evaluation.sel_env_num=20"])
