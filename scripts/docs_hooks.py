"""Called by mkdocs: adds the pages of docs/ that mkdocs.yml does not list to the end of the section "Using it"."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    listed = set(_pages(config["nav"]))
    here = sorted(path.name for path in Path(config["docs_dir"]).glob("*.md"))
    (group,) = [entry["Using it"] for entry in config["nav"] if "Using it" in entry]
    group += [name for name in here if name not in listed]
    return config


def _pages(node: Any) -> list[str]:
    if isinstance(node, str):
        return [node]
    inner = node if isinstance(node, list) else node.values()
    return [page for each in inner for page in _pages(each)]
