"""SpreadsheetBench: the target writes a Python program that changes a workbook. Then certain cells are compared with
the expected ones."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from skillopt.config import EnvConfig
from skillopt.errors import UserError
from skillopt.tasks.base import Item, Score, ScorerError
from skillopt.tasks.checks import compare_workbooks
from skillopt.tasks.images import safe_file
from skillopt.tasks.qa import QAEnv, QAOptions
from skillopt.tasks.sandbox import Sandbox, SandboxLimits
from skillopt_benchmarks.rows import read_rows
from skillopt_benchmarks.sources import DataSource

_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_TASK = """{instruction}

The workbook is input.xlsx in the working folder. Write one Python program that reads it with openpyxl, does what is \
asked and saves the result as output.xlsx. The cells that will be looked at: {position}. Reply with the program in one \
```python block.

{preview}"""
_RECALCULATE = """
import os, subprocess
os.makedirs('profile', exist_ok=True)
profile = '-env:UserInstallation=file://' + os.path.abspath('profile')
command = [{soffice!r}, profile, '--headless', '--norestore', '--convert-to', 'xlsx', '--outdir', 'computed']
done = subprocess.run([*command, 'got.xlsx'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
if done.returncode:
    raise SystemExit(f'exit code {{done.returncode}}: {{done.stdout.decode(errors="replace").strip()[-300:]}}')
os.replace('computed/got.xlsx', 'computed.xlsx')
"""


class SpreadsheetOptions(QAOptions):
    """`env.options` of SpreadsheetBench."""

    limits: SandboxLimits = SandboxLimits()
    """The limits of time and memory for one run of a program."""
    preview_rows: int = 8
    """The number of rows of each sheet that the target sees."""
    recalculate: bool = True
    """Let LibreOffice compute formulas if it is installed. Without LibreOffice, a formula has no value."""


class SpreadsheetEnv(QAEnv):
    """The tasks of SpreadsheetBench. An item has `workbooks` (a list of `{input, answer}`, each a file) and
    `answer_position` (the cells that are compared).

    `hard` is 1 if every workbook is right; `soft` is the share of right workbooks. If the reply has no program, the
    unchanged input is compared with the answer.
    """

    task = "Each task asks for a Python program that changes a workbook; it is run, and some cells are compared."
    scoring = (
        "The program is run on several workbooks; the cells that count must hold the expected values in all of them."
    )

    patterns: Mapping[str, str] = {
        "program fails": "the program raises, or does not save output.xlsx",
        "wrong cells": "the program runs, and the cells that count hold other values",
        "formula without value": "a formula was written, and nothing computes it",
    }

    def __init__(self, config: EnvConfig) -> None:
        _openpyxl()
        options = SpreadsheetOptions.read(config.options, "env.options")
        self._root = Path(config.split_dir)
        self.sandbox = Sandbox(options.limits, mode=options.sandbox)
        self._soffice = shutil.which("soffice") or shutil.which("libreoffice") if options.recalculate else None
        read = read_rows(config, ("workbooks", "answer_position"))
        splits = {split: [self._asked(item, options.preview_rows) for item in items] for split, items in read.items()}
        super().__init__(config, splits, options)
        self.fingerprint += f"formulas are {'' if self._soffice else 'not '}computed"

    def _asked(self, item: Item, rows: int) -> Item:
        for pair in item.get("workbooks"):
            for role in ("input", "answer"):
                self._file(item, pair[role])
        first = self._file(item, item.get("workbooks")[0]["input"])
        position = str(item.get("answer_position"))
        prompt = _TASK.format(instruction=item.question, position=position, preview=preview(first, rows))
        return item.model_copy(update={"question": prompt})

    def _file(self, item: Item, name: str) -> Path:
        return safe_file(self._root, name, f"item '{item.id}': workbooks")

    async def score(self, item: Item, output: str) -> Score:
        """Run a reply's program on each workbook, and compare the result with the answer."""
        program = program_of(output)
        problems = []
        pairs = item.get("workbooks")
        for pair in pairs:
            before = self._file(item, pair["input"]).read_bytes()
            want = self._file(item, pair["answer"]).read_bytes()
            problem = await self._problem(program, before, want, str(item.get("answer_position")))
            problems += [problem] if problem else []
        soft = 1 - len(problems) / len(pairs)
        return Score(hard=float(not problems), soft=soft, feedback=problems[0] if problems else "")

    async def _problem(self, program: str, before: bytes, want: bytes, position: str) -> str:
        """Return what is wrong with the program or its workbook; empty if the workbook equals the wanted one."""
        got = before
        if program:
            done = await self.sandbox.run(program, files={"input.xlsx": before}, wanted=["output.xlsx"])
            if not done.ok:
                return f"the program failed: {done.reason}"
            if "output.xlsx" not in done.files:
                return "the program did not save output.xlsx"
            got = done.files["output.xlsx"]
        difference, has_formula = await compare_workbooks(self.sandbox, got, want, position)
        if not program or not has_formula:
            return difference
        if not self._soffice:
            return f"{difference} (a formula without a value: nothing computes it here)" if difference else ""
        computed = await self._computed(got, want)
        if computed is None:
            return "LibreOffice cannot compute the workbook"
        return (await compare_workbooks(self.sandbox, computed, want, position))[0]

    async def _computed(self, got: bytes, want: bytes) -> bytes | None:
        """Let LibreOffice compute the workbook's formulas. Return the new workbook; None if the workbook is at fault.

        The workbook is at fault if LibreOffice cannot compute it, but can compute the answer's workbook. If LibreOffice
        can compute neither of them, raise ScorerError, because then nobody knows whether the reply is right.
        """
        program, reason = _RECALCULATE.format(soffice=self._soffice), ""
        for book in (got, got, want):
            done = await self._office.run(program, files={"got.xlsx": book}, wanted=["computed.xlsx"])
            if "computed.xlsx" in done.files:
                return done.files["computed.xlsx"] if book is got else None
            reason = done.reason
        raise ScorerError(f"LibreOffice does not compute workbooks here: {reason}")

    @cached_property
    def _office(self) -> Sandbox:
        """The sandbox for LibreOffice, with higher limits."""
        limits = SandboxLimits(memory_mb=4096, cpu_seconds=60, seconds=120, processes=64)
        return Sandbox(limits, mode=self.sandbox.mode, office=True)


def program_of(output: str) -> str:
    """Return the program in a reply: the last fenced block. Without a fence, it is the whole reply if that looks like a
    program."""
    fenced = _FENCE.findall(output)
    if fenced:
        return str(fenced[-1])
    return output if re.search(r"^\s*(import|from) \w+", output, re.MULTILINE) else ""


def preview(path: Path, rows: int) -> str:
    """Describe a workbook: its sheets, their sizes and their first rows."""
    book = _openpyxl().load_workbook(path, data_only=True)
    parts = []
    for sheet in book.worksheets:
        lines = [f"Sheet '{sheet.title}', cells {sheet.dimensions}:"]
        for row in sheet.iter_rows(max_row=rows, max_col=26):
            values = ", ".join(f"{cell.coordinate}={cell.value!r}" for cell in row if cell.value is not None)
            lines += [values] if values else []
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _openpyxl() -> Any:
    try:
        import openpyxl
    except ImportError:
        raise UserError("env.name: spreadsheetbench needs openpyxl: pip install 'skillopt[spreadsheetbench]'") from None
    return openpyxl


def published(path: Path) -> Iterator[Item]:
    """Yield the items of `dataset.json`, with the workbooks in `spreadsheet/<id>/` next to it."""
    for row in json.loads(path.read_text(encoding="utf-8")):
        identity, folder = str(row["id"]), str(row.get("spreadsheet_path") or f"spreadsheet/{row['id']}")
        fields = {"question": row["instruction"], "answer_position": row["answer_position"]}
        inputs = sorted((path.parent / folder).glob("*input.xlsx")) or sorted((path.parent / folder).glob("*init.xlsx"))
        books = []
        for before in inputs:
            stem = re.sub(r"(input|init)\.xlsx$", "", before.name)
            after = next(
                (p for end in ("answer", "golden", "output") if (p := before.with_name(f"{stem}{end}.xlsx")).exists()),
                None,
            )
            if after:
                books.append({"input": f"{folder}/{before.name}", "answer": f"{folder}/{after.name}"})
        if books:
            yield Item.model_validate(
                {"id": identity, **fields, "workbooks": books, "type": str(row.get("instruction_type") or "")}
            )


SOURCE = DataSource(
    sizes={"train": 80, "val": 40, "test": 280},
    files="**/dataset.json",
    read=published,
    url="https://huggingface.co/datasets/KAKA22/SpreadsheetBench/resolve/main/spreadsheetbench_verified_400.tar.gz",
    folders=("spreadsheet",),
    how="dataset.json and the folder spreadsheet/ of SpreadsheetBench (github.com/RUCKBReasoning/SpreadsheetBench)",
)
