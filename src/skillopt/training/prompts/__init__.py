"""The optimizer's prompts: one Markdown file a stage, and for reflection one for each situation.

`reflect.md` holds what is always said, and a line `{advice}` for the parts that fit the batch
(training/requests/situation.py chooses them). A folder of the user's (`gradient.prompts_dir`) may hold files of the
same names; they replace the package's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from skillopt.errors import UserError

STAGES = ("reflect", "brief", "brief_answers", "deep_reflect", "merge", "slow_update", "meta_skill")
PARTS = ("reflect_imitator", "reflect_competent", "reflect_form", "reflect_cut_off", "reflect_steps", "reflect_minimal")
"""Parts of `reflect`, each for one situation."""
NAMES = (*STAGES, *PARTS)
ADVICE = "{advice}"
"""The place of the parts; a `reflect.md` of the user's without it is used as it is."""


def load(name: str, folder: str = "") -> str:
    """The prompt of a stage, or a part of one: the user's if the folder has one, else the package's."""
    replacement = Path(folder) / f"{name}.md"
    if folder and replacement.is_file():
        return replacement.read_text(encoding="utf-8")
    return (resources.files(__name__) / f"{name}.md").read_text(encoding="utf-8")


def with_advice(stage: str, parts: Sequence[str], folder: str = "") -> str:
    """A stage's prompt with these parts of `PARTS` in it."""
    advice = "\n\n".join(load(part, folder).strip() for part in parts)
    return load(stage, folder).replace(ADVICE, advice)


def check_folder(folder: str) -> None:
    """Refuse a folder that replaces nothing, or holds a file whose name is no prompt's."""
    if not folder:
        return
    known = ", ".join(f"{name}.md" for name in NAMES)
    if not Path(folder).is_dir():
        raise UserError(f"gradient.prompts_dir: '{folder}' is not a folder; it may hold {known}")
    names = sorted(path.stem for path in Path(folder).glob("*.md") if path.stem != "README")
    if unknown := [name for name in names if name not in NAMES]:
        raise UserError(f"gradient.prompts_dir: '{folder}/{unknown[0]}.md' is no prompt; known are: {known}")
    if not names:
        raise UserError(f"gradient.prompts_dir: '{folder}' holds no prompt; it may hold {known}")
    for name in names:
        try:
            empty = not load(name, folder).strip()
        except UnicodeDecodeError:
            raise UserError(f"gradient.prompts_dir: '{folder}/{name}.md' is not UTF-8 text") from None
        if empty:
            raise UserError(f"gradient.prompts_dir: '{folder}/{name}.md' is empty; remove it to use the package's own")


def fingerprint(folder: str = "") -> str:
    """Changes whenever a prompt does; a run does not silently continue with other prompts."""
    return hashlib.sha256("\0".join(load(name, folder) for name in NAMES).encode()).hexdigest()
