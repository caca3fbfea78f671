"""LiveMathematicianBench: multiple-choice questions, whose answer is a letter. The choices are shuffled by the item's
id."""

from __future__ import annotations

import hashlib
import json
import random
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from skillopt.config import EnvConfig
from skillopt.errors import UserError
from skillopt.tasks.base import Item, Score
from skillopt.tasks.qa import QAEnv
from skillopt.tasks.scoring import choice, extract_answer
from skillopt_benchmarks.rows import read_rows
from skillopt_benchmarks.sources import DataSource


class ChoiceEnv(QAEnv):
    """Multiple-choice questions. An item has `choices` (texts) and `label` (letter or text of the right choice).

    The published order often reveals the answer, so choices are shuffled by a hash of the item's id. The same item is
    always shuffled in the same way; over all items, there is no pattern.
    """

    task = "Each task is a mathematical question with several choices; the answer is one of them."
    scoring = "The reply, or its last <answer> tag, must name the right choice, by letter or by text, and no other."

    def __init__(self, config: EnvConfig) -> None:
        published = read_rows(config, ("choices", "label"))
        super().__init__(config, {split: [shuffle(item) for item in items] for split, items in published.items()})

    def score(self, item: Item, output: str) -> Score:
        """Score an answer that names a choice by its letter or whole text. Signs count: the answer `1`
        does not name the choice `-1`."""
        texts: dict[str, str] = item.get("choices")
        answer = _plain(extract_answer(output))
        named = [letter for letter, text in texts.items() if _plain(text) == answer]
        if len(named) == 1 and answer.upper() not in texts:
            output = named[0]
        return choice(output, item.answers, choices=dict.fromkeys(texts, ""))


def _plain(text: str) -> str:
    """Return a choice's text in lower case, with single spaces and without full stops at the end. Signs and brackets
    are kept, because they change the meaning."""
    return " ".join(text.casefold().split()).rstrip(".")


def right_choice(item: Item) -> int:
    """Return the index of the right choice in the published order."""
    choices: list[str] = [str(text) for text in item.get("choices")]
    label = str(item.get("label")).strip()
    letter = label.strip("().").upper()
    by_text = [index for index, text in enumerate(choices) if _plain(text) == _plain(label)]
    if len(letter) == 1 and letter in string.ascii_uppercase[: len(choices)]:
        return string.ascii_uppercase.index(letter)
    if len(by_text) == 1:
        return by_text[0]
    raise UserError(
        f"item '{item.id}': label: '{label}' is neither the letter nor the text of one of its {len(choices)} choices"
    )


def shuffle(item: Item) -> Item:
    """Return the item as the target sees it: after the question are the choices, each with a letter. The item's id
    decides their order."""
    choices = [str(text) for text in item.get("choices")]
    right = right_choice(item)
    if len(choices) < 2 or len({_plain(text) for text in choices}) < len(choices):
        raise UserError(f"item '{item.id}': choices: needs at least two choices, all different")
    order = list(range(len(choices)))
    random.Random(f"choices/{item.id}").shuffle(order)  # noqa: S311
    lettered = {string.ascii_uppercase[index]: choices[old] for index, old in enumerate(order)}
    listed = "\n".join(f"{letter}. {text}" for letter, text in lettered.items())
    answer = string.ascii_uppercase[order.index(right)]
    return item.model_copy(
        update={"question": f"{item.question}\n\n{listed}", "answers": (answer,), "choices": lettered}
    )


def published(path: Path) -> Iterator[Item]:
    """Yield the items of a monthly file of LiveMathematicianBench (`qa_YYYYMM_final.json`), or of plain rows."""
    for number, row in enumerate(json.loads(path.read_text(encoding="utf-8")), 1):
        problem = row.get("mcq") or row
        choices, labels = _choices(problem["choices"])
        keys = [key for key in ("label", "correct_choice", "correct_answer", "answer") if key in problem]
        label = problem[keys[0] if keys else "label"]
        label = label.get("label", label.get("text")) if isinstance(label, dict) else label
        question = str(problem["question"])
        index = labels.index(str(label)) if str(label) in labels else None
        digest = hashlib.sha256(question.encode()).hexdigest()[:8]
        kind = row.get("theorem_type") or ""
        yield Item.model_validate(
            {
                "id": str(row.get("id") or f"{path.stem}-{row.get('no', number)}-{digest}"),
                "question": question,
                "choices": choices,
                "label": string.ascii_uppercase[index] if index is not None else str(label),
                "type": kind if isinstance(kind, str) else ", ".join(map(str, kind)),
            }
        )


def _choices(options: Any) -> tuple[list[str], list[str]]:
    """Return the texts and the labels of choices. The choices are a list of texts, a list of `{label, text}`, or one
    object `{label: text}`."""
    if isinstance(options, dict):
        return [str(text) for text in options.values()], [str(label) for label in options]
    if options and isinstance(options[0], dict):
        return [str(each["text"]) for each in options], [str(each["label"]) for each in options]
    return [str(text) for text in options], list(string.ascii_uppercase[: len(options)])


SOURCE = DataSource(
    sizes={"train": 35, "val": 17, "test": 125},
    files="**/qa_*_final.json",
    read=published,
    url="https://huggingface.co/datasets/LiveMathematicianBench/LiveMathematicianBench/resolve/main/data/202511/"
    "qa_202511_final.json",
    how="qa_YYYYMM_final.json files (huggingface.co/datasets/LiveMathematicianBench/LiveMathematicianBench)",
)
