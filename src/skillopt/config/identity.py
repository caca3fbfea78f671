"""Which settings make a run, so that the same command finds it again, also after an upgrade.

A setting that changes results belongs to a run's identity where it differs from its default: a key that is added
later, or a default that changes, makes no other run of an old one. `defaults/<version>.json` holds the defaults of each
released version whose defaults differ from those before it; by them a run of that version is recognised.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from skillopt.config.roles import in_use
from skillopt.shipped import is_file
from skillopt.version import __version__

Flat = Mapping[str, Any]
"""A config as `section.key`, as in `config.json`."""
_FREE = ("budget.", "notes.", "hardware.", "trackers.")
_PLACES = {"env.output_root", "env.private", "env.split_dir", "env.data", "env.split", "env.split_seed"}
_PLACES |= {
    "train.init_skill",
    "gradient.analyst_workers",
    "gradient.prompts_dir",
    "gradient.feedback",
    "train.speculate",
}
_PLACES |= {f"models.{role}_{key}" for role in ("target", "optimizer") for key in ("url", "key_name", "rpm", "tpm")}
"""What may change between a stop and a resume. The data and the user's files count by what they hold."""
_NAMED_WHERE_SET = ("gradient.review_risky", "env.scoring_options", "env.agent", "env.command", "env.agent_options")


PASSED_IN = "function:"
"""How `env.scoring` begins in a run whose scorer a program passed in: a function, which counts by its source."""
_SCORING = {"env.scoring", "env.scoring_options", "evaluation.metric"}
_DATA = ("env.data", "env.split_dir", "env.split_seed", "train.init_skill")


def relevant(flat: Flat) -> dict[str, Any]:
    """The settings that change results; files by their names alone, since another folder makes no other run."""
    used = in_use(flat).items()
    return {key: _normal(key, value) for key, value in used if not key.startswith(_FREE) and key not in _PLACES}


def _normal(key: str, value: Any) -> Any:
    if key in {"env.name", "env.scoring", "env.agent"}:
        return "exact" if value.startswith(PASSED_IN) else Path(value).name
    if key == "models.optimizer_model" and value.startswith("handoff:"):
        return "handoff"
    if key == "models.optimizer_options":  # only the arguments of a command can change what it says
        return {"args": value["args"]} if value.get("args") else {}
    if key == "env.agent_options" and value.get("workspace"):
        return {**value, "workspace": Path(value["workspace"]).name}
    if key == "env.command" and value:
        words = value.split() if isinstance(value, str) else value
        return [Path(word).name if is_file(Path(word)) else word for word in words]
    return value


def asks_the_same(one: Flat, other: Flat) -> bool:
    """Do two configs send the same requests, as far as they tell? How replies are scored does not matter."""
    first, second = (relevant(flat) | {key: flat.get(key) for key in _DATA} for flat in (one, other))
    return bool(one) and all(first[key] == second[key] for key in (first.keys() & second.keys()) - _SCORING)


def chosen(flat: Flat, defaults: Flat) -> dict[str, Any]:
    """What differs from the defaults."""
    return {key: value for key, value in relevant(flat).items() if key not in defaults or value != defaults[key]}


def name_giving(flat: Flat, version: str, defaults: Flat) -> dict[str, Any]:
    """What the name of a run of that version was made of. 0.1.0 took every setting that it knew."""
    if version != "0.1.0":
        return chosen(flat, defaults)
    known = defaults_of(version, defaults)
    settings = {key: relevant(flat).get(key, default) for key, default in known.items()}
    return {key: value for key, value in settings.items() if value or key not in _NAMED_WHERE_SET}


def carried_over(now: Flat, recorded: Flat, version: str, defaults: Flat) -> dict[str, Any] | None:
    """Where the defaults have changed since that version, the recorded values, under which its run continues; None
    where the settings are those of another run. `defaults` are this version's."""
    then, past, present = defaults_of(version, defaults), relevant(recorded), relevant(now)
    found = {}
    for key in past.keys() | present.keys():
        if key in past and key in present and past[key] == present[key]:
            continue
        left_then = key not in past or past[key] == then.get(key)
        left_now = key not in present or present[key] == defaults[key]
        if not (left_then and left_now):
            return None
        if key in past and key in present:
            found[key] = past[key]
    return found


def defaults_of(version: str, current: Flat) -> Flat:
    """The defaults of that version: the newest table that is not later; after the last table, the current ones."""
    tables = recorded_defaults()
    earlier = [known for known in tables if _order(known) <= _order(version)]
    if version == __version__ or not earlier:
        return current
    return tables[max(earlier, key=_order)]


@cache
def recorded_defaults() -> dict[str, dict[str, Any]]:
    """Each table, by its version."""
    files = [file for file in (resources.files(__package__) / "defaults").iterdir() if file.name.endswith(".json")]
    return {file.name.removesuffix(".json"): json.loads(file.read_text(encoding="utf-8")) for file in files}


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
