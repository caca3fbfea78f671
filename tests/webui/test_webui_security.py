"""Who may ask the web page, and for what: refused requests, paths, keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt_webui import security
from skillopt_webui.allowed import check_allowed, problems
from skillopt_webui.security import host_allowed
from skillopt_webui.settings import make_settings
from support import train_sim
from support.webui import Ui, make_workspace, serving

KEY = "sk-secretsecretsecretsecret0123"


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    workspace = make_workspace(tmp_path_factory.mktemp("web") / "work")
    result = train_sim(workspace / "outputs", "train.num_epochs=1")
    (result.path / "best_skill.md").write_text(f"Never say {KEY}.")
    (result.path / "skills" / "skill_v0001.md").write_text(f"Never say {KEY}.")
    (workspace / ".env").write_text(f"OPENAI_API_KEY={KEY}\n")
    (workspace.parent / "outside.md").write_text("outside")
    (workspace / "outputs" / ".webui" / "launches").mkdir(parents=True)
    (workspace / "outputs" / "sim" / "link").symlink_to(workspace.parent)
    with serving(workspace) as running:
        yield running


def only_run(ui: Ui) -> str:
    return str(ui.get("/api/runs")["rows"][0]["id"])


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:80"},
        {"Host": "localhost.evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/runs", "/api/session", "/static/js/main.js"])
def test_a_request_with_a_foreign_host_or_origin_is_refused(ui: Ui, headers: dict[str, str], path: str) -> None:
    assert ui.ask(path, headers=headers)[0] == 403


def test_a_request_that_changes_something_needs_the_header_that_other_sites_cannot_send(ui: Ui) -> None:
    assert ui.ask("/api/configs/check", {"yaml": ""}, headers={"Content-Type": "text/plain"})[0] == 403
    assert ui.ask("/api/configs/check", {"yaml": ""})[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/js/..%2f..%2fapp.py",
        "/static/js/%2e%2e/%2e%2e/server.py",
        "/api/runs/0/../..",
        "/api/runs/0/%2e%2e/%2e%2e",
        "/api/runs/0/..%2f..%2f/x",
        "/api/runs/0/sim/%2e%2e",
        "/api/runs/0/sim/link",
        "/api/runs/0/sim/%00",
        "/api/runs/9/sim/x",
        "/api/runs/0/.webui/launches",
        "/api/launches/..%2f..%2fconfigs",
    ],
)
def test_a_path_that_leads_out_of_the_folders_is_not_there(ui: Ui, path: str) -> None:
    status, answer = ui.ask(path)
    assert status in {403, 404}, answer


@pytest.mark.parametrize(
    "name", ["../outside.md", ".env", "/etc/passwd", "configs/../../outside.md", "configs/sim/default.yaml"]
)
def test_a_skill_is_a_markdown_file_under_the_folders(ui: Ui, name: str) -> None:
    status, answer = ui.ask("/api/diff", {"a": {"file": name}, "b": {"file": "data/sim/seed_skill.md"}})
    assert status in {400, 404}
    assert KEY not in json.dumps(answer)


@pytest.mark.parametrize("name", ["../outside.md", ".env", "data/sim/seed_skill.md", "configs/sim/../../.env"])
def test_a_config_is_a_yaml_file_under_the_config_folders(ui: Ui, name: str) -> None:
    status, answer = ui.ask("/api/configs/load", {"path": name})
    assert status in {400, 404}
    assert KEY not in json.dumps(answer)


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("train: {init_skill: .env}", "train.init_skill"),
        ("train: {init_skill: /etc/passwd}", "train.init_skill"),
        ("train: {init_skill: ../outside.md}", "train.init_skill"),
        ("env: {split_dir: /etc}", "env.split_dir"),
        ("env: {output_root: /tmp/elsewhere}", "env.output_root"),
        ("gradient: {prompts_dir: ../..}", "gradient.prompts_dir"),
        ("models: {target_model: 'local:/etc/passwd'}", "models.target_model"),
        ("env: {data: ../outside.jsonl}", "env.data"),
        ("env: {options: {games: /etc}}", "env.options"),
        ("env: {command: 'rm -rf data'}", "env.command"),
        ("env: {agent: 'os:system'}", "env.agent"),
        ("env: {scoring: 'data/scorer.py:score'}", "env.scoring"),
        ("env: {name: 'os:system'}", "env.name"),
        ("models: {optimizer_model: 'command:rm -rf data'}", "models.optimizer_model"),
        ("models: {optimizer_model: 'codex:', optimizer_options: {args: [--x]}}", "models.optimizer_model"),
        ("models: {optimizer_model: 'handoff:/etc'}", "models.optimizer_model"),
        ("trackers: {mlflow_uri: 'file:///tmp/elsewhere'}", "trackers.mlflow_uri"),
        ("env: {options: {sandbox: limits}}", "env.options"),
        ("env: {scoring: command, scoring_options: {command: ls}}", "env.scoring_options"),
        ("env: {scoring: files, scoring_options: {sandbox: limits}}", "env.scoring_options"),
        ("env: {scoring: plugin, scoring_options: {pass_env: [GITHUB_TOKEN]}}", "env.scoring_options"),
    ],
)
def test_a_config_that_reaches_out_of_the_folders_is_refused_at_its_field(ui: Ui, line: str, field: str) -> None:
    checked = ui.post("/api/configs/check", {"yaml": line})
    assert list(checked["errors"]) == [field]
    for path in ("/api/launch", "/api/configs/plan", "/api/configs/preview"):
        status, answer = ui.ask(path, {"yaml": line})
        assert status == 400
        assert field in answer["error"]
    assert not list((ui.workspace / "outputs" / ".webui").glob("launches/*"))


def test_no_answer_holds_a_key_whatever_file_it_got_into(ui: Ui) -> None:
    run = only_run(ui)
    paths = ["", "/skills/1", "/config"]
    answers = [ui.get(f"/api/runs/{run}{path}") for path in paths]
    assert KEY not in json.dumps(answers)
    assert "***" in json.dumps(answers)


def test_no_download_and_no_live_event_holds_a_key(ui: Ui) -> None:
    import urllib.request

    run = only_run(ui)
    with (ui.run(run).events).open("a") as events:
        events.write(json.dumps({"kind": "retrying", "error": f"401: {KEY}"}) + "\n")
    with urllib.request.urlopen(f"{ui.url}api/runs/{run}/stream?offset=0") as stream:
        told = b""
        while b"retrying" not in told:
            told += stream.readline()
        told += stream.readline()
    assert b"401: ***" in told
    assert KEY.encode() not in told
    with urllib.request.urlopen(f"{ui.url}api/runs/{run}/export/best") as file:
        assert file.read() == b"Never say ***."


def test_a_link_in_a_run_is_not_a_way_out_of_it(ui: Ui) -> None:
    run = only_run(ui)
    linked = ui.run(run).snapshot(7)
    linked.symlink_to(ui.workspace.parent / "outside.md")
    status, answer = ui.ask(f"/api/runs/{run}/export/v7")
    linked.unlink()
    assert status == 404, answer


def test_unless_told_otherwise_nobody_else_can_reach_the_page(ui: Ui) -> None:
    import socket

    local = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    bound = [words[1] for words in local if words[3] == "0A" and words[1].endswith(f":{ui.port:04X}")]
    assert bound == [f"{int.from_bytes(socket.inet_aton('127.0.0.1'), 'little'):08X}:{ui.port:04X}"]


def test_a_token_of_the_environment_is_not_printed(tmp_path: Path) -> None:
    from skillopt_webui.app import greeting

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKILLOPT_UI_TOKEN", "a-long-and-secret-token")
        said = greeting(make_settings(workspace=tmp_path, host="0.0.0.0", token="a-long-and-secret-token"))
    assert "a-long-and-secret-token" not in " ".join(said)
    drawn = make_settings(workspace=tmp_path, host="0.0.0.0")
    assert f"Token: {drawn.token}" in greeting(drawn)


def test_every_answer_keeps_the_page_to_itself(ui: Ui) -> None:
    import urllib.request

    for path in ("", "static/js/main.js", "api/runs"):
        with urllib.request.urlopen(ui.url + path) as response:
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert response.headers["X-Frame-Options"] == "DENY"
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert "Access-Control-Allow-Origin" not in response.headers


def test_without_the_token_nothing_but_the_page_itself_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "GUESS_PAUSE", 0.01)
    token = "a-long-and-secret-token"
    workspace = make_workspace(tmp_path / "work")
    with serving(workspace, "--host", "0.0.0.0", env={"SKILLOPT_UI_TOKEN": token}) as ui:
        assert ui.ask("/")[0] == 200
        session = ui.get("/api/session")
        assert session["needs_token"]
        assert "workspace" not in session
        for path in ("/api/runs", "/api/configs", "/api/launches"):
            assert ui.ask(path)[0] == 401
        for path in ("/api/launch", "/api/configs/plan"):
            assert ui.ask(path, {"yaml": ""})[0] == 401
        assert ui.ask("/api/login", {"token": "wrong"})[0] == 401
        assert ui.ask("/api/runs", headers={"Authorization": f"Bearer {token}x"})[0] == 401
        assert ui.ask("/api/runs", headers={"Authorization": f"Bearer {token}"})[0] == 200
        assert ui.ask("/api/runs", headers={"Cookie": "skillopt_session=" + "0" * 64})[0] == 401


def test_a_session_holds_over_a_restart_and_cannot_be_made_from_the_token(tmp_path: Path) -> None:
    import hashlib
    import hmac
    import urllib.request

    token = "a-long-and-secret-token"
    with serving(make_workspace(tmp_path / "work"), env={"SKILLOPT_UI_TOKEN": token}) as ui:
        data, headers = json.dumps({"token": token}).encode(), {"X-SkillOpt": "1"}
        with urllib.request.urlopen(urllib.request.Request(ui.url + "api/login", data, headers)) as response:
            cookie = response.headers["Set-Cookie"].partition(";")[0]
        ui.stop()
        ui.start()
        assert ui.ask("/api/runs", headers={"Cookie": cookie})[0] == 200
        guess = hmac.new(token.encode(), b"skillopt-webui-session", hashlib.sha256).hexdigest()
        assert ui.ask("/api/runs", headers={"Cookie": f"skillopt_session={guess}"})[0] == 401


def test_an_address_that_others_can_reach_always_has_a_token(tmp_path: Path) -> None:
    assert make_settings(workspace=tmp_path).token == ""
    for host in ("0.0.0.0", "192.0.2.7", "::", "example.org"):
        assert len(make_settings(workspace=tmp_path, host=host).token) >= 24
    with pytest.raises(UserError, match="could be guessed"):
        make_settings(workspace=tmp_path, host="0.0.0.0", token="short")


def test_names_are_refused_that_another_site_could_point_at_this_machine(tmp_path: Path) -> None:
    here = make_settings(workspace=tmp_path)
    assert all(host_allowed(name, here) for name in ("127.0.0.1:7860", "localhost:9000", "[::1]:7860", "LOCALHOST"))
    assert not any(
        host_allowed(name, here) for name in ("192.0.2.7:7860", "evil.example", "", "127.0.0.1.evil.example")
    )
    open_to_all = make_settings(workspace=tmp_path, host="0.0.0.0", allowed_hosts=["Lab.example"])
    assert all(host_allowed(name, open_to_all) for name in ("192.0.2.7:7860", "lab.example", "lab.example:443"))
    assert not host_allowed("evil.example", open_to_all)


def test_only_what_lies_under_the_folders_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "skill.md").write_text("x")
    (tmp_path / "data" / "out.md").symlink_to("/etc/hostname")
    settings = make_settings(workspace=tmp_path)

    def found(**sections: Any) -> dict[str, str]:
        return problems(Config.parse(sections), settings)

    assert found(train={"init_skill": "data/skill.md"}) == {}
    assert "train.init_skill" in found(train={"init_skill": "data/out.md"})
    check_allowed(Config.parse({}), settings)

    package = tmp_path / "data" / "package"
    (package / "references").mkdir(parents=True)
    assert "train.init_skill" in found(train={"init_skill": "data/package"}), "a folder is no skill"
    (package / "SKILL.md").write_text("x")
    assert found(train={"init_skill": "data/package"}) == {}
    for name, target in ((".env", None), ("notes.md", "/etc/hostname")):
        path = package / "references" / name
        path.symlink_to(target) if target else path.write_text("KEY=x")
        assert "train.init_skill" in found(train={"init_skill": "data/package"}), name
        path.unlink()

    assert "a link that leads out" in found(env={"split_dir": "data"})["env.split_dir"]
    (tmp_path / "data" / "out.md").unlink()
    own = {"scoring": "scorers.py:mine", "split_dir": "data"}
    assert "env.scoring" in found(env=own)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "mine.yaml").write_text("env: {scoring: 'scorers.py:mine'}\n")
    assert found(env=own) == {}, "code that a file in the config folder names may be started"
    assert found(env=own | {"agent": "scorers.py:other"}), "and no other beside it"
