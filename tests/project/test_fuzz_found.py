"""What fuzzing found (tests/fuzz), each as its smallest example."""

from __future__ import annotations

import json
import math
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from skillopt.config import Config
from skillopt.dotenv import load_dotenv
from skillopt.errors import Damaged, UserError
from skillopt.inputs import configure
from skillopt.models.base import ChatReply, ChatRequest, TransientError, Usage
from skillopt.models.http import retry_after
from skillopt.models.openai_chat import OpenAIChat
from skillopt.models.providers import ProviderChat
from skillopt.models.structured import parse, without_thinking
from skillopt.record.damage import find_damage, journal_problem, refuse_damage
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json, write_json
from skillopt.record.journal import Journal
from skillopt.record.state import State
from skillopt.skill import Edit, Skill, apply_edits
from skillopt.tasks.base import Item
from skillopt.tasks.scorers import NamedScorer
from skillopt.tasks.scoring import SCORERS
from skillopt.view.html import write_report
from skillopt.view.run_rows import list_runs
from support import only_run, skillopt, train_sim
from support.calls import chat, hello
from support.webui import Ui, make_workspace, serving
from support.wire import served

# Configs


@pytest.mark.parametrize(
    "text",
    [
        "train: {seed: 2024-13-45}",  # a day that no month has
        "train: {seed: 0x_}",
        "train: {seed: !!timestamp x}",
        "train: {seed: !!bool x}",
        "env: {options: &a [*a]}",  # within itself
        "env: {options: {a: !!binary /w==}}",
        'env: {name: "\\ud800"}',
        "env: {command: {a: 1}}",
        "env: {command: true}",
        "x: " + "[" * 1000,
        "x: " + "- " * 1000,
        "env: {options: {a: " + "[" * 300 + "]" * 300 + "}}",
        "_base_: " + "a" * 300,
        '_base_: "\\0"',
    ],
)
def test_a_config_that_yaml_or_the_file_system_chokes_on_is_refused_in_words(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(UserError, match=r"c\.yaml|no such config file"):
        Config.load(tmp_path / "c.yaml")


def test_a_text_without_end_is_refused_before_it_takes_minutes() -> None:
    with pytest.raises(UserError, match="nested too deeply"):
        configure({}, {}, ["env.options=" + "[" * 150_000])


def test_a_command_with_a_word_longer_than_any_file_name_is_a_command(tmp_path: Path) -> None:
    word = "x" * 5000
    (tmp_path / "c.yaml").write_text(json.dumps({"env": {"command": ["sh", "-c", word]}}))
    config = Config.load(tmp_path / "c.yaml")
    assert config.env.command == ["sh", "-c", word]
    assert config.identity()["env.command"] == ["sh", "-c", word]


@pytest.mark.parametrize(
    ("tree", "keys"),
    [
        ({"train": None}, {}),
        ({"train": 5}, {"num_epochs": 2}),
        ({"optimizer": 5, "train": {"lr_scheduler": "linear"}}, {}),
    ],
)
def test_a_section_from_code_that_is_none_is_refused_by_its_name(tree: dict[str, Any], keys: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="section"):
        configure(tree, keys)


@pytest.mark.parametrize("raw", ["2024-13-45", "0b_", "[" * 400])
def test_an_override_that_yaml_chokes_on_is_refused_in_words(raw: str) -> None:
    with pytest.raises(UserError, match="not readable"):
        configure({}, {}, [f"train.seed={raw}"])


def test_a_zero_byte_in_an_env_file_costs_only_its_own_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    (tmp_path / ".env").write_bytes(b"FOUND_A=x\x00y\nFOUND_B=z\n")
    load_dotenv(tmp_path / ".env")
    assert "FOUND_A" not in os.environ
    assert os.environ["FOUND_B"] == "z"


# Replies


def reply(body: dict[str, Any]) -> ChatReply:
    model = OpenAIChat("vllm:x", "x", url="http://127.0.0.1:1/v1", key_name="FUZZ_NO_KEY", key_needed=False)
    return model._reply(200, {}, json.dumps(body).encode(), model._payload(ChatRequest(messages=())))


@pytest.mark.parametrize("tokens", [math.nan, math.inf, -5, 10**30, "7", None])
def test_tokens_that_are_no_number_of_tokens_count_as_none(tokens: Any) -> None:
    usage = {"prompt_tokens": tokens, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": tokens}}
    got = reply({"choices": [{"message": {"content": "x"}}], "usage": usage})
    assert got.usage == Usage(prompt=0, completion=2, cached=0)


def test_a_finish_reason_that_is_no_text_is_none() -> None:
    assert reply({"choices": [{"message": {"content": "x"}, "finish_reason": {"a": 1}}]}).finish_reason == "stop"


@pytest.mark.parametrize("value", ["inf", "nan", "1e400", "Mon, 01 Jan 0001 00:00:00 -0000", "99999999999"])
def test_a_wait_that_never_ends_is_not_obeyed(value: str) -> None:
    wait = retry_after({"Retry-After": value})
    assert wait is None or wait <= 86_400


@pytest.mark.extras
@pytest.mark.parametrize("body", ["null", "{}", '{"content": [null]}', '{"content": [{"type": "text", "text": null}]}'])
def test_a_reply_that_a_provider_s_library_cannot_read_is_worth_another_try(
    body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aiohttp import web

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text=body, content_type="application/json")

    monkeypatch.setenv("ANTHROPIC_API_KEY", "k" * 20)
    with served("/v1/messages", answer) as url:
        model = ProviderChat("anthropic:x", "anthropic", "claude-test", url=url)
        with pytest.raises(TransientError, match="not a chat completion"):
            chat(model, hello())


def test_a_tag_within_an_object_is_part_of_it() -> None:
    assert parse(ChatReply(text='{"edits": ["</think>"], "patterns": {}}')) == {"edits": ["</think>"], "patterns": {}}
    with pytest.raises(ValueError, match="cut off"):
        parse(ChatReply(text='{"edits": ["</think>"], "patterns": {}'))


@pytest.mark.parametrize("tag", ["<think>", "<thinking><think>", "x<reasoning>", "</think><think>"])
def test_a_megabyte_of_tags_is_read_at_once(tag: str) -> None:
    without_thinking(tag * (1_000_000 // len(tag)))  # once took hours; the suite's own time limit is the test


# Tasks


@pytest.mark.parametrize(
    ("name", "output", "answer"),
    [("number", "0E310", "4"), ("number", "5 x 10^999", "4"), ("json", '{"a": [1]}', '{"a.²": 1}')],
)
def test_no_output_makes_a_scorer_raise(name: str, output: str, answer: str) -> None:
    assert SCORERS[name](output, [answer]).hard == 0


def test_numbers_too_large_to_compare_are_different() -> None:
    assert SCORERS["json"](f'{{"a": 1{"0" * 400}}}', ['{"a": 1.5}']).hard == 0


def test_choices_that_are_no_texts_are_refused_and_numbers_are_texts() -> None:
    scorer = NamedScorer("choice", {})
    numbers = Item(id="i", question="q", answers=("12",), choices=[12, 13])
    scorer.check({"train": [numbers], "val": [numbers], "test": [numbers]})
    score: Any = scorer(numbers, "It is 12.")
    assert score.hard == 1
    wrong = Item(id="i", question="q", answers=("12",), choices=[None])
    with pytest.raises(UserError, match=r"item 'i'.choices.*should be a valid string"):
        scorer.check({"train": [wrong]})


# Edits


def test_an_edit_with_half_a_character_where_nothing_is_written_is_skipped_too() -> None:
    for edit in (
        {"op": "add", "text": "x", "anchor": "\ud800"},
        {"op": "add", "text": "x", "trajectory_ids": ["\udcff"]},
    ):
        done = apply_edits(Skill(""), [Edit.model_validate({"trajectory_ids": ["t"], **edit})])
        assert [skip.kind for skip in done.skipped] == ["control_characters"]


# Runs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    out = tmp_path_factory.mktemp("found")
    short = ("train.num_epochs=1", "env.options={rules: 8, train: 12, val: 10, test: 10}", "train.batch_size=6")
    train_sim(out, *short, "models.optimizer_model=sim:world?duds=0.35&opposites=1")
    return only_run(out)


@pytest.fixture
def copy(run: RunDirectory, tmp_path: Path) -> RunDirectory:
    shutil.copytree(run.root, tmp_path / "sim" / run.root.name)
    return only_run(tmp_path)


@pytest.mark.parametrize("text", ["[]", "null", '"x"', "{}", "[" * 5000])
def test_a_state_of_another_shape_is_damaged(text: str, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(Damaged):
        State.read(tmp_path / "state.json")


def test_half_a_candidate_of_an_interrupted_step_is_no_damage(copy: RunDirectory) -> None:
    copy.snapshot(State.read(copy.state).version + 1).write_bytes(b"\xff\xfe")
    assert find_damage(copy) == []


def test_files_of_somebody_else_among_ours_are_left_alone(copy: RunDirectory) -> None:
    foreign = [copy.skills / "skill_v0001 (copy).md", copy.steps / "step_old", copy.skills / "skill_vX.md"]
    for path in foreign:
        path.write_text("mine")
    copy.roll_back(step=0, epoch=0, version=0, patch_log_size=0)
    assert all(path.exists() for path in foreign)
    assert copy.versions() == [0]


@pytest.mark.parametrize("data", [b"\x00", b"[]\n", b"\xff"])
def test_a_run_whose_conflicts_were_lost_begins_anew_without_its_state(data: bytes, copy: RunDirectory) -> None:
    assert copy.conflicts.exists()
    copy.conflicts.write_bytes(data)
    with pytest.raises(Damaged):
        refuse_damage(copy)
    copy.state.unlink()
    refuse_damage(copy)  # once ended in a traceback, for ever
    assert copy.conflicts.read_bytes() == b""


@pytest.mark.parametrize("command", ["report", "review", "diff"])
def test_commands_that_look_into_a_damaged_run_say_so(command: str, copy: RunDirectory) -> None:
    for path in copy.root.rglob("*.json*"):
        path.write_text("[5]")
    (copy.skills / "skill_v0000.md").write_bytes(b"\xff")
    done = skillopt(command, str(copy.root))
    assert "Traceback" not in done.stderr
    assert done.returncode == 2


def test_a_summary_with_texts_for_numbers_is_unreadable_in_the_table_and_refused_by_the_report(
    copy: RunDirectory,
) -> None:
    summary = read_json(copy.summary)
    write_json(copy.summary, {**summary, "best": {**summary["best"], "val": "much"}})
    (row,) = list_runs(copy.root)
    assert row.status == "unreadable"
    with pytest.raises(Damaged, match="skillopt verify"):
        write_report(copy)


def test_a_value_that_only_the_page_reads_and_that_is_missing_is_called_damage(copy: RunDirectory) -> None:
    row = {"worth": 0.1, "interval": None, "tokens": 3, "verdict": "earns", "text": "a rule"}
    version = read_json(copy.summary)["best"]["version"]
    copy.ablation.mkdir(exist_ok=True)
    write_json(copy.ablation / f"rule_v{version:04d}.json", {"by": "rule", "rows": [row]})
    with pytest.raises(Damaged, match="Field required"):
        write_report(copy)


# The web page


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Any:
    workspace = make_workspace(tmp_path_factory.mktemp("found") / "work")
    with serving(workspace) as running:
        yield running


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (f"/api/runs/{'9' * 5000}/sim/x", None, 404),
        (f"/api/runs/0/sim/{'%C3%A9' * 200}", None, 404),
        (f"/api/runs/0/{'a' * 255}/{'b' * 255}", None, 404),
        ("/api/configs/check", {"yaml": "", "set": 5}, 400),
        ("/api/configs/check", {"yaml": "train: {x: .nan}"}, 200),
        ("/api/configs/check", {"yaml": "env: {options: {a: .inf}}"}, 200),
        ("/api/configs/check", {"yaml": "env: {options: {2024-01-01: 1}}"}, 200),
        ("/api/configs/check", {"yaml": "", "set": {"train.seed": "2024-13-45"}}, 200),
        ("/api/configs/check", {"yaml": "env: {options: {a: ~nobody-at-all/x}}"}, 200),
        ("/api/configs/check", {"yaml": 'env: {split_dir: "\\0"}'}, 200),
        ("/api/configs/check", {"yaml": 'env: {output_root: "\\0"}'}, 200),
        ("/api/configs/load", {"path": "\ud800"}, 400),
        ("/api/configs/load", {"path": "a" * 5000}, 404),
        ("/api/sparks", {"ids": 5}, 400),
        ("/api/login", {"token": "\ud800"}, 400),
    ],
)
def test_a_request_that_once_made_the_page_fail_is_answered(ui: Ui, path: str, body: Any, status: int) -> None:
    assert ui.ask(path, body)[0] == status


@pytest.mark.parametrize(
    ("headers", "statuses"),
    [({"Origin": "http://["}, {400, 403}), ({"Content-Type": "application/json; charset=x"}, {200, 400})],
)
def test_headers_that_once_made_the_page_fail_are_answered(ui: Ui, headers: dict[str, str], statuses: set[int]) -> None:
    status, _ = ui.ask("/api/configs/check", {"yaml": ""}, {"X-SkillOpt": "1", **headers})
    assert status in statuses


@pytest.mark.parametrize(
    ("was", "now"), [(b"tablereplies", b"tabler\xc5plies"), (b"WITHOUT ROWID", b"WITHOUT R\xc5WID")]
)
def test_a_journal_whose_damage_sqlite_cannot_put_into_words_is_found(tmp_path: Path, was: bytes, now: bytes) -> None:
    path = tmp_path / "journal.sqlite"
    Journal(path).__exit__()
    path.write_bytes(path.read_bytes().replace(was, now, 1))
    assert "is damaged" in journal_problem(path)
    with pytest.raises(Damaged, match="cannot be read"):
        Journal(path)


def test_a_journal_whose_version_number_is_damaged_is_found_damaged(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with Journal(path), closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version=130")
    assert "written by another" in journal_problem(path)
