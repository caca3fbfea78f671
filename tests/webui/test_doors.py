"""Attacks through the web page: keys to a host of the attacker's, programs of a foreign run, hidden files, guesses.

Each does what an attacker would do, with a real server, real processes and a real listener.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from support import REPO, until
from support.webui import Ui, make_workspace, serving
from support.wire import listening

TOKEN = "ghp-0123456789abcdef-of-somebody"
KEY = "key-0123456789abcdef-of-the-user"
KEYS = {"GITHUB_TOKEN": TOKEN, "OPENAI_API_KEY": KEY, "VLLM_API_KEY": KEY, "AZURE_OPENAI_API_KEY": KEY}


def ended(ui: Ui, answer: dict[str, Any]) -> None:
    """Wait for a command that the page has started."""
    until(lambda: ui.get(f"/api/launches/{answer['id']}")["state"] != "running")


# Keys


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    """A page on a machine with keys; its config folder names one endpoint, with the key for vLLM."""
    workspace = make_workspace(tmp_path_factory.mktemp("keys") / "work")
    with serving(workspace, env=KEYS) as ui:
        yield ui


@pytest.mark.parametrize(
    "models",
    [
        {"target_model": "openai:m", "target_url": "URL", "target_key_name": "GITHUB_TOKEN"},
        {"optimizer_model": "openai:m", "optimizer_url": "URL", "optimizer_key_name": "GITHUB_TOKEN"},
        {"judge_model": "openai:m", "judge_url": "URL", "judge_key_name": "GITHUB_TOKEN"},
        {"target_model": "openai:m", "target_url": "URL"},
        {"target_model": "vllm:m", "vllm_url": "URL", "target_key_name": "GITHUB_TOKEN"},
        {"target_model": "vllm:m", "vllm_url": "URL"},
        {"target_model": "azure:m", "azure_endpoint": "URL"},
    ],
    ids=["token", "optimizer", "judge", "default key", "vllm and token", "vllm", "azure"],
)
def test_the_page_sends_no_key_to_an_address_that_no_config_file_pairs_with_it(
    keyed: Ui, models: dict[str, str]
) -> None:
    with listening() as (url, heard):
        given = {key: url if value == "URL" else value for key, value in models.items()}
        hardware = {key: given.pop(key) for key in ("vllm_url", "azure_endpoint") if key in given}
        base = {"target_model": "sim:world", "optimizer_model": "sim:world"}
        config = yaml.safe_dump({"models": base | given, "hardware": hardware, "env": {"name": "sim"}})
        status, answer = keyed.ask("/api/configs/connection", {"yaml": config})
        assert not [sent for sent in heard if TOKEN in sent or KEY in sent], heard
        assert (status, "would be sent to" in str(answer)) == (400, True), answer
        assert keyed.ask("/api/launch", {"yaml": config})[0] == 400
        assert not keyed.post("/api/configs/check", {"yaml": config})["valid"]


def test_the_page_sends_the_key_that_a_config_file_names_to_the_address_that_it_names_and_no_other(keyed: Ui) -> None:
    folder = keyed.workspace / "configs"
    base = "env: {name: sim}\nmodels: {optimizer_model: 'sim:world', target_model: "
    with listening() as (url, heard):
        mine = f"{base}'vllm:m', target_url: '{url}'}}\n"
        (folder / "mine.yaml").write_text(mine)
        status, answer = keyed.ask("/api/configs/connection", {"yaml": f"{base}'openai:m', target_url: '{url}'}}\n"})
        assert not heard, "the file pairs the address with another key"
        other = f"{base}'vllm:m', target_url: '{url}', target_key_name: GITHUB_TOKEN}}\n"
        assert keyed.ask("/api/configs/connection", {"yaml": other})[0] == status == 400, answer
        assert keyed.ask("/api/configs/connection", {"yaml": mine})[0] == 200
        assert KEY in heard[0]
        (folder / "mine.yaml").unlink()


@pytest.mark.parametrize(
    "line",
    [
        "trackers: {use: [mlflow], mlflow_uri: 'http://attacker.example'}",
        "trackers: {use: [otel], otel_endpoint: 'http://attacker.example'}",
        "hardware: {executor: ray, ray_address: 'ray://attacker.example:10001'}",
        "models: {target_model: 'openai:gpt-4o', target_key_name: GITHUB_TOKEN}",
        "models: {target_model: 'huggingface:http://attacker.example/m'}",
        "models: {optimizer_model: 'huggingface:https://attacker.example/m'}",
    ],
)
def test_the_page_names_no_server_of_its_own(keyed: Ui, line: str) -> None:
    checked = keyed.post("/api/configs/check", {"yaml": line})
    assert len(checked["errors"]) == 1, checked["errors"]
    assert keyed.ask("/api/launch", {"yaml": line})[0] == 400


def test_a_model_that_is_an_address_is_used_if_a_config_file_names_it(keyed: Ui) -> None:
    line = "models: {target_model: 'huggingface:https://mine.example/m'}"
    path = keyed.workspace / "configs" / "hub.yaml"
    assert not keyed.post("/api/configs/check", {"yaml": line})["valid"]
    path.write_text(line)
    assert keyed.post("/api/configs/check", {"yaml": line})["valid"]
    path.unlink()


def test_the_usual_endpoints_need_no_config_file(keyed: Ui) -> None:
    line = "models: {target_model: 'openai:gpt-4o-mini', optimizer_model: 'anthropic:m', %s}"
    for more in ("target_key_name: OPENAI_API_KEY", "optimizer_key_name: ANTHROPIC_API_KEY", "target_rpm: 5"):
        assert keyed.post("/api/configs/check", {"yaml": line % more})["valid"], more


# Runs from elsewhere


ITEMS = [{"id": f"i{n}", "question": f"What is {n}?", "answer": str(n)} for n in range(12)]


def foreign_run(workspace: Path, **changes: Any) -> tuple[str, Path]:
    """A run that somebody sent: its id on the page, and a file that its program would leave."""
    (workspace / "data" / "tasks.jsonl").write_text("".join(f"{json.dumps(item)}\n" for item in ITEMS))
    folder, marker = workspace / "outputs" / "qa" / "foreign", workspace / "done-by-the-foreign-run"
    folder.mkdir(parents=True)
    left = f"import pathlib; pathlib.Path({str(marker)!r}).touch(); "
    (folder / "evil.py").write_text(f"{left}\ndef score(item, output):\n    return 1.0\n")
    program = [sys.executable, "-c", f"{left}print(1)"]
    config: dict[str, Any] = {
        "env": {"name": "qa", "data": "data/tasks.jsonl"},
        "models": {"target_model": "sim:world", "optimizer_model": "sim:world"},
        "train": {"num_epochs": 1},
    }
    for dotted, value in changes.items():
        section, key = dotted.split("__")
        config[section][key] = program if value == "PROGRAM" else value
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "config.json").write_text("{}")
    (folder / "best_skill.md").write_text("Answer.\n")
    (folder / "run.lock").write_text("")
    return "0/qa/foreign", marker


@pytest.mark.parametrize(
    "changes",
    [{"env__command": "PROGRAM"}, {"env__scoring": "outputs/qa/foreign/evil.py:score"}],
    ids=["command", "scorer"],
)
def test_the_page_starts_no_program_that_only_a_foreign_run_names(tmp_path: Path, changes: dict[str, Any]) -> None:
    workspace = make_workspace(tmp_path / "work")
    run, marker = foreign_run(workspace, **changes)
    skill = {"run": run, "version": "best"}
    with serving(workspace) as ui:
        for path, given in (
            ("/api/evaluate", {"skill": skill, "run": run, "split": "val"}),
            ("/api/compare", {"a": skill, "b": skill, "run": run, "split": "val"}),
            (f"/api/runs/{run}/resume", {}),
        ):
            status, answer = ui.ask(path, given)
            if status == 200:
                ended(ui, answer)
            assert not marker.exists(), f"{path} ran it"
            assert status == 400, answer
            assert "names code" in answer["error"]


def test_a_base_of_a_foreign_run_is_not_followed(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "work")
    run, marker = foreign_run(workspace, env__command="PROGRAM")
    config = workspace / "outputs" / "qa" / "foreign" / "config.yaml"
    config.rename(tmp_path / "evil.yaml")
    config.write_text(f"_base_: {tmp_path / 'evil.yaml'}\n")
    with serving(workspace) as ui:
        given = {"skill": {"run": run, "version": "best"}, "run": run, "split": "val"}
        status, answer = ui.ask("/api/evaluate", given)
        if status == 200:
            ended(ui, answer)
        assert not marker.exists()
        assert status == 400, answer
        status, answer = ui.ask("/api/configs/load", {"run": run})
        assert "command" not in str(answer.get("yaml")), "and it is not shown"


@pytest.mark.slow
def test_a_run_of_a_config_in_the_config_folder_is_measured_with_its_own_scorer(tmp_path: Path) -> None:
    """Started in a terminal, with a scorer next to the config: the file that the run names is the config's."""
    workspace = make_workspace(tmp_path / "work")
    (workspace / "data" / "tasks.jsonl").write_text("".join(f"{json.dumps(item)}\n" for item in ITEMS))
    (workspace / "configs" / "mine.py").write_text("def score(item, output):\n    return 1.0\n")
    (workspace / "configs" / "mine.yaml").write_text(
        "env: {name: qa, data: data/tasks.jsonl, scoring: 'mine.py:score'}\ntrain: {num_epochs: 1}\n"
        "models: {target_model: 'sim:world', optimizer_model: 'sim:world'}\n"
    )
    command = [sys.executable, "-m", "skillopt.cli", "train", "-c", "configs/mine.yaml"]
    done = subprocess.run(command, cwd=workspace, capture_output=True, text=True, env={**os.environ}, check=False)
    assert done.returncode == 0, done.stderr
    with serving(workspace) as ui:
        run = ui.get("/api/runs")["rows"][0]["id"]
        answer = ui.post("/api/evaluate", {"skill": {"run": run, "version": "best"}, "run": run, "split": "val"})
        ended(ui, answer)
        written = ui.get(f"/api/launches/{answer['id']}")["written"]
        assert ui.get(f"/api/measured/{written}")["result"]["score"] == 1.0


def test_a_foreign_run_in_the_config_folder_is_not_trusted(tmp_path: Path) -> None:
    """Its URL and key name are a pair in a YAML file of the config folder, and yet nobody wrote them there."""
    workspace = make_workspace(tmp_path / "work")
    models = {"target_model": "openai:m", "target_url": "http://127.0.0.1:9/v1", "target_key_name": "GITHUB_TOKEN"}
    text = yaml.safe_dump({"env": {"name": "sim"}, "models": models})
    copied = workspace / "configs" / "theirs"
    copied.mkdir()
    (copied / "config.yaml").write_text(text)
    with serving(workspace, env=KEYS) as ui:
        assert ui.post("/api/configs/check", {"yaml": text})["valid"], "in a folder of configs it is the user's"
        (copied / "events.jsonl").write_text("")
        assert not ui.post("/api/configs/check", {"yaml": text})["valid"]


def test_a_python_file_in_the_folder_is_data(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "work")
    for name in ("yaml", "pydantic", "skillopt"):
        (workspace / f"{name}.py").write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()\n")
    with serving(workspace) as ui:
        text = ui.post("/api/configs/load", {"path": "configs/sim/default.yaml"})["yaml"]
        assert ui.post("/api/configs/plan", {"yaml": text})
        assert ui.launch("train.num_epochs=1")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("link", ["prompts", "items", "hidden"])
def test_a_link_inside_a_folder_that_a_config_names_leads_nowhere(tmp_path: Path, link: str) -> None:
    workspace, secret = make_workspace(tmp_path / "work"), tmp_path / "secret.md"
    secret.write_text("TOPSECRET {skill}\n")
    config: dict[str, Any] = {"env": {"name": "qa"}, "models": {"target_model": "sim:world"}}
    if link == "prompts":
        (workspace / "data" / "prompts").mkdir()
        (workspace / "data" / "prompts" / "reflect.md").symlink_to(secret)
        config["gradient"] = {"prompts_dir": "data/prompts"}
    elif link == "items":
        (workspace / "data" / "set" / "train").mkdir(parents=True)
        (workspace / "data" / "set" / "train" / "items.jsonl").symlink_to(secret)
        config["env"]["split_dir"] = "data/set"
    else:
        (workspace / ".hidden").mkdir()
        config["env"] = {"name": "trigger", "options": {"package": ".hidden"}}
    with serving(workspace) as ui:
        answer = ui.post("/api/configs/check", {"yaml": yaml.safe_dump(config)})
    assert not answer["valid"]
    assert "TOPSECRET" not in str(answer)


def test_a_launch_record_from_elsewhere_reads_no_file_and_ends_no_process(tmp_path: Path) -> None:
    workspace, secret = make_workspace(tmp_path / "work"), tmp_path / "secret.txt"
    secret.write_text("TOPSECRET")
    other = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=-1)
    for n, kind in enumerate(("link", "pipe")):
        folder = workspace / "outputs" / ".webui" / "launches" / f"170000000000{n}-abcdef12"
        folder.mkdir(parents=True)
        record = {"kind": "eval", "title": "x", "started": 1.0, "pid": other.pid, "run": None}
        (folder / "launch.json").write_text(json.dumps(record))
        (folder / "log.txt").symlink_to(secret) if kind == "link" else os.mkfifo(folder / "log.txt")
        (folder / "lock").touch()
    held = (folder / "lock").open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with serving(workspace) as ui:
            assert "TOPSECRET" not in str(ui.get("/api/launches"))
            ui.ask(f"/api/launches/{folder.name}/stop", {})
            with contextlib.suppress(subprocess.TimeoutExpired):
                other.wait(0.5)
            assert other.returncode is None, "it was ended"
    finally:
        held.close()
        other.kill()
        other.communicate()


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_stopping_a_foreign_run_ends_no_other_program(tmp_path: Path, kind: str) -> None:
    workspace = make_workspace(tmp_path / "work")
    run, _ = foreign_run(workspace)
    lock = workspace / "another.lock"
    hold = "import fcntl, sys, time; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX)\n"
    hold += "print('held', flush=True); sys.stdin.read()"
    other = subprocess.Popen([sys.executable, "-c", hold, str(lock)], stdin=-1, stdout=-1, text=True)
    try:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        own = workspace / "outputs" / "qa" / "foreign" / "run.lock"
        own.unlink()
        own.symlink_to(lock) if kind == "soft" else own.hardlink_to(lock)
        with serving(workspace) as ui:
            answers = [ui.ask(f"/api/runs/{run}/{what}", {})[0] for what in ("pause", "stop")]
            with contextlib.suppress(subprocess.TimeoutExpired):
                other.wait(0.5)
            assert other.returncode is None, "it was ended"
            assert set(answers) == {404 if kind == "soft" else 400}
    finally:
        other.kill()
        other.communicate()


# Files that are not for the page


def test_a_hidden_config_and_a_base_outside_of_the_folders_are_not_shown(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "work")
    secret = "models: {target_model: 'openai:the-secret-name'}\n"
    (workspace / "configs" / ".hidden.yaml").write_text(secret)
    (workspace / "configs" / ".below").mkdir()
    (workspace / "configs" / ".below" / "hidden.yaml").write_text(secret)
    (tmp_path / "outside.yaml").write_text(secret)
    (workspace / "configs" / "away.yaml").write_text("_base_: ../../outside.yaml\n")
    (workspace / "configs" / "near.yaml").write_text("_base_: sim/default.yaml\ntrain: {seed: 7}\n")
    hidden = ("configs/.hidden.yaml", "configs/.below/hidden.yaml", "configs/away.yaml")
    with serving(workspace) as ui:
        for name in hidden:
            status, answer = ui.ask("/api/configs/load", {"path": name})
            assert "the-secret-name" not in json.dumps(answer), name
            assert status in {400, 404}
            given = {"skill": {"file": "data/sim/seed_skill.md"}, "config": name, "split": "val"}
            assert ui.ask("/api/evaluate", given)[0] in {400, 404}
        assert not [name for name in ui.get("/api/configs")["files"] if "/." in name]
        assert "seed: 7" in ui.post("/api/configs/load", {"path": "configs/near.yaml"})["yaml"]


# Guesses


@pytest.mark.slow
def test_a_token_is_not_guessed_by_many_connections_and_its_owner_gets_in_meanwhile(tmp_path: Path) -> None:
    token, workspace = "a-long-and-secret-token", make_workspace(tmp_path / "work")
    with serving(workspace, "--host", "0.0.0.0", env={"SKILLOPT_UI_TOKEN": token}) as ui:
        answered = asyncio.run(_guessed(f"http://127.0.0.1:{ui.port}", token, 200))
    assert answered.pop("session") == [200], "an open session never waits"
    assert answered.pop("owner") == [200], "the owner's token comes from another address"
    statuses = [status for each in answered.values() for status in each]
    assert statuses.count(401) < 20, f"{statuses.count(401)} of {len(statuses)} tokens were compared"
    assert set(statuses) == {401, 429}


async def _guessed(url: str, token: str, count: int) -> dict[str, list[int]]:
    """The statuses of wrong tokens that arrive at the same time, and of their owner's requests meanwhile."""
    answered: dict[str, list[int]] = {path: [] for path in ("/api/runs", "/api/login", "session", "owner")}
    own = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers={"X-SkillOpt": "1"}) as attacker,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True), headers={"X-SkillOpt": "1"}) as session,
        aiohttp.ClientSession(connector=own, headers={"X-SkillOpt": "1"}) as owner,
    ):

        async def guess(number: int) -> None:
            wrong = f"guess-{number}-of-the-token"
            if number % 2:
                asked = attacker.post(f"{url}/api/login", json={"token": wrong})
            else:
                asked = attacker.get(f"{url}/api/runs", headers={"Authorization": f"Bearer {wrong}"})
            async with asked as response:
                answered["/api/login" if number % 2 else "/api/runs"].append(response.status)

        async with session.post(f"{url}/api/login", json={"token": token}) as response:
            assert response.status == 200
        guesses = [asyncio.create_task(guess(number)) for number in range(count)]
        await asyncio.sleep(0.5)
        async with session.get(f"{url}/api/runs") as response:
            answered["session"].append(response.status)
        async with owner.post(f"{url}/api/login", json={"token": token}) as response:
            answered["owner"].append(response.status)
        assert not all(task.done() for task in guesses), "they were still waiting"
        await asyncio.gather(*guesses)
    return answered


# Numbers


@pytest.mark.parametrize(
    "value",
    ["1" + ":1" * 2000, ":".join(["59"] * 400) + ".5", "0x" + "f" * 20_000, "0b" + "1" * 60_000, "9" * 6000],
    ids=["base 60", "base 60 with a fraction", "hexadecimal", "binary", "decimal"],
)
def test_a_number_without_end_is_refused_in_words(keyed: Ui, value: str) -> None:
    for section in ("train: {seed: %s}", "notes: {schedule: %s}", "env: {options: {seed: %s}}"):
        status, answer = keyed.ask("/api/configs/check", {"yaml": section % value})
        assert (status, "too long" in str(answer)) == (200, True), str(answer)[:300]
        assert keyed.ask("/api/launch", {"yaml": section % value})[0] == 400
    status, answer = keyed.ask("/api/configs/check", {"yaml": "", "set": {"train.seed": value}})
    assert (status, answer.get("valid"), "train.seed" in answer.get("errors", {})) == (200, False, True)
    assert type(answer["values"]["train.seed"]) is str, "it was not calculated"


def test_a_value_of_a_field_has_a_length(keyed: Ui) -> None:
    status, answer = keyed.ask("/api/configs/check", {"yaml": "", "set": {"train.seed": "1" + ":1" * 150_000}})
    assert (status, "200,000 characters" in str(answer)) == (400, True), str(answer)[:200]


# The table of the doors


def test_every_cell_of_the_table_of_doors_names_a_test_that_exists() -> None:
    text = (REPO / "SECURITY.md").read_text(encoding="utf-8")
    table = text.partition("## Who may do what")[2].partition("\n## ")[0]
    named = re.findall(r"`(test_\w+\.py)(?: -k (\w+))?`", table)
    assert len(named) > 30
    for file, word in named:
        path = next((REPO / "tests").rglob(file))
        tests = re.findall(r"^(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert [test for test in tests if word in test], f"{file} -k {word}"
