"""A run's folder from somewhere else: its links lead nowhere, and its pipes and devices are not waited for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillopt.errors import UserError
from skillopt.record.comments import add_comment
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json, write_json
from support import REPO, skillopt, train_sim
from support.webui import Ui, make_workspace, serving

SHORT = ("train.num_epochs=1", "train.batch_size=12", "env.options={rules: 6, train: 12, val: 10, test: 6}")
SECRET = "of the machine, not of the run"
TOO_LONG = 120
"""Seconds after which a command or a request counts as hanging."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_sim(tmp_path_factory.mktemp("trained"), *SHORT).path


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    with serving(make_workspace(tmp_path_factory.mktemp("page") / "work")) as ui:
        yield ui


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text(SECRET)
    return path


@pytest.fixture
def on_page(page: Ui, trained: Path) -> Iterator[RunDirectory]:
    """A copy of the run under the page's folder, taken away again."""
    folder = page.workspace / "outputs" / "sim" / "seed42-foreign"
    shutil.copytree(trained, folder)
    yield RunDirectory(folder)
    shutil.rmtree(folder)


def put_link(path: Path, to: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(to)


def put_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def let_go(pipe: Path) -> None:
    """Whoever waits for the pipe gets its end, so that a failed test does not hang as well."""
    if pipe.is_fifo():
        handle = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        pipe.unlink()
        os.close(handle)


def ask(ui: Ui, path: str, body: Any = None) -> tuple[int, str]:
    """Status and text; fails if no answer comes."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(ui.url + path.lstrip("/"), data=data, headers={"X-SkillOpt": "1"})
    try:
        with urllib.request.urlopen(request, timeout=TOO_LONG) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except TimeoutError:
        pytest.fail(f"{path}: the page hangs")


def command(*arguments: str, cwd: Path = REPO) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [sys.executable, "-m", "skillopt.cli", *arguments],
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=TOO_LONG,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"skillopt {arguments[0]} hangs")


# Links are not written through.


def test_a_link_at_the_name_of_a_draft_is_not_written_through(tmp_path: Path, victim: Path) -> None:
    put_link(tmp_path / ".labels.json.tmp", victim)
    write_json(tmp_path / "labels.json", {"name": "mine"})
    assert victim.read_text() == SECRET
    assert read_json(tmp_path / "labels.json") == {"name": "mine"}
    assert not (tmp_path / "labels.json").is_symlink()


def test_comments_are_not_appended_through_a_link(tmp_path: Path, victim: Path) -> None:
    put_link(tmp_path / "comments.jsonl", victim)
    with contextlib.suppress(OSError, UserError):
        add_comment(RunDirectory(tmp_path), kind="item", about="7", split="train", text="wrong")
    assert victim.read_text() == SECRET


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [
        (".labels.json.tmp", "labels", {"name": "x", "note": "", "tags": []}),
        ("comments.jsonl", "comments", {"kind": "item", "about": "7", "split": "train", "text": "wrong"}),
    ],
)
def test_the_page_writes_through_no_link(
    page: Ui, on_page: RunDirectory, victim: Path, name: str, path: str, body: Any
) -> None:
    put_link(on_page.root / name, victim)
    status, text = ask(page, f"/api/runs/0/sim/{on_page.root.name}/{path}", body)
    assert victim.read_text() == SECRET
    assert status == 404, text
    assert f"{name}: is a link" in text


@pytest.mark.parametrize("name", ["run.lock", "events.jsonl", "history.json", "journal.sqlite"])
def test_a_training_writes_through_no_link(trained: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(trained, tmp_path / "out" / "sim" / trained.name)
    run = RunDirectory(tmp_path / "out" / "sim" / trained.name)
    victim = tmp_path / "victim"
    (run.root / name).rename(victim)
    (run.root / name).symlink_to(victim)
    before = victim.read_bytes()
    with contextlib.suppress(UserError):
        train_sim(tmp_path / "out", *SHORT)
    assert victim.read_bytes() == before
    with pytest.raises(UserError, match=f"{name}: is a link"):
        train_sim(tmp_path / "out", *SHORT)


def test_a_report_is_not_written_through_a_linked_folder(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "outside").mkdir()
    shutil.rmtree(tmp_path / "run" / "plots", ignore_errors=True)
    (tmp_path / "run" / "plots").symlink_to(tmp_path / "outside")
    done = skillopt("report", str(tmp_path / "run"))
    assert list((tmp_path / "outside").iterdir()) == []
    assert done.returncode == 2
    assert "plots: is a link" in done.stderr


def test_drafts_that_a_killed_process_left_are_removed_when_the_run_is_taken_up(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    for name in (".labels.json.tmp", "steps/step_0001/.gate.json.0a1b2c3d.tmp", "skills/.best_skill.md.12345678.tmp"):
        (tmp_path / "run" / name).write_text("half")
    (tmp_path / "run" / ".best_skill.0a1b2c3d.tmp" / "references").mkdir(parents=True)
    with RunDirectory(tmp_path / "run").held():
        assert [path for path in (tmp_path / "run").rglob("*") if path.name.endswith(".tmp")] == []


# Links are not read through.


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [
        ("config.yaml", "/api/runs/RUN/config", None),
        ("config.yaml", "/api/configs/load", {"run": "RUN"}),
        ("skills/skill_v0000.md", "/api/diff", {"a": {"run": "RUN", "version": 0}, "b": {"run": "RUN", "version": 1}}),
        ("best_skill.md", "/api/runs/RUN/export/best", None),
        ("report.html", "/api/runs/RUN/report", None),
        ("events.jsonl", "/api/runs/RUN/events", None),
        ("labels.json", "/api/runs", None),
    ],
)
def test_the_page_reads_through_no_link(
    page: Ui, on_page: RunDirectory, tmp_path: Path, name: str, path: str, body: Any
) -> None:
    texts = {".yaml": f"env: {{name: sim, benchmark: '{SECRET}'}}\n", ".json": json.dumps({"name": SECRET})}
    texts[".jsonl"] = json.dumps({"kind": "run_started", "time": 0, "note": SECRET}) + "\n"
    (tmp_path / "victim").write_text(texts.get(Path(name).suffix, SECRET))
    put_link(on_page.root / name, tmp_path / "victim")
    run = f"0/sim/{on_page.root.name}"
    sent = None if body is None else json.loads(json.dumps(body).replace("RUN", run))
    assert SECRET not in ask(page, path.replace("RUN", run), sent)[1]


def test_the_page_reads_through_no_linked_folder(page: Ui, on_page: RunDirectory, tmp_path: Path) -> None:
    on_page.skills.rename(tmp_path / "outside")
    on_page.skills.symlink_to(tmp_path / "outside")
    (tmp_path / "outside" / "skill_v0000.md").write_text(SECRET)
    assert SECRET not in ask(page, f"/api/runs/0/sim/{on_page.root.name}/skills/0")[1]


@pytest.mark.extras
def test_the_mcp_server_reads_through_no_link(trained: Path, tmp_path: Path, victim: Path) -> None:
    pytest.importorskip("mcp", reason="pip install 'skillopt[mcp]'")
    from support.mcp_client import connected

    space = make_workspace(tmp_path / "work")
    run = RunDirectory(space / "outputs" / "sim" / trained.name)
    shutil.copytree(trained, run.root)
    put_link(run.report_md, victim)
    put_link(run.best_skill, victim)

    async def asked() -> list[str]:
        texts = []
        async with connected(space) as (_, call):
            for tool in ("report", "best_skill"):
                try:
                    texts.append(str(await call(tool, run=f"sim/{trained.name}")))
                except ValueError as refused:
                    texts.append(str(refused))
        return texts

    for text in asyncio.run(asked()):
        assert SECRET not in text
        assert "is a link" in text


def test_the_terminal_reads_through_no_link_in_a_run_but_opens_a_run_by_a_link(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "named").symlink_to(tmp_path / "run")
    for arguments in (("diff", str(tmp_path / "named")), ("verify", str(tmp_path / "named")), ("runs", str(tmp_path))):
        done = skillopt(*arguments)
        assert done.returncode == 0, done.stderr
    (tmp_path / "victim").write_text(SECRET)
    put_link(tmp_path / "run" / "best_skill.md", tmp_path / "victim")
    done = skillopt("diff", str(tmp_path / "named"))
    assert SECRET not in done.stdout
    assert done.returncode == 2
    assert "best_skill.md: is a link" in done.stderr


def test_files_that_a_user_names_may_be_links(tmp_path: Path) -> None:
    (tmp_path / "skill.md").write_text("Answer in capitals.\n")
    (tmp_path / "link.md").symlink_to(tmp_path / "skill.md")
    assert "equal" in skillopt("diff", str(tmp_path / "link.md"), str(tmp_path / "skill.md")).stdout
    result = train_sim(tmp_path / "out", *SHORT, f"train.init_skill={tmp_path / 'link.md'}")
    assert RunDirectory(result.path).snapshot(0).read_text().startswith("Answer in capitals.")


# Pipes and devices are not waited for.


def test_a_pipe_in_a_run_does_not_hang_the_list_of_runs(trained: Path, tmp_path: Path) -> None:
    names = ("config.json", "summary.json", "run.lock", "events.jsonl")
    for name in names:
        run = tmp_path / "out" / "sim" / f"run-{name}"
        shutil.copytree(trained, run)
        if name == "events.jsonl":  # read if a run has no summary
            (run / "summary.json").unlink()
        put_pipe(run / name)
    done = command("runs", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("unreadable") == len(names)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("config.json", "/api/runs"),
        ("labels.json", "/api/runs"),
        ("history.json", "/api/runs/RUN"),
        ("config.yaml", "/api/runs/RUN/config"),
        ("events.jsonl", "/api/runs/RUN/events"),
        ("skills/skill_v0000.md", "/api/runs/RUN/diff?a=0&b=1"),
    ],
)
def test_a_pipe_in_a_run_does_not_hang_the_page(page: Ui, on_page: RunDirectory, name: str, path: str) -> None:
    put_pipe(on_page.root / name)
    try:
        status, text = ask(page, path.replace("RUN", f"0/sim/{on_page.root.name}"))
    finally:
        let_go(on_page.root / name)
    assert status in {200, 404}, text


WAITING = """
import asyncio, json, os, resource, sys
from pathlib import Path
from skillopt.training.requests.replies import text_schema
from skillopt.models.base import ChatRequest
from skillopt.models.handoff import Box, HandoffModel, model
resource.setrlimit(resource.RLIMIT_AS, (1500 << 20, 1500 << 20))
model.POLL = 0.01
box = Box(Path(sys.argv[1]), "run")
asked = ChatRequest(messages=({"role": "user", "content": "Which?"},), schema=text_schema("slow_update", "guidance"))

async def main():
    reply = asyncio.create_task(HandoffModel(box).chat(asked))
    while not box.open_letters():
        await asyncio.sleep(0.01)
    letter = box.letter(1)
    if sys.argv[2] == "pipe":
        os.mkfifo(letter.reply)
    else:
        letter.reply.symlink_to(sys.argv[2])
    while not letter.problem.exists():
        assert not reply.done(), reply
        await asyncio.sleep(0.01)
    print(letter.problem.read_text())
    box.hand_in(1, json.dumps({"reason": "as they are", "guidance": "none"}).encode())
    await reply

asyncio.run(main())
"""


@pytest.mark.parametrize("what", ["pipe", "/dev/zero", "nothing", "good.json"])
def test_a_reply_that_is_not_a_regular_file_is_sent_back(tmp_path: Path, what: str) -> None:
    (tmp_path / "good.json").write_text('{"reason": "as they are", "guidance": "none"}')
    goal = str(tmp_path / what) if what.endswith(("nothing", ".json")) else what
    arguments = [sys.executable, "-c", WAITING, str(tmp_path / "letters"), goal]
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=TOO_LONG, check=False)
    except subprocess.TimeoutExpired:
        pytest.fail("whoever waits for the reply hangs")
    assert done.returncode == 0, done.stderr
    assert "must be a regular file" in done.stdout
    assert (tmp_path / "good.json").exists()


@pytest.mark.parametrize("name", ["0002.json", "0001.problem.md"])
def test_a_pipe_among_letters_does_not_hang_their_list(tmp_path: Path, name: str) -> None:
    asked = {"run": "r", "hash": "h", "stage": "merge", "messages": [], "schema": None, "max_tokens": None}
    write_json(tmp_path / "0001.json", {"number": 1, **asked})
    os.mkfifo(tmp_path / name)
    done = command("letters", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    assert [row["number"] for row in json.loads(done.stdout)["letters"]] == [1]


@pytest.mark.parametrize("view", ["", "/failures", "/items", "/costs"])
def test_a_run_with_numbers_of_thousands_of_digits_is_damaged_and_nothing_worse(
    page: Ui, on_page: RunDirectory, view: str
) -> None:
    text = on_page.summary.read_text()
    on_page.summary.write_text(re.sub(r": [0-9]+([,}\n])", rf": {'9' * 4000}\1", text))
    status, answer = page.ask(f"/api/runs/0/sim/{on_page.root.name}{view}")
    assert status in {200, 400}, answer


@pytest.mark.parametrize(
    "body",
    [
        {"type": "array", "minItems": 300_000, "items": {"type": "string"}},
        {"type": "array", "minItems": 20, "items": {"type": "array", "minItems": 20_000, "items": {"type": "null"}}},
        {"type": "string", "minLength": 4_000_000, "maxLength": 4_000_000},
        {"type": "string", "pattern": "^(a+)+$"},
        {"type": "string", "pattern": "^((a|a)(a|a)(a|a))$"},
        {"type": "string", "pattern": r"^(\w*\w*\w*)$"},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"type": "string", "patternProperties": {"^(a+)+$": {}}},
    ],
    ids=["items", "items of items", "length", "nested", "alternatives", "classes", "reference", "names"],
)
def test_the_schema_of_a_foreign_letter_is_not_worked_through_if_it_asks_for_too_much(
    page: Ui, body: dict[str, Any]
) -> None:
    folder = page.workspace / "outputs" / "sim" / "seed42-letters"
    (folder / "letters").mkdir(parents=True)
    write_json(folder / "config.json", {"models.optimizer_model": "handoff"})
    (folder / "config.yaml").write_text("env: {name: sim}\n")
    whole = {"type": "object", "required": ["a"], "properties": {"a": body}}
    letter = {"run": folder.name, "hash": "x", "stage": "merge", "messages": [{"role": "user", "content": "hi"}]}
    schema = {"schema": {"name": "merge", "body": whole}, "max_tokens": None}
    write_json(folder / "letters" / "0001.json", {"number": 1, **letter, **schema})
    try:
        address = f"/api/runs/0/sim/{folder.name}/letters/1"
        assert [page.ask(address)[0], page.ask(address, {"reply": '{"a": "aaaa!"}'})[0]] == [400, 400]
        assert "the schema of the reply" in page.ask(address)[1]["error"]
        assert page.get(f"/api/runs/0/sim/{folder.name}/letters")["letters"], "it is listed all the same"
    finally:
        shutil.rmtree(folder)
