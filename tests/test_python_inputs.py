"""What a program passes in: sections as dicts, functions, files; and the stop button of a notebook."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import skillopt
from skillopt import events
from support import Spy
from test_api import SPLITS, TASKS, small


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
        return str(item.answer)

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
        ({"models": {"target": 3}}, "models: target: int is no ChatModel"),
        ({"models": "sim:world"}, "models: give a dict"),
        ({"scorer": 3}, "scorer: 3 is neither a function nor the name of one"),
        ({"agent": 3}, "agent: 3 is neither"),
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
