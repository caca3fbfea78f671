"""OfficeQA: questions about long documents. With a question, the target sees the passages that fit the question best.

Numbers and dates in answers are compared by value: `1,234.5` equals `1234.5`, but `1,234.5` does not equal `12345`.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from pathlib import Path

from pydantic import Field

from skillopt.config import EnvConfig
from skillopt.skill.tokens import count_tokens
from skillopt.tasks.base import Item, Score
from skillopt.tasks.images import safe_file
from skillopt.tasks.numbers import quantities
from skillopt.tasks.qa import QAEnv, QAOptions
from skillopt.tasks.scoring import exact, extract_answer, number
from skillopt_benchmarks.rows import read_rows
from skillopt_benchmarks.sources import DataSource

_DATE_FORMS = ("%Y-%m-%d", "%B %d %Y", "%d %B %Y", "%b %d %Y", "%d %b %Y", "%m/%d/%Y", "%Y/%m/%d", "%d.%m.%Y")
_PASSAGE = 200
"""The maximum number of words of a passage."""


class OfficeQAOptions(QAOptions):
    """`env.options` of OfficeQA."""

    context_tokens: int = Field(default=6000, ge=50)
    """The maximum number of tokens of the passages that the target sees with a question. The passages that fit the
    question best are chosen."""
    tolerance: float = Field(default=0.0, ge=0, le=0.2)
    """The relative error that a number in an answer may have."""


class OfficeQAEnv(QAEnv):
    """The questions of OfficeQA. An item has `documents`: file names below `<split_dir>/documents`."""

    task = "Each task is a question about office documents; passages of them come with the question."
    scoring = (
        "The answer in the last <answer>…</answer> tag, or the whole reply, must equal the expected one in normal form."
    )

    def __init__(self, config: EnvConfig) -> None:
        self.options = OfficeQAOptions.read(config.options, "env.options")
        read = read_rows(config, ("answers", "documents"))
        texts: dict[str, str] = {}
        splits = {
            split: [_with_passages(item, Path(config.split_dir), texts, self.options.context_tokens) for item in items]
            for split, items in read.items()
        }
        super().__init__(config, splits, self.options)

    def score(self, item: Item, output: str) -> Score:
        return match(output, item.answers, self.options.tolerance)


def match(output: str, answers: Sequence[str], tolerance: float = 0.0) -> Score:
    """Score an answer. `hard` is 1 if the answer equals an accepted answer, compared as date, number or text. `soft` is
    the best token F1."""
    answer = extract_answer(output)
    plain = exact(answer, answers)
    if any(_same(answer, gold, tolerance) for gold in answers):
        return Score(hard=1, soft=1)
    if plain.hard and any(_is_number(gold) or read_date(gold) for gold in answers):
        return Score(hard=0, soft=0, feedback=plain.feedback or f'expected "{answers[0]}"')
    return plain


def _same(answer: str, gold: str, tolerance: float) -> bool:
    if wanted := read_date(gold):
        return read_date(answer) == wanted
    if _is_number(gold):
        return number(answer, [gold], relative_tolerance=tolerance).hard == 1
    return exact(answer, [gold]).hard == 1


def _is_number(text: str) -> bool:
    """Return True if the text is one number, with or without sign, currency and unit."""
    return len(quantities(text)) == 1 and not re.search(r"[A-Za-z]{2,}.*\d|\d.*\d{4}-\d", text)


def read_date(text: str) -> date | None:
    """Read a date with year, month and day in a usual notation; None if the text is not such a date."""
    plain = " ".join(re.sub(r"(?<=\d)(st|nd|rd|th)\b|,", " ", text.strip().rstrip(".")).split())
    for form in _DATE_FORMS:
        try:
            return datetime.strptime(plain, form).date()
        except ValueError:
            continue
    return None


def _with_passages(item: Item, root: Path, texts: dict[str, str], most: int) -> Item:
    names: list[str] = [str(name) for name in item.get("documents")]
    for name in names:
        if name not in texts:
            path = safe_file(root, f"documents/{name}", f"item '{item.id}': documents")
            texts[name] = path.read_text(encoding="utf-8", errors="replace")
    return item.model_copy(update={"context": passages(item.question, {name: texts[name] for name in names}, most)})


def passages(question: str, documents: dict[str, str], most: int) -> str:
    """Return the passages that contain the question's rarer words, up to `most` tokens in total. The passages have the
    same order as in the documents."""
    pieces = [(name, index, text) for name, whole in documents.items() for index, text in enumerate(_pieces(whole))]
    seen = [set(_words(text)) for _, _, text in pieces]
    spread = Counter(word for words in seen for word in words)
    question_words = set(_words(question))
    weight = {word: math.log(1 + len(pieces) / spread[word]) for word in question_words if word in spread}
    rank = sorted(range(len(pieces)), key=lambda n: (-sum(weight.get(word, 0) for word in seen[n] & question_words), n))
    chosen: set[int] = set()
    used = 0
    for n in rank:
        size = count_tokens(pieces[n][2]) + 10
        if chosen and used + size > most:
            continue
        chosen.add(n)
        used += size
    shown: list[str] = []
    for n in sorted(chosen):
        name, _, text = pieces[n]
        heading = [f"## {name}"] if not any(pieces[m][0] == name for m in chosen if m < n) else []
        shown += [*heading, text]
    return "\n\n".join(shown)


def _pieces(text: str) -> list[str]:
    """Split a text into paragraphs and tables. Long pieces are cut between lines, so a table's row stays whole."""
    blocks: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        lines: list[str] = []
        for line in block.strip("\n").split("\n"):
            if lines and sum(len(each.split()) for each in lines) + len(line.split()) > _PASSAGE:
                blocks.append("\n".join(lines))
                lines = []
            lines.append(line)
        blocks.append("\n".join(lines))
    return [piece for piece in blocks if piece.strip()]


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]{3,}|\d+", text.lower())


def published(path: Path) -> Iterator[Item]:
    """Yield the items of `officeqa_full.csv` or `officeqa_pro.csv`."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        for row in csv.DictReader(file):
            documents = [name for name in re.split(r"[\s,;|\[\]'\"]+", row["source_files"]) if name]
            yield Item.model_validate(
                {
                    "id": row["uid"],
                    "question": row["question"],
                    "answers": [row["answer"]],
                    "documents": documents,
                    "type": row.get("difficulty") or "",
                }
            )


SOURCE = DataSource(
    sizes={"train": 50, "val": 24, "test": 172},
    files="officeqa_*.csv",
    read=published,
    folders=("documents",),
    how="officeqa_full.csv (huggingface.co/datasets/databricks/officeqa; access is granted on request), and the "
    "parsed bulletins' .txt files in a folder documents/",
)
