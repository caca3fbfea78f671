"""Questions with answers, from `<split_dir>/{train,val,test}/items.json` or `items.jsonl`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from skillopt.config import EnvConfig
from skillopt.envs.base import SPLITS, Chat, Episode, Item, Score
from skillopt.envs.scoring import SCORERS
from skillopt.errors import UserError
from skillopt.skill import Skill


class QAOptions(BaseModel):
    """`env.options` of questions and answers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: dict[str, Annotated[int, Field(ge=1)]] = {}
    """Use at most so many items of a split, for a first try on a slice: {train: 40, val: 20}."""


def take(items: list[Item], most: int | None) -> list[Item]:
    """The first `most` items, the same number of each type as far as they go, in their old order."""
    if most is None or most >= len(items):
        return items
    seen: Counter[str] = Counter()
    rounds = []
    for place, item in enumerate(items):
        seen[item.type] += 1
        rounds.append((seen[item.type], place))
    kept = {place for _, place in sorted(rounds)[:most]}
    return [item for place, item in enumerate(items) if place in kept]


class QAEnv:
    """The skill is the system prompt, the context and question are the user's message, the reply is scored."""

    def __init__(self, config: EnvConfig, splits: dict[str, list[Item]] | None = None) -> None:
        if config.scoring not in SCORERS:
            raise UserError(f"env.scoring: unknown '{config.scoring}'; known are: {', '.join(sorted(SCORERS))}")
        try:
            options = QAOptions.model_validate(config.options)
        except ValidationError as error:
            first = error.errors()[0]
            raise UserError(f"env.options.{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        if unknown := options.limit.keys() - set(SPLITS):
            raise UserError(f"env.options.limit: unknown split '{min(unknown)}'; known are: {', '.join(SPLITS)}")
        self.name = config.benchmark or config.name
        self._scorer = SCORERS[config.scoring]
        loaded = splits or load_splits(config.split_dir)
        self._splits = {split: take(items, options.limit.get(split)) for split, items in loaded.items()}

    def items(self, split: str) -> Sequence[Item]:
        return self._splits[split]

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        task = f"{item.context}\n\n{item.question}" if item.context else item.question
        messages: list[dict[str, Any]] = [{"role": "system", "content": skill.text}] if skill.text.strip() else []
        messages.append({"role": "user", "content": task})
        reply = await chat(messages)
        return Episode(messages=[*messages, {"role": "assistant", "content": reply.text}], output=reply.text)

    def score(self, item: Item, output: str) -> Score:
        return self._scorer(output, item.answers)


def load_splits(split_dir: str) -> dict[str, list[Item]]:
    if not split_dir:
        raise UserError("env.split_dir: is empty; name the folder that holds train/, val/ and test/")
    root = Path(split_dir)
    if not root.is_dir():
        raise UserError(f"env.split_dir: '{split_dir}' is not a folder; it must hold train/, val/ and test/")
    for split in SPLITS:
        if not (root / split).is_dir():
            raise UserError(f"env.split_dir: '{split_dir}' has no {split}/ folder; it must hold train/, val/ and test/")
    return {split: _load_split(root / split) for split in SPLITS}


def _load_split(folder: Path) -> list[Item]:
    json_file, jsonl_file = folder / "items.json", folder / "items.jsonl"
    if json_file.is_file():
        rows = [(f"{json_file}: item {n}", row) for n, row in enumerate(_read_json(json_file), 1)]
    elif jsonl_file.is_file():
        rows = _read_jsonl(jsonl_file)
    else:
        raise UserError(f"{folder}: has neither items.json nor items.jsonl")
    if not rows:
        raise UserError(f"{json_file if json_file.is_file() else jsonl_file}: holds no items; every split needs some")
    items = [read_item(where, row) for where, row in rows]
    seen: set[str] = set()
    for (where, _), item in zip(rows, items, strict=True):
        if item.id in seen:
            raise UserError(f"{where}: id '{item.id}' stands twice in this split; ids must be unique")
        seen.add(item.id)
    return items


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None


def _read_json(path: Path) -> list[Any]:
    try:
        rows = json.loads(_read_text(path))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not readable as JSON: {error}") from None
    if not isinstance(rows, list):
        raise UserError(f"{path}: must be a JSON array of items")
    return rows


def _read_jsonl(path: Path) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for number, line in enumerate(_read_text(path).split("\n"), 1):
        if line.strip():
            try:
                rows.append((f"{path}:{number}", json.loads(line)))
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path}:{number}: not JSON: {getattr(error, 'msg', error)}") from None
    return rows


def read_item(where: str, row: Any, *, answers_needed: bool = True) -> Item:
    """A task from a dict; `where` names its place for the message."""
    if not isinstance(row, dict):
        raise UserError(f"{where}: must be an object with id, question and answers")
    for name, value in row.items():
        if re.search(r"[\ud800-\udfff]", json.dumps([name, value], ensure_ascii=False)):
            raise UserError(f"{where}: {name!a}: holds half a surrogate pair, which is no text; repair or remove it")
    row = dict(row)
    if isinstance(row.get("id"), int) and not isinstance(row["id"], bool):
        row["id"] = str(row["id"])
    if isinstance(row.get("answers"), str):
        row["answers"] = [row["answers"]]
    try:
        item = Item.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{where}: {field}: {first['msg']}; an item has id, question and answers") from None
    if (answers_needed and not item.answers) or not all(answer.strip() for answer in item.answers):
        raise UserError(f"{where}: answers: needs at least one answer, and none may be empty")
    if not item.id.strip() or not item.question.strip():
        raise UserError(f"{where}: id and question must not be empty")
    return item
