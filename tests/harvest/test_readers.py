# ruff: noqa: E501 - spans, one per line
"""Sessions are read from the transcripts of each agent, from traces and from evals; what is unknown is counted."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from skillopt_harvest.collect import Collection, selected_files
from skillopt_harvest.harvest import harvest
from skillopt_harvest.records import AgentSession, HarvestState, SourceSelection
from skillopt_harvest.redact import Redactor
from skillopt_harvest.sources import opencode as opencode_source
from skillopt_harvest.sources.evals import read_evals
from support import skillopt, transcripts
from support.transcripts import claude_row, large_folder, write_lines

TURNS = [
    ("user", "add date-fns"),
    ("assistant", "$ npm install date-fns"),
    ("user", "no, use pnpm"),
    ("assistant", "$ pnpm add date-fns"),
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "GEMINI_CLI_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def read(selection: SourceSelection, state: HarvestState | None = None) -> tuple[list[AgentSession], Collection]:
    collection = Collection(selection, state or HarvestState(), Redactor())
    return list(collection.read()), collection


WRITERS = {
    "claude-code": transcripts.claude_code,
    "codex": transcripts.codex,
    "opencode": transcripts.opencode,
    "gemini-cli": transcripts.gemini_cli,
    "copilot-cli": transcripts.copilot_cli,
    "cursor": transcripts.cursor,
}


@pytest.mark.parametrize("source", list(WRITERS))
def test_a_session_of_each_agent_is_read_where_the_agent_keeps_it(source: str, home: Path) -> None:
    write: Callable[..., Path] = WRITERS[source]
    write(home, "s1", TURNS)
    (session,), collection = read(SourceSelection(source=source))
    assert [(turn.role, turn.text) for turn in session.turns] == TURNS
    assert session.id.endswith("s1")
    assert not session.headless
    assert not session.subagent
    assert not collection.skipped


def test_an_older_session_of_gemini_is_one_json_file(home: Path) -> None:
    transcripts.gemini_cli(home, "s1", TURNS, lines=False)
    (session,), _ = read(SourceSelection(source="gemini-cli"))
    assert [turn.text for turn in session.turns] == [text for _, text in TURNS]


def test_sessions_of_opencode_are_read_from_its_database(home: Path) -> None:
    folder = opencode_source.root()
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / "opencode.db") as database:
        database.execute("CREATE TABLE session (id, parent_id, directory)")
        database.execute("CREATE TABLE message (id, session_id, data)")
        database.execute("CREATE TABLE part (id, message_id, session_id, data)")
        database.execute("INSERT INTO session VALUES ('ses_1', NULL, '/home/alice/shop')")
        for number, (role, text) in enumerate(TURNS):
            database.execute("INSERT INTO message VALUES (?, 'ses_1', ?)", (f"m{number}", json.dumps({"role": role})))
            part = json.dumps({"type": "text", "text": text})
            database.execute("INSERT INTO part VALUES (?, ?, 'ses_1', ?)", (f"p{number}", f"m{number}", part))
    (session,), first = read(SourceSelection(source="opencode"))
    assert [turn.text for turn in session.turns] == [text for _, text in TURNS]
    with contextlib.closing(sqlite3.connect(folder / "opencode.db")) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("INSERT INTO session VALUES ('ses_2', NULL, '')")
        database.execute("INSERT INTO message VALUES ('n', 'ses_2', '{\"role\": \"user\"}')")
        database.execute("INSERT INTO part VALUES ('q', 'n', 'ses_2', '{\"type\": \"text\", \"text\": \"hello\"}')")
        database.execute("INSERT INTO part VALUES ('r', 'n', 'ses_2', '{broken')")
        database.commit()
        known = HarvestState(files=first.states)
        sessions, second = read(SourceSelection(source="opencode"), known)  # what is new is in a file beside it
    assert [turn.text for turn in sessions[1].turns] == ["hello"]
    assert second.skipped == {"lines that are not JSON": 1}
    (folder / "opencode.db").write_bytes(b"not a database" * 100)
    assert read(SourceSelection(source="opencode"))[1].skipped == {"files that cannot be read": 1}


def test_headless_and_sub_agent_runs_are_left_out_unless_asked_for(home: Path) -> None:
    transcripts.claude_code(home, "mine", TURNS)
    transcripts.claude_code(home, "headless", TURNS, entrypoint="sdk-cli")
    transcripts.claude_code(home, "agent-a1", TURNS, isSidechain=True)
    transcripts.codex(home, "exec", TURNS, source="exec", originator="codex_exec")
    sessions, collection = read(SourceSelection(source="claude-code"))
    assert [session.id for session in sessions] == ["mine"]
    assert collection.left_out == {"headless runs": 1, "sub-agent runs": 1, "": 0}
    assert len(read(SourceSelection(source="claude-code", headless=True, subagents=True))[0]) == 3
    assert read(SourceSelection(source="codex"))[0] == []


def test_only_sessions_of_the_named_project_are_read(home: Path) -> None:
    transcripts.claude_code(home, "here", TURNS)
    transcripts.claude_code(home, "elsewhere", TURNS, cwd="/home/alice/shop-two")
    sessions, _ = read(SourceSelection(source="claude-code", project=Path("/home/alice/shop")))
    assert [session.id for session in sessions] == ["here"]


def test_tools_skills_and_declined_calls_are_part_of_the_session(home: Path) -> None:
    tool = [{"type": "tool_use", "name": "Bash", "input": {"command": "npm install"}}]
    skill = [{"type": "tool_use", "name": "Skill", "input": {"skill": "frontend"}}]
    declined = "The user doesn't want to proceed with this tool use. the user said: use pnpm"
    rows = [
        claude_row("user", "add it", "s"),
        claude_row("assistant", skill, "s"),
        claude_row("assistant", tool, "s"),
        claude_row("user", [{"type": "tool_result", "content": declined}], "s"),
        claude_row("user", "<system-reminder>x</system-reminder>", "s"),
        claude_row("user", "injected", "s", isMeta=True),
    ]
    write_lines(home / ".claude/projects/-p/s.jsonl", rows)
    (session,), _ = read(SourceSelection(source="claude-code"))
    assert session.skills == ("frontend",)
    assert [turn.work for turn in session.turns] == ["add it", "$ Skill: frontend\n$ Bash: npm install", "use pnpm"]
    assert session.turns[2].declined
    read_it = {
        "type": "function_call",
        "name": "shell",
        "arguments": '{"command": ["cat", "/x/skills/deploy/SKILL.md"]}',
    }
    path = transcripts.codex(home, "c", TURNS)
    with path.open("a") as file:
        file.write(json.dumps({"type": "response_item", "payload": read_it}) + "\n")
    assert read(SourceSelection(source="codex"))[0][0].skills == ("deploy",)


def test_unknown_malformed_and_endless_lines_are_skipped_and_counted(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skillopt_harvest.sources.reading.LONGEST_LINE", 2000)
    path = transcripts.claude_code(home, "s", TURNS)
    odd = b'{"type": "from-the-future"}\nnot json\n[]\n' + b'"' + b"x" * 9000 + b'"\n' + b"\xff\xfe\n"
    hostile = (
        b'{"type": "user", "message": 7}\n{"type": "assistant", "message": {"content": [7, null, {"type": "text"}]}}\n'
    )
    path.write_bytes(odd + hostile + path.read_bytes())
    (session,), collection = read(SourceSelection(source="claude-code"))
    assert [turn.text for turn in session.turns] == [text for _, text in TURNS]
    assert collection.skipped["lines of an unknown form"] >= 1
    assert collection.skipped["lines that are not JSON"] == 2
    assert collection.skipped["lines that are not JSON objects"] == 1
    assert collection.skipped["lines longer than 16 MB"] == 1


def test_what_a_user_typed_while_claude_worked_is_theirs_and_a_notification_is_not(home: Path) -> None:
    queued = {"type": "queued_command", "commandMode": "prompt", "prompt": "no, use pnpm", "origin": {"kind": "human"}}
    notice = "<task-notification>no, never do that</task-notification>"
    rows = [
        claude_row("user", "add it", "s"),
        claude_row("assistant", "npm add it", "s"),
        {"type": "attachment", "attachment": queued, "sessionId": "s"},
        {"type": "attachment", "attachment": {**queued, "origin": {"kind": "peer"}}, "sessionId": "s"},
        claude_row("assistant", "pnpm add it", "s"),
        claude_row("user", notice, "s", origin={"kind": "task-notification"}),
    ]
    write_lines(home / ".claude/projects/-p/s.jsonl", rows)
    (session,), _ = read(SourceSelection(source="claude-code"))
    assert [turn.text for turn in session.turns] == ["add it", "npm add it", "no, use pnpm", "pnpm add it"]


def test_a_resumed_or_forked_copy_of_a_session_is_no_second_session(home: Path, tmp_path: Path) -> None:
    for name in ("one", "resumed"):
        transcripts.claude_code(home, name, TURNS, timestamp="2026-11-01T10:00:00.000Z")
    report = harvest(tmp_path / "claude", SourceSelection(source="claude-code"))
    assert [task.sessions for task in report.tasks] == [1]
    path = transcripts.codex(home, "parent", TURNS)
    rows = [{"type": "session_meta", "payload": {"id": "fork", "source": "cli", "forked_from_id": "parent"}}]
    rows += [json.loads(line) for line in path.read_text().splitlines()]
    write_lines(path.with_name("rollout-0-fork.jsonl"), rows)
    report = harvest(tmp_path / "codex", SourceSelection(source="codex"))
    assert [task.sessions for task in report.tasks] == [1]
    assert report.tasks[0].occurrences[0].session == "parent"


def test_a_message_of_gemini_that_is_written_again_is_read_once(home: Path) -> None:
    path = transcripts.gemini_cli(home, "s", TURNS)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    more = {"toolCalls": [{"name": "run_shell_command", "args": {"command": "ls"}}]}
    write_lines(path, [each for row in rows for each in ([row, {**row, **more}] if row.get("type") else [row])])
    (session,), _ = read(SourceSelection(source="gemini-cli"))
    assert [turn.text for turn in session.turns] == [text for _, text in TURNS]
    assert session.turns[1].tools == ("$ run_shell_command: ls",)


def test_what_is_behind_a_link_or_compressed_is_not_read(home: Path, tmp_path: Path) -> None:
    path = transcripts.codex(home, "s", TURNS)
    outside = tmp_path / "outside"
    path.with_name("rollout-x.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    transcripts.codex(outside, "other", TURNS)
    (home / ".codex/sessions/linked").symlink_to(outside / ".codex/sessions")
    path.with_name("rollout-link.jsonl").symlink_to(path)
    sessions, collection = read(SourceSelection(source="codex"))
    assert [session.id for session in sessions] == ["s"]
    assert collection.skipped == {"files that cannot be read": 1}
    (home / ".codex").rename(home / "moved")
    (home / ".codex").symlink_to(home / "moved")  # the agent's own folder may be one
    assert len(read(SourceSelection(source="codex"))[0]) == 1


def test_a_second_read_takes_only_what_was_added(home: Path) -> None:
    path = transcripts.claude_code(home, "s", TURNS)
    state = HarvestState()
    _, first = read(SourceSelection(source="claude-code"), state)
    state = HarvestState(files=first.states)
    assert read(SourceSelection(source="claude-code"), state)[0] == []
    with path.open("a") as file:
        file.write(json.dumps(claude_row("user", "and vitest", "s")) + "\n")
        file.write(json.dumps(claude_row("assistant", [{"type": "text", "text": "$ npm i vitest"}], "s")) + "\n")
    (session,), second = read(SourceSelection(source="claude-code"), state)
    assert session.id == "s"
    assert session.turns[0].text == "add date-fns"  # the last request but one begins the read
    assert session.turns[-1].text == "$ npm i vitest"
    assert session.turns[-1].line == 7
    assert second.states[next(iter(second.states))].offset > 0
    path.write_text(json.dumps(claude_row("user", "rewritten", "s")) + "\n")
    third = read(SourceSelection(source="claude-code"), HarvestState(files=second.states))[0]
    assert [turn.text for turn in third[0].turns] == ["rewritten"]


def test_a_session_that_is_written_while_it_is_read_loses_nothing(home: Path, tmp_path: Path) -> None:
    path = transcripts.claude_code(home, "s", [])
    rows = [claude_row(role, f"{text} {n}", "s") for n in range(60) for role, text in TURNS[:3]]

    def write() -> None:
        with path.open("a") as file:
            for row in rows:
                line = json.dumps(row) + "\n"
                for part in (line[:40], line[40:]):  # a reader may see half a line
                    file.write(part)
                    file.flush()
                    time.sleep(0.0005)

    writer = threading.Thread(target=write)
    writer.start()
    seen: set[str] = set()
    state, skipped = HarvestState(), Counter[str]()
    while True:
        alive = writer.is_alive()
        sessions, collection = read(SourceSelection(source="claude-code"), state)
        seen |= {turn.text for session in sessions for turn in session.turns}
        skipped += collection.skipped
        state = HarvestState(files={**state.files, **collection.states})
        if not alive:
            break
    assert {text for texts in seen for text in texts.split("\n")} >= {
        f"{t} {n}" for n in range(60) for _, t in TURNS[:3]
    }
    assert not skipped


def test_a_line_without_its_end_is_left_for_the_next_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if its rest arrives a moment later: it is not taken for a line that is too long."""
    path = transcripts.claude_code(home, "s", TURNS)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])

    def arrives(file: object) -> int:
        raise AssertionError("a short line was read on")

    monkeypatch.setattr("skillopt_harvest.sources.reading._rest_of_line", arrives)
    (session,), first = read(SourceSelection(source="claude-code"))
    assert len(session.turns) == 3
    path.write_bytes(whole.rstrip())  # whole, but for the line's end
    (session,), _ = read(SourceSelection(source="claude-code"), HarvestState(files=first.states))
    assert session.turns[-1].text == TURNS[-1][1]


def test_a_dry_run_and_bad_names_read_nothing(home: Path) -> None:
    path = transcripts.claude_code(home, "s", TURNS)
    assert selected_files(SourceSelection(source="claude-code")) == [path]
    assert selected_files(SourceSelection(source="claude-code", since=time.time() + 10)) == []
    from skillopt.errors import UserError

    for selection in (
        SourceSelection(source="claud"),
        SourceSelection(source="langfuse"),
        SourceSelection(source="plain", path=home / "no"),
    ):
        with pytest.raises(UserError):
            selected_files(selection)


TRACES = {
    "langfuse": [
        {"id": "t1", "sessionId": "u1", "input": [{"role": "user", "content": "add date-fns"}], "output": "npm i", "scores": [{"name": "thumb", "value": 0, "comment": "no, use pnpm"}]},
        {"id": "t2", "sessionId": "u1", "input": "again", "output": {"content": "pnpm add"}},
        {"id": "o1", "traceId": "t1", "parentObservationId": "x", "input": "a", "output": "b"},
    ],
    "langsmith": [
        {"id": "r1", "trace_id": "t", "inputs": {"messages": [{"role": "user", "content": "add date-fns"}]}, "outputs": {"output": "npm i"}, "extra": {"metadata": {"thread_id": "u1"}}, "feedback": [{"key": "user", "score": 0, "comment": "no, use pnpm"}]},
        {"id": "r2", "trace_id": "t", "inputs": {"input": "again"}, "outputs": {"output": "pnpm add"}, "extra": {"metadata": {"thread_id": "u1"}}},
    ],
    "phoenix": [
        {"context.trace_id": "t", "attributes.session.id": "u1", "attributes.input.value": "add date-fns", "attributes.output.value": "npm i", "annotations": [{"result": {"score": 0, "explanation": "no, use pnpm"}}]},
        {"attributes": {"session": {"id": "u1"}, "llm.input_messages": [{"message": {"role": "user", "content": "again"}}], "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "pnpm add"}]}])}},
    ],
}  # fmt: skip


@pytest.mark.parametrize("source", list(TRACES))
def test_traces_become_sessions_with_their_feedback(source: str, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "export.jsonl", [*TRACES[source], {"strange": True}, {"attributes": 5, "inputs": 3}])
    (session,), _ = read(SourceSelection(source=source, path=path))
    assert session.id == "u1"
    texts = [turn.text for turn in session.turns]
    assert texts[:2] == ["add date-fns", "npm i"]
    assert texts[2].startswith("no, use pnpm")
    assert texts[-1] == "pnpm add"
    assert session.turns[2].declined


def test_the_feedback_of_langsmith_may_be_a_summary(tmp_path: Path) -> None:
    first, second = TRACES["langsmith"]
    stats = {"user": {"n": 1, "avg": 0.0, "comments": ["no, use pnpm"]}}
    path = write_lines(tmp_path / "export.jsonl", [{**first, "feedback": None, "feedback_stats": stats}, second])
    (session,), _ = read(SourceSelection(source="langsmith", path=path))
    assert session.turns[2].text.startswith("no, use pnpm")


def test_evals_become_tasks_with_their_checks(tmp_path: Path) -> None:
    creator = tmp_path / "evals.json"
    cases = [{"id": 1, "prompt": "Make a slide", "expected_output": "One slide", "expectations": ["has a title"]}]
    creator.write_text(json.dumps({"skill_name": "slides", "evals": cases}))
    promptfoo = tmp_path / "promptfooconfig.yaml"
    promptfoo.write_text(
        "prompts: ['Say {{what}} politely']\ntests:\n"
        "- vars: {what: hello}\n  assert: [{type: icontains, value: please}, {type: not-contains, value: damn}]\n"
        "- vars: {what: bye}\n  assert: [{type: javascript, value: 'process.exit(1)'}]\n"
    )
    log = tmp_path / "log.eval"
    with zipfile.ZipFile(log, "w") as archive:
        for number, scores in enumerate([{}, {"includes": {"value": "C"}}, {"model_graded_qa": {"value": "C"}}]):
            sample = {"id": number, "input": "2+2?", "target": ["4", "four"], "scores": scores}
            archive.writestr(f"samples/{number}_epoch_1.json", json.dumps(sample))
        archive.writestr("samples/9_epoch_1.json", json.dumps({"input": "Who?", "target": "jane@example.org"}))
    skipped: Counter[str] = Counter()
    (slide,) = read_evals(creator, "skill-creator", Redactor(), skipped)
    (polite,) = read_evals(promptfoo, "promptfoo", Redactor(), skipped)
    sums = [task.check for task in read_evals(log, "inspect", Redactor(), skipped)]
    assert (slide.skill, slide.check.kind, slide.check.values) == (
        "slides",
        "rubric",
        ("has a title\nExpected: One slide",),
    )
    assert (polite.rule, polite.check.values, polite.check.unwanted) == ("Say hello politely", ("please",), ("damn",))
    assert [check.kind for check in sums] == ["exact", "regex", "rubric"]
    assert sums[0].values == ("4", "four")
    assert skipped == {
        "evals whose check cannot be expressed": 1,
        "evals whose check holds a secret or personal data": 1,
    }


@pytest.mark.slow
def test_a_large_folder_is_read_in_bounded_memory(tmp_path: Path) -> None:
    written = large_folder(tmp_path / "in", 150 << 20)
    program = (
        "import resource, sys; from pathlib import Path; from skillopt_harvest.harvest import harvest\n"
        "from skillopt_harvest.records import SourceSelection\n"
        "used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = used()\n"
        "report = harvest(Path(sys.argv[2]), SourceSelection(source='claude-code', path=Path(sys.argv[1])))\n"
        "print(used() - before, report.corrections)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "in"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    more, corrections = map(int, done.stdout.split())
    assert written >= 150 << 20
    assert corrections == 50
    assert more < 80 * 1024  # kilobytes


def test_a_second_harvest_adds_to_the_first(home: Path, tmp_path: Path) -> None:
    transcripts.claude_code(home, "one", TURNS)
    first = harvest(tmp_path / "out", SourceSelection(source="claude-code"))
    transcripts.claude_code(home, "two", TURNS)
    second = harvest(tmp_path / "out", SourceSelection(source="claude-code"))
    assert [task.is_rule for task in first.tasks] == [False]
    assert second.files == 1
    assert [(task.id, task.sessions) for task in second.tasks] == [(first.tasks[0].id, 2)]


def test_since_last_alone_reads_what_is_new_in_every_source_of_the_folder(home: Path, tmp_path: Path) -> None:
    out, rows = tmp_path / "out", [tmp_path / f"{name}.jsonl" for name in "ab"]
    for path in rows:
        transcripts.plain(path, [(path.stem, (("user", "Install it."), ("assistant", "npm install")))])
        done = skillopt("harvest", "--source", "plain", "--from", str(path), "--to", str(out))
        assert done.returncode == 0, done.stderr
    more = [(path.stem, (("user", "No, use pnpm, not npm."), ("assistant", "pnpm install"))) for path in rows]
    for path, session in zip(rows, more, strict=True):
        old = path.read_bytes()
        transcripts.plain(path, [session])
        path.write_bytes(old + path.read_bytes())
    done = skillopt("harvest", "--to", str(out), "--since", "last")
    assert done.stdout.count("plain: Read 1 new or changed files, 1 sessions; 1 new corrections.") == 2
    assert str(home) not in (out / "state.json").read_text()
    nothing = skillopt("harvest", "--to", str(tmp_path / "empty"), "--since", "last")
    assert (nothing.returncode, "--source: is missing" in nothing.stderr) == (2, True)
