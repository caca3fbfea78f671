"""docs/reference_index.md: every test that it names exists, and every command does what the page says."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from support import REPO, TESTS, skillopt

PAGE = (REPO / "docs" / "reference_index.md").read_text(encoding="utf-8")
REFUSED = 2


class Row(NamedTuple):
    id: str
    code: str
    shown_by: str


def rows() -> Iterator[Row]:
    for line in PAGE.splitlines():
        if re.match(r"\| [A-G]\d", line):
            name, _, code, shown_by = (cell.strip() for cell in line.strip("|").split(" | "))
            yield Row(name, code.strip("`"), shown_by)


ROWS = list(rows())
COMMANDS = [row for row in ROWS if row.shown_by.startswith("`skillopt ")]


def test_every_row_names_code_that_exists() -> None:
    assert len(ROWS) > 100
    assert [row.id for row in ROWS if not (REPO / "src" / "skillopt" / row.code).is_file()] == []
    assert len({row.id for row in ROWS}) == len(ROWS)


def test_every_test_that_the_index_names_exists() -> None:
    lacking = []
    for row in ROWS:
        if row in COMMANDS:
            continue
        file, _, name = row.shown_by.strip("`").partition("::")
        path = TESTS / file
        if not path.is_file() or not re.search(rf"^(?:async )?def {name}\(", path.read_text(), re.MULTILINE):
            lacking.append(f"{row.id}: {row.shown_by}")
    assert lacking == []


def test_no_row_waits_for_its_test() -> None:
    assert [row.id for row in ROWS if "TODO" in row.shown_by] == []


@pytest.mark.slow
def test_every_command_of_the_index_prints_what_the_index_says(tmp_path: Path) -> None:
    for name in ("configs", "data"):
        (tmp_path / name).symlink_to(REPO / name)
    wrong = []
    for row in COMMANDS:
        command, text = re.fullmatch(r"`skillopt (.*?)` → `(.*)`", row.shown_by).groups()  # type: ignore[union-attr]
        run = next((tmp_path / "outputs" / "sim").glob("*"), tmp_path)
        done = skillopt(*command.replace("RUN", str(run)).split(), cwd=tmp_path)
        expected = REFUSED if row.id.startswith("G") else 0
        if done.returncode != expected or text not in done.stdout + done.stderr:
            wrong.append(f"{row.id}: exit code {done.returncode}: {(done.stdout + done.stderr)[-400:]}")
    assert wrong == []


CONCEPTS = """weights; training step; epoch; batch size; minibatch; forward pass; loss; loss function; backward pass;
gradient; gradient aggregation; gradient accumulation; gradient clipping; learning rate; learning-rate schedule;
warm-up; optimizer step (SGD); data parallelism; training set; validation set; test set; early stopping; momentum;
meta-learning; checkpoint; transfer learning"""


def test_the_analogy_has_every_row_and_each_names_code_that_exists() -> None:
    page = (REPO / "docs" / "analogy.md").read_text()
    table = dict(re.findall(r"^\| ([a-z][^|]+?) \|.*\| ([^|]+?) \|$", page, re.MULTILINE))
    del table["deep learning"]
    assert list(table) == re.split(r";\s+", CONCEPTS)
    for concept, cell in table.items():
        places = re.findall(r"`([\w/]+(?:\.py|/))`(?:: ((?:`\w+`(?:, )?)+))?", cell)
        assert places, f"{concept} names no file"
        for path, names in places:
            assert (REPO / "src" / "skillopt" / path).exists(), path
            for name in re.findall(r"\w+", names):
                text = (REPO / "src" / "skillopt" / path).read_text()
                assert re.search(rf"(?:def|class) {name}\b", text), f"{path}: {name}"


def test_larger_batches_and_more_epochs_were_measured_to_give_less_and_less() -> None:
    page = (REPO / "docs" / "choosing.md").read_text()
    for name, says in (("batches", "diminishing returns"), ("epochs", "two to four are usually enough")):
        table = page.partition(f"<!-- {name} -->")[2].partition(f"<!-- end of {name} -->")[0]
        scores = [float(score) for score in re.findall(r"^\| \d[^|]*\| (\d\.\d+) \|", table, re.MULTILINE)]
        gains = [after - before for before, after in pairwise(scores)]
        assert says in " ".join(page.split())
        assert len(gains) >= 4
        assert max(gains[:2]) > 2 * max(gains[2:])


def test_too_few_edits_a_step_were_measured_to_learn_slowly() -> None:
    page = (REPO / "docs" / "choosing.md").read_text()
    table = page.partition("<!-- sweep -->")[2].partition("<!-- end of sweep -->")[0]
    rows = re.findall(r"^\| (\d+) \| (\S+) \| (\S+) \|$", table, re.MULTILINE)
    for column in zip(*(map(float, row) for row in rows), strict=True):
        assert list(column) == sorted(column)


def test_the_env_example_can_be_sourced_and_names_the_azure_log_in() -> None:
    text = (REPO / ".env.example").read_text()
    assert "az login" in text
    script = 'set -u; . ./.env.example; env | grep -c "^AZURE_OPENAI_API_KEY="'
    assert subprocess.run(["bash", "-c", script], cwd=REPO, capture_output=True, text=True, check=True).stdout == "1\n"
