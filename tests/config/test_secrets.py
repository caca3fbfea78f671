"""Keys go to their endpoint and nowhere else: into no file, onto no screen, to no process without a use for them."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import html
import json
import os
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from skillopt import keys
from skillopt.cli import main
from skillopt.config import Config, EnvConfig
from skillopt.errors import UserError
from skillopt.keys import no_secrets, redact
from skillopt.models.base import TransientError
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json
from skillopt.record.journal import Journal
from skillopt.sim.model import SimOptions, SimulatedModel
from skillopt.sim.server import _request
from skillopt.tasks.base import SPLITS, Item, check_splits
from skillopt.tasks.qa import QAEnv
from skillopt.training.initial import read_initial
from support import REPO, only_run, skillopt, train_sim
from support.wire import served

MARK = "CANARY7f3a91"
TARGET = f'{MARK}-target"<&+/=0123'
"""A key with characters that JSON, HTML and URLs write in their own way."""
OPTIMIZER = f"{MARK}-optimizer-0123456789"
KEYS = {"ODD_SETTING": TARGET, "VLLM_API_KEY": OPTIMIZER}
SMALL = ("train.num_epochs=2", "train.batch_size=8", "env.options={rules: 6, train: 16, val: 12, test: 8}")


class Hostile:
    """An endpoint that repeats the key that it is sent wherever it can: in replies, errors, headers and redirects."""

    def __init__(self, fatal: str = "") -> None:
        self.fatal = fatal
        self.asked = 0
        self.said: Counter[str] = Counter()
        self._model = SimulatedModel("sim:world", SimOptions(duds=0.3, opposites=1))

    async def __call__(self, http: web.Request) -> web.StreamResponse:
        key = http.headers["Authorization"].removeprefix("Bearer ")
        self.asked += 1
        if self.fatal:
            return self._refused(http, key)
        fault = {1: "429", 3: "500", 5: "garbled", 7: "header"}.get(self.asked % 12, "")
        self.said[fault] += 1
        if fault == "429":
            said = {"error": {"message": f"slow down, {key}", "code": key}}
            return web.json_response(said, status=429, headers={"Retry-After": "0", "X-Echo": key, key[:12]: key})
        if fault == "500":
            return web.Response(text=f"<p>{html.escape(key)} broke</p>{key}", status=500, content_type="text/html")
        if fault == "garbled":
            return web.Response(text=f"{{{key}", content_type="application/json")
        if fault == "header":
            assert http.transport
            http.transport.write(f"HTTP/1.1 200 OK\r\nBad Header {key}\x01: {key}\r\n\r\n".encode())  # type: ignore[attr-defined]
            http.transport.close()
            return web.Response()
        request = _request(await http.json())
        reply = await self._model.chat(request)
        text = reply.text
        if request.schema:
            text = json.dumps(_with(json.loads(text), key))
        elif sum(str(request.messages[-1]["content"]).encode()) % 3 == 0:  # the same tasks whatever the order of calls
            text += f"\nauthorization: {key}"
        message = {"role": "assistant", "content": text, "name": key, "refusal": key}
        choice = {"finish_reason": f"stop{key}", "message": message, "logprobs": key}
        said = {"choices": [choice], "model": key, "id": key, "usage": {"prompt_tokens": key}, "service_tier": key}
        return web.json_response(said)

    def _refused(self, http: web.Request, key: str) -> web.Response:
        if self.fatal == "redirect":
            return web.Response(status=307, headers={"Location": f"{http.url}?key={key}"}, text=f"go with {key}")
        body = {"error": {"message": "x" * 480 + f" key {key} is wrong", "code": key, "type": key}}
        return web.json_response(body, status=int(self.fatal), reason="no")


def _with(value: Any, key: str) -> Any:
    """The optimizer's reply with the key behind its texts (but not where ids must hold)."""
    if isinstance(value, dict):
        free = {"name", "cause", "rationale", "pattern", "guidance", "memory"}
        return {
            k: f"{v} (by {key})" if k in free or ((k == "text" and v) and isinstance(v, str)) else _with(v, key)
            for k, v in value.items()
        }
    return [_with(one, key) for one in value] if isinstance(value, list) else value


def overrides(url: str, out: Path) -> list[str]:
    roles = [f"models.{role}_model=vllm:sim" for role in ("target", "optimizer")]
    return [
        "--config", "configs/sim/default.yaml", f"env.output_root={out}", *SMALL, *roles, f"hardware.vllm_url={url}/v1",
        "models.target_key_name=ODD_SETTING", "models.target_deterministic=true", "optimizer.min_learning_rate=3",
    ]  # fmt: skip


def holding(folder: Path) -> list[str]:
    """Files that hold any part of a key, and texts of the journal that do."""
    found = [str(path) for path in folder.rglob("*") if path.is_file() and MARK.encode() in path.read_bytes()]
    return found + [str(path) for path in folder.rglob("*") if MARK in path.name]


def test_an_endpoint_that_repeats_the_key_everywhere_gets_it_into_no_file_and_onto_no_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Train, go on, look and export; errors, replies and edits all carry the key."""
    monkeypatch.setattr("skillopt.models.call.backoff", lambda error, attempt: 0.01)
    said = []

    def run(*command: str, code: int = 0) -> None:
        done = skillopt(*command, env=KEYS)
        said.append(done.stdout + done.stderr)
        assert done.returncode == code, said[-1]

    hostile = Hostile()
    with served("/v1/chat/completions", hostile) as url:
        common = overrides(url, tmp_path / "out")
        run("train", *common, "budget.max_calls=40", code=3)
        run("train", *common, "--json")
        path = str(only_run(tmp_path / "out").root)
        for name in ("plan", "doctor"):
            run(name, *common)
        run("eval", *common[:-2], "--skill", f"{path}/best_skill.md", "--out", str(tmp_path / "eval"))
    for command in (["report"], ["blame"], ["verify"], ["runs", str(tmp_path / "out")]):
        run(*command, *([path] if len(command) == 1 else []))
    assert all(hostile.said[fault] > 3 for fault in ("429", "500", "garbled", "header", "")), hostile.said

    assert [text for text in said if MARK in text] == []
    assert holding(tmp_path) == []
    found = only_run(tmp_path / "out")
    assert "(by ***)" in found.patch_log.path.read_text(), "the search had something to find"
    assert "***" in found.best_skill.read_text()
    with Journal(found.journal) as journal:
        rows = journal._db.execute("SELECT reply FROM replies").fetchall()
    assert sum("authorization: ***" in row[0] for row in rows) > 3
    assert "***" in (found.step(1) / "patches.json").read_text()


def here(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[int, str]:
    """A command in this process: its exit code, and all that it printed."""
    with pytest.raises(SystemExit) as ended:
        main(command)
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out + told.err


@pytest.mark.parametrize(
    "fatal", ["401", *(pytest.param(c, marks=pytest.mark.slow) for c in ("400", "404")), "redirect"]
)
def test_a_refusal_that_quotes_the_key_is_told_without_it(
    tmp_path: Path, fatal: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(REPO)
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)
    hostile = Hostile(fatal)
    with served("/v1/chat/completions", hostile) as url:
        code, told = here(capsys, "train", *overrides(url, tmp_path / "out"))
        assert (code, hostile.asked < 12) == (2, True), "a redirect is not followed: the key goes to no other address"
        assert f": {fatal if fatal.isdecimal() else 307}: " in told
        failed, more = here(capsys, "doctor", *overrides(url, tmp_path / "out"))
    assert failed == 1
    assert MARK[:6] not in told + more
    assert holding(tmp_path) == []


@pytest.mark.extras
def test_a_providers_library_does_not_take_the_key_to_where_a_redirect_leads(tmp_path: Path) -> None:
    arrived = []

    async def elsewhere(http: web.Request) -> web.StreamResponse:
        arrived.append(dict(http.headers))
        return web.json_response({}, status=500)

    with served("/v1/messages", elsewhere) as other:

        async def leads_away(http: web.Request) -> web.StreamResponse:
            return web.Response(status=307, headers={"Location": f"{other}/v1/messages"})

        with served("/v1/messages", leads_away) as url:
            done = skillopt(
                "train", "--config", "configs/sim/default.yaml", f"env.output_root={tmp_path}", *SMALL,
                "models.target_model=anthropic:claude-test", f"models.target_url={url}", "hardware.max_retries=0",
                env={"ANTHROPIC_API_KEY": OPTIMIZER},
            )  # fmt: skip
    assert done.returncode in {2, 3}, done.stdout + done.stderr
    assert arrived == []
    assert MARK not in done.stdout + done.stderr


def test_a_traceback_shows_no_key() -> None:
    code = "from skillopt.cli.app import main, app\n@app.command()\ndef fall():\n    import os\n"
    code += "    raise RuntimeError('the client says ' + os.environ['VLLM_API_KEY'])\nmain(['fall'])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **KEYS}, check=False
    )
    assert done.returncode == 1
    assert "RuntimeError: the client says ***" in done.stderr
    assert MARK not in done.stderr


@pytest.mark.parametrize(
    "write", [lambda key: key, json.dumps, html.escape, lambda key: f"https://host/?key={key}&x", lambda key: key + key]
)
def test_a_key_is_found_in_every_form_in_which_text_repeats_it(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", TARGET)
    assert MARK not in redact(write(TARGET))
    assert MARK not in str(TransientError(write(TARGET)))
    assert redact("nothing to find") == "nothing to find"


def test_secrets_are_also_known_by_a_configs_word_in_urls_in_headers_and_when_they_are_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keys, "_named", set())
    monkeypatch.setattr(keys, "_fetched", {})
    monkeypatch.setenv("ODD_SETTING", f"{MARK}-odd-setting")
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:{MARK}-of-proxy@127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"Authorization=Bearer%20{MARK}-of-otel,a=b")
    assert redact(f"{MARK}-odd-setting") == f"{MARK}-odd-setting"
    Config.parse({"models": {"target_key_name": "ODD_SETTING"}})
    keys.remember(f"{MARK}-fetched")
    for secret in ("odd-setting", "of-proxy", "of-otel", "fetched"):
        assert redact(f"<{MARK}-{secret}>") == "<***>"
    assert "ODD_SETTING" not in no_secrets()
    assert no_secrets(["ODD_SETTING"])["ODD_SETTING"] == f"{MARK}-odd-setting"


SECRET_NAMES = """
API_KEY_2 OPENAI_KEY_PROD STRIPE_SK AUTH OPENAI_API_KEY openai_api_key KEY GITHUB_TOKEN GH_TOKEN_CI TOKEN1 DB_PASS
DB_PWD MYSQL_PASSWORD_STAGING AZURE_CLIENT_SECRET SECRET_KEY_BASE AZURE_STORAGE_CONNECTION_STRING SENTRY_DSN GITHUB_PAT
NPM_CONFIG__AUTH STRIPE_SK_LIVE OPENAI_APIKEY API_KEYS GOOGLE_APPLICATION_CREDENTIALS_JSON DOCKER_AUTH_CONFIG
SESSION_COOKIE AWS_SECRET_ACCESS_KEY SKILLOPT_UI_TOKEN OTEL_EXPORTER_OTLP_HEADERS BASIC_AUTH_2 SIGNING_KEY_OLD
GITHUB_OAUTH GOOGLE_OAUTH_ACCESS SLACK_WEBHOOK_URL TEAMS_WEBHOOK SECRET_URL KUBECONFIG_DATA KUBECONFIG_B64_PROD
"""
PLAIN_NAMES = """
AUTHOR GIT_AUTHOR_EMAIL MONKEY MONKEY_PATCH KEYBOARD KEYBOARD_LAYOUT TOKENIZERS_PARALLELISM MAX_TOKENS TOKEN_LIMIT
SKILLOPT_SKILL SKILLOPT_SKILL_DIR SKILLOPT_ITEM SKILLOPT_MODEL SKILLOPT_CACHE SKILLOPT_WEIGHTS_DIR SSH_AUTH_SOCK
XAUTHORITY GIT_ASKPASS SSH_ASKPASS BYPASS GNOME_KEYRING_CONTROL KEY_FILE TLS_KEY_PATH AUTH_URL AUTH_MODE TOKEN_URL
SECRET_NAME PASSWORD_MIN_LENGTH PATTERN COMPASS SKLEARN_HOME DISK TASK_2 COOKIE_DOMAIN AWS_DEFAULT_REGION HOTKEY
KUBECONFIG OAUTH_CLIENT_ID OAUTH_TIMEOUT WEBHOOK_PORT DATA
"""


def test_secrets_are_known_by_the_words_of_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    secret, plain = SECRET_NAMES.split(), PLAIN_NAMES.split()
    for name in secret + plain:
        monkeypatch.setenv(name, f"{MARK}-{name.lower()}-")
    given = no_secrets()
    assert [name for name in secret if name in given] == [], "kept from child processes"
    assert [name for name in secret if MARK in redact(f"{MARK}-{name.lower()}-")] == [], "removed from texts"
    assert [name for name in plain if name not in given] == [], "ordinary names are left alone"


def test_a_scorer_gets_no_url_with_a_password_but_a_proxys(tmp_path: Path) -> None:
    urls = {
        "DATABASE_URL": f"postgres://user:{MARK}-db@db.example/x",
        "REDIS_URL": f"redis://:{MARK}-r@r/0",
        "MIRRORS": f"https://a.example/ https://user:{MARK}-m@b.example/",
        "NAMED_URL": f"amqp://user:{MARK}-named@mq.example/x",
        "HTTPS_PROXY": f"http://user:{MARK}-proxy@127.0.0.1:9",
        "PLAIN_URL": "https://user@host.example:8000/a:b@c",
    }
    (tmp_path / "scorer.py").write_text(
        "import json, os, pathlib\ndef score(item, output):\n"
        "    pathlib.Path(__file__).with_name('seen.json').write_text(json.dumps(dict(os.environ)))\n    return 1.0\n"
    )
    rows = [{"id": f"i{n}", "question": f"What is {n}?", "answer": str(n)} for n in range(12)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "c.yaml").write_text(
        "env: {name: qa, data: t.jsonl, scoring: 'scorer.py:score', scoring_options: {pass_env: [NAMED_URL]}, "
        "output_root: out}\nmodels: {target_model: 'sim:world', optimizer_model: 'sim:world'}\n"
    )
    (tmp_path / "s.md").write_text("Do it.")
    done = skillopt("eval", "--config", "c.yaml", "--skill", "s.md", "--split", "val", cwd=tmp_path, env=urls)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert sorted(name for name in urls if name in seen) == ["HTTPS_PROXY", "NAMED_URL", "PLAIN_URL"]


# What a user may do wrong


@pytest.mark.parametrize(
    "tree",
    [
        {"models": {"target_url": "https://host/v1?subscription-key=abcdefgh12345678"}},
        {"models": {"optimizer_url": "https://host/v1?x=1&access_token=abcdefgh12345678"}},
        {"env": {"options": {"api_key": "not-of-any-known-form"}}},
        {"env": {"options": {"deep": [{"password": "hunter2hunter2"}]}}},
        {"env": {"scoring_options": {"auth-token": "abc"}}},
        {"env": {"command": "agent --api-key abcdefgh12345678"}},
        {"env": {"command": ["agent", "--token", "abcdefgh12345678"]}},
        {"env": {"command": ["env", "MY_API_KEY=abcdefgh12345678", "agent"]}},
        {"env": {"agent_options": {"args": ["--header", "Authorization: Bearer abcdefgh12345678"]}}},
        {"env": {"options": {"ghp_abcdefghijklmnopqrstuvwxyz": 1}}},
        {"env": {"options": {"pem": "-----BEGIN RSA PRIVATE KEY-----\nabc"}}},
        {"trackers": {"mlflow_uri": "https://host/?token=abcdefgh12345678"}},
        {"budget": {"prices": {f"openai:{MARK}-of-the-env": {"input": 1, "output": 1}}}},
    ],
)
def test_a_key_anywhere_in_a_config_is_refused_and_not_repeated(
    tree: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", f"{MARK}-of-the-env")
    with pytest.raises(UserError, match="environment") as caught:
        Config.parse(tree)
    for secret in ("abcdefgh", "hunter2", "not-of-any", "BEGIN", MARK):
        assert secret not in str(caught.value)


def test_names_of_variables_and_plain_words_are_let_through() -> None:
    Config.parse(
        {
            "env": {
                "command": ["agent", "--token", "$MY_TOKEN", "--max-tokens=12345678"],
                "agent_options": {"pass_env": ["MY_API_KEY"]},
                "options": {"api_key": "MY_API_KEY", "answer_key": "label", "key": "question", "tokens": "12345678"},
            }
        }
    )


def test_a_key_on_the_command_line_or_in_broken_yaml_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(REPO)
    monkeypatch.setenv("VLLM_API_KEY", OPTIMIZER)
    broken = tmp_path / "broken.yaml"
    broken.write_text(f"models: {{target_key: {OPTIMIZER}\n")
    sim = ("--config", "configs/sim/default.yaml")
    for command in (
        ("train", *sim, f"models.target_key={OPTIMIZER}"),
        ("train", *sim, OPTIMIZER),
        ("train", *sim, "--target_model", f"vllm:{OPTIMIZER}"),
        ("plan", "--config", str(broken)),
    ):
        code, told = here(capsys, *command)
        assert code == 2
        assert MARK not in told, command


def test_a_skill_or_data_with_a_key_of_the_environment_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", TARGET)
    (tmp_path / "skill.md").write_text(f"Use {TARGET}.")
    with pytest.raises(UserError, match="contains the value of SOME_API_KEY") as caught:
        read_initial(str(tmp_path / "skill.md"))
    assert MARK not in str(caught.value)
    splits = {split: [Item(id=split, question=split, answers=("a",))] for split in SPLITS}
    check_splits(QAEnv(EnvConfig(), splits))
    splits["val"].append(Item.model_validate({"id": "bad", "question": "Q", "note": {"deep": f"ask with {TARGET}"}}))
    with pytest.raises(UserError, match="item 'bad': contains the value of SOME_API_KEY"):
        check_splits(QAEnv(EnvConfig(), splits))


# Child processes


def test_every_child_process_is_told_what_it_gets_of_the_environment() -> None:
    """Only what runs our own commands for the user (the web page's), and does what this process would do, gets all."""
    whole = []
    for path in sorted((REPO / "src").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            name = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
            if not name.endswith(("Popen", "create_subprocess_exec", "create_subprocess_shell", "subprocess.run")):
                continue
            assert isinstance(call, ast.Call)
            given = [ast.unparse(word.value) for word in call.keywords if word.arg == "env"]
            where = f"{path.relative_to(REPO / 'src')}"
            assert given, f"{where}:{call.lineno}: a child inherits everything"
            if "os.environ" in given[0]:
                whole.append(where)
    assert whole == ["skillopt/tasks/executor/processes.py", "skillopt_webui/launch.py", "skillopt_webui/questions.py"]


# Who may read


@contextlib.contextmanager
def masked(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("dotenv", "chosen", "folder", "journal"),
    [
        (False, "", 0o755, 0o644),
        (True, "", 0o700, 0o600),
        (False, "env.private=true", 0o700, 0o600),
        (True, "env.private=false", 0o755, 0o644),
    ],
)
def test_a_run_is_closed_to_others_where_keys_lie_near_or_by_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dotenv: bool, chosen: str, folder: int, journal: int
) -> None:
    monkeypatch.chdir(tmp_path)
    if dotenv:
        (tmp_path / ".env").write_text("SOME_API_KEY=\n")
    with masked(0o022):
        result = train_sim(tmp_path / "out", "train.num_epochs=1", *SMALL[1:], *filter(None, [chosen]))
    run = RunDirectory(result.path)
    assert mode(run.root) == folder
    assert mode(run.journal) == journal
    assert read_json(run.summary)["status"] == "finished"


def test_going_on_with_a_run_can_close_it_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with masked(0o022):
        open_to_all = train_sim(tmp_path / "out", "train.num_epochs=1", *SMALL[1:])
        assert mode(open_to_all.path) == 0o755
        closed = train_sim(tmp_path / "out", "train.num_epochs=1", *SMALL[1:], "env.private=true")
    assert closed.path == open_to_all.path, "who may read is no part of what a run is"
    assert mode(closed.path) == 0o700
    assert mode(RunDirectory(closed.path).journal) == 0o600


def test_doctor_tells_of_a_dotenv_that_others_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skillopt.preflight.doctor import examine

    monkeypatch.chdir(tmp_path)
    config = Config.load(REPO / "configs" / "sim" / "default.yaml", [f"env.output_root={tmp_path}"])
    for rights, told in ((0o644, ["chmod 600 .env"]), (0o600, [])):
        Path(".env").touch()
        Path(".env").chmod(rights)
        assert [check.fix for check in asyncio.run(examine(config, offline=True)) if check.name == "keys"] == told
