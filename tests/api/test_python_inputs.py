"""What a program passes in: sections as dicts, functions, files; and the stop button of a notebook."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import skillopt
from skillopt import events
from skillopt.record.directory import RunDirectory
from support import Spy, sim_server
from support.api import SPLITS, TASKS, small


def contains(item: Any, output: str) -> float:
    return float(item.answer in output)


async def helper(item: Any, skill: Any, model: Any) -> str:
    """An agent with one call, which adds what the exact scorer does not want."""
    reply = await model([{"role": "system", "content": skill.text}, {"role": "user", "content": item["question"]}])
    return f"{reply.text} (says the helper)"


@pytest.mark.parametrize("env", [{"scoring": "contains"}, {"scoring": contains}])
def test_the_section_env_counts_next_to_tasks(tmp_path: Path, env: dict[str, Any]) -> None:
    trainer = skillopt.Trainer(**small(tmp_path, agent=helper, env=env))
    result = trainer.fit()
    assert (result.scores["best_test"] or 0) > 0.5  # exact would give 0, and so would no agent


@pytest.mark.parametrize("where", ["keyword", "section", "config"])
def test_an_agent_function_does_the_tasks(tmp_path: Path, where: str) -> None:
    seen: list[str] = []

    def own(item: Any, skill: Any, model: Any) -> str:
        seen.append(item.id)
        return next(task["answer"] for task in TASKS if task["question"] == item.question)

    given: dict[str, Any] = {"keyword": {"agent": own}, "section": {"env": {"agent": own}}}.get(where, {})
    config = {"env": {"agent": own}} if where == "config" else None
    more = {"optimizer_model": "sim:world", "num_epochs": 1, "output_root": str(tmp_path)}
    result = skillopt.train(config, tasks=SPLITS, **more, **given)
    assert result.scores["initial_test"] == 1
    assert len(set(seen)) == 48
    assert (result.path / "config.yaml").read_text().count("agent:own") == 1  # no key of a model is asked for


@pytest.mark.parametrize("call", ["train", "evaluate", "compare"])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"env": {"rubbish": 3}}, r"unknown key 'env\.rubbish'"),
        ({"env": 3}, "env: int is neither an Env nor a dict"),
        ({"models": {"target_modle": "sim:world"}}, r"unknown key 'models\.target_modle'; did you mean"),
        ({"models": {"target": 3}}, "models: target: int is not a ChatModel"),
        ({"models": "sim:world"}, "models: give a dict"),
        ({"scorer": 3}, "scorer: 3 is neither a function nor the name of one"),
        ({"agent": 3}, "agent: 3 is neither"),
        ({"model": "gpt-4o-mini"}, "target_model='openai:gpt-4o-mini' for the model that does the tasks"),
        ({"scorer": "conatins"}, r"env\.scoring: unknown 'conatins'"),
    ],
)
def test_what_nothing_would_read_is_refused(call: str, wrong: Mapping[str, Any], message: str, tmp_path: Path) -> None:
    given = {**small(tmp_path), **wrong}
    empty, other = skillopt.Skill(""), skillopt.Skill("a")
    calls: dict[str, Any] = {
        "train": lambda: skillopt.Trainer(**given),
        "evaluate": lambda: skillopt.evaluate(None, empty, **given),
        "compare": lambda: skillopt.compare(None, empty, other, **given),
    }
    with pytest.raises(skillopt.UserError, match=message):
        calls[call]()


def broken(*arguments: Any, **more: Any) -> Any:
    raise ZeroDivisionError("division by zero")


async def says_yes(*arguments: Any, **more: Any) -> Any:
    return True


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"gate": broken}, "gate 'broken': ZeroDivisionError: division by zero"),
        ({"gate": says_yes}, "gate 'says_yes': returned bool; a gate must return a skillopt.Verdict"),
        ({"gate": 5}, "gate: 5 is neither a function nor the name of one"),
        ({"vetoes": [broken]}, "veto 'broken': ZeroDivisionError: division by zero"),
        (
            {"vetoes": [lambda before, after: None]},
            "veto '<lambda>': returned None; return True to accept the candidate; return False or a text",
        ),
        ({"vetoes": 5}, "vetoes: 5 is not a list of functions"),
        ({"schedule": broken}, "schedule 'broken': ZeroDivisionError"),
        ({"schedule": 5}, "schedule: 5 is neither a function"),
        ({"analysts": [broken]}, "analyst 'broken': ZeroDivisionError"),
        ({"analysts": 5}, "analysts: 5 is not a list of functions or names"),
        ({"callbacks": [5]}, "callbacks: 5 is neither a function"),
        ({"mode": "again"}, "mode: 'again' is not one of auto, resume, fresh"),
        ({"progress": "yes"}, "progress: 'yes' is not one of"),
        ({"skill": 5}, "skill: int is not a skill; give a Skill"),
        ({"split": {"train": 0, "val": 1, "test": 1}}, "env.split: needs a positive share"),
        ({"columns": {"question": "nope"}}, "columns: 'tasks' has no column 'nope'"),
    ],
)
def test_a_mistake_in_a_part_is_one_error_of_ours_that_names_it(
    tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(skillopt.UserError, match=re.escape(message)):
        skillopt.train(**small(tmp_path, tasks=TASKS, **wrong))


def test_a_veto_may_give_what_numpy_compares_to(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    result = skillopt.train(**small(tmp_path, vetoes=[lambda before, after: numpy.bool_(True)]))
    assert result.summary.steps.accepted > 0


def test_shares_of_the_splits_count_for_a_list(tmp_path: Path) -> None:
    env = skillopt.Trainer(**small(tmp_path, tasks=TASKS, split={"train": 1, "val": 1, "test": 2})).env
    assert env is not None
    assert [len(env.items(name)) for name in ("train", "val", "test")] == [12, 12, 24]
    other = skillopt.Trainer(**small(tmp_path, tasks=TASKS, split_seed=1)).env
    usual = skillopt.Trainer(**small(tmp_path, tasks=TASKS)).env
    assert other is not None
    assert usual is not None
    assert list(other.items("test")) != list(usual.items("test"))


def test_sections_work_without_tasks_too(tmp_path: Path) -> None:
    given = {"models": {"target_model": "sim:world", "optimizer_model": "sim:world"}, "train": {"num_epochs": 1}}
    trainer = skillopt.Trainer(env={"name": "sim", "output_root": str(tmp_path)}, **given)
    assert (trainer.config.env.name, trainer.config.models.target_model) == ("sim", "sim:world")
    measured = skillopt.evaluate(None, skillopt.Skill(""), env={"name": "sim", "output_root": str(tmp_path)}, **given)
    assert measured["split"] == "test"


def test_models_may_be_objects_and_keys_together(tmp_path: Path) -> None:
    spy = Spy()
    common = {key: value for key, value in small(tmp_path).items() if not key.endswith("_model")}
    skillopt.train(**common, models={"target": spy, "optimizer_model": "sim:world", "optimizer_max_tokens": 900})
    assert spy.requests
    trainer = skillopt.Trainer(**common, models={"target": "sim:world", "optimizer": "sim:world"})
    assert trainer.config.models.target_model == "sim:world"


class Owned(Spy):
    """A model as most are: after `close` it can answer nothing more."""

    closed = False

    async def close(self) -> None:
        self.closed = True


def test_models_that_are_passed_in_stay_open_for_the_next_call(tmp_path: Path) -> None:
    models = {"target": Owned(), "optimizer": Owned()}
    common = small(tmp_path, models=models)
    skill = skillopt.train(**common).best_skill
    assert [role for role, model in models.items() if model.closed] == []
    measured = skillopt.evaluate(None, skill, split="val", **common)
    compared = skillopt.compare(None, skillopt.Skill(""), skill, **common)
    assert measured["score"] == compared["difference"] == 1
    assert skillopt.replicate(seeds=2, **common)["improved"]["test"] == 1
    assert [role for role, model in models.items() if model.closed] == []


# Tasks, skills and keys as people give them


def attempt(call: Any) -> Any:
    """What the call gives; an error is a failure of the test with its message."""
    try:
        return call()
    except (skillopt.SkillOptError, AttributeError, OSError) as error:
        pytest.fail(f"{type(error).__name__}: {error}")


def test_a_list_in_the_configs_place_is_tasks(tmp_path: Path) -> None:
    common = {key: value for key, value in small(tmp_path).items() if key != "tasks"}
    result = attempt(lambda: skillopt.train(TASKS, **common))
    assert result.scores["best_val"] == 1
    skill = result.best_skill
    assert attempt(lambda: skillopt.evaluate(TASKS, skill, split="val", **common))["score"] == 1
    assert attempt(lambda: skillopt.compare(TASKS, skill, skill, **common))["difference"] == 0
    with pytest.raises(skillopt.UserError, match="tasks: are given twice"):
        skillopt.train(TASKS, tasks=TASKS, **common)
    with pytest.raises(skillopt.UserError, match="config: int is neither a config"):
        skillopt.train(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["Answer the customer.", "# Rules\n", "Answer yes/no, e.g. yes.", "One  word. " * 200])
def test_a_skill_may_be_its_text(tmp_path: Path, text: str) -> None:
    result = attempt(lambda: skillopt.train(**small(tmp_path, skill=text)))
    assert RunDirectory(result.path).read_skill(0).text == text
    assert attempt(lambda: skillopt.evaluate(None, text, split="val", **small(tmp_path)))["score"] == 0


def test_a_skill_may_be_a_path_with_spaces(tmp_path: Path) -> None:
    file = tmp_path / "my own rules"
    file.write_text("Answer the customer.")
    for path in (file, str(file)):
        result = skillopt.train(**small(tmp_path, skill=path))
        assert RunDirectory(result.path).read_skill(0).text == "Answer the customer."


FAILING = """
import skillopt
tasks = [{{"question": f"Q{{n}}", "answer": "yes"}} for n in range(20)]
given = dict(tasks=tasks, target_model="sim:world", optimizer_model="sim:world", output_root={out!r})
{call}
"""


@pytest.mark.parametrize(
    "call",
    [
        'skillopt.train(skill="skills/best skill.md", **given)',
        pytest.param('skillopt.evaluate(None, "skills/nowhere.md", **given)', marks=pytest.mark.slow),
        pytest.param('skillopt.compare(None, "nowhere", skillopt.Skill(""), **given)', marks=pytest.mark.slow),
    ],
)
def test_a_mistake_is_one_short_traceback_that_says_both_ways(tmp_path: Path, call: str) -> None:
    program = FAILING.format(out=str(tmp_path), call=call)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert (done.stderr.count("Traceback"), "event loop" in done.stderr) == (1, False), done.stderr
    assert len(done.stderr.splitlines()) < 20
    last = done.stderr.splitlines()[-1]
    assert "does not exist; give the path of a Markdown file" in last
    assert "skillopt.Skill(text)" in last


def test_keys_come_from_a_dotenv_file_as_for_the_commands(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OPENAI_API_KEY=right-key-of-the-test\nOWN_SETTING=from the file\n")
    with (
        sim_server(api_key="right-key-of-the-test") as (_, url),
        contextlib.chdir(tmp_path),
        patch.dict(os.environ, {"OWN_SETTING": "from the environment"}),
    ):
        os.environ.pop("OPENAI_API_KEY", None)
        given = small(
            tmp_path, target_model="openai:world", models={"target_url": url, "target_key_name": "OPENAI_API_KEY"}
        )
        measured = attempt(lambda: skillopt.evaluate(None, skillopt.Skill(""), split="val", **given))
        assert measured["items"] == 12
        assert os.environ["OWN_SETTING"] == "from the environment"


def test_names_stand_for_parts(tmp_path: Path) -> None:
    given = {"gate": "strict", "schedule": "linear", "analysts": "exemplar", "trackers": {"project": "mine"}}
    config = skillopt.Trainer(**small(tmp_path, **given)).config
    assert (config.evaluation.gate, config.optimizer.lr_scheduler) == ("strict", "linear")
    assert (config.gradient.analysts, config.trackers.project) == (("exemplar",), "mine")


def test_tasks_may_be_a_file_with_its_own_headings(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    rows = [f"{task['question']};{task['answer']}" for task in TASKS]
    file.write_text("\ufeff" + "\n".join(["Customer question;Best answer", *rows]), encoding="utf-8")
    result = skillopt.train(**small(tmp_path / "out", tasks=str(file)))
    assert (result.scores["best_val"] or 0) > (result.scores["initial_val"] or 0)
    again = skillopt.train(**small(tmp_path / "out", tasks=file))
    assert again.path == result.path


def trained_beside_a_ticker(**given: Any) -> list[bool]:
    """Train while another task of the same event loop is at work. What a function of the user calls `look` for is
    whether that task goes on meanwhile."""
    ticked, went_on = threading.Event(), list[bool]()

    def look() -> None:
        ticked.clear()
        went_on.append(ticked.wait(2 if all(went_on) else 0))

    async def tick() -> None:
        while True:
            ticked.set()
            await asyncio.sleep(0.005)

    async def work() -> None:
        ticker = asyncio.create_task(tick())
        await skillopt.train_async(**{key: part(look) if callable(part) else part for key, part in given.items()})
        ticker.cancel()

    asyncio.run(work())
    return went_on


def test_a_scorer_that_is_slow_holds_up_no_call_and_is_asked_for_one_output_at_a_time(tmp_path: Path) -> None:
    inside, most = [0], [0]

    def scorer(look: Any) -> Any:
        def slow(item: Any, output: str) -> float:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            look()
            inside[0] -= 1
            return float(item.answer in output)

        return slow

    went_on = trained_beside_a_ticker(**small(tmp_path, scorer=scorer))
    assert went_on.count(False) == 0, f"the loop stood still in {went_on.count(False)} of {len(went_on)} calls"
    assert most == [1]


@pytest.mark.parametrize("lazy", [False, True])
def test_an_analyst_that_is_slow_holds_up_no_call(tmp_path: Path, lazy: bool) -> None:
    def analyst(look: Any) -> Any:
        def rows(skill: Any, trajectories: Any) -> Any:
            look()
            yield {"op": "add", "section": "Rules", "text": "- Be brief.", "trajectory_ids": [trajectories[0].id]}

        return [rows if lazy else lambda skill, trajectories: list(rows(skill, trajectories))]

    went_on = trained_beside_a_ticker(**small(tmp_path, analysts=analyst, tasks={k: v[:12] for k, v in SPLITS.items()}))
    assert went_on
    assert went_on.count(False) == 0, f"the loop stood still in {went_on.count(False)} of {len(went_on)} calls"


def stop_button(*_: Any) -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def in_notebook(cell: Any) -> Any:
    """A cell runs while the notebook's loop does. Its loop leaves Ctrl-C to Python: it raises KeyboardInterrupt."""

    async def kernel() -> Any:
        return cell()

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(kernel())
    finally:
        loop.close()


def test_the_stop_button_of_a_notebook_stops_as_ctrl_c_does_and_the_run_goes_on_later(tmp_path: Path) -> None:
    spy = Spy()
    trainer = skillopt.Trainer(**small(tmp_path, models={"target": spy}))
    trainer.on(events.GateDecided, stop_button)
    with pytest.raises(skillopt.Stopped, match="interrupted"):
        in_notebook(trainer.fit)
    asked = len(spy.requests)
    result = in_notebook(lambda: skillopt.train(**small(tmp_path, models={"target": spy})))
    assert result.summary["status"] == "finished"
    texts = [str(request.messages) for request in spy.requests]
    assert asked
    assert len(texts) == len(set(texts))  # nothing was paid for twice


def test_the_stop_button_ends_a_measurement(tmp_path: Path) -> None:
    pressed = threading.Event()

    class Slow(Spy):
        async def chat(self, request: Any) -> Any:
            if not pressed.is_set():  # once: a second press would hit whatever runs after the measurement
                pressed.set()
                stop_button()
            await asyncio.sleep(600)

    given = small(tmp_path, models={"target": Slow()})
    with pytest.raises(KeyboardInterrupt):
        in_notebook(lambda: skillopt.evaluate(None, skillopt.Skill("a"), **given))
