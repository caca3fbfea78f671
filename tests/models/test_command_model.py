"""A command line as the optimizer or judge: its replies, its complaints, and what it gets to see."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from skillopt.config import Config
from skillopt.errors import Stopped, UserError
from skillopt.models import open_model
from skillopt.models.base import ChatRequest, FatalError, FormRefusedError, RefusedError, TransientError
from skillopt.models.command import CommandModel, prompt_text
from skillopt.models.structured import spelled_out
from skillopt.processes.agent_failures import classify_failure
from skillopt.processes.agent_output import plain_text
from skillopt.processes.coding_agents import presets
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json
from skillopt.training.requests.replies import text_schema
from skillopt_agents.output import parse_claude, parse_codex, parse_copilot, parse_gemini, parse_opencode
from support import TESTS, differing, essence, train_sim

MIND = TESTS / "support" / "cli_mind.py"
SMALL = ("train.num_epochs=1", "train.batch_size=12", "env.options={rules: 6, train: 12, val: 10, test: 6}")
SCHEMA = text_schema("slow_update", "guidance")
EDITS = '<edits>\n{"id": "e1", "text": "Take care."}\n{"id": "e2", "text": "- For maple, answer AB-12."}\n</edits>'


def command(*manner: object, **options: Any) -> CommandModel:
    words = " ".join(map(str, (sys.executable, MIND, *manner)))
    tree = {
        "models": {"optimizer_model": f"command:{words}", "optimizer_options": {"pass_env": ["PYTHONPATH"], **options}}
    }
    model = open_model("optimizer", Config.parse(tree))
    assert isinstance(model, CommandModel)
    return model


def ask(model: CommandModel) -> str:
    messages = spelled_out([{"role": "system", "content": "Order."}, {"role": "user", "content": EDITS}], SCHEMA)
    return asyncio.run(model.chat(ChatRequest(messages=tuple(messages)))).text


def test_a_whole_training_with_a_command_as_the_optimizer_equals_one_over_the_protocol(tmp_path: Path) -> None:
    line = f"models.optimizer_model='command:{sys.executable} {MIND} colour'"
    options = "models.optimizer_options={pass_env: [PYTHONPATH], at_once: 2}"
    told = train_sim(tmp_path / "command", line, options, *SMALL)
    plain = train_sim(tmp_path / "sim", "models.optimizer_model=sim:world?no_schema=2", *SMALL)
    assert told.summary["best"]["val"] > told.summary["initial"]["val"]
    assert differing(essence(RunDirectory(plain.path)), essence(RunDirectory(told.path))) == []
    assert told.summary.tokens_estimated == ("optimizer",)
    assert told.summary["cost_usd"]["optimizer"] is None


def test_a_reply_comes_without_colours_and_a_schema_goes_in_words(tmp_path: Path) -> None:
    assert json.loads(ask(command("colour"))).keys() == {"reason", "lines"}
    with pytest.raises(FormRefusedError):
        asyncio.run(command().chat(ChatRequest(messages=({"role": "user", "content": "x"},), schema=SCHEMA)))


def test_a_command_works_in_an_empty_folder_and_gets_only_the_variables_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-test")
    monkeypatch.setenv("MY_OWN", "wanted")
    ask(command("where", tmp_path / "seen.json", pass_env=["PYTHONPATH", "MY_OWN"]))
    seen = read_json(tmp_path / "seen.json")
    assert seen["files"] == []
    assert Path(seen["cwd"]) != Path.cwd()
    assert not Path(seen["cwd"]).exists(), "its folder is gone with it"
    assert "MY_OWN" in seen["env"]
    assert "HOME" in seen["env"], "its login is there"
    assert "OPENAI_API_KEY" not in seen["env"]


@pytest.mark.slow
def test_a_login_is_asked_for_in_clear_words_even_by_a_command_that_then_hangs() -> None:
    with pytest.raises(FatalError, match=r"it needs a login: sign in with .*python"):
        ask(command("login", timeout=3))


def test_a_command_that_hangs_is_ended_and_one_that_prints_without_end_is_refused() -> None:
    with pytest.raises(TransientError, match=r"no answer within 0\.5 s"):
        ask(command("hang", timeout=0.5))
    with pytest.raises(RefusedError, match="more than 8 MB"):
        ask(command("loud"))
    with pytest.raises(TransientError, match="printed nothing"):
        ask(command("empty"))


@pytest.mark.slow
def test_a_limit_is_waited_for(tmp_path: Path) -> None:
    with pytest.raises(TransientError) as limited:
        ask(command("limit", tmp_path / "first"))
    assert limited.value.retry_after == 1
    assert limited.value.overloaded
    line = f"models.optimizer_model='command:{sys.executable} {MIND} limit {tmp_path / 'second'}'"
    done = train_sim(tmp_path, line, "models.optimizer_options={pass_env: [PYTHONPATH]}", *SMALL)
    assert (tmp_path / "second").exists()
    assert done.summary["status"] == "finished"


def test_a_limit_that_lasts_too_long_stops_the_run_with_everything_kept(tmp_path: Path) -> None:
    script = tmp_path / "limited.py"
    script.write_text("import sys; sys.exit('You have hit your limit. Try again in 5 hours 10 minutes.')")
    with pytest.raises(Stopped, match="hit your limit"):
        train_sim(tmp_path, f"models.optimizer_model='command:{sys.executable} {script}'", *SMALL)


@pytest.mark.parametrize("when", ["resets at 5:99 pm", "resets 13:30pm", f"try again in {'9' * 400} days"])
def test_a_limit_whose_end_makes_no_sense_is_a_limit_without_an_end(tmp_path: Path, when: str) -> None:
    script = tmp_path / "limited.py"
    script.write_text(f"import sys; sys.exit('You have hit your limit · {when}')")
    overrides = [f"models.optimizer_model='command:{sys.executable} {script}'", "hardware.max_retry_seconds=0.1"]
    ended: Exception | None = None
    try:
        train_sim(tmp_path, *overrides, *SMALL)
    except Exception as error:
        ended = error
    assert isinstance(ended, Stopped)
    assert "hit your limit" in str(ended)


@pytest.mark.parametrize(
    ("text", "kind", "wait"),
    [
        ("Session limit reached, resets at 5:99 pm", "limit", None),
        ("Session limit reached, resets at 13:30 pm", "limit", None),
        ("Rate limit reached. Please try again in 20s.", "limit", 20),
        ("You've hit your usage limit. Try again in 1 hour 5 minutes.", "limit", 3900),
        ("429 Too Many Requests, retry-after: 12", "limit", 12),
        ("429 Too Many Requests, retry-after: 1.5s", "limit", 1.5),
        ("Claude AI usage limit reached|1794834000", "limit", 3600),
        ("You've hit your session limit · resets 2:30pm", "limit", 5400),
        ("Session limit reached, resets at 1pm", "limit", 86400),
        ("exceeded retry limit, last status: 429 Too Many Requests", "limit", None),
        ("Overloaded", "limit", None),
        ("RESOURCE_EXHAUSTED: Quota exceeded", "limit", None),
        ("Not logged in · Please run /login", "login", None),
        ("No auth type is selected.", "login", None),
        ("Please set an Auth method in your settings", "login", None),
        ("Error: No authentication information found.", "login", None),
        ("unexpected status 401 Unauthorized: Invalid API key", "login", None),
        ("OAuth token has expired", "login", None),
        ("stream disconnected before completion", "other", None),
        ("no text in the output", "other", None),
    ],
)
def test_complaints_are_understood(text: str, kind: str, wait: float | None) -> None:
    now = datetime.fromtimestamp(1794830400, UTC).replace(hour=13, minute=0, second=0)
    if "1794834000" in text:
        now = datetime.fromtimestamp(1794830400, UTC)
    found = classify_failure(text, now)
    assert (found.kind, found.wait) == (kind, wait)


def lines(*events: dict[str, Any]) -> str:
    return "\n".join(json.dumps(event) for event in events)


def test_each_known_command_lines_output_is_read() -> None:
    claude = parse_claude(
        json.dumps(
            {
                "type": "result",
                "is_error": False,
                "result": "{}",
                "total_cost_usd": 0.01,
                "usage": {"input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 3},
            }
        )
    )
    assert (claude.output, claude.prompt_tokens, claude.completion_tokens, claude.usd) == ("{}", 12, 3, 0.01)
    qwen = parse_claude(
        json.dumps([{"type": "system"}, {"type": "result", "is_error": False, "result": "hi", "usage": {}}])
    )
    assert (qwen.output, qwen.error) == ("hi", "")
    refused = parse_claude(
        json.dumps([{"type": "result", "is_error": False, "result": "[API Error: 401 Invalid API key]"}])
    )
    assert "401" in refused.error
    wrong = parse_claude(
        json.dumps([{"type": "result", "is_error": True, "error": {"message": "No auth type is selected."}}])
    )
    assert wrong.error == "No auth type is selected."
    codex = parse_codex(
        lines(
            {"type": "item.completed", "item": {"type": "error", "message": "metadata"}},
            {"type": "item.completed", "item": {"type": "agent_message", "text": "{}"}},
            {"type": "turn.completed", "usage": {"input_tokens": 9, "output_tokens": 2}},
        )
    )
    assert (codex.output, codex.error, codex.prompt_tokens, codex.completion_tokens) == ("{}", "", 9, 2)
    opencode = parse_opencode(
        lines(
            {"type": "text", "part": {"text": "{}"}},
            {"type": "step_finish", "part": {"tokens": {"input": 4, "output": 2, "cache": {"read": 3}}, "cost": 0.5}},
        )
    )
    assert (opencode.output, opencode.prompt_tokens, opencode.completion_tokens, opencode.usd) == ("{}", 7, 2, 0.5)
    failed = parse_opencode(lines({"type": "error", "error": {"name": "APIError", "data": {"message": "no key"}}}))
    assert failed.error == "no key"
    gemini = parse_gemini(
        "Ripgrep is not available.\n"
        + json.dumps(
            {"response": "{}", "stats": {"models": {"g": {"tokens": {"prompt": 8, "candidates": 2, "thoughts": 1}}}}},
            indent=2,
        )
    )
    assert (gemini.output, gemini.prompt_tokens, gemini.completion_tokens) == ("{}", 8, 3)
    assert parse_gemini('log {x}\n{\n"error": {"message": "Please set an Auth method"}\n}').error.startswith(
        "Please set"
    )
    copilot = parse_copilot(lines({"type": "assistant.message", "data": {"content": "{}"}}, {"type": "result"}))
    assert (copilot.output, copilot.error) == ("{}", "")
    assert "401" in parse_copilot(lines({"type": "session.error", "data": {"message": "HTTP 401"}})).error
    for preset in presets().values():
        assert preset.parse("").error, "silence is no answer"
        assert preset.parse("\x00{[").error


def test_control_codes_are_taken_out_and_text_stays() -> None:
    assert plain_text("\x1b[1;32mgrün\x1b[0m\x1b]8;;http://x\x07 ok\x1b]8;;\x1b\\\r\n\ttab\x08") == "grün ok\n\ttab"


def stand_in(folder: Path, program: str, output: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name that writes down its arguments and its folder, and prints `output`."""
    seen = folder / "seen.json"
    script = folder / program
    script.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        "told = {'argv': sys.argv[1:], 'stdin': sys.stdin.read(), 'files': sorted(os.listdir())}\n"
        f"open({str(seen)!r}, 'w').write(json.dumps(told))\nprint({output!r})\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return seen


def test_a_known_command_line_is_called_without_tools_and_its_cost_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = {"type": "result", "is_error": False, "result": "{}", "total_cost_usd": 0.25, "usage": {"input_tokens": 5}}
    seen = stand_in(tmp_path, "claude", json.dumps(result), monkeypatch)
    with pytest.raises(Stopped, match="max_usd"):
        train_sim(tmp_path / "out", "models.optimizer_model=claude-code:opus", "budget.max_usd=0.4", *SMALL)
    told = read_json(seen)
    assert told["argv"][-2:] == ["--model", "opus"]
    assert told["argv"][told["argv"].index("--tools") + 1] == ""
    (run,) = (tmp_path / "out" / "sim").iterdir()
    assert read_json(run / "summary.json")["cost_usd"]["optimizer"] in {0.5, 0.75}
    with pytest.raises(Stopped, match="max_usd"):  # what was spent before counts in the next session, too
        train_sim(tmp_path / "out", "models.optimizer_model=claude-code:opus", "budget.max_usd=0.4", *SMALL)
    assert read_json(run / "summary.json")["cost_usd"]["optimizer"] in {0.5, 0.75}


def test_a_known_command_line_that_is_missing_or_misused_is_refused_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    def opened(role: str = "optimizer", **models: Any) -> None:
        open_model(role, Config.parse({"models": models}))

    with pytest.raises(UserError, match="npm install -g @openai/codex"):
        opened(optimizer_model="codex:")
    with pytest.raises(UserError, match=r"as the target, set env\.command"):
        opened("target", target_model="claude-code:opus")
    with pytest.raises(UserError, match=r"optimizer_options\.timout"):
        opened(optimizer_model="codex:", optimizer_options={"timout": 3})
    with pytest.raises(UserError, match="is not a command"):
        opened(optimizer_model="sim:world", optimizer_options={"timeout": 3})
    with pytest.raises(UserError, match="is empty"):
        opened(optimizer_model="command:")
    with pytest.raises(UserError, match="No closing quotation"):
        opened(optimizer_model="command:'x")


def test_a_conversation_names_who_said_what() -> None:
    one = ({"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "text", "text": "U"}]})
    assert prompt_text(one) == "S\n\nU\n"
    assert prompt_text((*one, {"role": "assistant", "content": "A"})) == "[system]\nS\n\n[user]\nU\n\n[assistant]\nA\n"


def test_how_long_and_with_which_variables_makes_no_other_run_but_other_arguments_do() -> None:
    def identity(**options: Any) -> dict[str, Any]:
        return Config.parse({"models": {"optimizer_model": "codex:", "optimizer_options": options}}).identity()

    assert identity(timeout=5, pass_env=["A"]) == identity()
    assert identity(args=["-c", "x=1"]) != identity()
