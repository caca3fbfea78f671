"""A scorer of the user's own: whatever it does, it costs its item and never the run; its failure is no wrong answer."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from skillopt.config import Config, EnvConfig
from skillopt.errors import Stopped, UserError
from skillopt.models.base import ChatReply, ChatRequest
from skillopt.preflight import doctor
from skillopt.record.files import read_json
from skillopt.tasks.base import Item, Score, ScorerError, score_output
from skillopt.tasks.qa import QAEnv
from skillopt.training.trainer import TrainingLoop

SCORER = """
import os, sys, time, asyncio
from helper import HALF
print("loaded")

def score(item, output):
    print("scoring", item.id)
    if output == "hang":
        while True:
            pass
    if output == "sleep":
        time.sleep(1000)
    if output == "exit":
        os._exit(3)
    if output == "quit":
        sys.exit("done")
    if output == "kill":
        os.kill(os.getpid(), 9)
    if output == "memory":
        return len(bytearray(8 << 30)) * 0
    if output == "raise":
        return {}["no such key"]
    if output == "fork":
        if os.fork() == 0:
            time.sleep(1000)
        time.sleep(1000)
    if output == "nothing":
        return None
    if output == "much":
        return 3
    if output == "nan":
        return float("nan")
    if output == "key":
        return float("OWN_API_KEY" in os.environ)
    if output == "plain":
        return float("PLAIN_SETTING" in os.environ)
    if output == "half":
        return HALF, "only half of it"
    return output == item["answers"][0]

async def later(item, output):
    await asyncio.sleep(0)
    return 1.0 if output == item.own["x"] else (0.25, "later")

def whole(item, output):
    from skillopt.tasks.base import Score
    return Score(hard=0, soft=0.5, feedback="as a Score")

def fields(item, output):
    return {"hard": 1, "soft": 0.7}

number = 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scorer.py").write_text(SCORER)
    (tmp_path / "helper.py").write_text("HALF = 0.5\n")
    rows = [{"id": f"q{n}", "question": f"Q{n}?", "answers": ["right"], "own": {"x": "y"}} for n in range(12)]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def opened(folder: Path, function: str = "score", **options: Any) -> QAEnv:
    given = {"timeout": 20.0, "workers": 1, **options}
    return QAEnv(
        EnvConfig(data=str(folder / "tasks.jsonl"), scoring=f"{folder}/scorer.py:{function}", scoring_options=given)
    )


def scores(env: QAEnv, *outputs: str) -> list[Score | str]:
    item = env.items("train")[0]

    async def one(output: str) -> Score | str:
        try:
            return await score_output(env, item, output)
        except ScorerError as error:
            return str(error)

    async def all_of_them() -> list[Score | str]:
        return await asyncio.gather(*(one(output) for output in outputs))

    try:
        return asyncio.run(all_of_them())
    finally:
        env.close()


def children() -> set[int]:
    """Live processes of ours, zombies among them."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid():
                found.add(int(entry.name))
    return found


def test_a_number_a_pair_a_dict_a_score_and_an_async_function_are_all_scores(folder: Path) -> None:
    assert scores(opened(folder), "right", "wrong", "half") == [
        Score(hard=1, soft=1),
        Score(hard=0, soft=0),
        Score(hard=0, soft=0.5, feedback="only half of it"),
    ]
    assert scores(opened(folder, "later"), "y", "z") == [
        Score(hard=1, soft=1),
        Score(hard=0, soft=0.25, feedback="later"),
    ]
    assert scores(opened(folder, "whole", timeout=60), "x") == [Score(hard=0, soft=0.5, feedback="as a Score")]
    assert scores(opened(folder, "fields"), "x") == [Score(hard=1, soft=0.7)]
    assert scores(opened(folder, "score", pass_at=0.5), "half") == [Score(hard=1, soft=0.5, feedback="only half of it")]


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("hang", "no answer within 1 s"),
        pytest.param("sleep", "no answer within 1 s", marks=pytest.mark.slow),
        pytest.param("fork", "no answer within 1 s", marks=pytest.mark.slow),
    ],
)
def test_a_scorer_that_hangs_is_named_and_the_next_item_is_scored(folder: Path, output: str, told: str) -> None:
    before = children()
    failed, fine = scores(opened(folder, timeout=1.0, workers=1), output, "right")
    assert isinstance(failed, str)
    assert "scorer.py:score" in failed
    assert told in failed
    assert fine == Score(hard=1, soft=1)
    assert children() <= before


def test_a_scorer_that_fails_is_named_and_the_next_item_is_scored(folder: Path) -> None:
    told = {
        "exit": "ended with exit code 3",
        "quit": "SystemExit: done",
        "kill": "SIGKILL",
        "memory": "MemoryError",
        "raise": "KeyError: 'no such key' (scorer.py, line 22)",
        "nothing": "returned None; a score is a number from 0 to 1",
        "much": "returned 3; a score is a number from 0 to 1",
        "nan": "returned nan",
    }
    before = children()
    outputs = [output for failing in told for output in (failing, "right")]
    found = scores(opened(folder, timeout=60.0, memory_mb=1024, workers=1), *outputs)
    assert found[1::2] == [Score(hard=1, soft=1)] * len(told)
    for failed, words in zip(found[::2], told.values(), strict=True):
        assert isinstance(failed, str)
        assert "scorer.py:score" in failed
        assert words in failed
    assert children() <= before


def test_secrets_reach_a_scorer_only_by_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_API_KEY", "a-secret-of-the-test")
    monkeypatch.setenv("PLAIN_SETTING", "1")
    assert scores(opened(folder), "key", "plain") == [Score(hard=0, soft=0), Score(hard=1, soft=1)]
    assert scores(opened(folder, pass_env=["OWN_API_KEY"]), "key") == [Score(hard=1, soft=1)]


@pytest.mark.parametrize(
    ("scoring", "told"),
    [
        ("scorer.py:nobody", "has no function 'nobody'"),
        ("scorer.py:number", "has no function 'number'"),
        ("missing.py:score", "No such file"),
        ("broken.py:score", "ZeroDivisionError: division by zero (broken.py, line 1)"),
        ("no.such.module:score", "ModuleNotFoundError"),
    ],
)
def test_a_scorer_that_cannot_be_loaded_is_refused_before_anything_is_paid(
    folder: Path, scoring: str, told: str
) -> None:
    (folder / "broken.py").write_text("1 / 0\n")
    name = scoring if scoring.startswith("no.") else f"{folder}/{scoring}"
    with pytest.raises(UserError, match=r"env\.scoring: ") as caught:
        QAEnv(EnvConfig(data=str(folder / "tasks.jsonl"), scoring=name))
    assert told in str(caught.value)


@pytest.mark.slow
def test_a_pattern_that_never_ends_costs_its_item(folder: Path) -> None:
    rows = [{"id": f"q{n}", "question": f"Q{n}?", "answers": ["(a+)+b"]} for n in range(6)]
    (folder / "patterns.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    env = QAEnv(EnvConfig(data=str(folder / "patterns.jsonl"), scoring="regex"))
    failed, fine = scores(env, "a" * 40 + "c", "aab")
    assert "no answer within 5 s" in str(failed)
    assert fine == Score(hard=1, soft=1)
    (folder / "patterns.jsonl").write_text(json.dumps({**rows[0], "answers": ["(a"]}) + "\n")
    (folder / "patterns.split.json").unlink()
    (folder / "patterns.jsonl").write_text("".join(json.dumps({**row, "answers": ["(a"]}) + "\n" for row in rows))
    with pytest.raises(UserError, match=r"answers: cannot be scored with 'regex': missing \)"):
        QAEnv(EnvConfig(data=str(folder / "patterns.jsonl"), scoring="regex"))


class Parrot:
    """A target whose reply is the task's own last word, or what the skill says."""

    name = endpoint = "parrot"
    deterministic = True

    async def chat(self, request: ChatRequest) -> ChatReply:
        return ChatReply(text=str(request.messages[-1]["content"]).split()[-1])

    async def close(self) -> None:
        return


def config_of(folder: Path, rows: list[dict[str, Any]]) -> Config:
    (folder / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Config.parse(
        {
            "train": {"num_epochs": 1, "batch_size": 6},
            "optimizer": {"use_meta_skill": False},
            "gradient": {"analysts": ["exemplar"]},
            "env": {
                "data": str(folder / "own.jsonl"),
                "split": {"train": 1, "val": 1, "test": 1},
                "scoring": f"{folder}/scorer.py:score",
                "scoring_options": {"timeout": 60},
                "output_root": str(folder / "out"),
            },
        }
    )


def rows_with(*bad: str) -> list[dict[str, Any]]:
    words = [*bad, *["right"] * (30 - len(bad))]
    return [{"id": f"q{n:02d}", "question": f"Say {n} {word}", "answers": ["right"]} for n, word in enumerate(words)]


def test_in_a_training_such_items_are_set_aside_for_every_skill_and_named_in_the_summary(folder: Path) -> None:
    config = config_of(folder, rows_with("exit"))
    result = asyncio.run(TrainingLoop(config, models={"target": Parrot()}).fit())
    assert result.summary["status"] == "finished"
    assert list(result.summary["set_aside"]) == ["q00"]
    assert "scorer.py:score: the process ended with exit code 3" in result.summary["set_aside"]["q00"]
    evaluations = [read_json(path) for path in sorted((result.path / "evaluations").glob("*.json"))]
    assert evaluations
    assert all(set(report["items"]).isdisjoint({"q00"}) for report in evaluations)
    assert result.summary["best"]["test"] == 1


def test_a_scorer_that_fails_on_many_items_stops_the_run_and_says_why(folder: Path) -> None:
    config = config_of(folder, rows_with(*["raise"] * 30))
    with pytest.raises(Stopped, match=r"first 2 tasks gave no score.*: scorer scorer\.py:score: KeyError"):
        asyncio.run(TrainingLoop(config, models={"target": Parrot()}).fit())


def test_another_text_of_the_scorer_is_another_run_and_another_folder_is_not(folder: Path, tmp_path: Path) -> None:
    from skillopt.tasks.base import data_hash

    first = opened(folder)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for name in ("scorer.py", "helper.py", "tasks.jsonl", "tasks.split.json"):
        (moved / name).write_bytes((folder / name).read_bytes())
    same = opened(moved)
    (moved / "scorer.py").write_text(SCORER + "\n# changed\n")
    other = opened(moved)
    assert data_hash(first) == data_hash(same) != data_hash(other)
    one, two = (Config.parse({"env": {"scoring": f"{place}/scorer.py:score"}}) for place in (folder, moved))
    assert one.identity() == two.identity()
    for env in (first, same, other):
        env.close()


def test_a_noisy_scorer_and_a_judge_do_not_take_the_strict_gate() -> None:
    for env in ({"scoring": "judge"}, {"scoring": "scorer.py:fn", "scoring_options": {"noisy": True}}):
        with pytest.raises(UserError, match=r"set evaluation\.gate to paired"):
            Config.parse({"env": env, "evaluation": {"gate": "strict"}})
        assert Config.parse({"env": env}).evaluation.gate == "paired"


def test_a_scorer_is_asked_in_a_process_with_thousands_of_open_files(folder: Path) -> None:
    held = [os.dup(0) for _ in range(1100)]
    try:
        env = opened(folder)
        check = asyncio.run(doctor.scorer(env))
        env.close()
    finally:
        for handle in held:
            os.close(handle)
    assert check.status == "pass"


def test_the_doctor_scores_with_it(folder: Path) -> None:
    env = opened(folder)
    check = asyncio.run(doctor.scorer(env))
    env.close()
    assert check.status == "pass"


def test_an_items_own_options_stand_above_the_configs(folder: Path) -> None:
    rows = [
        {"id": f"q{n}", "question": f"Q{n}?", "answers": ["10"], **({"tolerance": 2} if n % 2 else {})}
        for n in range(12)
    ]
    (folder / "n.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    env = QAEnv(EnvConfig(data=str(folder / "n.jsonl"), scoring="number", scoring_options={"tolerance": 1}))
    by_id: dict[str, Item] = {item.id: item for split in ("train", "val", "test") for item in env.items(split)}
    assert asyncio.run(score_output(env, by_id["q1"], "12")).hard == 1
    assert asyncio.run(score_output(env, by_id["q2"], "12")).hard == 0
    with pytest.raises(UserError, match=r"env\.scoring_options\.tolerence: .*; the options are: tolerance"):
        QAEnv(EnvConfig(data=str(folder / "n.jsonl"), scoring="number", scoring_options={"tolerence": 1}))
    with pytest.raises(UserError, match="units: Input should be 'optional', 'required' or 'ignore'"):
        QAEnv(EnvConfig(data=str(folder / "n.jsonl"), scoring="number", scoring_options={"units": "maybe"}))
