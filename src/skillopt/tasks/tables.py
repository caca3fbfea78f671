"""Reads rows of Parquet and Arrow files, of Hugging Face data sets, and of data frames that a program passes in.

This needs the extra `data`. Rows are read in batches. Values become JSON values; an empty cell becomes a missing field.
"""

from __future__ import annotations

import base64
import importlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

from skillopt.errors import UserError
from skillopt.tasks.data import LONGEST_LINE, Row
from skillopt.tasks.images import kind_of

HF = "hf:"
PARQUET = (".parquet",)
ARROW = (".arrow", ".feather", ".ipc")
MOST_ROWS = 1_000_000
LARGEST = 2 << 30
"""The maximum number of bytes of a table after decompression."""
_BATCH = 256
_NAME = re.compile(
    r"hf:(?P<path>\w[\w.-]*(?:/\w[\w.-]*)?)(?::(?P<config>[\w.-]+))?(?:@(?P<revision>[\w./-]+))?(?:#(?P<split>\S+))?"
)


class DataTable(Protocol):
    """A data frame of pandas or polars, a data set of Hugging Face, or a table of Arrow."""

    @property
    def shape(self) -> Any:
        """The number of rows and of columns."""
        ...


def is_hub_name(source: Path | str) -> bool:
    """Does the text name a Hugging Face data set and not a file?"""
    return (source.as_posix() if isinstance(source, Path) else source).startswith(HF)


def read_table(file: Path) -> Iterator[Row]:
    """The rows of a Parquet or Arrow file."""
    pyarrow = _library("pyarrow", str(file))
    try:
        batches = _parquet(file) if file.suffix.lower() in PARQUET else _arrow(file)
        yield from _rows(str(file), _limited(str(file), batches))
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{file}: cannot be read as {file.suffix[1:]}: {str(error).splitlines()[0][:200]}") from None


def _parquet(file: Path) -> Iterator[Any]:
    with _library("pyarrow.parquet", str(file)).ParquetFile(file) as table:
        about = table.metadata
        size = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
        _refuse_large(str(file), about.num_rows, size)
        yield from table.iter_batches(batch_size=_BATCH)


def _arrow(file: Path) -> Iterator[Any]:
    """The batches of an Arrow file in either format: with an index (as Feather files have), or as a stream (as
    `datasets` writes it)."""
    ipc = _library("pyarrow.ipc", str(file))
    with file.open("rb") as stream:
        begins = stream.read(6)
        stream.seek(0)
        if begins.startswith(b"FEA1"):
            raise UserError(f"{file}: is a Feather file of version 1; save it again as version 2, or as Parquet")
        if begins == b"ARROW1":
            reader = ipc.open_file(stream)
            batches = map(reader.get_batch, range(reader.num_record_batches))
        else:
            batches = iter(ipc.open_stream(stream))
        for batch in batches:
            batch.validate(full=True)  # offsets in a damaged file may lead out of it
            yield from (batch.slice(start, _BATCH) for start in range(0, batch.num_rows, _BATCH))


def _limited(where: str, batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the batches. Raises UserError at too many rows or bytes; they are counted, because a file may declare a
    wrong size."""
    rows = size = 0
    for batch in batches:
        rows, size = rows + batch.num_rows, size + batch.nbytes
        _refuse_large(where, rows, size)
        yield batch


def read_hub(source: str) -> Iterator[Row]:
    """The rows of the data set `hf:org/name[:config][@revision][#split]`. If HF_HUB_OFFLINE is set, `datasets` reads
    the data set only from its cache. Code of a data set is never run."""
    named = _NAME.fullmatch(source)
    if not named:
        raise UserError(f"{source}: must have the form hf:org/name[:config][@revision][#split]")
    datasets = _library("datasets", source)
    try:
        builder = datasets.load_dataset_builder(named["path"], named["config"], revision=named["revision"])
        _refuse_large(source, 0, builder.info.dataset_size or 0)
        builder.download_and_prepare()
        split = named["split"] or _only_split(source, list(builder.info.splits or ()))
        data = builder.as_dataset(split=split)
    except UserError:
        raise
    except Exception as error:  # the library raises errors of many kinds
        reason = next(iter(str(error).splitlines()), "")[:300]
        raise UserError(
            f"{source}: cannot be loaded: {type(error).__name__}: {reason}; check the name of the data set (and "
            "HF_TOKEN if the data set is gated). To work without a network later, load the data set once with a "
            "network, then set HF_HUB_OFFLINE=1"
        ) from None
    yield from _data_set_rows(source, data)


def _only_split(source: str, splits: list[str]) -> str:
    if len(splits) == 1 or "train" in splits:
        return "train" if "train" in splits else splits[0]
    raise UserError(
        f"{source}: has the splits {', '.join(splits) or 'none'}; add one of them, such as: "
        f"{source}#{(splits or ['test'])[0]}"
    )


def table_rows(table: Any, where: str) -> Iterator[Row] | None:
    """The rows of a data frame, a table or a data set; None for anything else."""
    if hasattr(table, "with_format") and hasattr(table, "column_names"):
        return _data_set_rows(where, table)
    if hasattr(table, "to_pylist"):
        return _rows(where, [table], number="[{}]")
    if hasattr(table, "to_dicts"):
        return _numbered(where, table.to_dicts())
    if hasattr(table, "to_dict") and hasattr(table, "columns"):
        return _numbered(where, table.to_dict("records"))
    return None


def _data_set_rows(where: str, data: Any) -> Iterator[Row]:
    """The rows of a data set, even if its methods `select`, `filter` or `shuffle` were called before. Images stay
    encoded."""
    number = ": row {}" if is_hub_name(where) else "[{}]"
    if hasattr(data, "num_rows"):
        _refuse_large(where, data.num_rows, 0)
    return _rows(where, data.with_format("arrow").iter(batch_size=_BATCH), number=number)


def _rows(where: str, batches: Iterable[Any], number: str = ": row {}") -> Iterator[Row]:
    first = 0 if number == "[{}]" else 1
    rows = (row for batch in batches for row in batch.to_pylist())
    yield from ((f"{where}{number.format(n)}", plain_row(row)) for n, row in enumerate(rows, first))


def _numbered(where: str, rows: Iterable[Any]) -> Iterator[Row]:
    return ((f"{where}[{n}]", plain_row(row)) for n, row in enumerate(rows))


def plain_row(row: Mapping[str, Any]) -> Any:
    """The row with JSON values. If a value cannot be converted, returns (and does not raise) a UserError that says
    why."""
    try:
        return {str(name): _plain(value, str(name)) for name, value in row.items() if not _is_missing(value)}
    except UserError as error:
        return error


def _is_missing(value: Any) -> bool:
    """Is the value None, NaN, or what pandas uses for them?"""
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(value, float) and math.isnan(value)


def _plain(value: Any, name: str) -> Any:  # noqa: PLR0911 - a table of types
    if isinstance(value, str | bool | int | float) or value is None:
        return value
    if isinstance(value, Mapping):
        if value.keys() == {"bytes", "path"}:  # the form in which `datasets` stores an image
            return _image(value["bytes"], name) if value["bytes"] is not None else value["path"]
        return {str(key): _plain(each, f"{name}.{key}") for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, name) for each in value]
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return _image(value, name)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "tolist"):  # numpy's values
        return _plain(value.tolist(), name)
    raise UserError(f"{name}: holds a {type(value).__name__}, which is not text; convert it, or remove the column")


def _image(content: bytes, name: str) -> str:
    """An image as a data: URL."""
    kind = kind_of(content)
    if not kind:
        raise UserError(f"{name}: holds bytes that are not an image; remove the column")
    if len(content) > LONGEST_LINE:
        raise UserError(f"{name}: holds an image of more than {LONGEST_LINE >> 20} MB; use smaller images")
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _refuse_large(where: str, rows: int, size: int) -> None:
    if rows <= MOST_ROWS and size <= LARGEST:
        return
    found = f"{rows:,} rows" if rows > MOST_ROWS else f"{size >> 20:,} MB"
    part = f"a part, such as {where.partition('#')[0]}#train[:5000]" if is_hub_name(where) else "a smaller part of it"
    raise UserError(f"{where}: has {found}; at most {MOST_ROWS:,} rows and {LARGEST >> 20:,} MB are read; use {part}")


def _library(name: str, where: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(
            f"{where}: reading it needs {name.partition('.')[0]}; run: pip install 'skillopt[data]', or save it as CSV "
            "or JSON lines"
        ) from None
