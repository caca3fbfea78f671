"""Published sets of plain questions and answers, which the env `qa` reads: BIG-Bench Hard, and ACE's Formula set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from skillopt.errors import UserError

Row = dict[str, Any]

_OBJECTS = ("three", "five", "seven")
BBH_KINDS = (
    "boolean_expressions",
    "causal_judgement",
    "date_understanding",
    "disambiguation_qa",
    "dyck_languages",
    "formal_fallacies",
    "geometric_shapes",
    "hyperbaton",
    *(f"logical_deduction_{number}_objects" for number in _OBJECTS),
    "movie_recommendation",
    "multistep_arithmetic_two",
    "navigate",
    "object_counting",
    "penguins_in_a_table",
    "reasoning_about_colored_objects",
    "ruin_names",
    "salient_translation_error_detection",
    "snarks",
    "sports_understanding",
    "temporal_sequences",
    *(f"tracking_shuffled_objects_{number}_objects" for number in _OBJECTS),
    "web_of_lies",
    "word_sorting",
)
"""The names of its files."""


def bbh(path: Path) -> Iterator[Row]:
    """Items of one kind of BIG-Bench Hard; the file is named after the kind."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["examples"]
        yield from (_row(path.stem, number, row["input"], row["target"]) for number, row in enumerate(rows, 1))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path}: not a file of BIG-Bench Hard (examples, each with input and target): {error!r}"
        ) from None


def bbh_canary(path: Path) -> str:
    """The line by which its authors find copies of their set in training data: it stays with every copy."""
    return str(json.loads(path.read_text(encoding="utf-8")).get("canary", ""))


def formula(path: Path) -> Iterator[Row]:
    """Items of a split of the Formula set: one JSON object a line."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            yield _row(path.stem, number, row["context"], row["target"])
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}:{number}: not a line of the Formula set (context, target): {error!r}") from None


def formula_split(path: Path) -> str:
    """Its authors have drawn the splits; the file's name says which it is."""
    return path.stem.split("_")[1]


def _row(name: str, number: int, question: object, answer: object) -> Row:
    return {"id": f"{name}-{number:03}", "question": str(question).strip(), "answer": str(answer).strip()}
