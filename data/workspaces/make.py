"""Makes the twenty tasks: python make.py

Each task starts from some files. What is right follows six house rules that no task states: semicolons between
columns, rows sorted by their first column, dates as YYYY-MM-DD, amounts with two decimals and EUR, file names in lower
case with hyphens, the output of a repaired script in result.txt.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

Task = dict[str, Any]
ROOT = Path(__file__).parent


def cell(text: str) -> str:
    text = text.strip()
    if day := re.fullmatch(r"(\d\d)/(\d\d)/(\d{4})", text):
        return f"{day[3]}-{day[2]}-{day[1]}"
    return f"{float(text):.2f} EUR" if re.fullmatch(r"\d+\.\d+", text) else text


def table(name: str, *lines: str) -> Task:
    """Spaces around cells and empty lines go; the house rules hold for the rest."""
    rows = [[cell(each) for each in line.split(",")] for line in lines if line.strip(", ")]
    right = "".join(";".join(row) + "\n" for row in [rows[0], *sorted(rows[1:])])
    question = f"Tidy the table {name}. No empty lines, no spaces around cells; our house rules apply."
    return {
        "type": "table",
        "question": question,
        "workspace": {name: "\n".join(lines) + "\n"},
        "expected": {name: right},
    }


def rename(folder: str, *names: str) -> Task:
    files = {f"{folder}/{name}": f"content of {name}\n" for name in names}
    right = {f"{folder}/{'-'.join(name.lower().split())}": f"content of {name}\n" for name in names}
    gone: dict[str, str | None] = dict.fromkeys(name for name in files if name not in right)
    return {
        "type": "names",
        "question": f"Give the files in {folder}/ proper names by our house rules. Do not change their content.",
        "workspace": files,
        "expected": {**right, **gone},
    }


def fill(name: str, text: str, /, **values: str | float) -> Task:
    right = re.sub(r"\{\{(\w+)\}\}", lambda field: cell(str(values[field[1]])), text)
    data = json.dumps(values, indent=1) + "\n"
    return {
        "type": "template",
        "question": f"Fill in {name} from values.json. Our house rules apply to what you fill in.",
        "workspace": {name: text, "values.json": data},
        "expected": {name: right, "values.json": data},
    }


def repair(name: str, script: str, said: str) -> Task:
    return {
        "type": "script",
        "question": f"Repair {name} and run it. It stops with an error that a typing mistake causes.",
        "workspace": {name: script},
        "expected": {"result.txt": said},
    }


TRAIN = [
    table("orders.csv", "customer, day,total", "Weber ,03/02/2026, 12.5", "", "Abel,17/01/2026,230.75 "),
    table("stock.csv", "part,count", "valve, 14", " ,", "bolt,  250", "gasket ,31"),
    table("rooms.csv", "room ,seats", "Orchid,12", "Aster, 8", "", "Lily ,20"),
    rename("inbox", "Annual Report.txt", "MINUTES May.txt", "notes.txt"),
    rename("scans", "Passport Copy.txt", "Lease 2026.txt"),
    fill(
        "letter.txt", "Dear {{name}},\nwe received {{total}} on {{day}}.\n", name="Ms Ito", total=48.5, day="09/03/2026"
    ),
    fill(
        "invoice.txt", "Invoice to {{name}}\nDue: {{due}}\nSum: {{sum}}\n", name="Brandt", due="30/04/2026", sum=119.9
    ),
    repair("total.py", "numbers = [4, 8, 15]\npritn(sum(numbers))\n", "27\n"),
]
VAL = [
    table("fees.csv", "member,paid on,fee", " Osei,11/05/2026,35.0", "Bauer ,02/05/2026,17.25"),
    table("keys.csv", "holder,key", "Nowak , 7", "", "Costa,12", "Lund, 3"),
    rename("photos", "Summer Party.txt", "Team 2025.txt", "LOGO.txt"),
    fill(
        "receipt.txt",
        "Received from {{payer}}: {{amount}}\nDay: {{day}}\n",
        payer="Okoye",
        amount=7.5,
        day="21/06/2026",
    ),
    fill("offer.txt", "For {{who}}\nPrice {{price}}\n", who="Marsh", price=1340.2),
    repair("mean.py", "imprt statistics\nprint(statistics.mean([2, 4, 9]))\n", "5\n"),
]
TEST = [
    table("travel.csv", "who,from,cost", "Yilmaz,14/07/2026,88.4", " Duarte , 01/07/2026,412.0", ","),
    table("seeds.csv", "plant,bags", "thyme, 4", "basil ,11", "", "dill,6"),
    rename("contracts", "Old Lease.txt", "Cleaning  Service.txt"),
    fill("reminder.txt", "{{name}} owes {{sum}} since {{since}}.\n", name="Farkas", sum=64.1, since="05/08/2026"),
    fill("badge.txt", "{{name}}\nvalid from {{day}}\n", name="Nadia Rowe", day="12/09/2026"),
    repair(
        "count.py",
        "words = 'one two three two'.split()\nfor word in sorted(set(words)):\n    pritn(word, words.count(word))\n",
        "one 1\nthree 1\ntwo 2\n",
    ),
]


def main() -> None:
    for split, tasks in {"train": TRAIN, "val": VAL, "test": TEST}.items():
        rows = [{"id": f"{split}-{number:02d}", **task} for number, task in enumerate(tasks, 1)]
        (ROOT / split).mkdir(exist_ok=True)
        (ROOT / split / "items.json").write_text(
            json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
