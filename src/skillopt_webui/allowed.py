"""What a config from the browser may name: files under the folders, and no code that is not in a config file already."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skillopt.config import Config
from skillopt.errors import SkillOptError, UserError
from skillopt_webui.places import config_files, inside, readable
from skillopt_webui.settings import Settings

_TEXT = {".md", ".markdown", ".txt"}


def check_allowed(config: Config, settings: Settings) -> None:
    """Raise where a config reaches out of the folders. Whoever may use the page may use the machine's keys, no more."""
    if problem := next(iter(problems(config, settings).items()), None):
        raise UserError(f"config: {problem[0]}: {problem[1]}")


def problems(config: Config, settings: Settings) -> dict[str, str]:
    """By field."""
    found = {}
    roots = readable(settings)
    output = settings.workspace / config.env.output_root
    if output.resolve() not in settings.outputs:
        listed = ", ".join(str(path) for path in settings.outputs)
        found["env.output_root"] = f"is none of the page's output folders ({listed}); start it with --outputs"
    for dotted, value in (("env.split_dir", config.env.split_dir), ("gradient.prompts_dir", config.gradient.prompts_dir)):
        if value and not _fits(settings.workspace / value, roots):
            found[dotted] = "lies outside of the page's folders; start it with --data FOLDER"
    skill = config.train.init_skill
    if skill and (Path(skill).suffix.lower() not in _TEXT or not _fits(settings.workspace / skill, roots)):
        found["train.init_skill"] = "must be a .md or .txt file under the page's folders; start it with --data FOLDER"
    for role in ("target", "optimizer"):
        name: str = getattr(config.models, f"{role}_model")
        if name.startswith("local:") and "/" in name and not _fits(Path(name.removeprefix("local:")), roots):
            found[f"models.{role}_model"] = "names a file outside of the page's folders; start it with --data FOLDER"
    return found


def _fits(path: Path, roots: tuple[Path, ...]) -> bool:
    """Under the folders, and not hidden: hidden files hold keys."""
    if not inside(path, roots):
        return False
    real = path.resolve()
    below = next(root for root in roots if real.is_relative_to(root))
    return not any(part.startswith(".") for part in real.relative_to(below).parts)
