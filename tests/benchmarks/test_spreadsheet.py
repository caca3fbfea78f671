"""SpreadsheetBench: generated programs run in the sandbox, workbooks are compared by the published rules."""

from __future__ import annotations

import asyncio
import datetime
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

openpyxl = pytest.importorskip("openpyxl", reason="pip install 'skillopt[spreadsheetbench]'")

from skillopt.config import Config, EnvConfig  # noqa: E402
from skillopt.errors import UserError  # noqa: E402
from skillopt.tasks import open_env, sandbox  # noqa: E402
from skillopt.tasks.base import Score, ScorerError, score_output  # noqa: E402
from skillopt.tasks.cells import compare, ranges, same  # noqa: E402
from skillopt_benchmarks.sources import prepare  # noqa: E402
from skillopt_benchmarks.spreadsheetbench import SpreadsheetEnv, program_of  # noqa: E402
from support import REPO, write_rows  # noqa: E402

pytestmark = pytest.mark.extras


def possible() -> str:
    try:
        sandbox.require("namespaces")
    except UserError as error:
        return str(error)
    return ""


needs_sandbox = pytest.mark.skipif(bool(possible()), reason=possible() or "-")
BLANK = "import openpyxl\nbook = openpyxl.load_workbook('input.xlsx')\nsheet = book.active\n"
SAVE = "\nbook.save('output.xlsx')\n"
SOLUTIONS = {
    "mini-03": "for r in range(2, 12): sheet[f'D{r}'] = sheet[f'A{r}'].value.upper()",
    "mini-09": "v = sorted((sheet[f'B{r}'].value for r in range(2, 12)), reverse=True)\n"
    "for r in range(2, 12): sheet[f'D{r}'] = v.index(sheet[f'B{r}'].value) + 1",
    "mini-11": "pass",
}


@pytest.fixture(scope="module")
def env() -> SpreadsheetEnv:
    found = open_env(Config.load(REPO / "configs" / "spreadsheetbench" / "mini.yaml"))
    assert isinstance(found, SpreadsheetEnv)
    return found


def score(env: SpreadsheetEnv, number: int, output: str) -> Score:
    item = env.items("test")[number]
    return asyncio.run(score_output(env, item, output))


def fenced(body: str) -> str:
    return f"Here it is.\n```python\n{BLANK}{body}{SAVE}```\nDone."


@needs_sandbox
def test_a_scripted_policy_earns_full_marks_and_doing_nothing_the_baseline(env: SpreadsheetEnv) -> None:
    items = env.items("test")
    told = [score(env, n, fenced(SOLUTIONS[item.id])) for n, item in enumerate(items)]
    assert [(s.hard, s.soft) for s in told] == [(1, 1)] * 3
    nothing = [score(env, n, env.baseline(item)).hard for n, item in enumerate(items)]
    assert nothing == [0, 0, 1], "the third workbook is right untouched, which the baseline must show"


@needs_sandbox
def test_a_program_that_copies_numbers_passes_one_workbook_of_two(env: SpreadsheetEnv) -> None:
    first = env.items("test")[0].get("workbooks")[0]["answer"]
    book = openpyxl.load_workbook(REPO / "data/spreadsheetbench/mini" / first)
    body = "\n".join(f"sheet['D{r}'] = {book.active[f'D{r}'].value!r}" for r in range(2, 12))
    got = score(env, 0, fenced(body))
    assert (got.hard, got.soft) == (0, 0.5)
    assert "Data!D" in got.feedback


@needs_sandbox
@pytest.mark.parametrize(
    ("program", "told"),
    [
        (f"{BLANK}1 / 0", "the program failed: exit code 1: ZeroDivisionError"),
        (BLANK, "did not save output.xlsx"),
        ("open('output.xlsx', 'w').write('no workbook')\nimport os", "cannot be read"),
        (f"{BLANK}sheet.title = 'Other'{SAVE}", "there is no sheet 'Data'"),
        ("import os\nwhile True: os.fork()", "the program failed"),
    ],
)
def test_a_failing_program_is_that_items_failure(env: SpreadsheetEnv, program: str, told: str) -> None:
    got = score(env, 0, f"```python\n{program}\n```")
    assert got.hard == 0
    assert told in got.feedback


@needs_sandbox
@pytest.mark.skipif(not shutil.which("soffice"), reason="LibreOffice is not installed (libreoffice-calc-nogui)")
def test_libreoffice_computes_formulas_where_it_is_installed(env: SpreadsheetEnv) -> None:
    body = "for r in range(2, 12): sheet[f'D{r}'] = f'=UPPER(A{r})'"
    assert score(env, 0, fenced(body)).hard == 1


@needs_sandbox
def test_an_office_program_that_fails_on_every_workbook_is_no_wrong_answer(env: SpreadsheetEnv) -> None:
    broken = open_env(Config.load(REPO / "configs" / "spreadsheetbench" / "mini.yaml"))
    broken._soffice = "/bin/false"  # type: ignore[attr-defined]
    body = "for r in range(2, 12): sheet[f'D{r}'] = f'=UPPER(A{r})'"
    with pytest.raises(ScorerError, match="does not compute workbooks here"):
        score(broken, 0, fenced(body))


@needs_sandbox
def test_without_it_a_formula_is_told_to_have_no_value() -> None:
    config = Config.load(REPO / "configs" / "spreadsheetbench" / "mini.yaml", ["env.options.recalculate=false"])
    plain = open_env(config)
    item = plain.items("test")[0]
    body = "for r in range(2, 12): sheet[f'D{r}'] = f'=UPPER(A{r})'"
    got = asyncio.run(score_output(plain, item, fenced(body)))
    assert got.hard == 0
    assert "a formula without a value" in got.feedback


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (1, 1.004, True),
        (1, 1.006, False),
        ("1.50", 1.5, True),
        ("", None, True),
        (None, 0, False),
        (True, 1, True),
        ("TRUE", True, False),
        ("Yes", "yes", False),
        ("nan", "nan", True),
        (datetime.datetime(2020, 1, 31, 10, 0), datetime.datetime(2020, 1, 31), True),
        (datetime.datetime(2020, 1, 31, 14, 0), datetime.datetime(2020, 1, 31), False),
        (datetime.datetime(1900, 1, 1), 2, True),
        (datetime.time(9, 30, 15), datetime.time(9, 30, 59), True),
        (datetime.time(9, 30), "09:30", True),
    ],
)
def test_cells_are_equal_by_the_published_rules(a: Any, b: Any, equal: bool) -> None:
    assert same(a, b) is equal


def test_positions_name_sheets_and_ranges() -> None:
    assert ranges("A1:B2", ["S"]) == [("S", "A1:B2")]
    assert ranges("'My Sheet, 2'!$A$1, Other!C3:D4", ["S"]) == [("My Sheet, 2", "A1"), ("Other", "C3:D4")]


def test_only_the_answers_cells_count(tmp_path: Path) -> None:
    for name, values in {"a": (1, 2, 3), "b": (1, 2, 9)}.items():
        book = openpyxl.Workbook()
        book.active.append(values)
        book.save(tmp_path / f"{name}.xlsx")
    a, b = str(tmp_path / "a.xlsx"), str(tmp_path / "b.xlsx")
    assert compare(a, b, "A1:B1") == ""
    assert compare(a, b, "A1:C1") == "Sheet!C1 is 3, expected 9"
    assert compare(a, b, "Sheet!C1") == "Sheet!C1 is 3, expected 9"


def test_the_last_fenced_block_is_the_program() -> None:
    assert program_of("```python\na\n```\nbetter:\n```py\nb\n```") == "b\n"
    assert program_of("import os\nprint(1)") == "import os\nprint(1)"
    assert program_of("I cannot do that.") == ""


def test_it_is_read_as_it_is_published(tmp_path: Path) -> None:
    source = tmp_path / "in"
    rows = []
    for n in range(5):
        folder = source / "spreadsheet" / f"{n}-a"
        folder.mkdir(parents=True)
        for case in (1, 2, 3):
            for role in ("input", "answer"):
                buffer = io.BytesIO()
                openpyxl.Workbook().save(buffer)
                (folder / f"{case}_{n}-a_{role}.xlsx").write_bytes(buffer.getvalue())
        rows.append({"id": f"{n}-a", "instruction": f"Do {n}", "spreadsheet_path": f"spreadsheet/{n}-a",
                     "answer_position": "A1", "instruction_type": "Cell-Level Manipulation"})  # fmt: skip
    (source / "dataset.json").write_text(json.dumps(rows))
    prepare("spreadsheetbench", source, tmp_path / "out", print)
    items = json.loads((tmp_path / "out" / "train" / "items.json").read_text())
    assert len(items[0]["workbooks"]) == 3
    row = {**items[0], "workbooks": [{"input": "../../x.xlsx", "answer": "y.xlsx"}]}
    write_rows(tmp_path / "out", {split: [{**row, "id": split}] for split in ("train", "val", "test")})
    if not possible():
        with pytest.raises(UserError, match="leads out of"):
            SpreadsheetEnv(EnvConfig(name="spreadsheetbench", split_dir=str(tmp_path / "out")))
