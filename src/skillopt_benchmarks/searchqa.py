"""SearchQA: questions with search results, which are separated by `[DOC]`. Scored by exact match and token F1."""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from skillopt.config import EnvConfig
from skillopt.errors import UserError
from skillopt.skill.tokens import count_tokens
from skillopt.tasks.base import Item
from skillopt.tasks.qa import QAEnv, QAOptions, load_items
from skillopt_benchmarks.sources import DataSource

BORDER = "[DOC]"


class SearchQAOptions(QAOptions):
    """`env.options` of SearchQA."""

    context_tokens: int = Field(default=4000, ge=50)
    """The maximum number of tokens of the search results. If there are more, whole documents at the end are left
    out."""


class SearchQAEnv(QAEnv):
    """The tasks of SearchQA. The user's message is the search results and the question."""

    task = "Each task is a question with search results; the answer is a short name or phrase."

    def __init__(self, config: EnvConfig) -> None:
        options = SearchQAOptions.read(config.options, "env.options")
        if config.split_dir and not (Path(config.split_dir) / "train").is_dir():
            hint = "run `skillopt data prepare searchqa`, or use configs/searchqa/mini.yaml"
            raise UserError(f"env.split_dir: '{config.split_dir}' has no train/ folder; {hint}")
        cut = {
            split: [
                item.model_copy(update={"context": cut_context(item.context, options.context_tokens)}) for item in items
            ]
            for split, items in load_items(config).items()
        }
        super().__init__(config, cut, options)


def cut_context(context: str, most: int) -> str:
    """Return the first documents that fit into `most` tokens; if the first document is too long, its beginning."""
    if count_tokens(context) <= most:
        return context
    lead, *documents = context.split(BORDER)
    pieces = [lead] if lead.strip() else []
    pieces += [BORDER + document for document in documents]
    context, used = "", 0
    for piece in pieces:
        used += count_tokens(piece)
        if used > most:
            break
        context += piece
    return context.rstrip() or _head(pieces[0], most)


def _head(text: str, most: int) -> str:
    """Return the beginning of a text, up to the end of a word."""
    words = text.split(" ")
    longer = bisect_right(range(2, len(words) + 1), most, key=lambda count: count_tokens(" ".join(words[:count])))
    return " ".join(words[: longer + 1])


def published(path: Path) -> Iterator[Item]:
    """Yield the items of SearchQA in MRQA's format: JSON lines, each with a context and a list `qas` of its questions.
    The file may be gzipped."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            for qa in row["qas"] if "header" not in row else ():
                yield Item.model_validate(
                    {
                        "id": str(qa["qid"]),
                        "question": str(qa["question"]),
                        "context": str(row["context"]),
                        "answers": [str(answer) for answer in qa["answers"]],
                    }
                )


SOURCE = DataSource(
    sizes={"train": 400, "val": 200, "test": 1400},
    files="*.jsonl*",
    read=published,
    url="https://s3.us-east-2.amazonaws.com/mrqa/release/v2/dev/SearchQA.jsonl.gz",
    sha256="c84d2cc02cac5aa9d576ce1cd22900e9d75fe8a37bc795901c36cae6ef9e5ff0",
    bytes=92_526_612,
    how="SearchQA.jsonl.gz of the MRQA 2019 shared task",
)
