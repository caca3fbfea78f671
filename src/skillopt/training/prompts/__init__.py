"""The optimizer's prompts: one Markdown file for each stage, and for reflection also one for each situation.

`reflect.md` has the text that is the same for every batch, and a line `{advice}`. The parts that fit the batch replace
this line (training/requests/situation.py chooses the parts). Files of the same names in a user's folder
(`gradient.prompts_dir`) replace the package's files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from skillopt.errors import UserError

STAGES = ("reflect", "brief", "brief_answers", "deep_reflect", "merge", "slow_update", "meta_skill")
PARTS = ("reflect_imitator", "reflect_competent", "reflect_form", "reflect_cut_off", "reflect_steps", "reflect_minimal")
"""The parts of `reflect`, each for one situation."""
NAMES = (*STAGES, *PARTS)
ADVICE = "{advice}"
"""The mark that the parts replace; a user's `reflect.md` without the mark is used as it is."""


def load(name: str, folder: str = "") -> str:
    """The prompt of a stage, or a part of a prompt: from the user's folder if it is there, else from the package."""
    replacement = Path(folder) / f"{name}.md"
    if folder and replacement.is_file():
        return replacement.read_text(encoding="utf-8")
    return (resources.files(__name__) / f"{name}.md").read_text(encoding="utf-8")


def with_advice(stage: str, parts: Sequence[str], folder: str = "") -> str:
    """The prompt of a stage, with these parts (names of `PARTS`) in it."""
    advice = "\n\n".join(load(part, folder).strip() for part in parts)
    return load(stage, folder).replace(ADVICE, advice)


def check_folder(folder: str) -> None:
    """Raise an error for a folder without prompts, or with a file that is not named after a prompt."""
    if not folder:
        return
    known = ", ".join(f"{name}.md" for name in NAMES)
    if not Path(folder).is_dir():
        raise UserError(f"gradient.prompts_dir: '{folder}' is not a folder; give a folder with some of: {known}")
    names = sorted(path.stem for path in Path(folder).glob("*.md") if path.stem != "README")
    if unknown := [name for name in names if name not in NAMES]:
        raise UserError(f"gradient.prompts_dir: '{folder}/{unknown[0]}.md' is not a prompt's name; known are: {known}")
    if not names:
        raise UserError(f"gradient.prompts_dir: '{folder}' has no prompt; put some of these files there: {known}")
    for name in names:
        try:
            empty = not load(name, folder).strip()
        except UnicodeDecodeError:
            raise UserError(f"gradient.prompts_dir: '{folder}/{name}.md' is not UTF-8 text") from None
        if empty:
            raise UserError(f"gradient.prompts_dir: '{folder}/{name}.md' is empty; remove it to use SkillOpt's prompt")


def fingerprint(folder: str = "") -> str:
    """A hash of all prompts, which changes if any prompt changes. A run never continues with different prompts."""
    return hashlib.sha256("\0".join(load(name, folder) for name in NAMES).encode()).hexdigest()
