"""DocVQA: a question about the image of a page; ANLS. Targets that cannot see get the page's text."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from skillopt.chat_protocol import ContentPart, Message
from skillopt.config import EnvConfig
from skillopt.errors import UserError
from skillopt.skill import Skill
from skillopt.tasks.base import Chat, Episode, Item, Score
from skillopt.tasks.package_tools import target_with, with_files
from skillopt.tasks.qa import QAEnv, QAOptions
from skillopt.tasks.scoring import anls
from skillopt.tasks.tools import start
from skillopt_benchmarks.rows import field, read_rows, safe_file
from skillopt_benchmarks.sources import DataSource

_KINDS = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}


class DocVQAOptions(QAOptions):
    """`env.options` of DocVQA."""

    pages: Literal["image", "text"] = "image"
    """What the target is shown: the page itself, for models that can see, or its text."""


class DocVQAEnv(QAEnv):
    """Items have `image`, a file below the split folder, and `context`, the page's text where there is one.

    The target sees one of them. Analysts always read the text; stored trajectories name the image and do not hold it.
    """

    task = "Each task is a question about a scanned page; the answer is a short text on that page."

    def __init__(self, config: EnvConfig) -> None:
        options = DocVQAOptions.read(config.options, "env.options")
        self._see = options.pages == "image"
        self._root = Path(config.split_dir)
        read = read_rows(config, ("answers", "image"))
        splits = {split: [self._checked(item) for item in items] for split, items in read.items()}
        super().__init__(config, splits, options)

    def _checked(self, item: Item) -> Item:
        """The image is there, and its hash is part of the data; the text is there where it is needed."""
        where = f"item '{item.id}': image"
        path = safe_file(self._root, str(field(item, "image")), where)
        if path.suffix.lower() not in _KINDS:
            raise UserError(f"{where}: '{path.name}' is not one of {', '.join(sorted(_KINDS))}; convert it")
        if not self._see and not item.context.strip():
            raise UserError(f"item '{item.id}': context: the page has no text; use env.options.pages=image, or add it")
        return item.model_copy(update={"image_sha256": hashlib.sha256(path.read_bytes()).hexdigest()})

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        if not self._see:
            return await super().run(item, skill, chat)
        path = safe_file(self._root, str(field(item, "image")), f"item '{item.id}': image")
        data = base64.b64encode(path.read_bytes()).decode()
        image: ContentPart = {
            "type": "image_url",
            "image_url": {"url": f"data:{_KINDS[path.suffix.lower()]};base64,{data}"},
        }
        asked: ContentPart = {"type": "text", "text": item.question}
        with target_with(skill, chat) as target:
            reply = await target(start(skill, [image, asked]))
        named: ContentPart = {"type": "text", "text": f"[image: {field(item, 'image')}]"}
        talk: list[Message] = [*start(skill, [named, asked]), {"role": "assistant", "content": reply.text}]
        return with_files(Episode(messages=talk, output=reply.text), target)

    def score(self, item: Item, output: str) -> Score:
        return anls(output, item.answers)


def published(path: Path) -> Iterator[Item]:
    """Items of the single-page task's `val_v1.0_withQT.json`, with the OCR's text if it is next to the images.

    `documents/xyz.png` must be next to the file; `ocr/xyz.json` gives the text.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["data"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not a question file of DocVQA: {error!r}") from None
    for row in rows:
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
    """The lines that the OCR found; empty where there is no such file."""
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
