"""DocVQA: questions about the image of a page, scored by ANLS. Targets that cannot see images get the page's text."""

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
    """What the target gets: `image` is the page itself; `text` is the page's text, for models that cannot see
    images."""


class DocVQAEnv(QAEnv):
    """DocVQA's items. `image` is a file below the split folder; `context` is the page's text, which may be missing.

    The target sees the image or the text. Analysts always read the text. Stored trajectories contain only the image's
    name.
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
        raise UserError(f"item '{item.id}': context: is missing; add the page's text, or set env.options.pages=image")


def published(path: Path) -> Iterator[Item]:
    """Yield the items of the single-page task's `val_v1.0_withQT.json`.

    The folder `documents/` must be next to the file; `ocr/xyz.json`, if it exists, has the text of `documents/xyz.png`.
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
    """Return the lines of text in a page's OCR file; empty if there is no such file."""
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
