"""Reads items from files. Errors name the file, the line, the field and the fix; the size of a line is limited."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from skillopt.config.options import first_problem
from skillopt.errors import UserError
from skillopt.tasks.base import SPLITS, Item
from skillopt.tasks.dialogs import as_task

LONGEST_LINE = 16 << 20
"""The maximum number of bytes of a line. A file with a longer line probably has no line ends, or is not text."""
LARGEST_JSON = 64 << 20
"""The maximum number of bytes of a JSON array, which is read at once; a file of JSON lines may be larger."""
TEXT = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
YAML = (".yaml", ".yml")
SUFFIXES = (*TEXT, ".parquet", ".arrow", ".feather", ".ipc", *YAML)
_HALF = re.compile(r"[\ud800-\udfff]")

Row = tuple[str, Any]
"""A row of a file: its location, and its content or the UserError that says why it could not be read."""
Fields = dict[str, Any]
"""A row as the user wrote it, by field."""
Placed = tuple[str, Item]
"""An item's location (`tasks.csv:3`), and the item."""
Problem = tuple[list[str], str]
"""Locations of rows that cannot be used, and the reason. In a message, the reason follows the locations."""
MOST_NAMED = 10
"""The maximum number of rows that one message names; for further rows, the message only says how many there are."""
WINDOWS = "cp1252"
"""The encoding in which Excel saves a CSV file in Western Europe and America."""


def content_hash(item: Item) -> str:
    """A hash of the task's content, which does not depend on its id, answers or location."""
    return hashlib.sha256(item.content().encode()).hexdigest()[:16]


def shortened(text: str, most: int = 60) -> str:
    """The text on one line, cut to `most` characters; an ellipsis marks the cut."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def shown_name(item: Item) -> str:
    """An item's name for people: its id or, if SkillOpt made the id from a hash, the beginning of its question."""
    if item.id != content_hash(item):
        return item.id
    return f"“{shortened(item.question, 49)}”"


def shown_names(items: Iterable[Item]) -> dict[str, str]:
    """The names of items for people, by item id. Items whose name is their id are left out."""
    return {item.id: name for item in items if (name := shown_name(item)) != item.id}


def read_splits(split_dir: str, *, answers: bool = True) -> dict[str, list[Item]]:
    """The items of `<split_dir>/{train,val,test}/items.json`, `items.jsonl` or `items.csv`."""
    if not split_dir:
        raise UserError(
            "env.split_dir: is empty; set it to a folder that holds train/, val/ and test/, or set env.data to one file"
        )
    root = Path(split_dir)
    if not root.is_dir():
        one = " (one file belongs in env.data)" if root.is_file() else ""
        raise UserError(f"env.split_dir: '{split_dir}' is not a folder{one}; it must hold train/, val/ and test/")
    for split in SPLITS:
        if not (root / split).is_dir():
            raise UserError(f"env.split_dir: '{split_dir}' has no {split}/ folder; it must hold train/, val/ and test/")
    splits = {}
    for split in SPLITS:
        files = [file for suffix in (".json", ".jsonl", ".csv") if (file := root / split / f"items{suffix}").is_file()]
        if not files:
            raise UserError(f"{root / split}: has neither items.json nor items.jsonl nor items.csv")
        splits[split] = read_items(files[0], answers=answers, ids=True)
    return splits


def read_items(file: Path, *, answers: bool = True, ids: bool = False) -> list[Item]:
    """All items of one file. Without `ids`, an item that has no id gets a hash of its content as its id."""
    return [item for _, item in placed_items(file, answers=answers, ids=ids)]


def placed_items(file: Path, *, answers: bool = True, ids: bool = False) -> list[Placed]:
    """All items of one file, with their locations."""
    items = items_from(read_rows(file), answers=answers, ids=ids)
    if not items:
        raise UserError(f"{file}: holds no items; every split needs at least one")
    return items


def items_from(rows: Iterable[Row], *, answers: bool, ids: bool = False) -> list[Placed]:
    """Convert rows to items. Raises one UserError that names every row that cannot be an item."""
    items, wrong = sorted_rows(rows, answers=answers, ids=ids)
    if wrong:
        raise UserError("\n".join(problem_lines(wrong)))
    return items


def sorted_rows(rows: Iterable[Row], *, answers: bool, ids: bool = False) -> tuple[list[Placed], list[Problem]]:
    """Convert rows to items. Returns the items; and the rows that cannot be items, with the reasons."""
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
            item = item.model_copy(update={"id": f"{item.id}-{len(items)}"})  # a copy; the split omits it
        if item.id in seen:
            used = f"id '{item.id}' was already used at {seen[item.id]}; ids must be unique"
            wrong.setdefault(used, []).append(where)
            continue
        seen[item.id] = where
        items.append((where, item))
    return items, [(wheres, f": {what}") for what, wheres in wrong.items()]


def problem_lines(problems: Sequence[Problem]) -> list[str]:
    """One line for each kind of problem, with its rows. At most ten rows are named in all; a last line says how many
    more there are."""
    lines, left = [], MOST_NAMED
    for wheres, what in problems:
        if named := wheres[:left]:
            lines.append(f"{places(named)}{what}")
        left -= len(named)
    rest = sum(len(wheres) for wheres, _ in problems) - (MOST_NAMED - left)
    return [*lines, f"… and {rest:,} more rows"] if rest else lines


def places(wheres: Sequence[str]) -> str:
    """Several locations in one text: `tasks.csv: lines 3, 7 and 9`."""
    files = {where.rpartition(":")[0] for where in wheres}
    numbers = [where.rpartition(":")[2] for where in wheres]
    if len(wheres) > 1 and len(files) == 1 and all(number.isdecimal() for number in numbers):
        return f"{files.pop()}: lines {listed(numbers)}"
    return listed(wheres)


def listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def read_rows(file: Path, *, any_names: bool = False, encoding: str = "utf-8") -> Iterator[Row]:
    """The rows of a file, one at a time if possible; its suffix says the format. `any_names` allows any columns."""
    for where, row in _file_rows(file, any_names, encoding):
        yield where, as_task(row)


def _file_rows(file: Path, any_names: bool, encoding: str) -> Iterator[Row]:
    from skillopt.tasks.tables import is_hub_name, read_hub, read_table

    if is_hub_name(file):
        yield from read_hub(file.as_posix())
        return
    if not file.is_file():
        raise UserError(f"{file}: no such file")
    suffix = file.suffix.lower()
    if suffix in YAML:
        from skillopt.tasks.promptfoo import promptfoo_rows

        yield from promptfoo_rows(file)
    elif suffix in SUFFIXES and suffix not in TEXT:
        yield from read_table(file)
    elif suffix == ".json":
        yield from ((f"{file}: item {number}", row) for number, row in enumerate(_json_array(file, encoding), 1))
    elif suffix in {".jsonl", ".ndjson"}:
        yield from _json_lines(file, encoding)
    elif suffix in {".csv", ".tsv"}:
        yield from _table(file, separator(file, encoding), any_names, encoding)
    else:
        raise UserError(f"{file}: items are read from {', '.join(SUFFIXES)}; save the file in one of these formats")


def encoding_of(file: Path) -> str:
    """The encoding of a text file: cp1252 if it is not UTF-8 and each byte is a character of cp1252; else UTF-8."""
    if file.suffix.lower() not in TEXT or not file.is_file() or _decodes(file, "utf-8") or not _decodes(file, WINDOWS):
        return "utf-8"
    return WINDOWS


def _decodes(file: Path, encoding: str) -> bool:
    try:
        with file.open(encoding=encoding, newline="") as stream:
            while stream.read(1 << 20):
                pass
    except UnicodeDecodeError:
        return False
    return True


def _not_utf8(where: str, byte: int, file: Path) -> UserError:
    windows = f", or let `{_init(file)}` read it as Windows text" if encoding_of(file) == WINDOWS else ""
    return UserError(f"{where}: not UTF-8 at byte {byte}; save it as UTF-8{windows}")


def _init(file: Path) -> str:
    return f"skillopt init NAME --from {shlex.quote(str(file))}"


def _lines(file: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers. Raises UserError for bytes that are not text and lines that are too
    long."""
    with file.open("rb") as stream:
        offset = 0
        for number, raw in enumerate(iter(lambda: stream.readline(LONGEST_LINE + 1), b""), 1):
            if len(raw) > LONGEST_LINE:
                raise UserError(
                    f"{file}:{number}: the line is longer than {LONGEST_LINE >> 20} MB; write each item on a line of "
                    "its own, and put long texts into separate files"
                )
            try:
                text = raw.decode("utf-8-sig" if number == 1 and encoding == "utf-8" else encoding)
            except UnicodeDecodeError as error:
                raise _not_utf8(f"{file}:{number}", offset + error.start, file) from None
            offset += len(raw)
            yield number, text


def _json_lines(file: Path, encoding: str) -> Iterator[Row]:
    for number, line in _lines(file, encoding):
        if line.strip():
            row: Any
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                row = UserError(f"not JSON: {getattr(error, 'msg', error)}")
            yield f"{file}:{number}", row


def _json_array(file: Path, encoding: str) -> list[Any]:
    size = file.stat().st_size
    if size > LARGEST_JSON:
        raise UserError(
            f"{file}: is one JSON array of {size >> 20} MB, but SkillOpt reads at most {LARGEST_JSON >> 20} MB at "
            "once; save the items as JSON lines (.jsonl)"
        )
    try:
        rows = json.loads(file.read_bytes().decode("utf-8-sig" if encoding == "utf-8" else encoding))
    except UnicodeDecodeError as error:
        raise _not_utf8(str(file), error.start, file) from None
    except json.JSONDecodeError as error:
        raise UserError(f"{file}:{error.lineno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file}: not readable as JSON: {error}") from None
    if not isinstance(rows, list):
        raise UserError(f"{file}: must be a JSON array of items")
    return rows


def separator(file: Path, encoding: str = "utf-8") -> str:
    """A table's delimiter: comma, semicolon, tab or bar, whichever occurs most in its header."""
    usual = "\t" if file.suffix.lower() == ".tsv" else ","
    header = next((line for _, line in _lines(file, encoding)), "")
    bare = re.sub(r'"[^"]*"', "", header)
    most_frequent: str = max([usual, *",;\t|"], key=bare.count)
    return most_frequent


def _table(file: Path, delimiter: str, any_names: bool, encoding: str) -> Iterator[Row]:
    """The rows of a CSV file with a header. Cells are text; an empty cell becomes a missing field."""
    csv.field_size_limit(LONGEST_LINE)
    reader = csv.reader((line for _, line in _lines(file, encoding)), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    at = 1
    try:
        for cells in reader:
            here, at = at, reader.line_num + 1
            if header is None:
                header = _header(file, cells, any_names)
            elif any(cell.strip() for cell in cells):
                if len(cells) != len(header):
                    what = f"has {len(cells)} cells, and the header has {len(header)}; put cells that "
                    yield f"{file}:{here}", UserError(f"{what}hold a {delimiter!r} into double quotes")
                else:
                    yield f"{file}:{here}", _row_of(zip(header, cells, strict=True))
    except csv.Error as error:
        raise UserError(f"{file}:{at}: not readable as CSV: {error}; is a double quote left open?") from None


def _header(file: Path, cells: list[str], any_names: bool) -> list[str]:
    names = [cell.strip() for cell in cells]
    if "question" not in names and not any_names:
        raise UserError(
            f"{file}:1: the header has no column 'question' (it has: {', '.join(names)[:200]}); rename the "
            f"columns to 'question' and 'answer' (optional: 'id', 'context', 'type'), or let `{_init(file)}` find them"
        )
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise UserError(f"{file}:1: the column '{twice}' is twice in the header; rename one of the two")
    return names


def _row_of(cells: Iterable[tuple[str, str]]) -> Fields:
    """The fields of an item from a row of a table; if there are several answers, they are a JSON list in one cell."""
    row: Fields = {name: text for name, text in cells if text.strip()}
    if row.get("answers", "").lstrip().startswith("["):
        with suppress(ValueError):
            row["answers"] = json.loads(row["answers"])
    return row


def item_from(where: str, row: Any, *, answers: bool = True, ids: bool = True) -> Item:
    """Convert a row to an item. With `answers`, the row must have an answer; with `ids`, it must have an id."""
    if isinstance(row, UserError):
        raise row
    if not isinstance(row, dict):
        raise UserError(f"{where}: must be an object with id, question and answers")
    for name, value in row.items():
        if _HALF.search(json.dumps([name, value], ensure_ascii=False)):
            raise UserError(
                f"{where}: {name!a}: contains an unpaired surrogate, which is not text; repair or remove the field"
            )
    row = _as_people_write_it(row)
    if "id" not in row and not ids:
        row["id"] = "-"
    try:
        item = Item.model_validate(row)
    except ValidationError as error:
        raise UserError(f"{where}: {first_problem(error)}; an item has 'id', 'question' and 'answers'") from None
    if (answers and not item.answers and not item.get("scoring")) or not all(answer.strip() for answer in item.answers):
        raise UserError(f"{where}: answers: needs at least one answer, and none may be empty")
    if not item.id.strip() or not item.question.strip():
        raise UserError(f"{where}: id and question must not be empty")
    return item if item.id != "-" or ids else item.model_copy(update={"id": content_hash(item)})


def _as_people_write_it(row: Fields) -> Fields:
    """Convert numbers in ids and answers to text, a single answer to a list, and the name `answer` to `answers`."""
    out = dict(row)
    if _is_whole(out.get("id")):
        out["id"] = str(out["id"])
    if "answer" in out and "answers" not in out:
        out["answers"] = out.pop("answer")
    answers = out.get("answers")
    if isinstance(answers, str) or _is_number(answers):
        answers = [answers]
    if isinstance(answers, Sequence) and not isinstance(answers, str):
        out["answers"] = [json.dumps(each) if _is_number(each) else each for each in answers]
    return out


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_whole(value) or isinstance(value, float)
