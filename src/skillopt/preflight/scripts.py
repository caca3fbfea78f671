"""Whether a file can be parsed, by its name's ending. Nothing of it is run."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import tomllib
import warnings
from dataclasses import dataclass

from skillopt.config.tree import parse_yaml

_WITHIN = 10
"""Seconds for a shell's parser."""


@dataclass(frozen=True)
class Trouble:
    line: int
    says: str


def parse_trouble(name: str, text: str) -> Trouble | None:
    """What keeps a file from being parsed; None where nothing does, or where its kind is not known here."""
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    first = text.split("\n", 1)[0]
    if ending == "py" or (not ending and re.match(r"#!.*\bpython", first)):
        return _python(text)
    if ending in {"sh", "bash"} or (not ending and re.match(r"#!.*\b(?:ba)?sh\b", first)):
        return _shell(text)
    parsers = {"json": json.loads, "ipynb": json.loads, "toml": tomllib.loads, "yaml": parse_yaml, "yml": parse_yaml}
    if ending not in parsers:
        return None
    try:
        parsers[ending](text)  # type: ignore[operator]
    except (ValueError, RecursionError) as error:
        if "expected a single document" in str(error):  # several documents in one file are YAML, too
            return None
        found = re.search(r"line (\d+)", str(error))
        return Trouble(int(found[1]) if found else 1, f"is no {ending.upper()}: {str(error)[:200]}")
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


def _shell(text: str) -> Trouble | None:
    """bash reads the script from its input and only parses it: no file, no environment, no start-up script."""
    bash = shutil.which("bash")
    if bash is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - -n: nothing is run
            [bash, "--norc", "--noprofile", "-n"],
            input=text.encode(),
            capture_output=True,
            timeout=_WITHIN,
            check=False,
            env={"LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        return Trouble(1, f"could not be parsed as a shell script within {_WITHIN} s")
    if done.returncode == 0:
        return None
    said = done.stderr.decode(errors="replace")
    found = re.search(r"line (\d+): (.*)", said)
    return (
        Trouble(int(found[1]), f"does not parse as a shell script: {found[2][:200]}")
        if found
        else Trouble(1, said[:200])
    )
