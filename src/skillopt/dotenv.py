"""Loads keys from a `.env` file into the environment. A variable that is already set keeps its value."""

from __future__ import annotations

import os
import re
from pathlib import Path

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*\Z")


def load_dotenv(path: Path) -> None:
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8-sig", errors="replace").splitlines():
        if (match := _LINE.match(line)) and "\x00" not in line:  # no variable can contain a zero byte
            name, value = match.groups()
            if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
                value = value[1:-1]
            else:
                value = value.partition(" #")[0].rstrip()
            if value:
                os.environ.setdefault(name, value)
