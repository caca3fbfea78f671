"""Make the three task sets of the learning bench: python bench/learning/make_tasks.py.

Each set is a folder below tasks/ with train/, val/ and test/ items. The items are committed. The script always makes
the same items; a test checks this. A learning method has to find the rules below from the examples.

expenses   find rules: a code word for the thing, for the sum and for the city
cards      find a format: order, separators, capitals, date form, padded number
procedure  find steps: a calculation of four steps; only the last number of the reply is scored
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SIZES = {"train": 24, "val": 16, "test": 32}
Fields = dict[str, Any]

KINDS = {
    "MOVE": ["train ticket", "taxi", "bus ticket", "parking"],
    "TASTE": ["lunch", "coffee", "sandwiches", "dinner"],
    "DESK": ["desk lamp", "keyboard", "printer paper", "office chair"],
}
BANDS = [(5, 60, "LOW"), (150, 900, "HIGH")]
REGIONS = {"NORTH": ["Oslo", "Malmo", "Turku"], "SOUTH": ["Porto", "Seville", "Naples"]}


def draw_expense(rng: random.Random) -> Fields:
    low, high, _ = rng.choice(BANDS)
    what = rng.choice(KINDS[rng.choice(sorted(KINDS))])
    city = rng.choice(REGIONS[rng.choice(sorted(REGIONS))])
    return {"what": what, "amount": rng.randrange(low, high), "city": city}


def ask_expense(fields: Fields) -> str:
    return f"Claim: {fields['what']}. Sum: {fields['amount']} euro. Paid in {fields['city']}."


def answer_expense(fields: Fields) -> str:
    kind = next(word for word, things in KINDS.items() if fields["what"] in things)
    band = next(word for low, high, word in BANDS if low <= fields["amount"] < high)
    region = next(name for name, cities in REGIONS.items() if fields["city"] in cities)
    return f"{fields['what']} {kind} / {fields['amount']} {band} / {fields['city']} {region}"


FIRST = ["anna", "bela", "carla", "dario", "edith", "franz", "greta", "hugo", "irene", "jonas", "karin", "lukas"]
LAST = [
    "kovacs",
    "moreau",
    "lindgren",
    "peters",
    "rossi",
    "novak",
    "silva",
    "fischer",
    "jansen",
    "weber",
    "berg",
    "costa",
]
TOWNS = ["ghent", "lyon", "parma", "tartu", "derby", "basel", "gdansk", "cork"]
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August"]
MONTHS += ["September", "October", "November", "December"]
CARD_LINES = [
    "{first} {last}, {town}, joined {month} {day} {year}, member {number}",
    "member {number}: {last} {first} (from {town}) since {day} {month} {year}",
    "{town} / no {number} / {first} {LAST} / {day}.{m}.{year}",
    "{LAST} {First}; card {number}; entry {day} {mon} {year}; lives in {Town}",
]


def draw_card(rng: random.Random) -> Fields:
    return {
        "line": rng.randrange(len(CARD_LINES)),
        "first": rng.choice(FIRST),
        "last": rng.choice(LAST),
        "town": rng.choice(TOWNS),
        "day": rng.randint(1, 28),
        "month": rng.randint(1, 12),
        "year": rng.randint(2001, 2024),
        "number": rng.choice([rng.randint(2, 99), rng.randint(100, 999)]),
    }


def ask_card(fields: Fields) -> str:
    month = MONTHS[fields["month"] - 1]
    spelled = {key: fields[key] for key in ("first", "last", "town", "day", "year", "number")}
    spelled |= {key.upper(): fields[key].upper() for key in ("last",)}
    spelled |= {key.capitalize(): fields[key].capitalize() for key in ("first", "town")}
    return CARD_LINES[fields["line"]].format(**spelled, month=month, mon=month[:3], m=fields["month"])


def answer_card(fields: Fields) -> str:
    name = f"{fields['last'].upper()}, {fields['first'].capitalize()}"
    date = f"{fields['year']}-{fields['month']:02}-{fields['day']:02}"
    return f"{fields['number']:04}; {name}; {date}; {fields['town'].capitalize()}"


THINGS = ["cups", "plates", "bowls", "jars", "lamps", "vases"]
CHARGES = {"red": 7, "blue": 15, "green": 30}


def draw_order(rng: random.Random) -> Fields:
    return {
        "crates": rng.randint(2, 9),
        "each": rng.randint(4, 12),
        "broken": rng.randint(1, 7),
        "thing": rng.choice(THINGS),
        "zone": rng.choice(sorted(CHARGES)),
        "express": rng.random() < 0.5,
    }


def ask_order(fields: Fields) -> str:
    service = "express" if fields["express"] else "normal"
    return (
        f"Order: {fields['crates']} crates of {fields['each']} {fields['thing']}, {fields['broken']} broken, "
        f"{fields['zone']} zone, {service} service. Fee?"
    )


def answer_order(fields: Fields) -> str:
    sound = fields["crates"] * fields["each"] - fields["broken"]
    fee = sound + CHARGES[fields["zone"]]
    return str(2 * fee if fields["express"] else fee)


SETS: dict[str, tuple[Callable[[random.Random], Fields], Callable[[Fields], str], Callable[[Fields], str]]] = {
    "expenses": (draw_expense, ask_expense, answer_expense),
    "cards": (draw_card, ask_card, answer_card),
    "procedure": (draw_order, ask_order, answer_order),
}


SEEDS = {"expenses": "expenses 1"}
"""Other seeds for sets whose first items did not have all values in train."""
RULES = {"expenses": ("what", "city"), "cards": ("line",), "procedure": ("zone", "express")}
"""The fields of each set whose values must all occur in train."""


def make(name: str) -> dict[str, list[Fields]]:
    """Return the items of one set by split. Every question occurs once; `fields` has the values in the question."""
    draw, ask, answer = SETS[name]
    rng = random.Random(f"learning bench: {SEEDS.get(name, name)}")
    found: dict[str, Fields] = {}
    while len(found) < sum(SIZES.values()):
        fields = draw(rng)
        found.setdefault(ask(fields), fields)
    rows = iter(found.items())
    return {
        split: [
            {"id": f"{name}-{split}-{n:02}", "question": question, "answer": answer(fields), "fields": fields}
            for n, (question, fields) in zip(range(1, size + 1), rows, strict=False)
        ]
        for split, size in SIZES.items()
    }


def fresh(name: str, size: int) -> list[Fields]:
    """Return further items of a set, none of which is in its splits."""
    draw, ask, answer = SETS[name]
    rng = random.Random(f"learning bench, fresh: {name}")
    known = {item["question"] for items in make(name).values() for item in items}
    found: dict[str, Fields] = {}
    while len(found) < size:
        fields = draw(rng)
        if ask(fields) not in known:
            found.setdefault(ask(fields), fields)
    return [
        {"id": f"{name}-fresh-{n:03}", "question": question, "answer": answer(fields)}
        for n, (question, fields) in enumerate(found.items(), 1)
    ]


def write(items: list[Fields], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{key: item[key] for key in ("id", "question", "answer")} for item in items]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def main() -> None:
    for name in SETS:
        for split, items in make(name).items():
            write(items, HERE / "tasks" / name / split / "items.jsonl")


if __name__ == "__main__":
    main()
