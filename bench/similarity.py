"""How well edits that say the same, and opposite ones, are told from the rest.

    python bench/similarity.py            # the figures of docs/reflection.md
    python bench/similarity.py --misses   # and every pair that it gets wrong

The 243 pairs of similarity_pairs.tsv are labelled same, related (alike, but not the same) or opposite. The vocabulary
was made looking at the first 193; the last 50 were scored, but not looked at, while it changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from skillopt.edits.similarity import essence, opposite_meaning, same_meaning

LOOKED_AT = 193
PAIRS = Path(__file__).with_name("similarity_pairs.tsv")


@dataclass(frozen=True)
class Pair:
    line: int
    label: str
    a: str
    b: str


def read_pairs() -> list[Pair]:
    rows = [line.split("\t") for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    return [Pair(number, *row) for number, row in enumerate(rows, 1)]


def scores(pairs: Sequence[Pair], label: str, says: Callable[[str, str], bool]) -> tuple[float, float, float]:
    """Precision, recall and F1 of `says` for a label."""
    said = [pair for pair in pairs if says(pair.a, pair.b)]
    right = sum(pair.label == label for pair in said)
    precision = right / len(said) if said else 1.0
    recall = right / sum(pair.label == label for pair in pairs)
    return precision, recall, 2 * precision * recall / (precision + recall) if right else 0.0


def equal_essence(a: str, b: str) -> bool:
    """Case, punctuation and fillers aside, the same words."""
    return essence(a) == essence(b)


def shared_words(a: str, b: str) -> bool:
    """At least 0.6 of all words are shared: what a simple fuzzy match would merge."""
    one, other = set(essence(a)), set(essence(b))
    return len(one & other) >= 0.6 * len(one | other)


METHODS: dict[str, Callable[[str, str], bool]] = {
    "equal words": equal_essence,
    "60 % shared words": shared_words,
    "canonical form (ours)": same_meaning,
}


def main() -> None:
    pairs = read_pairs()
    parts = {"first 193": pairs[:LOOKED_AT], "last 50": pairs[LOOKED_AT:], "all": pairs}
    print("| what | method | pairs | precision | recall | F1 | wrongly merged |")
    print("|---|---|---|---|---|---|---|")
    for name, part in parts.items():
        for method, says in METHODS.items():
            precision, recall, f1 = scores(part, "same", says)
            wrong = sum(pair.label != "same" and says(pair.a, pair.b) for pair in part)
            print(f"| same | {method} | {name} | {precision:.2f} | {recall:.2f} | {f1:.2f} | {wrong} |")
        precision, recall, f1 = scores(part, "opposite", opposite_meaning)
        print(f"| opposite | canonical form (ours) | {name} | {precision:.2f} | {recall:.2f} | {f1:.2f} | |")
    if "--misses" in sys.argv:
        for pair in pairs:
            if (found := label(pair.a, pair.b)) != pair.label:
                print(f"{pair.line}: {pair.label}, found {found}: {pair.a} | {pair.b}")


def label(a: str, b: str) -> str:
    return "same" if same_meaning(a, b) else "opposite" if opposite_meaning(a, b) else "related"


if __name__ == "__main__":
    main()
