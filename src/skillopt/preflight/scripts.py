"""Checks whether a file can be parsed, by its name's ending. Nothing is run."""

from __future__ import annotations

import ast
import json
import re
import tomllib
import warnings
from dataclasses import dataclass

from skillopt.config.tree import parse_yaml


@dataclass(frozen=True)
class Trouble:
    line: int
    says: str


def parse_trouble(name: str, text: str) -> Trouble | None:
    """Why a file cannot be parsed; None if it can, or if files of this type are not checked."""
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    first = text.split("\n", 1)[0]
    if ending == "py" or (not ending and re.match(r"#!.*\bpython", first)):
        return _python(text)
    parsers = {"json": json.loads, "ipynb": json.loads, "toml": tomllib.loads, "yaml": parse_yaml, "yml": parse_yaml}
    if ending not in parsers:
        return None
    try:
        parsers[ending](text)  # type: ignore[operator]
    except (ValueError, RecursionError) as error:
        if "expected a single document" in str(error):  # a YAML file may hold several documents
            return None
        found = re.search(r"line (\d+)", str(error))
        return Trouble(int(found[1]) if found else 1, f"is not {ending.upper()}: {str(error)[:200]}")
    return None


def _python(text: str) -> Trouble | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        return Trouble(error.lineno or 1, f"does not parse as Python: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        return Trouble(1, f"does not parse as Python ({type(error).__name__})")
    return None
