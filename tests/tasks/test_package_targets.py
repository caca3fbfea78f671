"""Every kind of target gets the whole package: tasks that only a reference or a script of the skill can solve."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from skillopt.models.base import ChatReply, ChatRequest, FatalError
from skillopt.models.bound import UnseenModel
from skillopt.skill import Skill
from skillopt.tasks.sandbox import Sandbox, SandboxLimits
from support.workspaces import config_of, rolled_out, script

RULES = b"The code word is HERON-77.\n"
TELLER = b"import sys\nprint('KESTREL-' + str(int(sys.argv[1]) * 2))\n"
PACKAGE = Skill(
    "The code word is in references/x.md. For a number, run scripts/y.py with it.",
    "---\nname: task-skill\ndescription: Code words. Use for every task.\n---\n",
    {"references/x.md": RULES, "scripts/y.py": TELLER},
    frozenset({"scripts/y.py"}),
)
ROWS = [{"id": f"q{n}", "question": f"Say the code word of task {n}.", "answers": ["HERON-77"]} for n in range(8)]
NUMBERS = [{"id": f"q{n}", "question": f"Say the code of 21, task {n}.", "answers": ["KESTREL-42"]} for n in range(8)]


class Reader:
    """A chat model that looks at the package as its instructions say, by the tools that it is offered."""

    name = endpoint = "reader"
    deterministic = True

    def __init__(self, *, shell: bool = False) -> None:
        self._shell = shell

    async def chat(self, request: ChatRequest) -> ChatReply:
        number = "code of 21" in str(request.messages[1]["content"])
        results = [str(message["content"]) for message in request.messages if message["role"] == "tool"]
        if results:
            found = [word for word in results[-1].replace(".", " ").split() if word.startswith(("HERON", "KESTREL"))]
            return ChatReply(text=found[0] if found else "unknown")
        offered = {tool["function"]["name"] for tool in request.tools}
        if self._shell:
            where = (
                "python $SKILLOPT_SKILL_DIR/scripts/y.py 21" if number else "cat $SKILLOPT_SKILL_DIR/references/x.md"
            )
            return asked("run", command=where) if "run" in offered else ChatReply(text="unknown")
        name = "run_skill_script" if number else "read_skill_file"
        if name not in offered:
            return ChatReply(text="unknown")
        given: dict[str, Any] = {"path": "scripts/y.py", "arguments": ["21"]} if number else {"path": "references/x.md"}
        return asked(name, **given)

    async def close(self) -> None:
        return


def asked(name: str, **arguments: Any) -> ChatReply:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return ChatReply(text="", tool_calls=({"id": "c1", "type": "function", "function": function},))


def as_chat(folder: Path, rows: list[dict[str, Any]]) -> tuple[Any, Any]:
    return config_of(folder, rows, scoring="exact"), Reader()


def as_shell(folder: Path, rows: list[dict[str, Any]]) -> tuple[Any, Any]:
    return config_of(folder, rows, scoring="exact", agent="shell"), Reader(shell=True)


def as_function(folder: Path, rows: list[dict[str, Any]]) -> tuple[Any, Any]:
    (folder / "agent.py").write_text(
        "import subprocess, sys\n"
        "def agent(item, skill, model, skill_dir):\n"
        "    if 'of 21' in item.question:\n"
        "        argv = [sys.executable, str(skill_dir / 'scripts/y.py'), '21']\n"
        "        return subprocess.run(argv, capture_output=True, text=True).stdout.strip()\n"
        "    file = skill_dir / 'references/x.md'\n"
        "    return file.read_text().split()[-1].strip('.') if file.exists() else 'unknown'\n"
    )
    return config_of(folder, rows, scoring="exact", agent=f"{folder}/agent.py:agent"), UnseenModel("agent:own")


MOST_PROBED = (
    'if grep -q "of 21"; then python3 "$DIR/scripts/y.py" 21; else grep -o "[A-Z]*-[0-9]*" "$DIR/references/x.md"; fi '
    "2>/dev/null || echo unknown\n"
)


def as_command(folder: Path, rows: list[dict[str, Any]]) -> tuple[Any, Any]:
    agent = script(folder / "agent.sh", f'DIR="$SKILLOPT_SKILL_DIR"; {MOST_PROBED}')
    return config_of(folder, rows, scoring="exact", command=str(agent)), None


def as_coding_agent(folder: Path, rows: list[dict[str, Any]]) -> tuple[Any, Any]:
    """A stand-in for Claude Code that looks where Claude Code looks for skills."""
    (folder / "bin").mkdir()
    script(
        folder / "bin" / "claude",
        f'DIR="$HOME/.claude/skills/task-skill"; said=$({MOST_PROBED.strip()})\n'
        'printf \'{"type": "result", "subtype": "success", "is_error": false, "result": "%s"}\\n\' "$said"\n',
    )
    return config_of(folder, rows, scoring="exact", command="claude-code"), None


KINDS: dict[str, Callable[[Path, list[dict[str, Any]]], tuple[Any, Any]]] = {
    "chat": as_chat, "shell": as_shell, "function": as_function, "command": as_command, "agent": as_coding_agent,
}  # fmt: skip


@pytest.mark.sandbox
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "file"), [(ROWS, "references/x.md"), (NUMBERS, "scripts/y.py")])
def test_a_task_that_needs_a_file_of_the_package_succeeds_with_it_and_fails_without(
    kind: str, rows: list[dict[str, Any]], file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/local/bin:/usr/bin:/bin")
    config, model = KINDS[kind](tmp_path, rows)
    env_answer = rows[0]["answers"][0]
    whole = rolled_out(config, model=model, skill=PACKAGE)
    assert whole.output.strip() == env_answer
    assert file in whole.opened
    if kind in {"chat", "shell"}:
        assert whole.ran == ((file,) if file.startswith("scripts/") else ())
    without = replace(PACKAGE, others={k: v for k, v in PACKAGE.others.items() if k != file}, executable=frozenset())
    left_out = rolled_out(config, model=model, skill=without)
    assert left_out.output.strip() != env_answer
    assert file not in left_out.opened


def test_one_document_has_no_tools_and_is_asked_as_ever(tmp_path: Path) -> None:
    seen: list[ChatRequest] = []

    class Plain(Reader):
        async def chat(self, request: ChatRequest) -> ChatReply:
            seen.append(request)
            return ChatReply(text="x")

    rolled_out(config_of(tmp_path, ROWS, scoring="exact"), model=Plain(), skill=Skill("One."))
    assert [request.tools for request in seen] == [()]


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "references/none.md", "a\0b", ""])
def test_a_path_that_a_model_makes_up_reaches_nothing(path: str, tmp_path: Path) -> None:
    class Curious(Reader):
        async def chat(self, request: ChatRequest) -> ChatReply:
            results = [m["content"] for m in request.messages if m["role"] == "tool"]
            return ChatReply(text=results[-1]) if results else asked("read_skill_file", path=path)

    episode = rolled_out(config_of(tmp_path, ROWS, scoring="exact"), model=Curious(), skill=PACKAGE)
    assert episode.output.startswith("error: FileNotFoundError")
    assert "there are: references/x.md, scripts/y.py" in episode.output
    assert episode.opened == ()


@pytest.mark.sandbox
def test_a_script_that_never_ends_is_ended_and_the_model_gets_to_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "skillopt.tasks.package_tools.Sandbox", partial(Sandbox, SandboxLimits(cpu_seconds=1, seconds=10))
    )
    endless = replace(PACKAGE, others={**PACKAGE.others, "scripts/y.py": b"import time\nwhile True: pass\n"})

    class Patient(Reader):
        async def chat(self, request: ChatRequest) -> ChatReply:
            results = [m["content"] for m in request.messages if m["role"] == "tool"]
            return ChatReply(text=results[-1]) if results else asked("run_skill_script", path="scripts/y.py")

    episode = rolled_out(config_of(tmp_path, NUMBERS, scoring="exact"), model=Patient(), skill=endless)
    assert "[stopped at the limit of" in episode.output


@pytest.mark.sandbox
@pytest.mark.parametrize("argument", ["x" * 200_000, "\ud800", "a\0b"], ids=["long", "half a character", "zero byte"])
def test_an_argument_that_no_program_can_have_is_the_targets_mistake_and_does_not_end_the_run(
    tmp_path: Path, argument: str
) -> None:
    class Hostile(Reader):
        async def chat(self, request: ChatRequest) -> ChatReply:
            results = [m["content"] for m in request.messages if m["role"] == "tool"]
            given = {"path": "scripts/y.py", "arguments": [argument]}
            return ChatReply(text=results[-1]) if results else asked("run_skill_script", **given)

    try:
        episode = rolled_out(config_of(tmp_path, NUMBERS, scoring="exact"), model=Hostile(), skill=PACKAGE)
    except (FatalError, OSError) as error:
        pytest.fail(f"the rollout ended with {type(error).__name__}: {error}")
    assert episode.output.startswith("error: the command ")


def test_a_script_on_a_machine_without_a_sandbox_ends_the_run_and_is_no_wrong_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from skillopt.tasks import sandbox

    monkeypatch.setattr(sandbox, "_tried", lambda mode: "no user namespaces")
    with pytest.raises(FatalError, match=r"the skill's script 'scripts/y.py' cannot be run: .*no user namespaces"):
        rolled_out(config_of(tmp_path, NUMBERS, scoring="exact"), model=Reader(), skill=PACKAGE)
