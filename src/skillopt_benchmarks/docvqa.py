"""DocVQA: a question about the image of a page; ANLS. Targets that cannot see get the page's text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from skillopt.config import EnvConfig
from skillopt.errors import UserError
from skillopt.skill import Skill
from skillopt.tasks.base import Chat, Episode, Item, Score
from skillopt.tasks.qa import QAEnv, QAOptions
from skillopt.tasks.scoring import anls
from skillopt_benchmarks.rows import read_rows
from skillopt_benchmarks.sources import DataSource


class DocVQAOptions(QAOptions):
    """`env.options` of DocVQA."""

    pages: Literal["image", "text"] = "image"
    """What the target sees: the page itself, for models that can see, or its text."""


class DocVQAEnv(QAEnv):
    """Items have `image`, a file below the split folder, and `context`, the page's text if there is one.

    The target sees one of them. Analysts always read the text; stored trajectories name the image and do not hold it.
    """

    task = "Each task is a question about a scanned page; the answer is a short text on that page."

    def __init__(self, config: EnvConfig) -> None:
        options = DocVQAOptions.read(config.options, "env.options")
        self._see = options.pages == "image"
        read = read_rows(config, ("answers", "image"))
        if not self._see:
            for item in (item for items in read.values() for item in items):
                _check_text(item)
        super().__init__(config, read, options)

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        unseen = "context" if self._see else "image"
        return await super().run(item.model_copy(update={unseen: ""}), skill, chat)

    def score(self, item: Item, output: str) -> Score:
        return anls(output, item.answers)


def _check_text(item: Item) -> None:
    if not item.context.strip():
        raise UserError(f"item '{item.id}': context: the page has no text; use env.options.pages=image, or add it")


def published(path: Path) -> Iterator[Item]:
    """Items of the single-page task's `val_v1.0_withQT.json`, with the OCR's text if it is next to the images.

    `documents/xyz.png` must be next to the file; `ocr/xyz.json` gives the text.
    """
    for row in json.loads(path.read_text(encoding="utf-8"))["data"]:
        kinds = row.get("question_types") or []
        yield Item.model_validate(
            {
                "id": str(row["questionId"]),
                "question": row["question"],
                "answers": list(row["answers"]),
                "image": row["image"],
                "context": _ocr_text(path.parent / "ocr" / f"{Path(row['image']).stem}.json"),
                "type": kinds[0] if kinds else "",
            }
        )


def _ocr_text(path: Path) -> str:
    """The lines that the OCR found; empty if there is no such file."""
    if not path.is_file():
        return ""
    pages = json.loads(path.read_text(encoding="utf-8")).get("recognitionResults", [])
    return "\n".join(str(line["text"]) for page in pages for line in page.get("lines", []))


SOURCE = DataSource(
    sizes={"train": 107, "val": 53, "test": 374},
    files="val_v1.0*.json",
    read=published,
    folders=("documents",),
    how="val_v1.0_withQT.json and the folders documents/ and ocr/ of the single-page task (rrc.cvc.uab.es/?ch=17; "
    "needs an account)",
)
