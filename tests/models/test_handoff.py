"""Letters in place of an optimizer: whoever answers them, the run is the same as over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt.cli import main
from skillopt.config import Config
from skillopt.errors import Stopped, UserError
from skillopt.measure.evaluate import evaluate
from skillopt.models import open_model
from skillopt.models.base import ChatRequest, Schema
from skillopt.models.handoff import Box, HandoffModel, Letter, box_of
from skillopt.models.handoff import model as handoff_model
from skillopt.models.handoff.box import BadReply
from skillopt.models.handoff.page import page
from skillopt.models.handoff.schema import example, problems
from skillopt.models.handoff.status import letter_status, wait_for_letter
from skillopt.record.directory import RunDirectory
from skillopt.record.events import Event
from skillopt.record.files import read_json
from skillopt.sim.model import SimOptions
from skillopt.skill import Skill
from skillopt.tasks.judge import SCHEMA as JUDGE
from skillopt.training.requests.replies import merge_schema, reflect_schema, text_schema
from support import REPO, differing, essence, only_run, sim_server, train_sim
from support.reader import Reader, reply_to

WORLD = SimOptions(duds=0.35)
HANDOFF = "models.optimizer_model=handoff"
SHORT = ("train.num_epochs=2", "train.batch_size=12", "env.options={rules: 8, train: 24, val: 16, test: 10}")
_NAMES = {"type": "array", "items": {"type": "string", "enum": ["e1", "e2"]}}
_FIELDS = {"reason": {"type": "string"}, "order": _NAMES}
ORDER = Schema(
    name="order",
    body={"type": "object", "properties": _FIELDS, "required": list(_FIELDS), "additionalProperties": False},
)
SCHEMAS = [
    reflect_schema("reflect", ["t1", "t2"], 4),
    merge_schema(["e1", "e2"], 3),
    ORDER,
    text_schema("slow_update", "guidance"),
    JUDGE,
]
ASKED = ChatRequest(messages=({"role": "user", "content": "Which?"},), schema=ORDER)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handoff_model, "POLL", 0.01)


def over_http(out: Path, *overrides: str) -> RunDirectory:
    with sim_server(WORLD) as (_, url):
        optimizer = ("models.optimizer_model=vllm:sim", f"hardware.vllm_url={url}")
        return RunDirectory(train_sim(out, *optimizer, *overrides).path)


def start(out: Path, *overrides: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "skillopt.cli", "train", "--config", "configs/sim/default.yaml", HANDOFF]
    command += [f"env.output_root={out}", *overrides]
    return subprocess.Popen(command, cwd=REPO, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def wait_for(box: Box, process: subprocess.Popen[bytes], known: int = 0) -> None:
    while len(box.letters()) <= known:
        assert process.poll() is None, process.communicate()[1].decode()
        time.sleep(0.02)


def only_box(out: Path, process: subprocess.Popen[bytes]) -> Box:
    while not (found := list(out.glob("sim/*/letters"))):
        assert process.poll() is None, process.communicate()[1].decode()
        time.sleep(0.02)
    return Box(found[0], "")


def test_letters_answered_in_parallel_wrongly_first_and_in_another_order_give_the_bytes_of_http(tmp_path: Path) -> None:
    calm = over_http(tmp_path / "http", *SHORT)
    with Reader(tmp_path / "letters", WORLD, seed=1, wrong_first=True) as reader:
        done = RunDirectory(train_sim(tmp_path / "letters", HANDOFF, *SHORT).path)
    assert differing(essence(calm), essence(done)) == []
    assert reader.refused == set(reader.answered)
    assert len(reader.answered) == len(set(reader.answered)), "a request was asked for twice"
    assert not list(done.letters.glob("*.problem.md")), "every problem was solved, so that its page is gone"
    assert read_json(done.summary)["calls"]["optimizer"] == len(reader.answered)


@pytest.mark.slow
@pytest.mark.slow
def test_killed_between_letters_and_replies_and_answered_while_nobody_runs_it_ends_alike(tmp_path: Path) -> None:
    calm = over_http(tmp_path / "http", *SHORT)
    out = tmp_path / "letters"
    written = 0
    for _ in range(2):
        process = start(out, *SHORT)
        box = only_box(out, process)
        wait_for(box, process, written)
        process.send_signal(signal.SIGKILL)
        process.wait()
        for letter in reversed(box.open_letters()):  # nobody is there; the replies lie and wait
            box.hand_in(letter.number, reply_to(letter, WORLD))
        written = len(box.letters())
    with Reader(out, WORLD):
        process = start(out, *SHORT)
        _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    assert differing(essence(calm), essence(only_run(out))) == []
    hashes = [letter.hash for letter in box.letters()]
    assert len(hashes) == len(set(hashes)), "a resume wrote a letter that was there"


@pytest.mark.slow
def test_ctrl_c_leaves_letters_open_and_another_place_answers_and_continues(tmp_path: Path) -> None:
    calm = over_http(tmp_path / "http", *SHORT)
    here, there = tmp_path / "here", tmp_path / "there"
    process = start(here, *SHORT)
    box = only_box(here, process)
    wait_for(box, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130, errors.decode()
    assert b"run the same command again to continue" in errors
    assert box.open_letters()
    shutil.copytree(here, there)
    shutil.rmtree(here)
    with Reader(there, WORLD):
        done = RunDirectory(train_sim(there, HANDOFF, *SHORT).path)
    assert differing(essence(calm), essence(done)) == []


@pytest.mark.usefixtures("virtual_time")
def test_the_time_of_a_budget_ends_the_wait_for_a_letter_and_no_call_timeout_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Event] = []
    limits = ("hardware.call_timeout=0.2", "budget.max_minutes=0.05")
    with pytest.raises(Stopped, match=r"max_minutes"):
        train_sim(tmp_path, HANDOFF, *SHORT, *limits, listeners=[seen.append])
    (opened,) = [event for event in seen if event.kind == "letters_opened"]
    pulses = [event["letters"].model_dump() for event in seen if event.kind == "pulse"]
    run = only_run(tmp_path)
    assert opened["folder"] == str(run.letters)
    assert {"waiting": opened["waiting"], "folder": str(run.letters)} in pulses
    assert [letter.number for letter in Box(run.letters, "").open_letters()] == list(opened["numbers"])
    monkeypatch.undo()  # a reader needs real time
    with Reader(tmp_path, WORLD):
        assert train_sim(tmp_path, HANDOFF, *SHORT, "hardware.call_timeout=0.2").summary["status"] == "finished"


def test_a_spent_budget_of_calls_ends_the_wait_for_letters_too(tmp_path: Path) -> None:
    with pytest.raises(Stopped, match="max_calls"):
        train_sim(tmp_path, HANDOFF, *SHORT, "budget.max_calls=14", "hardware.workers=1")


def test_a_folder_of_letters_serves_several_runs_and_makes_no_other_run(tmp_path: Path) -> None:
    named = f"models.optimizer_model=handoff:{tmp_path / 'post' / 'letters'}"
    with Reader(tmp_path / "post", WORLD):
        first = train_sim(tmp_path, named, *SHORT)
        letters = len(box_of(first.path).letters())
        second = train_sim(tmp_path, named, *SHORT, mode="fresh")
    assert letters
    assert len(box_of(second.path).letters()) == letters, "each run has letters of its own"
    assert len(Box(tmp_path / "post" / "letters", "").letters()) == 2 * letters
    assert train_sim(tmp_path, HANDOFF, *SHORT).path == second.path


def test_tokens_are_estimates_and_said_to_be(tmp_path: Path) -> None:
    with Reader(tmp_path, WORLD):
        result = train_sim(tmp_path, HANDOFF, *SHORT, "budget.max_usd=1")
    assert result.summary.tokens_estimated == ("optimizer",)
    assert result.summary["tokens"]["optimizer"]["prompt"] > 100
    assert result.summary["cost_usd"]["optimizer"] == 0


def test_a_target_is_no_reader() -> None:
    with pytest.raises(UserError, match="for the optimizer and the judge"):
        open_model("target", Config.parse({"models": {"target_model": "handoff"}}))


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_the_page_holds_the_question_the_schema_and_an_example_that_fits(schema: Schema, tmp_path: Path) -> None:
    messages = ({"role": "system", "content": "Say it."}, {"role": "user", "content": "A fence:\n````\nend of data"})
    box = Box(tmp_path, "run")
    letter = box.post(ChatRequest(messages=messages, schema=schema), schema.name)
    text = letter.page.read_text()
    assert text == page(letter)
    assert "`````text\nA fence:\n````\nend of data\n`````" in text, "data cannot close its block"
    blocks = [json.loads(part.partition("```")[0]) for part in text.split("```json\n")[1:]]
    assert blocks[0] == schema.body
    assert problems(blocks[1], schema.body) == []
    assert f"skillopt answer {tmp_path} 1" in text


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "[] is not of type 'object'"),
        ({"order": []}, "'reason' is a required property"),
        ({"reason": 1, "order": []}, "reason: 1 is not of type 'string'"),
        ({"reason": "", "order": ["e9"]}, "order[0]: \"e9\" is not one of ['e1', 'e2']"),
        ({"reason": "", "order": [], "more": 1}, "('more' was unexpected); known are reason, order"),
    ],
)
def test_a_problem_names_its_place(value: Any, said: str) -> None:
    assert any(said in problem for problem in problems(value, ORDER.body))


def test_lengths_bounds_and_kinds_are_checked() -> None:
    body = {
        "type": "object",
        "properties": {
            "text": {"type": "string", "minLength": 2, "maxLength": 3},
            "list": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": ["integer", "null"]}},
            "share": {"type": "number", "minimum": 0, "maximum": 1},
            "flag": {"type": "boolean"},
        },
        "required": ["text", "list", "share", "flag"],
    }
    right = {"text": "abc", "list": [1, None], "share": 1, "flag": True}
    assert problems(right, body) == []
    wrong = {"text": "a", "list": [], "share": 2, "flag": 1}
    assert len(problems(wrong, body)) == 4
    assert problems(right | {"list": [True]}, body) == ["list[0]: true is not of type 'integer', 'null'"]
    assert problems(right | {"list": [1, 2, 3]}, body) == [
        "list: [1, 2, 3] is too long (its length is 3, maxItems is 2)"
    ]


def test_the_example_shows_an_addition_which_has_no_anchor() -> None:
    edit = {"type": "object", "properties": {"op": {"enum": ["add", "modify"]}, "anchor": {"type": "string"}}}
    assert example(edit) == {"op": "add", "anchor": ""}


TEXTS = st.text('ab,:{}[]"\\\n ', max_size=6)


@given(st.binary(max_size=60) | TEXTS.map(str.encode) | st.just(b"[" * 100_000))
def test_whatever_is_handed_in_is_taken_or_refused_in_words(data: bytes) -> None:
    letter = Letter(folder=Path(), number=1, run="", hash="", stage="order", messages=[], max_tokens=None,
                    schema={"name": "order", "body": ORDER.body})  # fmt: skip
    with contextlib.suppress(BadReply):
        letter.checked(data)


def test_a_judge_can_be_a_handoff_and_a_measurement_says_that_it_waits(tmp_path: Path) -> None:
    rows = [{"question": f"Give the codes for: maple. ({n})", "answer": "ZM-73"} for n in range(9)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    env = {"name": "qa", "data": str(tmp_path / "tasks.jsonl"), "scoring": "judge", "output_root": str(tmp_path)}
    models = {"target_model": "sim:world", "optimizer_model": "handoff"}
    config = Config.parse({"env": env, "models": models, "evaluation": {"gate": "paired"}})
    seen: list[Event] = []
    told, ended = threading.Event(), threading.Event()

    def listen(event: Event) -> None:
        if event.kind == "letters_opened":
            seen.append(event)
            told.set()

    def grade() -> None:
        told.wait(60)
        while not ended.wait(0.02):
            for folder in tmp_path.glob("**/letters"):
                box = Box(folder, "")
                for letter in box.open_letters():
                    box.hand_in(letter.number, b'{"reason": "half of it", "score": 2}')

    judge = threading.Thread(target=grade, daemon=True)
    judge.start()
    found = asyncio.run(evaluate(config, Skill("- For maple, answer ZM-73."), split="val", listeners=[listen]))
    ended.set()
    judge.join()
    assert found["soft"] == 0.5
    (folder,) = {Path(event["folder"]) for event in seen}
    assert letter_status(folder)["status"] == "ended"


def reply(box: Box, *, soon: Any = None) -> str:
    """Ask one question in a thread, do what `soon` does to its letter, and give the text that came back."""
    model = HandoffModel(box)
    found: list[str] = []
    asking = threading.Thread(target=lambda: found.append(asyncio.run(model.chat(ASKED)).text), daemon=True)
    asking.start()
    while not box.open_letters():
        time.sleep(0.005)
    soon(box.open_letters()[0])
    asking.join()
    return found[0]


GOOD = b'{"reason": "first", "order": ["e2", "e1"]}'


def test_a_reply_that_is_being_written_is_waited_for_and_one_in_a_fence_is_read(tmp_path: Path) -> None:
    def slowly(letter: Any) -> None:
        text = b"```json\n" + GOOD + b"\n```\n"
        for end in range(0, len(text), 6):
            letter.reply.write_bytes(text[: end + 6])
            time.sleep(0.012)

    assert json.loads(reply(Box(tmp_path, "run"), soon=slowly))["order"] == ["e2", "e1"]
    assert not list(tmp_path.glob("*.problem.md"))


@pytest.mark.parametrize("bad", [b"", b" \n", b"no JSON", b'{"order": ["e9"]}', b"x" * 10_000_000, b"\xff\xfe"])
def test_a_reply_that_does_not_fit_is_sent_back_with_what_is_wrong(bad: bytes, tmp_path: Path) -> None:
    box = Box(tmp_path, "run")

    def wrong_then_right(letter: Any) -> None:
        letter.reply.write_bytes(bad)
        while letter.reply.exists():
            time.sleep(0.005)
        assert "does not fit" in letter.problem.read_text()
        assert letter.row()["problem"]
        assert (tmp_path / "0001.refused.json").read_bytes() == bad, "what somebody wrote is not lost"
        with pytest.raises(BadReply):
            box.hand_in(letter.number, bad)
        box.hand_in(letter.number, GOOD)

    assert json.loads(reply(box, soon=wrong_then_right))["reason"] == "first"
    assert not list(tmp_path.glob("*.problem.md"))


def test_a_reply_that_was_there_before_its_letter_is_not_taken_for_one(tmp_path: Path) -> None:
    (tmp_path / "0001.reply.json").write_bytes(GOOD)
    assert Box(tmp_path, "run").post(ASKED, "order").number == 2


def test_many_writers_in_one_folder_never_share_a_number(tmp_path: Path) -> None:
    def post(run: int) -> None:
        for each in range(10):
            content = {"role": "user", "content": f"{run}/{each}"}
            Box(tmp_path, f"run{run}").post(ChatRequest(messages=(content,), schema=ORDER), "order")

    threads = [threading.Thread(target=post, args=(run,)) for run in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    letters = Box(tmp_path, "").letters()
    assert [letter.number for letter in letters] == list(range(1, 61))
    assert len({letter.messages[0]["content"] for letter in letters}) == 60
    assert not list(tmp_path.glob(".*")), "no draft is left"


def test_text_is_asked_for_and_read_where_there_is_no_schema(tmp_path: Path) -> None:
    box = Box(tmp_path, "run")
    letter = box.post(ChatRequest(messages=({"role": "user", "content": "Hello?"},)), "text")
    assert letter.reply.name == "0001.reply.md"
    assert letter.checked(b" Hello.\n") == "Hello."


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    shown = capsys.readouterr()
    return int(str(ended.value.code)), shown.out, shown.err


@pytest.mark.usefixtures("virtual_time")
def test_the_commands_list_wait_check_and_hand_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Stopped):
        train_sim(tmp_path, HANDOFF, *SHORT, "budget.max_minutes=1")
    monkeypatch.undo()  # commands wait in real time
    path = str(only_run(tmp_path).root)
    code, out, _ = run(capsys, "letters", path, "--wait", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["status"] in {"stopped", "interrupted"}
    letter = found["letters"][0]
    good = tmp_path / "good.json"
    box = box_of(Path(path))
    good.write_bytes(reply_to(box.letter(letter["number"]), WORLD))
    code, out, _ = run(capsys, "letters", str(tmp_path / "sim"))
    assert path in out, "the newest run of a folder of runs"
    code, out, _ = run(capsys, "letters", path)
    assert f"{letter['number']}  {letter['stage']}  {letter['page']}" in out
    assert "run the same training command again" in out
    bad = tmp_path / "bad.json"
    bad.write_text('{"edits": []}')
    for arguments, said in (
        ((path, "77", str(good)), "there is no letter 77; open letters: 1"),
        ((path, "1", str(tmp_path / "none")), "no such file"),
        ((path, "1", str(bad)), "'patterns' is a required property"),
        ((str(tmp_path / "none"), "1", str(good)), "is neither a run's folder nor a folder of runs or letters"),
    ):
        code, _, err = run(capsys, "answer", *arguments)
        assert code == 2
        assert said in err
    assert box.letter(1).open
    code, out, _ = run(capsys, "answer", path, "1", str(good))
    assert code == 0
    assert "0001.reply.json" in out
    code, _, err = run(capsys, "answer", path, "1", str(good))
    assert code == 2
    assert "already has a reply" in err


def with_anchor(letter: Letter, anchor: str) -> bytes:
    """A reply that fits the schema and modifies this text."""
    assert letter.schema
    schema: Any = letter.schema["body"]
    cited = schema["properties"]["patterns"]["items"]["properties"]["trajectory_ids"]["items"]["enum"][:1]
    edit = {"op": "modify", "anchor": anchor, "text": "Answer with codes.", "section": ""}
    edit |= {"pattern": "p", "rationale": "r", "trajectory_ids": cited}
    return json.dumps({"job": "j", "patterns": [], "edits": [edit]}).encode()


@pytest.mark.usefixtures("virtual_time")
def test_answer_refuses_an_anchor_that_is_not_in_the_skill_and_the_letter_stays_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = tmp_path / "seed.md"
    seed.write_text("# Codes\n\nAnswer with the codes alone.\n\n<skill> and </skill> are tags.\n")
    with pytest.raises(Stopped):
        train_sim(tmp_path, HANDOFF, *SHORT, f"train.init_skill={seed}", "budget.max_minutes=1")
    monkeypatch.undo()  # commands wait in real time
    path = str(only_run(tmp_path).root)
    letter = box_of(Path(path)).letter(1)
    reply = tmp_path / "reply.json"
    for anchor in ("Give 12 for maple.", "Answer with the code alone."):
        reply.write_bytes(with_anchor(letter, anchor))
        code, out, err = run(capsys, "answer", path, "1", str(reply))
        assert "Accepted" not in out, f"'{anchor}' is not in the skill"
        assert code == 2
        assert f'"{anchor}" is not in the skill' in err
        assert letter.open
    lines = "Answer with the codes alone.\n\n<skill> and </skill> are tags."
    reply.write_bytes(with_anchor(letter, lines))
    code, out, err = run(capsys, "answer", path, "1", str(reply))
    assert (code, "Accepted" in out, letter.open) == (2, False, True)
    assert "loses what its anchor has" in err
    value = json.loads(with_anchor(letter, lines))
    value["edits"][0]["dropped"] = [{"text": line, "reason": "not needed"} for line in lines.splitlines() if line]
    reply.write_text(json.dumps(value))
    code, out, err = run(capsys, "answer", path, "1", str(reply))
    assert (code, "Accepted" in out) == (0, True), err


@pytest.mark.slow
def test_waiting_right_after_a_start_is_for_the_new_run_and_not_for_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skillopt.models.handoff.status.BEGINS", 120.0, raising=False)  # a busy machine
    with Reader(tmp_path, WORLD):
        before = train_sim(tmp_path, HANDOFF, *SHORT)
    process = start(tmp_path, *SHORT, "train.seed=7")
    try:
        _, out, _ = run(capsys, "letters", str(tmp_path / "sim"), "--wait", "--timeout", "120", "--json")
    finally:
        process.kill()
        process.wait()
    found = json.loads(out)
    assert found["run"] != str(before.path), "the run that had ended before"
    assert (found["status"], len(found["letters"])) == ("running", 1)


@pytest.mark.slow
def test_waiting_is_for_a_run_that_is_not_there_yet_or_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skillopt.models.handoff.status.BEGINS", 120.0, raising=False)
    for known in (tmp_path / "sim", None):
        process = start(tmp_path, *SHORT)
        try:
            place = known or only_run(tmp_path).root
            _, out, _ = run(capsys, "letters", str(place), "--wait", "--timeout", "120", "--json")
        finally:
            process.kill()
            process.wait()
        found = json.loads(out or "{}")
        assert found.get("letters"), "the wait ended before the run had begun"
        for path in only_run(tmp_path).letters.iterdir():
            path.unlink()  # the run that continues writes its letter again
    monkeypatch.setattr("skillopt.models.handoff.status.BEGINS", 0.1)
    code, _, err = run(capsys, "letters", str(tmp_path / "nowhere"), "--wait")
    assert code == 2
    assert "is neither a run's folder" in err


def test_waiting_ends_with_the_run_and_after_the_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Reader(tmp_path, WORLD):
        done = train_sim(tmp_path, HANDOFF, *SHORT)
    _, out, _ = run(capsys, "letters", str(done.path), "--wait")
    assert "finished" in out
    assert "No letter is open." in out
    (done.path / "summary.json").unlink()
    with RunDirectory(done.path).held():
        _, out, _ = run(capsys, "letters", str(done.path), "--wait", "--timeout", "0.1", "--json")
    assert json.loads(out) == {"run": str(done.path), "status": "running", "reason": "", "letters": []}


def test_waiting_at_a_shared_folder_of_letters_goes_on_until_one_is_open(tmp_path: Path) -> None:
    box = Box(tmp_path, "run")
    first, second = (ChatRequest(messages=({"role": "user", "content": text},)) for text in ("Which?", "Why?"))
    box.hand_in(box.post(first, "text").number, b"Done.")
    status = wait_for_letter(tmp_path, 0.5)
    assert (status["status"], status["letters"]) == ("unknown", [])
    later = threading.Timer(0.5, lambda: box.post(second, "text"))
    later.start()
    assert len(wait_for_letter(tmp_path, 60)["letters"]) == 1
    later.join()


def test_waiting_at_an_empty_folder_goes_on_until_it_has_a_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skillopt.models.handoff.status.BEGINS", 0.0)
    with pytest.raises(UserError, match="neither a run's folder"):
        wait_for_letter(tmp_path, 0.1)
    request = ChatRequest(messages=({"role": "user", "content": "Which?"},))
    later = threading.Timer(0.5, lambda: Box(tmp_path, "run").post(request, "text"))
    later.start()
    assert len(wait_for_letter(tmp_path, 60)["letters"]) == 1
    later.join()
