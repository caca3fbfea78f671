"""Whoever opens an env closes it: it may have processes. One that a program passes in is the program's to close."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import skillopt
from skillopt.config import Config
from skillopt.tasks import open_env
from support import SIM, only_run
from support import skillopt as command
from support.api import TASKS, small

COUNTED = """
from pathlib import Path
from skillopt.sim.env import SimEnv

def note(word):
    with Path({log!r}).open("a") as file:
        file.write(word + " ")

class Counted(SimEnv):
    def __init__(self, config):
        super().__init__(config)
        note("opened")

    def close(self):
        note("closed")

class Broken(Counted):
    def __init__(self, config):
        super().__init__(config)
        self.problem = "cannot be used"
"""
SMALL = ["train.num_epochs=1", "env.options={rules: 6, train: 12, val: 10, test: 6}", "train.batch_size=12"]


class Counter:
    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        (folder / "counted.py").write_text(COUNTED.format(log=str(self.log)))
        self.arguments = ["--config", str(SIM), f"env.name={folder}/counted.py:Counted", *SMALL]
        self.arguments.append(f"env.output_root={folder}/out")

    def words(self) -> list[str]:
        words = self.log.read_text().split() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return words


@pytest.fixture
def counter(tmp_path: Path) -> Counter:
    return Counter(tmp_path)


def score(item: Any, output: str) -> float:
    """By the first answer."""
    return float(item.answers[0] in output)


def test_every_command_closes_the_env_that_it_opens(counter: Counter, tmp_path: Path) -> None:
    left = {}

    def run(name: str, *words: str) -> None:
        done = command(name, *words, *counter.arguments)
        assert done.returncode in {0, 1, 2}, done.stderr
        found = counter.words()
        assert found, done.stderr
        if found.count("opened") != found.count("closed"):
            left[" ".join([name, *words])] = found

    run("plan")
    run("doctor", "--offline")
    run("train")
    run("eval", "--skill", "best")
    run("compare", "initial", "best")
    counter.arguments[0] = "--to"
    run("transfer", str(only_run(tmp_path / "out").root))
    counter.arguments[0] = "--config"
    counter.arguments[2] = counter.arguments[2].replace("Counted", "Broken")
    run("doctor", "--offline")
    assert left == {}


@pytest.mark.parametrize("call", ["train", "evaluate", "compare", "replicate"])
def test_every_call_closes_the_env_that_it_opens(counter: Counter, call: str) -> None:
    config = Config.load(SIM, counter.arguments[2:])
    skill = skillopt.Skill("a")
    calls: dict[str, Callable[[], Any]] = {
        "train": lambda: skillopt.train(config, scorer=score),
        "evaluate": lambda: skillopt.evaluate(config, skill, scorer=score),
        "compare": lambda: skillopt.compare(config, "initial", skill, scorer=score),
        "replicate": lambda: skillopt.replicate(config, seeds=2, scorer=score),
    }
    if call == "compare":
        skillopt.train(config, scorer=score)
        counter.words()
    calls[call]()
    assert counter.words() == ["opened", "closed"]


def test_a_trainer_opens_its_env_again_and_leaves_one_that_it_was_given(counter: Counter) -> None:
    config = Config.load(SIM, counter.arguments[2:])
    trainer = skillopt.Trainer(config, scorer=score)
    trainer.fit()
    assert trainer.fit().summary["status"] == "finished"
    assert counter.words() == ["opened", "closed"] * 2
    skillopt.train(config, env=open_env(config), scorer=score)
    assert counter.words() == ["opened"]


def children() -> list[str]:
    """The command lines of this process's children."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "cmdline").read_bytes().decode().split("\0")
        except OSError:  # it has ended
            continue
        if parent == os.getpid():
            found.append(" ".join(words))
    return found


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
def test_a_scorers_processes_end_with_the_training(tmp_path: Path) -> None:
    (tmp_path / "scorer.py").write_text("def score(item, output):\n    return float(item['answers'][0] in output)\n")
    trainer = skillopt.Trainer(**small(tmp_path / "out", tasks=TASKS, env={"scoring": f"{tmp_path}/scorer.py:score"}))
    assert trainer.fit().scores["best_val"] == 1
    assert [line for line in children() if "scorer_worker" in line] == []
