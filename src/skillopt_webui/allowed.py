"""Limits for configs that come from the browser, an MCP client or a run's folder. Such a config may only name files
under the page's folders. It may only name code, endpoints and API keys that a file in the config folders also names."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import JsonValue

from skillopt.config import Config
from skillopt.config.shipped import is_there
from skillopt.errors import SkillOptError, UserError
from skillopt.models import endpoint_of
from skillopt.provider_table import path_of, provider_of
from skillopt.record.run import Run, Settings
from skillopt.skill import FILE
from skillopt_webui import forms
from skillopt_webui.places import config_files, fits, readable, resolved
from skillopt_webui.settings import PageSettings

_TEXT = {".md", ".markdown", ".txt"}
_CODE = ("env.agent", "env.command", "env.agent_options")
_NAMES = ("env.name", "env.scoring")
"""Keys that name an env or a scorer. A name without a colon is built in or comes from an installed plug-in."""
_OPTIONS = ("env.options", "env.scoring_options")
_POWERS = ("command", "pass_env", "sandbox")
"""Options that name a program, pass environment variables to it, or run it outside of the sandbox."""
_PLACES = (
    "env.split_dir", "env.data", "train.init_notes", "gradient.prompts_dir", "gradient.feedback",
    "models.judge_calibration",
)  # fmt: skip
_MODELS = ("models.target_model", "models.optimizer_model", "models.judge_model")
"""Keys that name models. Some providers (such as Hugging Face) accept a URL as a model's name, and send the API key to
this URL."""
_ADDRESSES = ("trackers.mlflow_uri", "trackers.otel_endpoint", "hardware.ray_address")
"""Keys that name servers. These servers get a run's data; some also get an API key from the environment."""


def check_allowed(config: Config, settings: PageSettings) -> None:
    """Raise UserError if a config breaks a limit of the page, for example with a path outside of the page's folders."""
    if problem := next(iter(problems(config, settings).items()), None):
        raise UserError(f"config: {problem[0]}: {problem[1]}")


def run_config(run: Run, settings: PageSettings) -> str:
    """The text of a run's config. The config is checked like every other config, because the run may come from a
    different machine."""
    with run.files.as_written():
        text = run.text(run.files.config_yaml)
    check_allowed(with_outputs(forms.parse(text), run.root.parent.parent), settings)
    return text


def with_outputs(config: Config, folder: Path) -> Config:
    """The config with `env.output_root` set to `folder`."""
    return config.model_copy(update={"env": config.env.model_copy(update={"output_root": str(folder)})})


def problems(config: Config, settings: PageSettings) -> dict[str, str]:
    """For each field that breaks a limit of the page: what is wrong with its value."""
    flat, roots, found = config.flat(), readable(settings), {}
    outside = f"is outside of {settings.reach}"
    if resolved(settings.workspace / config.env.output_root) not in settings.outputs:
        listed = ", ".join(str(path) for path in settings.outputs)
        found["env.output_root"] = f"is not one of the output folders ({listed})"
    for dotted in _PLACES:
        place = settings.workspace / str(flat.get(dotted) or "")
        if flat.get(dotted) and not fits(place, roots):
            found[dotted] = outside
        elif flat.get(dotted) and _links_away(place, roots):
            found[dotted] = f"contains a link that leads out of {settings.reach}; copy the file there"
    skill = config.train.init_skill
    if skill and not _is_skill(settings.workspace / skill, roots):
        found["train.init_skill"] = (
            "must be a .md or .txt file, or a skill package's folder (without hidden files and without links that lead "
            f"out of it), under {settings.reach}"
        )
    for role in _roles(config):
        name = str(flat[f"models.{role}_model"])
        path, kind = path_of(name), provider_of(name).path
        if path and not fits(Path(path) if kind == "file" else settings.workspace / path, roots):
            what = "file" if kind == "file" else "folder of letters"
            found[f"models.{role}_model"] = f"names a {what} that {outside}"
    for dotted in _OPTIONS:
        if any(_leads_away(text, settings, roots) for text in _texts(flat.get(dotted))):
            found[dotted] = f"names a path that {outside}"
    return found | _unwritten(config, settings)


def _unwritten(config: Config, settings: PageSettings) -> dict[str, str]:
    """Find code, endpoints with their API keys, and servers that the config names, but that no file in the config
    folders names. Return the problems by field."""
    flat, found = config.flat(), {}
    code = _code(flat, settings.workspace)
    endpoints = {role: endpoint_of(role, config) for role in _roles(config)}
    own = {role: ("", provider_of(str(flat[f"models.{role}_model"])).key_name) for role in endpoints}
    wanted = {role: endpoint for role, endpoint in endpoints.items() if endpoint != own[role]}
    servers = {dotted: flat[dotted] for dotted in _ADDRESSES if flat[dotted]}
    models = {dotted: flat[dotted] for dotted in _MODELS if "://" in str(flat[dotted])}
    written = list(user_configs(settings).values()) if code or wanted or servers or models else []
    if code and not any(_code(known.flat(), settings.workspace) == code for known in written):
        found[next(iter(code))] = (
            "names code; this page starts only code that a file in the config folders names (start the page with "
            "--configs FOLDER, or start the run in a terminal)"
        )
    known_endpoints = {endpoint_of(role, known) for known in written for role in _roles(known)}
    for role, (url, key_name) in wanted.items():
        if (url, key_name) not in known_endpoints:
            found[_field(flat, role)] = (
                f"the key {key_name} would be sent to {url or 'this provider'}, but no file in the config folders "
                "names both; write both into a file there, or start the run in a terminal"
            )
    for dotted, model in models.items():
        if not any(model in (known.flat()[name] for name in _MODELS) for known in written):
            found[dotted] = (
                "names a URL as the model, and this URL may get the provider's key; write the model into a config file "
                "first"
            )
    for dotted, address in servers.items():
        if not any(known.flat()[dotted] == address for known in written):
            found[dotted] = "names a server that no file in the config folders names; write it into a file there first"
    return found


def _roles(config: Config) -> tuple[str, ...]:
    return ("target", "optimizer", *["judge"] * bool(config.models.judge_model))


def _field(flat: Settings, role: str) -> str:
    """The config key that sets a role's endpoint."""
    shared = provider_of(str(flat[f"models.{role}_model"])).url_setting
    fields = (f"models.{role}_url", shared, f"models.{role}_key_name")
    return next(field for field in fields if flat.get(field))


def _code(flat: Settings, workspace: Path) -> Settings:
    """The settings that name the user's code, and the options in `_POWERS`; empty if the config has none of them."""
    found = {key: flat[key] for key in _NAMES if ":" in str(flat.get(key))}
    found |= {key: flat[key] for key in _CODE if flat.get(key)}
    for key in _OPTIONS:
        options = flat[key]
        chosen = {name: options.get(name) for name in _POWERS} if isinstance(options, dict) else {}
        powers: JsonValue = {name: value for name, value in chosen.items() if value and value != "namespaces"}
        found |= {key: powers} if powers else {}
    if provider_of(str(flat["models.optimizer_model"])).runs_program:
        found |= {key: flat[key] for key in ("models.optimizer_model", "models.optimizer_options")}
    return {key: _anchored(value, workspace) for key, value in found.items()}


def _anchored(value: JsonValue, workspace: Path) -> JsonValue:
    """The value with absolute paths for the files that it names, so that values can be compared. A path that
    leads through a link is not changed."""
    if isinstance(value, Mapping):
        return {key: _anchored(below, workspace) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_anchored(below, workspace) for below in value]
    file, name = value, ""
    if isinstance(value, str) and ".py:" in value:
        file, _, name = value.rpartition(":")
    if not isinstance(file, str) or not is_there(workspace / file):
        return value
    path = Path(os.path.normpath(workspace / file))
    if resolved((workspace / file).parent) != path.parent:
        return value
    return f"{path}:{name}" if name else str(path)


def user_configs(settings: PageSettings) -> dict[Path, Config]:
    """The configs in the config folders, by file; files that are not valid configs are left out."""
    configs = {}
    for path in config_files(settings):
        with contextlib.suppress(SkillOptError):
            configs[path.resolve()] = forms.read(path, settings)
    return configs


def _texts(value: JsonValue) -> Iterator[str]:
    if isinstance(value, Mapping):
        for below in value.values():
            yield from _texts(below)
    elif isinstance(value, list | tuple):
        for below in value:
            yield from _texts(below)
    elif isinstance(value, str):
        yield value


def _leads_away(text: str, settings: PageSettings, roots: tuple[Path, ...]) -> bool:
    path = Path(text) if text.startswith("~") else settings.workspace / text
    leads = text.startswith(("/", "~")) or ".." in Path(text).parts
    named = ("/" in text or text.startswith(".")) and _is_there(path)
    return (leads or named) and not fits(path, roots)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # the text cannot be a path
        return False


def _is_skill(path: Path, roots: tuple[Path, ...]) -> bool:
    """True for a text file. Also true for a package without hidden files and without links that lead out of the roots,
    because all files of a package are copied into the run."""
    if not fits(path, roots):
        return False
    if not (path / FILE).is_file():
        return path.suffix.lower() in _TEXT
    names = (name for _, folders, files in os.walk(path) for name in (*folders, *files))
    return not any(name.startswith(".") for name in names) and not _links_away(path, roots)


def _links_away(path: Path, roots: tuple[Path, ...]) -> bool:
    """True if a folder contains a link that leads out of the roots."""
    inside = (Path(place) / name for place, folders, files in os.walk(path) for name in (*folders, *files))
    return any(entry.is_symlink() and not fits(entry, roots) for entry in inside)
