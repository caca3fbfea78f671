"""What a config from the browser may name: files under the folders, and no code that a config file does not name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from skillopt.cli_agents.presets import PRESETS
from skillopt.config import Config
from skillopt.errors import SkillOptError, UserError
from skillopt_webui.places import config_files, inside, readable, resolved
from skillopt_webui.settings import Settings

_TEXT = {".md", ".markdown", ".txt"}
_CODE = (
    *("env.name", "env.scoring", "env.agent", "env.command", "env.agent_options"),
    *("models.optimizer_model", "models.optimizer_options"),
)
"""Keys by which a config can name code of the user's own."""
_NAMES = {"env.name", "env.scoring"}
"""Of these, names without a colon are ours, or an installed plug-in's."""
_COMMANDS = ("command", *PRESETS)
"""Optimizers that are programs."""
_PLACES = ("env.split_dir", "env.data", "gradient.prompts_dir", "gradient.feedback")


def check_allowed(config: Config, settings: Settings) -> None:
    """Raise where a config reaches out of the folders. Whoever may use the page may use the machine's keys, no more."""
    if problem := next(iter(problems(config, settings).items()), None):
        raise UserError(f"config: {problem[0]}: {problem[1]}")


def problems(config: Config, settings: Settings) -> dict[str, str]:
    """By field."""
    flat, roots, found = config.flat(), readable(settings), {}
    outside = "is outside of the page's folders; start it with --data FOLDER"
    if resolved(settings.workspace / config.env.output_root) not in settings.outputs:
        listed = ", ".join(str(path) for path in settings.outputs)
        found["env.output_root"] = f"is not one of the page's output folders ({listed}); start it with --outputs"
    for dotted in _PLACES:
        if flat.get(dotted) and not _fits(settings.workspace / flat[dotted], roots):
            found[dotted] = outside
    skill = config.train.init_skill
    if skill and (Path(skill).suffix.lower() not in _TEXT or not _fits(settings.workspace / skill, roots)):
        found["train.init_skill"] = "must be a .md or .txt file under the page's folders; start it with --data FOLDER"
    for role in ("target", "optimizer"):
        name: str = flat[f"models.{role}_model"]
        if name.startswith("local:") and "/" in name and not _fits(Path(name.removeprefix("local:")), roots):
            found[f"models.{role}_model"] = "names a file outside of the page's folders; start it with --data FOLDER"
    folder = flat["models.optimizer_model"].partition("handoff:")[2]
    if folder and not _fits(settings.workspace / folder, roots):
        found["models.optimizer_model"] = f"names a folder of letters that {outside}"
    for dotted in ("env.options", "env.scoring_options"):
        if any(_leads_away(text, settings, roots) for text in _texts(flat.get(dotted))):
            found[dotted] = f"names a place that {outside}"
    place = str(flat.get("trackers.mlflow_uri") or "")
    if place and not place.startswith(("http://", "https://")):
        found["trackers.mlflow_uri"] = "must be the address of a server (http://…) when a run is started from the page"
    code = _code(flat)
    if code and not any(_code(known.flat()) == code for known in _written(settings)):
        dotted = next(key for key in _CODE if key in code)
        found[dotted] = "names code; the page starts only code that a file in the config folder names"
    return found


def _code(flat: Mapping[str, Any]) -> dict[str, Any]:
    """What of a config names code; empty where nothing does."""
    own = {key: value for key in _CODE if (value := flat.get(key))}
    if str(own.get("models.optimizer_model", "")).partition(":")[0] not in _COMMANDS:
        own = {key: value for key, value in own.items() if not key.startswith("models.")}
    return {key: value for key, value in own.items() if key not in _NAMES or ":" in str(value)}


def _written(settings: Settings) -> Iterator[Config]:
    for path in config_files(settings):
        try:
            yield Config.load(path)
        except SkillOptError:
            continue


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for below in value.values():
            yield from _texts(below)
    elif isinstance(value, list | tuple):
        for below in value:
            yield from _texts(below)
    elif isinstance(value, str):
        yield value


def _leads_away(text: str, settings: Settings, roots: tuple[Path, ...]) -> bool:
    looks_like_path = text.startswith(("/", "~")) or ".." in Path(text).parts
    home = text.startswith("~")
    return looks_like_path and not _fits(Path(text) if home else settings.workspace / text, roots)


def _fits(path: Path, roots: tuple[Path, ...]) -> bool:
    """Under the folders, and not hidden: hidden files hold keys."""
    real = resolved(path)
    if real is None or not inside(path, roots):
        return False
    below = next(root for root in roots if real.is_relative_to(root))
    return not any(part.startswith(".") for part in real.relative_to(below).parts)
