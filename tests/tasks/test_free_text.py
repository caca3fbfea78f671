"""Free text as the expected answer, from `init` to a verdict; and runs in which every score is 0."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from skillopt.config import Config
from skillopt.models.base import ChatReply
from support import skillopt, train_sim
from support.wire import completion, served

TOPICS = ("refund", "parcel", "invoice", "password", "warranty", "voucher", "address", "contract")
PARTS = (
    "please open the page of your account and choose the entry for the {0} there",
    "one of our people looks at every {0} by hand before anything is sent out",
    "you will find a letter with all details about the {0} in your mail box",
    "we keep the papers of the {0} for ten years in a vault below the old mill",
)


def prose(number: int) -> str:
    """About 35 words; no two are alike."""
    topic = TOPICS[number % 8]
    first, second = (PARTS[(number // 8 + step) % 4].format(topic) for step in (0, 1))
    return f"Thank you for case {number}: {first}, and {second}."


ROWS = [{"question": f"What about my {TOPICS[n % 8]}, case {n}?", "answer": prose(n)} for n in range(40)]


def write_csv(path: Path) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, ["question", "answer"])
        table.writeheader()
        table.writerows(ROWS)
    return path


def write_config(folder: Path, rows: list[dict[str, str]], **env: Any) -> str:
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tree = {
        "env": {"data": "tasks.jsonl", "benchmark": "own", "output_root": str(folder / "out"), **env},
        "models": {"target_model": "vllm:any", "target_deterministic": True},
        "train": {"num_epochs": 1, "batch_size": 10},
        "gradient": {"analysts": ["exemplar"]},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(tree))
    return str(folder / "config.yaml")


@contextmanager
def endpoint(text: str) -> Iterator[tuple[str, list[str]]]:
    """A server that gives one reply to everything; gives its override, and what it was asked."""
    asked: list[str] = []

    async def answer(http: web.Request) -> web.StreamResponse:
        asked.append(json.dumps((await http.json())["messages"]))
        return web.json_response(completion(ChatReply(text=text)))

    with served("/v1/chat/completions", answer) as url:
        yield f"hardware.vllm_url={url}/v1", asked


REPLY = "You can see the state of your case in your account; our people answer within two days."


def test_init_proposes_no_exact_match_for_free_text(tmp_path: Path) -> None:
    write_csv(tmp_path / "mine.csv")
    done = skillopt("init", "mine", "--from", "mine.csv", "--target_model", "sim:world", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    config = Config.load(tmp_path / "mine" / "config.yaml")
    assert config.env.scoring in {"f1", "judge"}
    assert "judge" in done.stdout
    found = skillopt("doctor", "--offline", "--config", "mine/config.yaml", cwd=tmp_path)
    assert "pass  scorer: " in found.stdout
    labels = [{"question": row["question"], "answer": TOPICS[n % 8]} for n, row in enumerate(ROWS)]
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    assert skillopt("init", "labels", "--from", "labels.json", cwd=tmp_path).returncode == 0
    assert Config.load(tmp_path / "labels" / "config.yaml").env.scoring == "exact"


def test_the_doctor_fails_a_scorer_that_wants_free_text_word_for_word(tmp_path: Path) -> None:
    config = write_config(tmp_path, ROWS, scoring="exact")
    url = "hardware.vllm_url=http://127.0.0.1:9/v1"
    done = skillopt("doctor", "--offline", "--config", config, url)
    assert done.returncode == 1, done.stdout
    (line,) = [line for line in done.stdout.splitlines() if "scorer: " in line]
    assert line.startswith("fail  scorer: wants free text word for word: the expected answers have 3")
    assert "set env.scoring=f1" in line
    for better in (("env.scoring=f1", "evaluation.metric=soft"), ("evaluation.metric=soft",)):
        done = skillopt("doctor", "--offline", "--config", config, url, *better)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("rule", ["1.0", "float(bool(output))", "float(output == item.answers)"])
def test_the_doctor_fails_a_scorer_that_cannot_tell_right_answers_from_wrong_ones(tmp_path: Path, rule: str) -> None:
    (tmp_path / "scorer.py").write_text(f"def score(item, output):\n    return {rule}\n")
    rows = [{"question": f"Case {n}", "answer": f"word {n}"} for n in range(24)]
    config = write_config(tmp_path, rows, scoring="scorer.py:score")
    done = skillopt("doctor", "--offline", "--config", config, "hardware.vllm_url=http://127.0.0.1:9/v1")
    (line,) = [line for line in done.stdout.splitlines() if "scorer: " in line]
    assert line.startswith("fail  scorer: "), line
    assert "expected answers" in line or "cannot tell right answers from wrong ones" in line


def test_a_run_that_cannot_score_stops_after_its_first_batch_and_shows_a_reply(tmp_path: Path) -> None:
    config = write_config(tmp_path, ROWS, scoring="exact")
    with endpoint(REPLY) as (url, asked):
        done = skillopt("train", "--config", config, url)
        paid = len(asked)
        assert (done.returncode, paid <= 20) == (2, True), done.stdout[-600:]
        assert "all 10 tasks of the first batch score 0, and the scorer is the likely reason" in done.stderr
        assert f"A reply: “{REPLY}”, expected “Thank you for case" in done.stderr
        again = skillopt("train", "--config", config, url, "env.scoring=f1", "evaluation.metric=soft")
    assert again.returncode == 0, again.stderr
    assert f"{paid} replies from " in again.stdout
    assert len(set(asked)) == len(asked), "what was paid for is not paid for again"


@pytest.mark.parametrize(
    ("feedback", "code"), [("", 2), pytest.param("the reply must end with DONE", 0, marks=pytest.mark.slow)]
)
def test_a_scorer_that_gives_nothing_stops_the_run_unless_it_says_why(tmp_path: Path, feedback: str, code: int) -> None:
    rule = "output == item.answers"  # a list and a text are never equal
    (tmp_path / "scorer.py").write_text(f"def score(item, output):\n    return float({rule}), {feedback!r}\n")
    rows = [{"question": f"Case {n}", "answer": f"word {n}"} for n in range(24)]
    with endpoint("word 3") as (url, _):
        done = skillopt("train", "--config", write_config(tmp_path, rows, scoring="scorer.py:score"), url)
    assert done.returncode == code, done.stdout[-300:]
    if code:
        assert "gives 0 to the items' own expected answers" in done.stderr


def test_a_run_that_may_learn_the_form_continues_and_shows_a_reply_next_to_its_answer(tmp_path: Path) -> None:
    rows = [{"question": f"Case {n}", "answer": ("oak", "elm")[n % 2]} for n in range(40)]
    with endpoint("Thank you for your message!") as (url, _):
        done = skillopt("train", "--config", write_config(tmp_path, rows), url)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if "first batch score 0" in line]
    assert len(lines) == 1, done.stdout
    assert lines[0].startswith("warn  scores: all 10 tasks of the first batch score 0. A reply: “Thank you for your")
    assert "expected “oak”" in lines[0] or "expected “elm”" in lines[0]


def test_a_run_that_never_scored_names_the_scorer_and_the_form_and_asks_for_no_more_tasks(tmp_path: Path) -> None:
    small = ("train.num_epochs=1", "train.batch_size=6", "env.options={rules: 6, train: 12, val: 12, test: 12}")
    never = ("train.init_skill=", "models.optimizer_model=sim:world?duds=1")
    verdict = train_sim(tmp_path, *small, *never).verdict
    assert verdict.startswith("No better: the skill is unchanged (0.00 on 12 held-out tasks)")
    assert "validation tasks" not in verdict
    assert "the likely reason is the scorer, or the form of answer that it expects" in verdict
