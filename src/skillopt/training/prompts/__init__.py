"""The optimizer's prompts: one Markdown file a stage. The stable part comes first, so that prompt caches hit.

A folder of the user's (`gradient.prompts_dir`) may hold files of the same names; they replace the package's.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from pathlib import Path

from skillopt.errors import UserError

STAGES = ("reflect", "brief", "brief_answers", "deep_reflect", "merge", "slow_update", "meta_skill")


def load(stage: str, folder: str = "") -> str:
    """A stage's prompt: the user's if the folder has one, else the package's."""
    replacement = Path(folder) / f"{stage}.md"
    if folder and replacement.is_file():
        return replacement.read_text(encoding="utf-8")
    return (resources.files(__name__) / f"{stage}.md").read_text(encoding="utf-8")


def check_folder(folder: str) -> None:
    """Refuse a folder that replaces nothing, or holds a file whose name is no stage's."""
    if not folder:
        return
    names_of_stages = ", ".join(f"{stage}.md" for stage in STAGES)
    if not Path(folder).is_dir():
        raise UserError(f"gradient.prompts_dir: '{folder}' is not a folder; it may hold {names_of_stages}")
    names = sorted(path.stem for path in Path(folder).glob("*.md") if path.stem != "README")
    if unknown := [name for name in names if name not in STAGES]:
        raise UserError(
            f"gradient.prompts_dir: '{folder}/{unknown[0]}.md' is no stage's prompt; known are: {names_of_stages}"
        )
    if not names:
        raise UserError(f"gradient.prompts_dir: '{folder}' holds no prompt; it may hold {names_of_stages}")
    for name in names:
        try:
            empty = not load(name, folder).strip()
        except UnicodeDecodeError:
            raise UserError(f"gradient.prompts_dir: '{folder}/{name}.md' is not UTF-8 text") from None
        if empty:
            raise UserError(f"gradient.prompts_dir: '{folder}/{name}.md' is empty; remove it to use the package's own")


def fingerprint(folder: str = "") -> str:
    """Changes whenever a prompt does; a run does not silently continue with other prompts."""
    return hashlib.sha256("\0".join(load(stage, folder) for stage in STAGES).encode()).hexdigest()
