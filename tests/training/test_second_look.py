"""What two strangers stumbled over after the first hour: each as they did it."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import skillopt as library
from skillopt.models.base import ChatReply, ChatRequest, Usage
from skillopt.record.run import Run
from skillopt.skill.tokens import count_tokens
from skillopt.training.trainer import TrainingLoop
from skillopt.view.failures import failure_groups
from skillopt.view.markdown import plain
from support import REPO, SMALL, skillopt, train_sim
from support.api import small

LABELS = [("often", 12), ("seldom", 8)]
ROWS = [
    {"question": f"Ticket {n} of {label}", "answer": label}
    for label, count in LABELS
    for n in range(4 * count)
]  # fmt: skip


def clerk(item: Any, skill: Any, model: Any) -> str:
    """Calls no model; once it knows the possible answers, it gives the one that is wrong more often."""
    return "seldom" if "The possible answers are" in skill.text else "?"


def by_agent(out: Path, **more: Any) -> library.Result:
    given: dict[str, Any] = {"agent": clerk, "analysts": "exemplar", "num_epochs": 1, "batch_size": 20}
    return library.train(tasks=ROWS, output_root=str(out), **given, **more)


def test_a_skill_that_is_not_above_the_most_frequent_answer_is_said_to_be_so(tmp_path: Path) -> None:
    said = by_agent(tmp_path).verdict
    assert said.startswith(
        "Better than before, but worse than always answering 'often' (0.60): 0.40 on 20 held-out tasks"
    )
    assert said.count("Try ") == 1


def test_an_agent_that_calls_no_model_costs_nothing_and_says_that_it_reported_nothing(tmp_path: Path) -> None:
    result = by_agent(tmp_path)
    calls = result.summary["calls"]["target"]
    assert result.verdict.endswith(f"It cost {calls:,} calls, 0 tokens, $0.00 (the target reported no usage).")
    assert result.summary.cost_usd.model_dump() == {"target": 0, "optimizer": 0}


def test_the_reports_head_names_no_optimizer_where_there_was_none(tmp_path: Path) -> None:
    page = html.unescape((by_agent(tmp_path).path / "report.html").read_text())
    head = page.partition("<header>")[2].partition("</header>")[0]
    assert "optimizer none" in head
    assert "gpt" not in head


def test_the_markdown_report_escapes_only_what_means_something(tmp_path: Path) -> None:
    said = "Better: 0.40 on 20 held-out tasks. It cost 3 calls, $0.31 (of $0.50)."
    assert plain(said) == said
    assert plain("see http://x.y and :tada: and $x^2$") == r"see http\://x.y and \:tada: and \$x\^2\$"


def test_a_last_step_that_was_rejected_is_no_score_that_still_rose(tmp_path: Path) -> None:
    result = train_sim(tmp_path, *SMALL, "train.init_skill=", "models.optimizer_model=sim:world?duds=1")
    assert {record["verdict"] for record in result.history} == {"reject"}
    groups = failure_groups(Run.open(result.path))
    assert groups
    assert {item.standing for group in groups for item in group.items} == {"few", "one"}, "none has ended too early"
    assert not [group for group in groups if "rose" in group.advice or "epochs" in group.advice]


def test_a_gain_that_cannot_be_told_has_one_next_step_and_says_how(tmp_path: Path) -> None:
    """The last step was rejected: more tasks are the next step, and nothing else is advised."""

    def slow(item: Any, skill: Any, model: Any) -> str:
        known = "Ticket 1" in item.question and "possible answers" in skill.text
        return next(row["answer"] for row in ROWS if row["question"] == item.question) if known else "?"

    given: dict[str, Any] = {"agent": slow, "analysts": "exemplar", "baselines": False, "batch_size": 20}
    result = library.train(tasks=ROWS, output_root=str(tmp_path), num_epochs=1, **given)
    assert [record["verdict"] for record in result.history] == ["accept", "reject"]
    assert result.verdict.startswith("Cannot tell: ")
    assert re.search(r"from chance\. .*Try about \d+ held-out tasks: pass more tasks\. It cost ", result.verdict)
    assert result.verdict.count("Try ") == 1


class Imitator:
    """A target that does what worked examples show, and says what each call took."""

    name = endpoint = "imitator"
    deterministic = True

    async def chat(self, request: ChatRequest) -> ChatReply:
        said = [str(message["content"]) for message in request.messages]
        found = re.search(r"of (\w+)$", said[-1])
        answer = found[1] if found and f"Reply: {found[1]}" in said[0] else "?"
        return ChatReply(text=answer, usage=Usage(prompt=sum(map(count_tokens, said)), completion=2))

    async def close(self) -> None:
        return


def test_the_plan_holds_where_worked_examples_fill_the_skill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainingLoop, "_over", lambda self: "")  # every step is done, as the plan assumes
    rows = [
        {"question": f"{'A long message of a customer. ' * 4}Ticket {n} of d{n % 6}", "answer": f"d{n % 6}"}
        for n in range(96)
    ]
    given: dict[str, Any] = {
        "models": {"target": Imitator()},
        "analysts": "exemplar",
        "num_epochs": 1,
        "batch_size": 24,
        "target_deterministic": True,
        "target_max_tokens": 20,
    }
    result = library.train(tasks=rows, output_root=str(tmp_path), **given)
    assert result.scores["best_test"] == 1
    planned = result.summary["plan"]["tokens"]["target"]
    assert planned["low"] / 2 < planned["real"] <= planned["high"] < 6 * planned["real"]


def test_splits_that_are_too_small_are_named_before_a_run_with_what_to_do(tmp_path: Path) -> None:
    rows = "".join(f"{row['question']},{row['answer']}\n" for row in ROWS[::2])
    (tmp_path / "mine.csv").write_text(f"question,answer\n{rows}")
    models = ("--target_model", "sim:world", "--optimizer_model", "sim:world")
    assert skillopt("init", "mine", "--from", "mine.csv", *models, cwd=tmp_path).returncode == 0
    wanted = (
        "to detect smaller gains, add test tasks: add tasks to mine/tasks.jsonl, then run `skillopt split "
        "mine/tasks.jsonl --extend`"
    )
    for command in (("doctor", "--offline"), ("plan",)):
        done = skillopt(*command, "--config", "mine/config.yaml", cwd=tmp_path)
        (line,) = [line for line in done.stdout.splitlines() if "  splits: " in line]
        assert line.startswith("warn  splits: 20 train, 10 val, 10 test; disjoint; ")
        assert line.endswith(wanted)
    more = (tmp_path / "mine" / "tasks.jsonl").read_text()
    more += "".join(json.dumps({"question": f"New {row['question']}", "answer": row["answer"]}) + "\n" for row in ROWS)
    (tmp_path / "mine" / "tasks.jsonl").write_text(more)
    assert skillopt("split", "mine/tasks.jsonl", "--extend", cwd=tmp_path).returncode == 0
    assert "pass  splits: " in skillopt("plan", "--config", "mine/config.yaml", cwd=tmp_path).stdout


COMMANDS = ["report", "blame", "verify", "ablate", "diff", "letters", "export", "review"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_the_folder_above_a_run(command: str, tmp_path: Path) -> None:
    result = train_sim(tmp_path / "outputs", *SMALL)
    more = ("--to", str(tmp_path / "packed")) if command == "export" else ()
    done = skillopt(command, str(result.path.parent), *more)
    assert done.returncode == 0, done.stderr


AGENT = """
import skillopt

ROWS = {rows!r}


def clerk(item, skill, model):
    return "seldom" if "The possible answers are" in skill.text else "?"


def given():
    return dict(tasks=ROWS, agent=clerk, analysts="exemplar", num_epochs=1, batch_size=20, output_root="out")


if __name__ == "__main__":
    print(skillopt.train(**given()).path)
"""
OTHER = """
import skillopt
from first import clerk, given

print(skillopt.train(**given()).path)
print(skillopt.compare(None, "initial", "best", **{k: v for k, v in given().items() if k != "analysts"},
                       gradient={"analysts": ["exemplar"]})["outcome"])
"""


def program(folder: Path, name: str, text: str) -> subprocess.CompletedProcess[str]:
    (folder / f"{name}.py").write_text(text)
    command = [sys.executable, f"{name}.py"]
    path = {"PYTHONPATH": str(REPO / "src"), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=folder, env=path, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_function_is_the_same_agent_in_another_program_and_a_command_finds_it_by_its_file(tmp_path: Path) -> None:
    first = program(tmp_path, "first", AGENT.format(rows=ROWS))
    assert first.returncode == 0, first.stderr
    other = program(tmp_path, "other", OTHER)
    assert other.returncode == 0, other.stderr
    assert other.stdout.splitlines() == [first.stdout.strip(), "better"]
    run = tmp_path / first.stdout.strip()
    done = skillopt("ablate", str(run), cwd=tmp_path)
    assert done.returncode == 2
    assert "the agent of this run is a Python function" in done.stderr
    assert "env.agent=FILE.py:clerk" in done.stderr
    done = skillopt("ablate", str(run), "env.agent=first.py:clerk", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "The possible answers are" in done.stdout
    own = ("--config", str(run / "config.yaml"), "--run", str(run.parent), "env.agent=first.py:clerk")
    done = skillopt("compare", "initial", "best", *own, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Better: best scores 0.40" in done.stdout


SCORED = """
import skillopt
from rule import begins

tasks = [{"question": f"Case {n}. Give the codes for: amber.", "answer": "NX-42"} for n in range(24)]
models = {"target_model": "sim:world", "optimizer_model": "sim:world"}
print(skillopt.train(tasks=tasks, scorer=begins, batch_size=12, num_epochs=1, progress=False, **models).path)
"""
RULE = "def begins(task, output):\n    return output.startswith(task['answer'][:2])\n"


@pytest.mark.slow
def test_no_command_scores_a_run_by_another_rule_than_the_function_that_was_passed_in(tmp_path: Path) -> None:
    (tmp_path / "rule.py").write_text(RULE)
    first = program(tmp_path, "first", SCORED)
    assert first.returncode == 0, first.stderr
    again = program(tmp_path, "first", SCORED)
    assert again.stdout == first.stdout
    run = str(tmp_path / first.stdout.strip())
    done = skillopt("ablate", run, cwd=tmp_path)
    assert done.returncode == 2
    assert "the scorer is the function 'begins' of a Python program" in done.stderr
    assert "env.scoring=FILE.py:begins" in done.stderr
    done = skillopt("ablate", run, "env.scoring=rule.py:begins", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "with every rule" in done.stdout


STOPPED = """
import os, signal, skillopt

rows = [{{"question": f"Case {{n}}.", "answer": str(n % 3)}} for n in range(40)]
how = dict(target_model="sim:world", optimizer_model="sim:world", num_epochs=1, output_root="out")
skillopt.train(tasks=rows, callbacks=[{stop}], **how)
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_program_with_a_line_and_what_was_paid_for_is_kept(tmp_path: Path) -> None:
    stop = 'lambda e: os.kill(os.getpid(), signal.SIGINT) if e.kind == "rollout_started" else None'
    done = program(tmp_path, "stopped", STOPPED.format(stop=stop))
    assert done.returncode == 130, done.stderr
    assert done.stderr == "stopped: interrupted\nEverything paid for is kept; run the same program again to continue.\n"
    again = program(tmp_path, "stopped", STOPPED.format(stop="print"))
    assert again.returncode == 0, again.stderr
    assert len(list((tmp_path / "out").glob("*/*_seed42-*"))) == 1


@pytest.mark.parametrize(
    ("wrong", "right"), [("num_epoch", "num_epochs"), ("optimiser_model", "optimizer_model"), ("scorers", "scorer")]
)
def test_a_wrong_keyword_names_the_right_one(wrong: str, right: str, tmp_path: Path) -> None:
    with pytest.raises(library.UserError, match=rf"{wrong}: is not a config key; did you mean '{right}'\?"):
        library.train(**small(tmp_path), **{wrong: 2})
