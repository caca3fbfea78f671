"""Tasks whose result is files: fresh copies, checks that look at them, differences that are kept, limits."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import skillopt
from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.measure.evaluate import evaluate
from skillopt.models.base import ChatReply, ChatRequest
from skillopt.models.bound import UnseenModel
from skillopt.skill import Skill
from skillopt.tasks.base import Item, ScorerError, check_splits, score_output
from skillopt.tasks.checks import compare_files, read_result
from skillopt.tasks.qa import QAEnv
from skillopt.tasks.shell import written_command
from skillopt.tasks.workspace import Workspaces, difference, restore
from support import REPO, ends_within
from support.workspaces import ROWS, SKILL, config_of, rolled_out, script

UPPER = "tr a-z A-Z < a.txt > t && mv t a.txt; echo done\n"


def command(folder: Path, text: str, rows: list[dict[str, Any]] = ROWS, **env: Any) -> Config:
    return config_of(folder, rows, command=str(script(folder / "agent.sh", text)), **env)


def test_a_changed_file_is_scored_and_its_difference_is_kept(tmp_path: Path) -> None:
    episode = rolled_out(command(tmp_path, UPPER + "echo new > c.txt; rm b/keep.txt; pwd > where\n"))
    assert (episode.score.hard, episode.score.feedback) == (1, "")
    assert [(c.kind, c.path) for c in episode.changes] == [
        ("changed", "a.txt"), ("removed", "b/keep.txt"), ("added", "c.txt"), ("added", "where"),
    ]  # fmt: skip
    assert "-word" in episode.changes[0].shown
    assert "+WORD" in episode.changes[0].shown
    assert episode.changes[2].shown == "new\n"
    assert not Path(episode.changes[3].shown.strip()).exists(), "the copy is removed"


def test_what_the_agent_did_not_do_is_named_in_the_feedback(tmp_path: Path) -> None:
    episode = rolled_out(command(tmp_path, "echo done\n"))
    assert episode.score.hard == 0
    assert episode.score.feedback.startswith("a.txt: line 1 is 'word ")
    assert episode.changes == ()


def test_the_agent_sees_neither_the_expected_files_nor_the_check(tmp_path: Path) -> None:
    rows = [{**row, "check": "true", "check_files": ""} for row in ROWS]
    seen = tmp_path / "seen"
    rolled_out(command(tmp_path, f'cat "$SKILLOPT_ITEM" > {seen}; find .. -type f >> {seen}\n', rows))
    text = seen.read_text()
    assert '"workspace"' in text
    assert "expected" not in text
    assert "WORD" not in text
    assert "check" not in text


def test_a_rollout_in_the_journal_is_scored_again_without_being_done_again(tmp_path: Path) -> None:
    count, journal = tmp_path / "count", tmp_path / "journal.sqlite"
    config = command(tmp_path, f"echo x >> {count}\n{UPPER}")
    assert rolled_out(config, journal).score.hard == 1
    again = rolled_out(config, journal)
    assert (again.score.hard, [c.path for c in again.changes]) == (1, ["a.txt"])
    (tmp_path / "scorer.py").write_text(
        "def score(item, output, workspace):\n    return (workspace / 'a.txt').read_text() == 'WORD'\n"
    )
    changed = command(tmp_path, f"echo x >> {count}\n{UPPER}", scoring=f"{tmp_path}/scorer.py:score")
    assert rolled_out(changed, journal).score.hard == 0, "another check of the same files"
    assert count.read_text() == "x\n"


def test_a_function_gets_the_workspace_by_the_parameters_name(tmp_path: Path) -> None:
    (tmp_path / "scorer.py").write_text(
        "def score(item, output, workspace):\n"
        "    text = (workspace / 'a.txt').read_text()\n"
        "    return float(text.isupper() and output == 'done'), f'a.txt is {text!r}'\n"
    )
    config = command(tmp_path, UPPER, scoring=f"{tmp_path}/scorer.py:score")
    assert rolled_out(config).score.hard == 1
    done = asyncio.run(evaluate(config, SKILL, split="test"))
    assert done["hard"] == 1


def test_a_function_that_crashes_sets_its_item_aside(tmp_path: Path) -> None:
    (tmp_path / "scorer.py").write_text(
        "def score(item, output, workspace):\n    return (workspace / 'x').read_text()\n"
    )
    with pytest.raises(ScorerError, match="FileNotFoundError"):
        rolled_out(command(tmp_path, UPPER, scoring=f"{tmp_path}/scorer.py:score"))


def test_an_agent_that_deletes_its_workspace_has_not_solved_its_task(tmp_path: Path) -> None:
    episode = rolled_out(command(tmp_path, 'rm -rf "$PWD"; echo done\n'))
    assert (episode.score.hard, episode.score.feedback) == (0, "a.txt: is missing")
    assert [c.kind for c in episode.changes] == ["removed", "removed"]


def test_an_agent_that_replaces_its_workspace_by_a_link_reaches_nothing(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("private")
    text = f'here="$PWD"; cd ..; rm -rf "$here"; ln -s {tmp_path} "$here"; echo done\n'
    episode = rolled_out(command(tmp_path, text))
    assert "private" not in repr(episode)
    assert (tmp_path / "secret.txt").read_text() == "private"


def test_links_that_an_agent_leaves_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("private")
    episode = rolled_out(command(tmp_path, f"ln -s {tmp_path}/secret.txt l; ln -s {tmp_path} d; {UPPER}"))
    assert [c.path for c in episode.changes] == ["a.txt"]
    assert "private" not in repr(episode)


def test_a_workspace_that_grows_without_end_is_a_failure_of_the_agent(tmp_path: Path) -> None:
    config = command(tmp_path, "head -c 3000000 /dev/zero > big\n", options={"workspace_mb": 2})
    episode = rolled_out(config)
    assert (episode.score.hard, episode.score.feedback) == (0, "the workspace was left with more than 2 MB")


def test_a_key_that_an_agent_writes_down_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret-value-123456")
    config = command(tmp_path, 'echo "$SOME_API_KEY" > k.txt\n', agent_options={"pass_env": ["SOME_API_KEY"]})
    journal = tmp_path / "journal.sqlite"
    episode = rolled_out(config, journal)
    assert "very-secret" not in repr(episode)
    assert b"very-secret" not in journal.read_bytes()
    start = Workspaces(tmp_path).start(Item(id="x", question="q"))
    (tmp_path / "left").mkdir()
    (tmp_path / "left" / "k.bin").write_bytes(b"\x00sk-very-secret-value-123456\xff")
    restore(start, difference(start, tmp_path / "left", 1 << 20).packed, tmp_path / "restored")
    assert (tmp_path / "restored" / "k.bin").read_bytes() == b"\x00***\xff"


def test_a_function_as_the_agent_works_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(
        "async def agent(item, skill, model, workspace):\n"
        "    file = workspace / 'a.txt'\n    file.write_text(file.read_text().upper())\n    return 'done'\n"
    )
    config = config_of(tmp_path, agent=f"{tmp_path}/agent.py:agent")
    assert rolled_out(config, model=UnseenModel("agent:own")).score.hard == 1


def test_one_reply_cannot_change_files_and_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"set env\.agent=shell"):
        check_splits(QAEnv(config_of(tmp_path).env))


def test_functions_of_a_program_do_and_score_workspace_tasks(tmp_path: Path) -> None:
    def agent(item: Any, skill: Skill, model: Any, workspace: Path) -> str:
        (workspace / "a.txt").write_text((workspace / "a.txt").read_text().upper())
        return "done"

    def scorer(item: Any, output: str, workspace: Path) -> tuple[bool, str]:
        return (workspace / "a.txt").read_text() == item["expected"]["a.txt"], "not upper case"

    common: dict[str, Any] = {"tasks": ROWS, "agent": agent, "models": {"target": UnseenModel("agent:own")}}
    out = {"env": {"output_root": str(tmp_path)}}
    assert skillopt.evaluate(out, SKILL, scorer=scorer, **common)["score"] == 1
    assert skillopt.evaluate({"env": {**out["env"], "scoring": "files"}}, SKILL, **common)["score"] == 1


def test_a_folder_of_files_is_copied_and_its_content_makes_another_run(tmp_path: Path) -> None:
    folder = tmp_path / "start" / "one"
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("word 1\n")
    (folder / "run.sh").write_text("echo hi\n")
    (folder / "run.sh").chmod(0o755)
    rows = [{**row, "workspace": "start/one", "expected": {"a.txt": "WORD 1\n"}} for row in ROWS]
    config = command(tmp_path, "./run.sh && " + UPPER, rows)
    assert rolled_out(config).score.hard == 1
    before = QAEnv(config.env).fingerprint
    (folder / "a.txt").write_text("word 2\n")
    assert QAEnv(config.env).fingerprint != before


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"workspace": {"../x": "a"}}, "leads out of the workspace"),
        ({"workspace": {"/etc/x": "a"}}, "leads out of the workspace"),
        ({"workspace": {"": "a"}}, "leads out of the workspace"),
        ({"workspace": "../outside"}, "leads out of"),
        ({"workspace": "nowhere"}, "is not a folder"),
        ({"workspace": "linked"}, "'l' is a link"),
        ({"workspace": "piped"}, "neither a file nor a folder"),
        ({"workspace": "large"}, "'big.bin' has 1024 MB; the limit is 64 MB"),
        ({"workspace": 3}, "must be the name of a folder"),
        ({"workspace": {"a": "x", "a/b": "y"}}, "a folder above 'a/b' is also given as a file"),
        ({"workspace": {"a": "x"}, "files": {"a/b": "y"}}, "a folder above 'a/b' is also given as a file"),
        ({"expected": {"../x": "a"}}, "leads out of the workspace"),
        ({"expected": {}}, "is missing"),
    ],
)
def test_a_bad_workspace_is_refused_before_anything_is_paid(tmp_path: Path, row: dict[str, Any], told: str) -> None:
    for name in ("linked", "piped", "large"):
        (tmp_path / name).mkdir()
    (tmp_path / "linked" / "l").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "piped" / "p")
    with (tmp_path / "large" / "big.bin").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(UserError) as caught:
        QAEnv(command(tmp_path, UPPER, [{**each, **row} for each in ROWS]).env)
    assert told in str(caught.value)
    assert "item 'q" in str(caught.value)


def test_what_is_left_of_any_workspace_comes_back_byte_for_byte(tmp_path: Path) -> None:
    item = Item(id="x", question="q", workspace={"a": "1", "d/b": "2", "f": "3"})
    start = Workspaces(tmp_path, [item]).start(item)
    here, there = tmp_path / "here", tmp_path / "there"
    start.write_to(here)
    (here / "a").unlink()
    (here / "a").mkdir()
    (here / "a" / "inner").write_bytes(bytes(range(256)))
    (here / "d" / "b").unlink()
    (here / "d").rmdir()
    (here / "d").write_text("a file now")
    (here / "f").chmod(0o755)
    (here / "__pycache__").mkdir()
    (here / "__pycache__" / "x.pyc").write_text("no")
    left = difference(start, here, 1 << 20)
    restore(start, left.packed, there)
    files = {p.relative_to(there).as_posix(): p.read_bytes() for p in there.rglob("*") if p.is_file()}
    assert files == {"a/inner": bytes(range(256)), "d": b"a file now", "f": b"3"}
    assert (there / "f").stat().st_mode & 0o100


def test_names_that_no_file_should_have_and_pipes_are_left_out(tmp_path: Path) -> None:
    start = Workspaces(tmp_path).start(Item(id="x", question="q"))
    here = tmp_path / "here"
    (here / "bad\x01folder").mkdir(parents=True)
    (here / "bad\x01folder" / "a").write_text("a")
    (here / "back\\slash").write_text("b")
    (here / os.fsdecode(b"not-utf8-\xff")).write_text("c")
    (here / "good").write_text("d")
    os.mkfifo(here / "pipe")
    left = difference(start, here, 1 << 20)
    assert [change.path for change in left.changes] == ["good"]
    restore(start, left.packed, tmp_path / "there")


@pytest.mark.parametrize(
    ("name", "got", "want", "told"),
    [
        ("a.txt", "one \r\ntwo\n\n", "one\ntwo", ""),
        ("a.txt", "one\ntwo", "one\n2", "line 2 is 'two', expected '2'"),
        ("a.txt", "one", "one\ntwo", "has 1 lines, expected 2"),
        ("a.json", '{"b": [1, 2.0], "a": null}', '{"a": null, "b": [1, 2]}', ""),
        ("a.json", '{"a": 1}', '{"a": true}', ".a is 1, expected True"),
        ("a.json", '{"a": [1]}', '{"a": [1, 2]}', ".a has 1 values, expected 2"),
        ("a.json", "{", "{}", "is not JSON"),
        ("a.json", '{"a": 1, "z": 2}', '{"a": 1}', "the object has 'z', which is not expected"),
        ("a.csv", 'a, "b"\n"1",2\n', "a,b\n1,2", "row 1 is"),
        ("a.csv", '"a",b\n1 ,2\n', "a,b\n1,2", ""),
        ("a.csv", "a,b\n1,3\n", "a,b\n1,2", "row 2 is '1,3', expected '1,2'"),
        ("a.tsv", "a\tb", "a\tb", ""),
    ],
)
def test_files_are_compared_by_their_kind(name: str, got: str, want: str, told: str) -> None:
    found = compare_files(name, got.encode(), want.encode())
    assert found.startswith(told) if told else not found


def test_the_end_of_a_check_is_a_score_or_its_own_failure() -> None:
    assert read_result("", "", 0, "").hard == 1
    assert read_result("two tests failed", "", 1, "").feedback == "two tests failed"
    half = read_result('log\n{"score": 0.5, "feedback": "half"}\n', "", 3, "exit code 3")
    assert (half.hard, half.soft, half.feedback) == (0, 0.5, "half")
    with pytest.raises(ScorerError, match="a number from 0 to 1"):
        read_result('{"score": 7}', "", 0, "")
    with pytest.raises(ScorerError, match=r"the check failed: exit code 127 \(pytest: not found\)"):
        read_result("", "pytest: not found\n", 127, "")


# In the sandbox


def test_thousands_of_folders_within_folders_are_left_out_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    deep = "python3 - <<'END'\nimport os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\nEND\n"
    try:
        episode = rolled_out(command(tmp_path, f"{deep}{UPPER}"))
    except RecursionError:
        subprocess.run(["rm", "-rf", str(scratch)], check=True)  # pytest could not
        pytest.fail("the rollout ended with a RecursionError")
    assert (episode.score.hard, [change.path for change in episode.changes]) == (1, ["a.txt"])
    assert list(scratch.iterdir()) == []


class Scripted:
    """A chat model that sends these commands one after the other."""

    name = endpoint = "scripted"
    deterministic = True

    def __init__(self, *commands: str, tools: bool = True) -> None:
        self._commands, self._tools, self.seen = commands, tools, []  # type: ignore[var-annotated]

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.seen.append(request)
        done = sum(message["role"] == "assistant" for message in request.messages)
        if done >= len(self._commands):
            return ChatReply(text="Done.")
        command = self._commands[done]
        if not self._tools:
            return ChatReply(text=f"I run this:\n```sh\n{command}\n```")
        call = {"name": "run", "arguments": json.dumps({"command": command})}
        return ChatReply(text="", tool_calls=({"id": f"c{done}", "type": "function", "function": call},))

    async def close(self) -> None:
        return


@pytest.mark.sandbox
@pytest.mark.parametrize("tools", [True, False])
def test_any_chat_model_does_workspace_tasks_with_the_shell_agent(tmp_path: Path, tools: bool) -> None:
    model = Scripted("cat a.txt", UPPER, "ls missing; cat a.txt", tools=tools)
    episode = rolled_out(config_of(tmp_path, agent="shell"), model=model)
    assert (episode.score.hard, episode.output) == (1, "Done.")
    results = [m["content"] for m in episode.messages if m["role"] == ("tool" if tools else "user")][-3:]
    assert results[0].startswith("word ")
    assert results[1] == "done"
    assert "No such file" in results[2]
    assert [c.path for c in episode.changes] == ["a.txt"]
    assert model.seen[0].messages[0] == {"role": "system", "content": "Upper case."}


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("reply", "command"),
    [
        ('{"name":"run","arguments":{' * 100_000, ""),
        ("```sh\n" * 100_000, ""),
        ("```sh" + " " * 1_000_000, ""),
        ('{"name":"run","arguments":{"a":' + "[" * 1_000_000, ""),
        ('I call {"name": "run", "arguments": {"command": "echo {} }"} } now', "echo {} }"),
        ('{"name": "run", "arguments": {"command": "ls"}', ""),
    ],
    ids=["calls", "blocks", "spaces", "deep", "braces", "cut off"],
)
def test_a_command_in_a_reply_is_found_however_long_the_reply_is(reply: str, command: str) -> None:
    with ends_within(120):
        assert written_command(reply) == command


@pytest.mark.slow
def test_the_shell_agent_ends_at_its_turns_and_its_commands_at_their_time(tmp_path: Path) -> None:
    options = {"turns": 3, "limits": {"seconds": 1}}
    model = Scripted("sleep 600", *["true"] * 50)
    episode = rolled_out(config_of(tmp_path, agent="shell", agent_options=options), model=model)
    assert len(model.seen) == 3
    assert "stopped at the limit of 1 s" in next(m["content"] for m in episode.messages if m["role"] == "tool")
    assert episode.score.hard == 0


@pytest.mark.sandbox
def test_the_shell_agent_reaches_nothing_but_its_workspace(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("private")
    commands = (f"cat {tmp_path}/secret.txt", "touch /usr/x", "python -c 'import socket; socket.socket()'", "env")
    episode = rolled_out(config_of(tmp_path, agent="shell"), model=Scripted(*commands))
    results = [m["content"] for m in episode.messages if m["role"] == "tool"]
    assert "No such file" in results[0]
    assert "Read-only" in results[1]
    assert "PermissionError" in results[2]
    assert "SKILLOPT_SKILL_DIR=/sandbox/skill" in results[3]


@pytest.mark.sandbox
def test_a_command_checks_the_files_in_the_sandbox_with_its_own_files(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "check.py").write_text(
        "import json, os, pathlib\n"
        "own = pathlib.Path(os.environ['SKILLOPT_CHECK'])\n"
        "item, said = json.loads((own / 'item.json').read_text()), (own / 'output.txt').read_text()\n"
        "good = pathlib.Path('a.txt').read_text() == item['expected']['a.txt'] and said == 'done'\n"
        "pathlib.Path('a.txt').unlink()\n"
        "print(json.dumps({'score': 1.0 if good else 0.25, 'feedback': 'wrong'}))\n"
    )
    options = {"command": 'python "$SKILLOPT_CHECK/check.py"', "files": "own"}
    good = rolled_out(command(tmp_path, UPPER, scoring="command", scoring_options=options))
    assert good.score.hard == 1
    bad = rolled_out(command(tmp_path, "echo done\n", scoring="command", scoring_options=options))
    assert (bad.score.hard, bad.score.soft, bad.score.feedback) == (0, 0.25, "wrong")


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("check", "told"), [("exit 7", "exit code 7"), ("nosuchprogram", "exit code 127"), ("sleep 600", "limit of 1 s")]
)
def test_a_check_that_crashes_or_never_ends_sets_its_item_aside(tmp_path: Path, check: str, told: str) -> None:
    options = {"command": check, "timeout": 1}
    with pytest.raises(ScorerError, match=told):
        rolled_out(command(tmp_path, UPPER, scoring="command", scoring_options=options))


@pytest.mark.sandbox
def test_workbooks_are_compared_by_the_values_of_all_their_cells(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")

    def book(path: Path, *values: Any) -> None:
        made = openpyxl.Workbook()
        for number, value in enumerate(values, 1):
            made.active.cell(row=number, column=2, value=value)
        path.parent.mkdir(parents=True, exist_ok=True)
        made.save(path)

    book(tmp_path / "right" / "sums.xlsx", "sum", 3, 4.5)
    book(tmp_path / "good.xlsx", "sum", 3.0, 4.5)
    book(tmp_path / "bad.xlsx", "sum", 3, 5)
    rows = [{**row, "workspace": {}, "expected": "right"} for row in ROWS]
    good = rolled_out(command(tmp_path, f"cp {tmp_path}/good.xlsx sums.xlsx\n", rows))
    assert good.score.hard == 1
    assert good.changes[0].shown.endswith(" bytes)")
    bad = rolled_out(command(tmp_path, f"cp {tmp_path}/bad.xlsx sums.xlsx\n", rows))
    assert bad.score.feedback == "sums.xlsx: Sheet!B3 is 5, expected 4.5"


# The twenty tasks


@pytest.mark.sandbox
@pytest.mark.timeout(600)
def test_a_training_on_the_shipped_tasks_learns_the_house_rules(tmp_path: Path) -> None:
    done = skillopt.train(Config.load(REPO / "configs/workspaces/default.yaml", [f"env.output_root={tmp_path}"]))
    assert done.summary["initial"]["test"] < 0.3
    assert done.summary["best"]["test"] > 0.9
    rows = [json.loads(line) for line in (done.path / "steps/step_0001/trajectories.jsonl").open()]
    assert all(row["changes"] for row in rows if row["type"] != "script")
    shown = (done.path / "report.html").read_text()
    assert "changed invoice.txt" in shown, "the report shows what became of the files"


def test_the_shipped_tasks_are_as_their_maker_makes_them_and_no_task_is_right_untouched(tmp_path: Path) -> None:
    source = REPO / "data" / "workspaces"
    (tmp_path / "make.py").write_text((source / "make.py").read_text())
    subprocess.run([sys.executable, str(tmp_path / "make.py")], check=True)
    for split in ("train", "val", "test"):
        assert (tmp_path / split / "items.json").read_text() == (source / split / "items.json").read_text()
    config = Config.load(REPO / "configs/workspaces/default.yaml")
    env = QAEnv(config.env.model_copy(update={"agent": "", "agent_options": {}}))
    items = [item for split in ("train", "val", "test") for item in env.items(split)]
    assert len(items) == 20
    assert all(asyncio.run(score_output(env, item, "")).hard == 0 for item in items)
