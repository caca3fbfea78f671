"""Reading items from files: complaints name the file, the line, the field and the fix; no line fills the memory."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from skillopt.envs.base import SPLITS, Item
from skillopt.errors import UserError
from skillopt.options import first_problem

LONGEST_LINE = 16 << 20
"""Bytes of one item. A longer line is a file without line ends, or no text at all."""
LARGEST_JSON = 64 << 20
"""Bytes of a JSON array, which can only be read whole; JSON lines have no such limit."""
SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
_HALF = re.compile(r"[\ud800-\udfff]")

Row = tuple[str, Any]
"""Where it is, and its content; a UserError where it could not be read."""
Placed = tuple[str, Item]
"""Where an item is (`tasks.csv:3`), and the item."""


def content_hash(item: Item) -> str:
    """What the task asks, as a short name that does not depend on its id, answers or place."""
    return hashlib.sha256(item.content().encode()).hexdigest()[:16]


def shown_name(item: Item) -> str:
    """What people call an item: its id; where that is a hash that we gave it, how its question begins."""
    if item.id != content_hash(item):
        return item.id
    flat = " ".join(item.question.split())
    return f"“{flat[:48]}{'…' if len(flat) > 48 else ''}”"


def shown_names(items: Iterable[Item]) -> dict[str, str]:
    """By id, where the name is another than the id."""
    return {item.id: name for item in items if (name := shown_name(item)) != item.id}


def read_splits(split_dir: str, *, answers: bool = True) -> dict[str, list[Item]]:
    """The items of `<split_dir>/{train,val,test}/items.json`, `items.jsonl` or `items.csv`."""
    if not split_dir:
        raise UserError(
            "env.split_dir: is empty; name the folder that holds train/, val/ and test/, or one file in env.data"
        )
    root = Path(split_dir)
    if not root.is_dir():
        one = " (one file belongs in env.data)" if root.is_file() else ""
        raise UserError(f"env.split_dir: '{split_dir}' is not a folder{one}; it must hold train/, val/ and test/")
    for split in SPLITS:
        if not (root / split).is_dir():
            raise UserError(f"env.split_dir: '{split_dir}' has no {split}/ folder; it must hold train/, val/ and test/")
    return {split: _read_split(root / split, answers) for split in SPLITS}


def _read_split(folder: Path, answers: bool) -> list[Item]:
    files = [folder / f"items{suffix}" for suffix in (".json", ".jsonl", ".csv")]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise UserError(f"{folder}: has neither items.json nor items.jsonl nor items.csv")
    return read_items(file, answers=answers, ids=True)


def read_items(file: Path, *, answers: bool = True, ids: bool = False) -> list[Item]:
    """All items of one file. Without `ids`, an item that has none is named by its content."""
    return [item for _, item in placed_items(file, answers=answers, ids=ids)]


def placed_items(file: Path, *, answers: bool = True, ids: bool = False) -> list[Placed]:
    """All items of one file, with their places."""
    found = items_from(read_rows(file), answers=answers, ids=ids)
    if not found:
        raise UserError(f"{file}: holds no items; every split needs some")
    return found


def items_from(rows: Iterable[Row], *, answers: bool, ids: bool = False) -> list[Placed]:
    """Rows as items. Every row that cannot be one is named, not only the first."""
    items: list[Placed] = []
    seen: dict[str, str] = {}
    wrong: dict[str, list[str]] = {}
    for where, row in rows:
        try:
            item = item_from(where, row, answers=answers, ids=ids)
        except UserError as error:
            wrong.setdefault(str(error).removeprefix(f"{where}: "), []).append(where)
            continue
        if item.id in seen and not ids and item.id == content_hash(item):
            item = item.model_copy(update={"id": f"{item.id}-{len(items)}"})  # a copy, which the split will leave out
        if item.id in seen:
            used = f"id '{item.id}' was already used at {seen[item.id]}; ids must be unique"
            wrong.setdefault(used, []).append(where)
            continue
        seen[item.id] = where
        items.append((where, item))
    if wrong:
        raise UserError("\n".join(f"{places(wheres)}: {what}" for what, wheres in wrong.items()))
    return items


def places(wheres: Sequence[str]) -> str:
    """Several places in one text: `tasks.csv: lines 3, 7 and 9`."""
    files = {where.rpartition(":")[0] for where in wheres}
    numbers = [where.rpartition(":")[2] for where in wheres]
    if len(wheres) > 1 and len(files) == 1 and all(number.isdecimal() for number in numbers):
        return f"{files.pop()}: lines {listed(numbers)}"
    return listed(wheres)


def listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def read_rows(file: Path, *, any_names: bool = False) -> Iterator[Row]:
    """The rows of a file by its suffix, one at a time where the format allows it. `any_names`: whatever columns."""
    if not file.is_file():
        raise UserError(f"{file}: no such file")
    suffix = file.suffix.lower()
    if suffix == ".json":
        yield from ((f"{file}: item {number}", row) for number, row in enumerate(_json_array(file), 1))
    elif suffix in {".jsonl", ".ndjson"}:
        yield from _json_lines(file)
    elif suffix in {".csv", ".tsv"}:
        yield from _table(file, separator(file), any_names)
    else:
        raise UserError(f"{file}: items are read from {', '.join(SUFFIXES)}; save it as one of these")


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; neither bad bytes nor an endless line get further than here."""
    with file.open("rb") as stream:
        offset = 0
        for number, raw in enumerate(iter(lambda: _line(stream), b""), 1):
            if len(raw) > LONGEST_LINE:
                raise UserError(
                    f"{file}:{number}: the line is longer than {LONGEST_LINE >> 20} MB; an item is one line: put line "
                    "ends between items, and long texts into separate files"
                )
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                byte = offset + error.start
                raise UserError(f"{file}:{number}: not UTF-8 at byte {byte}; save it as UTF-8") from None
            offset += len(raw)
            yield number, text


def _line(stream: BinaryIO) -> bytes:
    return stream.readline(LONGEST_LINE + 1)


def _json_lines(file: Path) -> Iterator[Row]:
    for number, line in _lines(file):
        if line.strip():
            try:
                yield f"{file}:{number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{file}:{number}: not JSON: {getattr(error, 'msg', error)}") from None


def _json_array(file: Path) -> list[Any]:
    size = file.stat().st_size
    if size > LARGEST_JSON:
        raise UserError(
            f"{file}: is {size >> 20} MB in one JSON array, which must be read whole; save it as JSON lines (.jsonl)"
        )
    try:
        rows = json.loads(file.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{file}:{error.lineno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file}: not readable as JSON: {error}") from None
    if not isinstance(rows, list):
        raise UserError(f"{file}: must be a JSON array of items")
    return rows


def separator(file: Path) -> str:
    """What is between a table's cells: of comma, semicolon, tab and bar, the one that its header has most of."""
    usual = "\t" if file.suffix.lower() == ".tsv" else ","
    header = next((line for _, line in _lines(file)), "")
    bare = re.sub(r'"[^"]*"', "", header)
    found: str = max([usual, *",;\t|"], key=bare.count)
    return found


def _table(file: Path, delimiter: str, any_names: bool) -> Iterator[Row]:
    """CSV with a header. Cells are text; an empty cell is a field that is not there."""
    csv.field_size_limit(LONGEST_LINE)
    reader = csv.reader((line for _, line in _lines(file)), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    at = 1
    try:
        for cells in reader:
            here, at = at, reader.line_num + 1
            if header is None:
                header = _header(file, cells, any_names)
            elif any(cell.strip() for cell in cells):
                if len(cells) != len(header):
                    what = f"has {len(cells)} cells where the header has {len(header)}; put cells that "
                    yield f"{file}:{here}", UserError(f"{what}hold a {delimiter!r} into double quotes")
                    continue
                yield f"{file}:{here}", _row_of(dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        raise UserError(f"{file}:{at}: not readable as CSV: {error}; is a double quote left open?") from None


def _header(file: Path, cells: list[str], any_names: bool) -> list[str]:
    names = [cell.strip() for cell in cells]
    if "question" not in names and not any_names:
        raise UserError(
            f"{file}:1: the header has no column 'question' (it has: {', '.join(names)[:200]}); name the columns "
            "question, answer, and if you like id, context, type; `skillopt init NAME --from FILE` does it for you"
        )
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise UserError(f"{file}:1: the column '{twice}' is twice in the header")
    return names


def _row_of(cells: Mapping[str, str]) -> dict[str, Any]:
    """A row of a table as an item's fields; several answers are a JSON list."""
    row: dict[str, Any] = {name: text for name, text in cells.items() if text.strip()}
    answers = row.get("answers", "")
    if answers.lstrip().startswith("["):
        try:
            row["answers"] = json.loads(answers)
        except ValueError:
            return row
    return row


def item_from(where: str, row: Any, *, answers: bool = True, ids: bool = True) -> Item:
    """A row as an item. `answers`: it needs some; `ids`: it needs an id."""
    if isinstance(row, UserError):
        raise row
    if not isinstance(row, dict):
        raise UserError(f"{where}: must be an object with id, question and answers")
    for name, value in row.items():
        if _HALF.search(json.dumps([name, value], ensure_ascii=False)):
            raise UserError(f"{where}: {name!a}: holds half a surrogate pair, which is no text; repair or remove it")
    row = _as_people_write_it(row)
    if "id" not in row and not ids:
        row["id"] = "-"
    try:
        item = Item.model_validate(row)
    except ValidationError as error:
        raise UserError(f"{where}: {first_problem(error)}; an item has id, question and answers") from None
    if (answers and not item.answers) or not all(answer.strip() for answer in item.answers):
        raise UserError(f"{where}: answers: needs at least one answer, and none may be empty")
    if not item.id.strip() or not item.question.strip():
        raise UserError(f"{where}: id and question must not be empty")
    return item if item.id != "-" or ids else item.model_copy(update={"id": content_hash(item)})


def _as_people_write_it(row: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers as ids and answers, one answer as text, `answer` for `answers`."""
    out = dict(row)
    if _is_whole(out.get("id")):
        out["id"] = str(out["id"])
    if "answer" in out and "answers" not in out:
        out["answers"] = out.pop("answer")
    given = out.get("answers")
    if isinstance(given, str) or _is_number(given):
        given = [given]
    if isinstance(given, Sequence) and not isinstance(given, str):
        out["answers"] = [json.dumps(each) if _is_number(each) else each for each in given]
    return out


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_whole(value) or isinstance(value, float)
