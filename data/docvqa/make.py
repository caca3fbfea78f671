"""Makes mini/: invented pages (invoices, tables, letters, forms) as small images with their text: python make.py

Needs Pillow. All names, firms and figures are invented. Each page has two questions, both in the same split.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

ROOT = Path(__file__).parent / "mini"
FIRMS = ("Quill & Anchor Ltd", "Tamsin Glass Works", "Orsel Bicycle Company", "North Fen Dairy", "Lantern Press",
         "Brook Street Bakery", "Halden Rope and Sail", "Marrow Seeds")  # fmt: skip
PEOPLE = (
    "Ines Calder",
    "Otto Frayn",
    "Mabel Quist",
    "Rafe Tolland",
    "Sunniva Berg",
    "Teo Marsh",
    "Una Pell",
    "Wim Daal",
)
WARES = ("lamp oil", "copper wire", "brown paper", "linseed", "window glass", "cork", "beeswax", "slate")
MONTHS = ("January", "March", "May", "July", "September", "November")
PAGES = {"train": 8, "val": 4, "test": 8}
WIDTH, HEIGHT = 620, 560

Page = tuple[list[str], list[tuple[str, list[str]]]]


def invoice(draw: random.Random) -> Page:
    firm, buyer, number = draw.choice(FIRMS), draw.choice(PEOPLE), f"{draw.choice('ABKT')}-{draw.randint(1000, 9999)}"
    wares = [(ware, draw.randint(2, 40), draw.randint(50, 900) / 100) for ware in draw.sample(WARES, 3)]
    total = f"{sum(count * price for _, count, price in wares):.2f}"
    lines = [
        "#INVOICE",
        firm,
        "",
        f"Invoice no.: {number}",
        f"Date: {day(draw)}",
        f"Bill to: {buyer}",
        "",
        "Item              Qty    Price",
        *(f"{w:<16}{c:>5}{p:>9.2f}" for w, c, p in wares),
        "",
        f"TOTAL DUE: {total}",
    ]
    return lines, [("What is the invoice number?", [number]), ("What is the total due?", [total, f"${total}"])]


def table(draw: random.Random) -> Page:
    towns, months = draw.sample(("Aldmoor", "Birkby", "Cairn", "Dunmere", "Eskdale"), 4), draw.sample(MONTHS, 2)
    rain = {(town, month): str(draw.randint(11, 199)) for town in towns for month in months}
    lines = ["#RAINFALL IN MILLIMETRES", "", f"{'Town':<12}{months[0]:>12}{months[1]:>12}"]
    lines += [f"{town:<12}{rain[town, months[0]]:>12}{rain[town, months[1]]:>12}" for town in towns]
    wettest = max(towns, key=lambda town: int(rain[town, months[0]]))
    town = draw.choice(towns)
    lines += ["", f"Measured by {(by := draw.choice(PEOPLE))}"]
    return lines, [
        (f"How much rain fell in {town} in {months[1]}?", [rain[town, months[1]], f"{rain[town, months[1]]} mm"]),
        (f"Which town had the most rain in {months[0]}?", [wettest]) if draw.random() < 0.5 else
        ("Who measured the rainfall?", [by]),
    ]  # fmt: skip


def letter(draw: random.Random) -> Page:
    sender, reader = draw.sample(PEOPLE, 2)
    firm, ware, count, when = draw.choice(FIRMS), draw.choice(WARES), draw.randint(12, 400), day(draw)
    lines = [firm, when, "", f"Dear {reader},", "", f"thank you for your order of {count} crates of {ware}.",
             "They will leave our store within a week.", "Please let us know where to send them.", "",
             "Yours sincerely,", sender, "Head of Sales"]  # fmt: skip
    return lines, [
        ("Who signed the letter?", [sender]),
        ("How many crates were ordered?", [str(count), f"{count} crates"]),
    ]


def form(draw: random.Random) -> Page:
    name, badge, room = (
        draw.choice(PEOPLE),
        str(draw.randint(10_000, 99_999)),
        f"{draw.randint(1, 9)}.{draw.randint(10, 40)}",
    )
    mark = draw.choice(("full time", "half time", "guest"))
    boxes = [f"[{'x' if kind == mark else ' '}] {kind}" for kind in ("full time", "half time", "guest")]
    lines = ["#STAFF REGISTRATION", "", f"Name:       {name}", f"Badge no.:  {badge}", f"Room:       {room}",
             f"Starts on:  {day(draw)}", "", "Kind of work:", *boxes]  # fmt: skip
    return lines, [("What is the badge number?", [badge]), ("Which kind of work is ticked?", [mark])]


def day(draw: random.Random) -> str:
    return f"{draw.randint(1, 28)} {draw.choice(MONTHS)} {draw.randint(1931, 1979)}"


def render(lines: list[str], path: Path, draw: random.Random) -> None:
    """Dark on an off-white page, with a little noise, as scans have."""
    image = Image.new("L", (WIDTH, HEIGHT), 244)
    pen = ImageDraw.Draw(image)
    small, large = ImageFont.load_default(20), ImageFont.load_default(30)
    for number, line in enumerate(lines):
        font, text = (large, line[1:]) if line.startswith("#") else (small, line)
        for run in re.finditer(r"\S+(?: \S+)*", text):  # two spaces begin a column, which stands where it stands
            pen.text((40 + 13 * run.start(), 36 + number * 34), run[0], font=font, fill=20)
    for _ in range(40):
        pen.point((draw.randint(0, WIDTH - 1), draw.randint(0, HEIGHT - 1)), fill=150)
    image.quantize(8).save(path, optimize=True)


def main() -> None:
    (ROOT / "pages").mkdir(parents=True, exist_ok=True)
    makers = (invoice, table, letter, form)
    number = 0
    for split, count in PAGES.items():
        rows = []
        for _ in range(count):
            draw = random.Random(f"docvqa/{number}")
            maker = makers[number % len(makers)]
            lines, asked = maker(draw)
            render(lines, ROOT / "pages" / f"{number:02d}.png", draw)
            text = "\n".join(line.removeprefix("#") for line in lines)
            for place, (question, answers) in enumerate(asked):
                rows.append({"id": f"mini-{number:02d}-{place}", "question": question, "answers": answers,
                             "image": f"pages/{number:02d}.png", "context": text, "type": maker.__name__})  # fmt: skip
            number += 1
        (ROOT / split).mkdir(exist_ok=True)
        (ROOT / split / "items.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
