"""Compare two workbooks by SpreadsheetBench's rules. This separate program runs inside the sandbox.

Numbers, and texts that are numbers, are rounded to two places. A date becomes the number of its day; the seconds of a
time are ignored; an empty text is an empty cell. After these conversions, values of different types are never equal. If
the task gives a position (a range of cells), only the cells of this position are compared.
"""

from __future__ import annotations

import datetime
import json
import math
import re
import sys
from typing import Any

import openpyxl


def plain(value: Any) -> Any:
    """A cell's value in the form in which it is compared."""
    if isinstance(value, str):
        value = _number(value)
    if isinstance(value, datetime.datetime):
        value = round((value.replace(tzinfo=None) - datetime.datetime(1899, 12, 30)).total_seconds() / 86400)
    elif isinstance(value, datetime.date):
        value = (value - datetime.date(1899, 12, 30)).days
    if isinstance(value, int | float):
        return round(float(value), 2)
    return value.strftime("%H:%M") if isinstance(value, datetime.time) else value or None


def _number(text: str) -> float | str:
    try:
        value = float(text)
    except ValueError:
        return text
    return value if math.isfinite(value) else text


def same(a: Any, b: Any) -> bool:
    a, b = plain(a), plain(b)
    return type(a) is type(b) and a == b


def ranges(position: str, sheets: list[str]) -> list[tuple[str, str]]:
    """The sheets and ranges of a position such as `'Sheet 1'!A1:B5, C3`. The default sheet is the first."""
    ranges = []
    for part in re.split(r",(?=(?:[^']*'[^']*')*[^']*$)", position):
        sheet, mark, cells = part.strip().rpartition("!")
        name = sheet.strip().strip("'") if mark else sheets[0]
        ranges.append((name, cells.strip().strip("'").replace("$", "")))
    return ranges


def compare(got: str, want: str, position: str) -> str:
    """The first difference between two workbooks in words; empty if there is none. Without a position, all cells of the
    expected workbook are compared."""
    expected = openpyxl.load_workbook(want, data_only=True)
    actual = openpyxl.load_workbook(got, data_only=True)
    whole = [(sheet.title, sheet.dimensions) for sheet in expected.worksheets]
    for sheet, cells in ranges(position, expected.sheetnames) if position else whole:
        if sheet not in expected.sheetnames:
            return f"the answer's workbook has no sheet '{sheet}'"
        if sheet not in actual.sheetnames:
            return f"there is no sheet '{sheet}'"
        for cell in cells_of(expected[sheet][cells]):
            value = actual[sheet][cell.coordinate].value
            if not same(cell.value, value):
                return f"{sheet}!{cell.coordinate} is {value!r}, expected {cell.value!r}"
    return ""


def cells_of(selection: Any) -> list[Any]:
    """The cells of a selection (one cell, a row, a column or a table) as a list."""
    return [cell for part in selection for cell in cells_of(part)] if isinstance(selection, tuple) else [selection]


def formulas(path: str, position: str) -> bool:
    """Does any cell at this position contain a formula? Only a spreadsheet program can compute a formula's value."""
    book = openpyxl.load_workbook(path)
    named = [(sheet, cells) for sheet, cells in ranges(position, book.sheetnames) if sheet in book.sheetnames]
    return any(cell.data_type == "f" for sheet, cells in named for cell in cells_of(book[sheet][cells]))


def main() -> None:
    with open("spec.json") as file:  # noqa: PTH123
        position = json.load(file)["position"]
    formula, difference = False, ""
    try:
        formula = bool(position) and formulas("got.xlsx", position)
        difference = compare("got.xlsx", "want.xlsx", position)
    except Exception as error:  # a workbook that cannot be read is a wrong answer
        difference = f"the workbook cannot be read: {type(error).__name__}: {error}"[:300]
    json.dump([difference, formula], sys.stdout)


if __name__ == "__main__":
    main()
