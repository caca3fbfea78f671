"""The user's own agent as the target: a function or a command, with time-outs, a transcript and a journal."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from skillopt.config import Config, EnvConfig
from skillopt.errors import UserError
from skillopt.measure.evaluate import evaluate
from skillopt.models import open_model
from skillopt.models.base import ChatModel, ChatReply, ChatRequest, FatalError, RefusedError, TransientError
from skillopt.models.bound import BoundChat, UnseenModel
from skillopt.preflight.doctor import examine
from skillopt.processes.agent_output import tool_calls
from skillopt.processes.coding_agents import presets
from skillopt.record.journal import Journal
from skillopt.skill import Skill
from skillopt.tasks.base import Episode, Item
from skillopt.tasks.qa import QAEnv
from skillopt.training.callers import make_callers
from skillopt.training.session import check_prices
from support.workspaces import script

SKILL = Skill("Answer with the code.")


class Target:
    """Answers with the length of the conversation, and counts."""

    name = endpoint = "target"
    deterministic = True

    def __init__(self) -> None:
        self.asked = 0

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.asked += 1
        return ChatReply(text=f"reply {len(request.messages)}")

    async def close(self) -> None:
        return


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [{"id": f"q{n}", "question": f"Q{n}?", "answers": ["right"]} for n in range(8)]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def config_of(folder: Path, **env: Any) -> Config:
    return Config.parse(
        {
            "env": {"data": str(folder / "tasks.jsonl"), "output_root": str(folder / "out"), **env},
            "hardware": {"max_retries": 0},
        }
    )


def run(
    config: Config, *, model: ChatModel | None = None, item: dict[str, Any] | None = None, times: int = 1,
    skills: Sequence[Skill] = (SKILL,), journal: str | Path = ":memory:",
) -> tuple[list[Episode], Journal]:  # fmt: skip
    """Rollouts of one item through the real caller and journal."""
    env = QAEnv(config.env)
    first = env.items("train")[0]
    task = Item(**{**first.model_dump(), **(item or {})})

    async def work() -> tuple[list[Episode], Journal]:
        opened = model or open_model("target", config)
        found = Journal(journal)
        callers, _, _ = make_callers(config, found, {"target": opened})
        chats = [BoundChat(callers["target"], label=f"label {n}", stage="rollout") for n in range(times)]
        return [await env.run(task, skill, chat) for chat in chats for skill in skills], found

    return asyncio.run(work())


# Functions


def own_agent(folder: Path, body: str, **options: Any) -> Config:
    (folder / "agent.py").write_text(
        f"import asyncio, time, pathlib\nCOUNT = pathlib.Path({str(folder)!r}) / 'count'\n{body}"
    )
    return config_of(folder, agent=f"{folder}/agent.py:agent", agent_options=options)


def test_an_agent_gets_item_skill_and_model_and_its_conversation_is_kept(folder: Path) -> None:
    config = own_agent(
        folder,
        "async def agent(item, skill, model):\n"
        "    talk = [{'role': 'system', 'content': skill.text}, {'role': 'user', 'content': item.question}]\n"
        "    first = await model(talk)\n"
        "    second = await model([*talk, first.message(), {'role': 'user', 'content': 'Sure?'}])\n"
        "    return second.text.upper()\n",
    )
    target = Target()
    (episode,), journal = run(config, model=target)
    assert episode.output == "REPLY 4"
    assert [m["content"] for m in episode.messages[2:]] == ["reply 2", "Sure?", "reply 4"]
    assert [(t.calls, t.first_turns) for t in journal.totals()] == [(2, 1)]


READS = [
    "item.answer",
    "item.answers",
    "item['answer']",
    "item.get('answers', '')",
    "item.expected",
    "item['check']",
    "getattr(item, 'check_files', '')",
]


@pytest.mark.parametrize("read", READS)
def test_an_agent_that_reads_what_would_be_right_ends_the_run_and_is_told_why(folder: Path, read: str) -> None:
    config = own_agent(folder, f"def agent(item, skill, model):\n    return str({read})\n")
    hidden = {"expected": "right", "check": "right", "check_files": "right"}
    with pytest.raises(FatalError, match=r"hidden field .*: .* the agent may use: id, question, context, type, shelf"):
        run(config, model=Target(), item={**hidden, "shelf": "upper"})


def test_an_agent_sees_every_other_field_of_its_item(folder: Path) -> None:
    config = own_agent(
        folder,
        "def agent(item, skill, model):\n    assert item['ticket'] == item.ticket == item.get('ticket')\n"
        "    return f'{item!r} {item.model_dump()} {dict(item)} {vars(item)}'\n",
    )
    item = {"ticket": "T-1", "answer": "right", "expected": "right", "check": "right"}
    (episode,), _ = run(config, model=Target(), item=item)
    assert "right" not in episode.output
    assert episode.output.count("T-1") == 3


def test_an_item_with_other_answers_is_another_rollout_although_the_agent_sees_none(folder: Path) -> None:
    body = (
        "def agent(item, skill, model):\n"
        "    COUNT.write_text(COUNT.read_text() + 'x' if COUNT.exists() else 'x')\n    return 'right'\n"
    )
    config, stored = own_agent(folder, body), folder / "journal.sqlite"
    for answer in ("right", "right", "wrong"):
        run(config, model=UnseenModel("agent:own"), item={"answers": (answer,)}, journal=stored)
    assert (folder / "count").read_text() == "xx"


def test_a_command_gets_no_answer_under_any_name(folder: Path) -> None:
    config = config_of(folder, command=["cat", "{item}"])
    (episode,), _ = run(config, item={"answer": "right", "shelf": "upper"})
    assert "upper" in episode.output
    assert "right" not in episode.output


def test_what_an_agent_says_of_files_is_kept(folder: Path) -> None:
    body = (
        "from skillopt import Episode\nfrom skillopt.tasks.base import FileChange\n"
        "def agent(item, skill, model{more}):\n"
        "    change = FileChange(path='orders.csv', kind='changed', shown='+1')\n"
        "    return Episode(output='done', changes=(change,), opened=('notes.md',), ran=('scripts/fix.py',))\n"
    )
    for more in ("", ", workspace", ", skill_dir"):
        config = own_agent(folder, body.format(more=more))
        stored = folder / f"journal{len(more)}.sqlite"
        for _ in range(2):  # done, then from the journal
            (episode,), _ = run(config, model=UnseenModel("agent:own"), journal=stored)
            kept = ([(c.path, c.kind, c.shown) for c in episode.changes], episode.opened, episode.ran)
            assert kept == ([("orders.csv", "changed", "+1")], ("notes.md",), ("scripts/fix.py",)), more


def test_a_rollout_in_the_journal_is_not_done_again_and_another_skill_or_sample_is(folder: Path) -> None:
    body = (
        "async def agent(item, skill, model):\n"
        "    COUNT.write_text(COUNT.read_text() + 'x' if COUNT.exists() else 'x')\n    return 'right'\n"
    )
    config, stored = own_agent(folder, body), folder / "journal.sqlite"
    run(config, model=UnseenModel("agent:own"), skills=(SKILL, Skill("Other.")), journal=stored)
    assert (folder / "count").read_text() == "xx"
    _, journal = run(config, model=UnseenModel("agent:own"), skills=(SKILL, Skill("Other.")), journal=stored)
    assert (folder / "count").read_text() == "xx"
    assert [(t.calls, t.first_turns) for t in journal.totals()] == [(2, 2)]
    run(config, model=UnseenModel("agent:own"), times=2, journal=stored)  # a second sample of a noisy agent
    assert (folder / "count").read_text() == "xxx"
    own_agent(folder, body + "# changed\n")
    run(config, model=UnseenModel("agent:own"), journal=stored)
    assert (folder / "count").read_text() == "xxxx"


@pytest.mark.slow
def test_an_agent_that_takes_too_long_has_not_solved_its_task_or_has_no_score(folder: Path) -> None:
    body = "async def agent(item, skill, model):\n    await asyncio.sleep(1000)\n"
    (episode,), _ = run(own_agent(folder, body, timeout=0.3), model=Target())
    assert episode.score is not None
    assert (episode.score.hard, episode.score.feedback) == (0, "the agent gave no answer within 0.3 s")
    with pytest.raises(TransientError, match=r"no answer within 0\.3 s"):
        run(own_agent(folder, body, timeout=0.3, on_timeout="error"), model=Target())


def test_an_agent_that_raises_or_returns_no_text_has_no_score(folder: Path) -> None:
    with pytest.raises(TransientError, match=r"env\.agent: KeyError: 'x'"):
        run(own_agent(folder, "async def agent(item, skill, model):\n    return {}['x']\n"), model=Target())
    with pytest.raises(TransientError, match="returned int; it must return its answer as text"):
        run(own_agent(folder, "def agent(item, skill, model):\n    return 3\n"), model=Target())


def test_an_agent_that_always_fails_on_one_item_while_others_are_done_is_set_aside(folder: Path) -> None:
    config = own_agent(folder, "async def agent(item, skill, model):\n    await asyncio.sleep(0.1)\n    1 / 0\n")
    env = QAEnv(config.env)

    async def work() -> None:
        callers, _, _ = make_callers(config, Journal(":memory:"), {"target": Target()})
        caller = callers["target"]

        async def others() -> None:
            caller.opaque_rollouts += 3

        chat = BoundChat(caller, label="x", stage="rollout")
        await asyncio.gather(env.run(env.items("train")[0], SKILL, chat), others())

    with pytest.raises(RefusedError, match="all tries of this item failed, but other items worked"):
        asyncio.run(work())


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        ("nowhere.py:agent", "does not exist"),
        ("agent.py:nobody", "has no 'nobody'; it has: agent"),
        ("agent.py", "must have the form module:name or file.py:name"),
        ("broken.py:agent", "cannot be imported: ZeroDivisionError"),
    ],
)
def test_an_agent_that_cannot_be_loaded_is_refused_at_once(folder: Path, agent: str, told: str) -> None:
    own_agent(folder, "def agent(item, skill, model): ...\n")
    (folder / "broken.py").write_text("1 / 0\n")
    with pytest.raises(UserError, match=r"env\.agent: ") as caught:
        QAEnv(EnvConfig(data=str(folder / "tasks.jsonl"), agent=f"{folder}/{agent}"))
    assert told in str(caught.value)


def test_options_without_an_agent_and_an_agent_beside_a_command_are_refused(folder: Path) -> None:
    with pytest.raises(UserError, match=r"these options are for env\.agent or env\.command"):
        QAEnv(config_of(folder, agent_options={"timeout": 3}).env)
    with pytest.raises(UserError, match="exclude each other"):
        QAEnv(config_of(folder, agent="a:b", command="cat").env)
    with pytest.raises(UserError, match=r"env\.agent_options\.timout: Extra inputs.*the options are: timeout"):
        QAEnv(config_of(folder, command="cat", agent_options={"timout": 3}).env)


# Commands


def test_a_command_gets_the_task_on_stdin_the_skill_as_a_file_and_a_place_of_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "a-secret-of-the-test")
    monkeypatch.setenv("NAMED_API_KEY", "a-named-secret-of-the-test")
    (folder / "files").mkdir()
    (folder / "files" / "given.txt").write_text("given")
    agent = script(
        folder / "agent.sh",
        'echo "task: $(cat)"; echo "skill: $(cat "$1")"; echo "home: $(ls -A "$HOME" | wc -l)"; echo "here: $(ls)"\n'
        'echo "env: $SOME_API_KEY/$NAMED_API_KEY/$SKILLOPT_MODEL"; grep -c answers "$SKILLOPT_ITEM"; touch left; pwd\n',
    )
    config = config_of(
        folder,
        command=[str(agent), "{skill}"],
        agent_options={"pass_env": ["NAMED_API_KEY"], "workspace": str(folder / "files"), "model": "m"},
    )
    assert config.models.target_model == "command:agent.sh"
    (episode, again), journal = run(config, times=2)
    lines = episode.output.splitlines()
    assert lines[0].startswith("task: Q")
    assert lines[1:4] == ["skill: Answer with the code.", "home: 0", "here: given.txt"]
    assert lines[4] == "env: /***/m"  # named, so given; and taken out of what is stored
    assert lines[5] == "0"
    assert not Path(lines[-1]).exists()
    assert again.output.splitlines()[3] == "here: given.txt"
    assert [m["role"] for m in episode.messages] == ["system", "user", "assistant"]
    assert [(t.model, t.calls, t.first_turns) for t in journal.totals()] == [("command:agent.sh", 2, 2)]


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ('sh agent.sh --note "two words"', "sh"),
        ("sh agent.sh --note two' 'words", "sh"),
        ('"bin/my sh" agent.sh --note "two words"', "my sh"),
    ],
)
def test_a_command_whose_script_is_next_to_the_config_keeps_its_quoting(folder: Path, line: str, program: str) -> None:
    script(folder / "agent.sh", 'for word in "$@"; do echo "<$word>"; done\n')
    (folder / "bin").mkdir()
    (folder / "bin" / "my sh").symlink_to("/bin/sh")
    (folder / "config.yaml").write_text(yaml.safe_dump({"env": {"data": "tasks.jsonl", "command": line}}))
    config = Config.load(folder / "config.yaml", [f"env.output_root={folder}/out"])
    assert config.models.target_model == f"command:{program}"
    (episode,), _ = run(config)
    assert episode.output == "<--note>\n<two words>"


@pytest.mark.parametrize("role", ["target", "optimizer"])
def test_a_command_gets_the_proxies_and_their_password_is_stored_nowhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    names = [f"{kind}_proxy" for kind in ("http", "https", "all", "no")]
    names += [name.upper() for name in names]
    for name in names:
        monkeypatch.setenv(name, f"http://me:pw4@{name}.test:3128")
    agent = script(folder / "agent.sh", f"for name in {' '.join(names)}; do eval echo got:\\$$name; done\n")
    journal = folder / "journal.sqlite"
    if role == "target":
        output = run(config_of(folder, command=str(agent)), journal=journal)[0][0].output
    else:
        config = Config.parse({"models": {"optimizer_model": f"command:{agent}"}})

        async def ask() -> str:
            callers, _, _ = make_callers(config, Journal(journal), {"optimizer": open_model("optimizer", config)})
            return (await callers["optimizer"]([{"role": "user", "content": "x"}], stage="reflect", label="x")).text

        output = asyncio.run(ask())
    assert output.split() == ["got:http://***"] * 8
    assert not [path.name for path in folder.glob("journal*") if b"pw4" in path.read_bytes()]


MARKER = 10_000_000 + os.getpid()
"""Seconds that no other process on this machine sleeps for."""


@pytest.fixture(autouse=True)
def _earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children that an earlier test of this process has left."""
    monkeypatch.setitem(globals(), "EARLIER", {entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()})


EARLIER: set[str] = set()


def alive(marker: str) -> list[str]:
    """Processes with this marker in their command line, zombies of this test among them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name not in EARLIER:
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                line = (entry / "cmdline").read_text()
            except OSError:
                continue
            if marker in line or (int(fields[1]) == os.getpid() and fields[0] == "Z"):
                found.append(line or "zombie")
    return found


def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(folder: Path) -> None:
    agent = script(folder / "slow.sh", f"echo thinking\nsleep {MARKER}1 &\nsleep {MARKER}1\n")
    config = config_of(folder, command=str(agent), agent_options={"timeout": 1})
    (episode,), _ = run(config)
    assert episode.score is not None
    assert episode.score.feedback == "the agent gave no answer within 1 s"
    assert episode.messages[-1]["content"].strip() == "thinking"
    assert alive(f"{MARKER}1") == []


@pytest.mark.slow
def test_what_a_command_leaves_running_is_ended_and_does_not_hold_up_the_answer(folder: Path) -> None:
    agent = script(folder / "stray.sh", f"sleep {MARKER}2 &\necho right\n")
    (episode,), _ = run(config_of(folder, command=str(agent), agent_options={"timeout": 100}))
    assert episode.output == "right"
    assert alive(f"{MARKER}2") == []


def test_a_command_that_fails_or_never_ends_printing_has_no_score(folder: Path) -> None:
    agent = script(folder / "bad.sh", "echo half an answer\necho the endpoint is down >&2\nexit 3\n")
    with pytest.raises(TransientError, match="ended with exit code 3: the endpoint is down"):
        run(config_of(folder, command=str(agent)))
    with pytest.raises(TransientError, match="printed more than 8 MB"):
        run(config_of(folder, command=str(script(folder / "loud.sh", "yes\n"))))
    assert alive("loud.sh") == []


def test_a_program_that_is_not_there_is_refused_with_how_to_get_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    with pytest.raises(UserError, match="'nosuchprogram' is not a program that can be found on PATH"):
        QAEnv(config_of(folder, command="nosuchprogram --now").env)
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(UserError, match="npm install -g @anthropic-ai/claude-code"):
        QAEnv(config_of(folder, command="claude-code").env)


def test_an_items_files_lie_in_the_workspace_and_cannot_leave_it(folder: Path) -> None:
    agent = script(folder / "files.sh", "cat a/b.txt\n")
    (episode,), _ = run(config_of(folder, command=str(agent)), item={"files": {"a/b.txt": "content"}})
    assert episode.output == "content"
    with pytest.raises(Exception, match="leads out of the workspace"):
        run(config_of(folder, command=str(agent)), item={"files": {"../b.txt": "content"}})


def test_a_command_is_measured_like_any_target_and_the_same_again_costs_nothing(folder: Path) -> None:
    agent = script(folder / "right.sh", f"echo x >> {folder}/calls; echo right\n")
    config = config_of(folder, command=str(agent))
    first = asyncio.run(evaluate(config, SKILL, split="test"))
    again = asyncio.run(evaluate(config, SKILL, split="test"))
    assert first["hard"] == again["hard"] == 1
    assert (folder / "calls").read_text().count("x") == first["items"] == first["paid"]["calls"]


def test_the_doctor_does_not_ask_a_model_that_only_the_agent_can_ask(folder: Path) -> None:
    config = config_of(folder, command="cat")
    checks = {check.name: check for check in asyncio.run(examine(Config.parse({**config.model_dump(), **ALONE})))}
    assert checks["target model"].says == "command:cat at command:cat"
    assert "target endpoint" not in checks
    assert not [check for check in checks.values() if check.status == "fail"]


ALONE: dict[str, Any] = {
    "gradient": {"analysts": ["exemplar"]},
    "train": {"num_epochs": 1},
    "optimizer": {"use_meta_skill": False},
}

# Coding agents, by stand-ins that write down what they were given

STAND_IN = """import json, os, pathlib, sys
home = pathlib.Path(os.environ["HOME"])
files = {str(p.relative_to(home)): p.read_text() for p in home.rglob("*") if p.is_file()}
seen = {"argv": sys.argv[1:], "stdin": sys.stdin.read(), "files": files, "env": dict(os.environ), "cwd": os.getcwd(),
        "workspace": sorted(os.listdir("."))}
with open(%r, "a") as out:
    out.write(json.dumps(seen) + "\\n")
for line in %r:
    print(json.dumps(line) if isinstance(line, dict) else line)
"""
CLAUDE = [
    {"type": "system", "subtype": "init"},
    {"type": "assistant", "message": {"content": [{"type": "tool_use", "name": "Skill", "input": {"skill": "x"}}]}},
    {"type": "user", "message": {"content": [{"type": "tool_result", "content": "loaded"}]}},
    {"type": "assistant", "message": {"content": [{"type": "text", "text": "right"}]}},
    {"type": "result", "subtype": "success", "is_error": False, "result": "right", "total_cost_usd": 0.01,
     "usage": {"input_tokens": 5, "cache_read_input_tokens": 95, "output_tokens": 7}},
]  # fmt: skip
CODEX = [
    {"type": "thread.started", "thread_id": "t"},
    "a line that is no JSON",
    {"type": "item.completed", "item": {"type": "reasoning", "text": "hm"}},
    {"type": "item.completed", "item": {"type": "command_execution", "command": "ls", "aggregated_output": "a b"}},
    {"type": "item.completed", "item": {"type": "agent_message", "text": "right"}},
    {"type": "turn.completed", "usage": {"input_tokens": 100, "cached_input_tokens": 90, "output_tokens": 7}},
]


def stand_in(folder: Path, name: str, lines: list[Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    import sys

    seen, bin_folder = folder / "seen.jsonl", folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(STAND_IN % (str(seen), lines))
    script(bin_folder / name, f'exec {sys.executable} -S {folder}/{name}.py "$@"\n')
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "anthropic-key-of-the-test")
    monkeypatch.setenv("CODEX_API_KEY", "codex-key-of-the-test")
    monkeypatch.setenv("OTHER_API_KEY", "other-key-of-the-test")
    return seen


def test_claude_code_is_called_without_a_person_and_finds_the_skill_where_it_looks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = stand_in(folder, "claude", CLAUDE, monkeypatch)
    config = config_of(folder, command="claude-code", agent_options={"model": "opus", "args": ["--max-turns", "9"]})
    assert config.models.target_model == "command:claude-code"
    (episode,), journal = run(config)
    given = json.loads(seen.read_text())
    assert given["argv"][:4] == ["-p", "--output-format", "stream-json", "--verbose"]
    assert given["argv"][-4:] == ["--model", "opus", "--max-turns", "9"]
    assert given["stdin"].startswith("Use the skill task-skill for this task.\n\nQ")
    assert list(given["files"]) == [".claude/skills/task-skill/SKILL.md"]
    header, body = given["files"][".claude/skills/task-skill/SKILL.md"].split("---\n\n", 1)
    assert header.startswith("---\nname: task-skill\ndescription: ")
    assert body == SKILL.text
    assert given["env"]["CLAUDE_CONFIG_DIR"] == f"{given['env']['HOME']}/.claude"
    assert given["env"]["ANTHROPIC_API_KEY"] == "anthropic-key-of-the-test"
    assert not {"OTHER_API_KEY", "CODEX_API_KEY"} & given["env"].keys()
    assert given["env"]["HOME"] != os.environ["HOME"]
    assert given["workspace"] == []
    assert episode.output == "right"
    call, result, said = episode.messages[2:]
    assert call["tool_calls"][0]["function"] == {"name": "Skill", "arguments": '{"skill": "x"}'}
    assert [(m["role"], m["content"]) for m in (result, said)] == [("tool", "loaded"), ("assistant", "right")]
    assert [(t.prompt_tokens, t.completion_tokens, t.usd) for t in journal.totals()] == [(100, 7, 0.01)]


def test_what_a_command_line_says_that_it_cost_is_in_the_bill(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(folder, "claude", CLAUDE, monkeypatch)
    config = config_of(folder, command="claude-code").with_values({"budget.max_usd": 1.0})
    found = asyncio.run(evaluate(config, SKILL, split="test"))
    assert found["paid"]["usd"] == pytest.approx(0.01 * found["items"])
    assert f"${0.01 * found['items']:.2f}." in found["verdict"]
    check_prices(config.with_values({"models.optimizer_model": "sim:world"}))  # a limit in dollars can be kept


def test_an_agent_says_what_its_own_calls_took(folder: Path) -> None:
    body = (
        "from skillopt import Episode, Usage\n"
        "async def agent(item, skill, model):\n"
        "    return Episode(output='right', usage=Usage(prompt=900, completion=100, usd=0.25))\n"
    )
    config = own_agent(folder, body)
    for model in (UnseenModel("agent:own"), Target()):  # with and without a target model that it leaves out
        (episode,), journal = run(config, model=model)
        assert [m["content"] for m in episode.messages] == [SKILL.text, episode.messages[1]["content"], "right"]
        (total,) = journal.totals()
        assert (total.calls, total.prompt_tokens, total.completion_tokens, total.usd) == (1, 900, 100, 0.25)
    found = asyncio.run(evaluate(config, SKILL, split="test", models={"target": UnseenModel("agent:own")}))
    assert f"It cost {found['items']} call" in found["verdict"]
    assert f"{1000 * found['items']:,} tokens, ${0.25 * found['items']:.2f}." in found["verdict"]


def test_what_went_through_the_model_is_not_counted_twice(folder: Path) -> None:
    body = (
        "from skillopt import Episode, Usage\n"
        "async def agent(item, skill, model):\n"
        "    reply = await model([{'role': 'user', 'content': item.question}])\n"
        "    return Episode(output=reply.text, usage=Usage(prompt=900, completion=100))\n"
    )
    _, journal = run(own_agent(folder, body), model=Target())
    assert [(t.calls, t.prompt_tokens) for t in journal.totals()] == [(1, 0)]


def test_codex_is_called_without_a_person_and_finds_the_skill_where_it_looks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = stand_in(folder, "codex", CODEX, monkeypatch)
    (episode,), journal = run(config_of(folder, command="codex"))
    given = json.loads(seen.read_text())
    assert given["argv"] == ["exec", "--json", "--skip-git-repo-check", "--sandbox", "workspace-write", "-"]
    assert list(given["files"]) == [".codex/skills/task-skill/SKILL.md"]
    assert given["env"]["CODEX_HOME"] == f"{given['env']['HOME']}/.codex"
    assert given["env"]["CODEX_API_KEY"] == "codex-key-of-the-test"
    assert not {"OTHER_API_KEY", "ANTHROPIC_API_KEY"} & given["env"].keys()
    assert episode.output == "right"
    call, result = next((a, b) for a, b in itertools.pairwise(episode.messages) if a.get("tool_calls"))
    assert call["tool_calls"][0]["function"] == {"name": "shell", "arguments": '{"command": "ls"}'}
    assert result["content"] == "a b"
    assert [(t.prompt_tokens, t.completion_tokens) for t in journal.totals()] == [(100, 7)]


def test_without_a_skill_nothing_is_installed_and_the_task_stands_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = stand_in(folder, "claude", CLAUDE, monkeypatch)
    run(config_of(folder, command="claude-code"), skills=(Skill(""),))
    given = json.loads(seen.read_text())
    assert given["files"] == {}
    assert given["stdin"].startswith("Q")


@pytest.mark.parametrize(
    ("name", "command", "lines", "told"),
    [
        ("claude", "claude-code", [{"type": "result", "is_error": True, "result": "API Error: 529 overloaded"}], "529"),
        ("claude", "claude-code", [], "no result in the output"),
        ("codex", "codex", [{"type": "turn.failed", "error": {"message": "usage limit"}}], "usage limit"),
        ("codex", "codex", [], "no agent message"),
    ],
)
def test_an_agents_own_trouble_is_no_wrong_answer(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, command: str, lines: list[Any], told: str
) -> None:
    stand_in(folder, name, lines, monkeypatch)
    with pytest.raises(TransientError, match=told):
        run(config_of(folder, command=command))


def test_the_doctor_says_whether_the_target_answers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(folder, "claude", CLAUDE, monkeypatch)
    config = Config.parse({**config_of(folder, command="claude-code").model_dump(), **ALONE})
    checks = {check.name: check for check in asyncio.run(examine(config))}
    assert checks["target agent"].says.startswith("claude-code answered in ")
    refused = {"type": "result", "is_error": True, "result": "Invalid API key. Please run /login"}
    stand_in(folder, "claude", [refused], monkeypatch)
    checks = {check.name: check for check in asyncio.run(examine(config))}
    assert checks["target agent"].status == "fail"
    assert "finds no login there; set a key (ANTHROPIC_API_KEY" in checks["target agent"].says


# The events of each agent in a task with a skill and a shell command, shortened

PRINTED: dict[str, list[dict[str, Any]]] = {
    "opencode": [
        {
            "type": "tool_use",
            "part": {"tool": "skill", "callID": "c1", "state": {"input": {"name": "task-skill"}, "output": "Rules."}},
        },
        {"type": "step_finish", "part": {"tokens": {"input": 1200, "output": 34}, "cost": 0.01}},
        {
            "type": "tool_use",
            "part": {"tool": "bash", "callID": "c2", "state": {"input": {"command": "ls"}, "output": "a.txt"}},
        },
        {"type": "text", "part": {"text": "Done."}},
        {"type": "step_finish", "part": {"tokens": {"input": 1200, "output": 34}, "cost": 0.02}},
    ],
    "gemini-cli": [
        {"type": "tool_use", "tool_id": "c1", "tool_name": "activate_skill", "parameters": {"name": "task-skill"}},
        {"type": "tool_result", "tool_id": "c1", "status": "success", "output": "Rules."},
        {"type": "tool_use", "tool_id": "c2", "tool_name": "run_shell_command", "parameters": {"command": "ls"}},
        {"type": "tool_result", "tool_id": "c2", "status": "success", "output": "a.txt"},
        {"type": "message", "role": "assistant", "content": "Do", "delta": True},
        {"type": "message", "role": "assistant", "content": "ne.", "delta": True},
        {"type": "result", "status": "success", "stats": {"input_tokens": 2400, "output_tokens": 68}},
    ],
    "copilot": [
        {
            "type": "assistant.message",
            "data": {
                "content": "",
                "toolRequests": [{"toolCallId": "c1", "name": "skill", "arguments": {"skill": "task-skill"}}],
            },
        },
        {"type": "tool.execution_complete", "data": {"toolCallId": "c1", "result": {"content": "Rules."}}},
        {
            "type": "assistant.message",
            "data": {
                "content": "",
                "toolRequests": [{"toolCallId": "c2", "name": "bash", "arguments": {"command": "ls"}}],
            },
        },
        {"type": "tool.execution_complete", "data": {"toolCallId": "c2", "result": {"content": "a.txt"}}},
        {"type": "assistant.message", "data": {"content": "Done."}},
    ],
    "goose": [
        {
            "type": "message",
            "message": {
                "role": "assistant",
                "content": [
                    {
                        "type": "toolRequest",
                        "id": "c1",
                        "toolCall": {"value": {"name": "load_skill", "arguments": {"name": "task-skill"}}},
                    }
                ],
            },
        },
        {
            "type": "message",
            "message": {
                "role": "user",
                "content": [{"type": "toolResponse", "id": "c1", "toolResult": {"value": "Rules."}}],
            },
        },
        {
            "type": "message",
            "message": {
                "role": "assistant",
                "content": [
                    {
                        "type": "toolRequest",
                        "id": "c2",
                        "toolCall": {"value": {"name": "shell", "arguments": {"command": "ls"}}},
                    }
                ],
            },
        },
        {
            "type": "message",
            "message": {
                "role": "user",
                "content": [{"type": "toolResponse", "id": "c2", "toolResult": {"value": "a.txt"}}],
            },
        },
        {"type": "message", "message": {"role": "assistant", "content": [{"type": "text", "text": "Done."}]}},
        {"type": "complete", "total_tokens": 100},
    ],
}


@pytest.mark.parametrize("name", PRINTED)
def test_a_transcript_becomes_turns_tool_calls_and_results(name: str) -> None:
    preset = presets()[name]
    assert preset.task_mode is not None
    heard = (preset.task_mode.parse or preset.parse)("\n".join(map(json.dumps, PRINTED[name])))
    assert (heard.output, heard.error) == ("Done.", "")
    assert [message["role"] for message in heard.messages] == ["assistant", "tool", "assistant", "tool", "assistant"]
    (_, first), (_, second) = tool_calls(heard.messages)
    assert json.loads(second) == {"command": "ls"}
    assert "task-skill" in first
    assert [m["content"] for m in heard.messages if m["role"] == "tool"] == ["Rules.", "a.txt"]
    if name in {"opencode", "gemini-cli"}:
        assert (heard.prompt_tokens, heard.completion_tokens) == (2400, 68)
    if name == "opencode":
        assert heard.usd == pytest.approx(0.03)
