"""Finds the settings by which a repeated command recognises its run: those that change results and differ from their
defaults. Defaults are left out, so a key that a later version adds does not start a new run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from skillopt.config.roles import in_use
from skillopt.config.shipped import is_file
from skillopt.provider_table import provider_of

Flat = Mapping[str, JsonValue]
"""The values of a config by `section.key`, as in `config.json`."""
_FREE = ("budget.", "notes.", "hardware.", "trackers.")
_PLACES = {"env.output_root", "env.private", "env.split_dir", "env.data", "env.columns", "env.split", "env.split_seed"}
_PLACES |= {
    "train.init_skill",
    "train.init_notes",
    "evaluation.test",
    "gradient.analyst_workers",
    "gradient.prompts_dir",
    "gradient.feedback",
}
_PLACES |= {
    f"models.{role}_{key}" for role in ("target", "optimizer", "judge") for key in ("url", "key_name", "rpm", "tpm")
}
_PLACES |= {"models.judge_workers", "models.judge_calibration"}
"""Keys that may change between a stop and a resume. For keys that name data or the user's files, the content of the
files is compared instead."""
_EARLIER_NAMES = {"evaluation.vetoes": "evaluation.gates"}
"""Old names of renamed keys, by their new names. Identities use the old names, so a renamed key does not start a new
run."""
PASSED_IN = "function:"
"""`env.scoring` begins with this if the scorer is a function that a program passed in."""
_SCORING = {"env.scoring", "env.scoring_options", "evaluation.metric"}
_DATA = ("env.data", "env.split_dir", "env.split_seed", "train.init_skill")


def relevant(flat: Flat) -> dict[str, JsonValue]:
    """The settings that change results. Paths of files are shortened to the file's name, so a moved file does not start
    a new run."""
    used = in_use(flat).items()
    kept = ((key, value) for key, value in used if not key.startswith(_FREE) and key not in _PLACES)
    return {_EARLIER_NAMES.get(key, key): _normal(key, value) for key, value in kept}


def _normal(key: str, value: Any) -> Any:
    if key in {"env.name", "env.scoring", "env.agent"}:
        return "exact" if value.startswith(PASSED_IN) else Path(value).name
    if key == "models.optimizer_model" and (provider := provider_of(value)).path == "folder":
        return provider.prefix
    if key == "models.optimizer_options":  # of a command's options, only its arguments change its answers
        return {"args": value["args"]} if value.get("args") else {}
    if key == "env.agent_options" and value.get("workspace"):
        return {**value, "workspace": Path(value["workspace"]).name}
    if key == "env.command" and value:
        words = value.split() if isinstance(value, str) else value
        return [Path(word).name if is_file(Path(word)) else word for word in words]
    return value


def asks_the_same(one: Flat, other: Flat) -> bool:
    """True if two configs would send the same requests. The settings for scoring are not compared."""
    first, second = (relevant(flat) | {key: flat.get(key) for key in _DATA} for flat in (one, other))
    return bool(one) and all(first[key] == second[key] for key in (first.keys() & second.keys()) - _SCORING)


def chosen(flat: Flat, defaults: Flat) -> dict[str, JsonValue]:
    """The settings that change results and differ from the defaults."""
    return {key: value for key, value in relevant(flat).items() if key not in defaults or value != defaults[key]}
