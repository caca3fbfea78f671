"""Work grows with the input and not with its square: items of a task set, lines of a skill. Calls are counted, since
seconds depend on the machine; bench/startup.py measures those."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from support import REPO, SIM, skillopt, until

pytestmark = pytest.mark.slow
MOST = 2.5
"""Times as many calls for twice the input."""
PATIENCE = 120
"""Seconds for what takes minutes if it is wrong."""
LETTERS = str.maketrans("01", "oi")


def calls_of(work: Callable[[], Any]) -> int:
    """Functions that `work` calls, those of the interpreter included."""
    count = 0

    def seen(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def growth(command: Callable[[int], Any], size: int) -> float:
    """How many times the calls of `size` an input of twice the size takes, after a first one that loads modules."""
    command(size // 4)
    few, many = (calls_of(lambda size=number: command(size)) for number in (size, 2 * size))  # type: ignore[misc]
    return many / few


def tasks(folder: Path, count: int) -> Path:
    rows = ({"id": f"q{n}", "question": f"What is {n} plus 1?", "answers": [str(n + 1)]} for n in range(count))
    file = folder / f"tasks{count}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.parametrize(("command", "code"), [("plan", 0), ("train", 3)])
def test_the_start_of_a_training_grows_with_the_items(tmp_path: Path, command: str, code: int) -> None:
    def start(items: int) -> None:
        own = [f"env.data={tasks(tmp_path, items)}", "env.name=qa", "env.options={}", "env.scoring=exact"]
        places = [f"env.output_root={tmp_path / str(items)}", "train.batch_size=4", "budget.max_calls=8"]
        done = skillopt(command, "--config", str(SIM), *own, *places)
        assert done.returncode == code, done.stderr

    assert growth(start, 2000) < MOST


def test_a_signal_ends_a_training_that_still_reads_its_data(tmp_path: Path) -> None:
    env, reached = tmp_path / "slow.py", tmp_path / "reached"
    env.write_text(
        "import pathlib, time\nfrom skillopt.sim.env import SimEnv\n\n\nclass Slow(SimEnv):\n"
        "    def __init__(self, config):\n        super().__init__(config)\n"
        f"        pathlib.Path({str(reached)!r}).touch()\n        time.sleep(10 * {PATIENCE})\n"
    )
    words = ["train", "--config", str(SIM), f"env.name={env}:Slow", f"env.output_root={tmp_path / 'out'}"]
    with subprocess.Popen([sys.executable, "-m", "skillopt.cli", *words], cwd=REPO) as process:
        until(lambda: reached.exists() or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(PATIENCE) == 130
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail("SIGTERM was not heard while the data was read")


def skill_of(folder: Path, lines: int, repeated: str = "") -> Path:
    file = folder / f"skill{lines}{len(repeated)}.md"
    own = (repeated if repeated and n % 2 else f"- Rule {bin(n)[2:].translate(LETTERS)}.\n" for n in range(lines))
    file.write_text("# Rules\n\n" + "".join(own))
    return file


def test_lint_grows_with_the_lines_of_a_skill(tmp_path: Path) -> None:
    def lint(lines: int) -> None:
        assert skillopt("lint", str(skill_of(tmp_path, lines))).returncode == 0

    assert growth(lint, 2000) < MOST


def test_a_diff_grows_with_the_lines_of_a_skill_although_many_are_alike(tmp_path: Path) -> None:
    def diff(lines: int) -> None:
        before = skill_of(tmp_path, lines, "\n")
        after = tmp_path / "after.md"
        after.write_text(before.read_text().replace("Rule o.", "Rule zero.") + "- One more.\n")
        done = skillopt("diff", str(before), str(after))
        assert "+ - Rule zero." in done.stdout
        changed = [line for line in done.stdout.splitlines() if line.startswith(("+ ", "- "))]
        assert len(changed) == 3, done.stdout

    assert growth(diff, 2000) < MOST


def test_a_heading_with_very_many_spaces_is_read_at_once(tmp_path: Path) -> None:
    file = tmp_path / "skill.md"
    file.write_text(f"# Rules{' ' * 100_000}of the house\n\n- Be brief.\n")
    words = [f"train.init_skill={file}", "train.num_epochs=1", f"env.output_root={tmp_path / 'out'}"]
    command = [sys.executable, "-m", "skillopt.cli", "train", "--config", str(SIM), *words]
    try:
        subprocess.run(command, cwd=REPO, check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        pytest.fail("the heading was not read")
