# ruff: noqa: E501 (one task a line)
"""Makes mini/: three invented quarterly bulletins of a harbour office, and questions about them: python make.py

Written for this project in OfficeQA's form: long documents with tables, questions whose answers are numbers, dates and
names. Figures are drawn from a fixed seed, and answers are computed from them.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

QUARTERS = ("1951 Q1", "1951 Q2", "1951 Q3", "1951 Q4")
GOODS = ("Timber", "Coal", "Grain", "Herring", "Wool", "Salt")
MASTERS = {"1951 Q1": "Agnes Holm", "1951 Q2": "Agnes Holm", "1951 Q3": "Piet Varga", "1951 Q4": "Piet Varga"}
MONTHS = {"1951 Q1": ("January", "February", "March"), "1951 Q2": ("April", "May", "June"),
          "1951 Q3": ("July", "August", "September"), "1951 Q4": ("October", "November", "December")}  # fmt: skip


def main() -> None:
    draw = random.Random(1951)
    tons = {(q, g, m): draw.randint(120, 4800) for q in QUARTERS for g in GOODS for m in MONTHS[q]}
    dues = {q: draw.randint(90_000, 240_000) / 10 for q in QUARTERS}
    closed = {q: (draw.randint(2, 27), draw.choice(MONTHS[q])) for q in QUARTERS}
    root = Path(__file__).parent / "mini"
    (root / "documents").mkdir(parents=True, exist_ok=True)
    names = {}
    for q in QUARTERS:
        names[q] = f"harbour_bulletin_{q.replace(' ', '_').lower()}.txt"
        text = bulletin(q, tons, dues[q], closed[q])
        (root / "documents" / names[q]).write_text(text, encoding="utf-8")
    rows = []
    for q in QUARTERS:
        first, second, third = MONTHS[q]
        doc = [names[q]]
        top = max(GOODS, key=lambda g: sum(tons[q, g, m] for m in MONTHS[q]))
        good = draw.choice(GOODS)
        rows += [
            ask(f"How many tons of {good.lower()} were landed in {second} 1951?", f"{tons[q, good, second]:,}", doc, "easy"),
            ask(f"Who was harbour master in the quarter {q}?", MASTERS[q], doc, "easy"),
            ask(f"On which day was the harbour closed in the quarter {q}?", f"{closed[q][1]} {closed[q][0]}, 1951", doc, "easy"),
            ask(f"Which goods had the largest tonnage over the whole quarter {q}?", top, doc, "hard"),
            ask(f"By how many tons did {good.lower()} in {third} 1951 differ from {first} 1951 (absolute value)?",
                str(abs(tons[q, good, third] - tons[q, good, first])), doc, "hard"),
            ask(f"What were the harbour dues in the quarter {q}, in crowns?", f"{dues[q]:,.1f} crowns", doc, "easy"),
        ]  # fmt: skip
    draw.shuffle(rows)
    for split, count in (("train", 10), ("val", 6), ("test", 8)):
        own, rows = rows[:count], rows[count:]
        items = [{"id": f"mini-{split}-{n:02d}", **row} for n, row in enumerate(own)]
        (root / split).mkdir(exist_ok=True)
        (root / split / "items.json").write_text(json.dumps(items, indent=1) + "\n", encoding="utf-8")


def ask(question: str, answer: str, documents: list[str], kind: str) -> dict[str, object]:
    return {"question": question, "answers": [answer], "documents": documents, "type": kind}


def bulletin(q: str, tons: dict[tuple[str, str, str], int], dues: float, closed: tuple[int, str]) -> str:
    months = MONTHS[q]
    table = ["Goods    | " + " | ".join(f"{m:>9}" for m in months)]
    table += [f"{g:<8} | " + " | ".join(f"{tons[q, g, m]:>9,}" for m in months) for g in GOODS]
    return "\n\n".join([
        f"BULLETIN OF THE HARBOUR OFFICE, QUARTER {q}",
        f"The harbour master of the quarter was {MASTERS[q]}. The office stood on the east quay, as in former years.",
        "TABLE 1. Goods landed, in tons\n\n" + "\n".join(table),
        f"Dues. Harbour dues of the quarter amounted to {dues:,.1f} crowns. Pilots were paid from the same account.",
        f"Weather. The harbour was closed for a storm on {closed[1]} {closed[0]}, 1951. No ship was lost.",
        "Notes. Tons are metric tons. Herring is counted with its barrels; timber by the mate's estimate.",
    ]) + "\n"  # fmt: skip


if __name__ == "__main__":
    main()
