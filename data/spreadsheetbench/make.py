# ruff: noqa: E501 (one task a line)
"""Makes mini/: small workbooks and what is to be done with them: python make.py (needs openpyxl)

Written for this project in SpreadsheetBench's form: an instruction, the cells that count, and for each task two test
workbooks with other figures, so that a program that only copies numbers fails. One task in twelve is right untouched.
"""

from __future__ import annotations

import datetime
import io
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

from openpyxl import Workbook
from openpyxl.worksheet.worksheet import Worksheet

NAMES = "Ada Bruno Chen Dara Emil Fay Gus Hana Ivo Juno".split()
ROOT = Path(__file__).parent / "mini"


def total(sheet: Worksheet) -> None:
    sheet["B12"] = sum(sheet[f"B{row}"].value for row in range(2, 12))


def bonus(sheet: Worksheet) -> None:
    for row in range(2, 12):
        sheet[f"D{row}"] = round(sheet[f"B{row}"].value * 0.1, 2)


def flag(sheet: Worksheet) -> None:
    for row in range(2, 12):
        sheet[f"D{row}"] = "high" if sheet[f"B{row}"].value > 500 else "low"


def upper(sheet: Worksheet) -> None:
    for row in range(2, 12):
        sheet[f"D{row}"] = str(sheet[f"A{row}"].value).upper()


def year(sheet: Worksheet) -> None:
    for row in range(2, 12):
        sheet[f"D{row}"] = sheet[f"C{row}"].value.year


def later(sheet: Worksheet) -> None:
    for row in range(2, 12):
        sheet[f"D{row}"] = sheet[f"C{row}"].value + datetime.timedelta(days=30)


def highest(sheet: Worksheet) -> None:
    sheet["F1"] = max((sheet[f"B{row}"].value, sheet[f"A{row}"].value) for row in range(2, 12))[1]


def count(sheet: Worksheet) -> None:
    sheet["F1"] = sum(sheet[f"B{row}"].value > 500 for row in range(2, 12))


def mean(sheet: Worksheet) -> None:
    sheet["F1"] = sum(sheet[f"B{row}"].value for row in range(2, 12)) / 10


def ranks(sheet: Worksheet) -> None:
    values = sorted((sheet[f"B{row}"].value for row in range(2, 12)), reverse=True)
    for row in range(2, 12):
        sheet[f"D{row}"] = values.index(sheet[f"B{row}"].value) + 1


def running(sheet: Worksheet) -> None:
    so_far = 0.0
    for row in range(2, 12):
        so_far += sheet[f"B{row}"].value
        sheet[f"D{row}"] = so_far


def header(sheet: Worksheet) -> None:
    """Already so."""
    sheet["A1"] = "Name"


TASKS: list[tuple[str, str, Callable[[Worksheet], None], str]] = [
    ("Write the total of column B (rows 2 to 11) into B12.", "B12", total, "Cell-Level"),
    ("In column D write a bonus of 10 % of the amount in column B, rounded to cents, for rows 2 to 11.", "D2:D11", bonus, "Sheet-Level"),
    ("In column D write 'high' where the amount in column B is above 500 and 'low' elsewhere, rows 2 to 11.", "D2:D11", flag, "Sheet-Level"),
    ("In column D write the names of column A in capital letters, rows 2 to 11.", "D2:D11", upper, "Sheet-Level"),
    ("In column D write the year of the date in column C as a number, rows 2 to 11.", "D2:D11", year, "Sheet-Level"),
    ("In column D write the date that is 30 days after the one in column C, rows 2 to 11.", "'Data'!D2:D11", later, "Sheet-Level"),
    ("Write into F1 the name (column A) with the highest amount in column B.", "'Data'!F1", highest, "Cell-Level"),
    ("Write into F1 how many amounts in column B, rows 2 to 11, are above 500.", "F1", count, "Cell-Level"),
    ("Write into F1 the mean of the amounts in column B, rows 2 to 11.", "F1", mean, "Cell-Level"),
    ("In column D write each amount's rank, 1 for the largest amount in column B, rows 2 to 11.", "D2:D11", ranks, "Sheet-Level"),
    ("In column D write the running total of column B from row 2 down to row 11.", "D2:D11", running, "Sheet-Level"),
    ("Make sure that cell A1 says 'Name'.", "A1", header, "Cell-Level"),
]  # fmt: skip


def workbook(draw: random.Random) -> Workbook:
    book = Workbook()
    sheet = book.active
    sheet.title = "Data"
    sheet.append(["Name", "Amount", "Date"])
    for name, amount in zip(draw.sample(NAMES, 10), draw.sample(range(1000, 100_000), 10), strict=True):
        day = datetime.datetime(2020, 1, 1) + datetime.timedelta(days=draw.randint(0, 2000))
        sheet.append([name, amount / 100, day])
    return book


def save(book: Workbook, path: Path) -> None:
    """Without the time of saving, so that the same book is the same bytes."""
    book.properties.created = book.properties.modified = datetime.datetime(2024, 1, 1)
    buffer = io.BytesIO()
    book.save(buffer)
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(buffer) as made, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name in made.namelist():
            content = made.read(name)
            if name == "docProps/core.xml":
                content = content.split(b"<dcterms:modified")[0] + b"</cp:coreProperties>"
            out.writestr(zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)


def main() -> None:
    rows = []
    for number, (instruction, position, solve, kind) in enumerate(TASKS):
        books = []
        for case in (1, 2):
            stem = f"spreadsheet/{number:02d}/{case}_{number:02d}_"
            for role in ("input", "answer"):
                book = workbook(random.Random(f"{number}/{case}"))
                if role == "answer":
                    solve(book.active)
                save(book, ROOT / f"{stem}{role}.xlsx")
            books.append({"input": f"{stem}input.xlsx", "answer": f"{stem}answer.xlsx"})
        rows.append({"id": f"mini-{number:02d}", "question": instruction, "answer_position": position,
                     "workbooks": books, "type": kind})  # fmt: skip
    for split, numbers in {"train": (0, 2, 4, 6, 8, 10), "val": (1, 5, 7), "test": (3, 9, 11)}.items():
        (ROOT / split).mkdir(parents=True, exist_ok=True)
        (ROOT / split / "items.json").write_text(json.dumps([rows[n] for n in numbers], indent=1) + "\n")


if __name__ == "__main__":
    main()
