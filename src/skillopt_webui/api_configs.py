"""What the page asks of configs: the form, checks as one types, questions before a start, and the start itself."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from aiohttp import web

from skillopt.errors import UserError
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_text, write_atomic
from skillopt_webui import forms
from skillopt_webui.alive import holder
from skillopt_webui.allowed import check_allowed, problems
from skillopt_webui.answers import RUN, STATE, answer, body, run_of, table, text
from skillopt_webui.launch import quoted
from skillopt_webui.places import config_files, find_file, find_run, shown
from skillopt_webui.settings import Settings

routes = web.RouteTableDef()
_NUMBERED = re.compile(r"(.*-[0-9a-f]{8})(?:-(\d+))?\Z")
_AT_RESUME = ("budget.max_usd", "budget.max_calls", "budget.max_tokens", "budget.max_minutes", "hardware.workers")
"""Keys that may change between a stop and a resume, and that the page offers."""


@routes.get("/api/configs")
async def list_configs(request: web.Request) -> web.Response:
    settings = request.app[STATE].settings
    files = [shown(settings, path) for path in await asyncio.to_thread(lambda: list(config_files(settings)))]
    folders = [str(path) for path in settings.configs]
    found = {"files": files, "folders": folders, "templates": list(forms.TEMPLATES), "sections": forms.schema()}
    return answer(request, found)


@routes.post("/api/configs/load")
async def load(request: web.Request) -> web.Response:
    """The text of a config file, a run or a template; and all that the form needs of it."""
    settings, given = request.app[STATE].settings, await body(request)
    if name := text(given, "run"):
        path = find_run(settings, name).config_yaml
    elif name := text(given, "path"):
        path = find_file(settings, name, what="config", folders=settings.configs)
        if path.suffix not in {".yaml", ".yml"}:
            raise UserError(f"{name}: is not a YAML file")
    else:
        return answer(request, _checked(settings, forms.TEMPLATES.get(text(given, "template"), "")))
    return answer(request, _checked(settings, await asyncio.to_thread(forms.load, path, settings.workspace)))


@routes.post("/api/configs/check")
async def check(request: web.Request) -> web.Response:
    given = await body(request)
    changes = {key: raw for key, raw in table(given, "set").items() if raw is None or isinstance(raw, str)}
    return answer(request, _checked(request.app[STATE].settings, text(given, "yaml"), changes))


def _checked(settings: Settings, yaml: str, changes: dict[str, str | None] | None = None) -> dict[str, Any]:
    """What the config itself refuses, and what this page does."""
    found = forms.check(yaml, changes)
    if found["valid"]:
        found["errors"] = problems(forms.parse(found["yaml"]), settings)
        found["valid"] = not found["errors"]
    return found


@routes.post(r"/api/configs/{question:preview|plan|doctor|connection}")
async def ask(request: web.Request) -> web.Response:
    state, given = request.app[STATE], await body(request)
    check_allowed(forms.parse(text(given, "yaml")), state.settings)
    return answer(request, await state.worker.ask(request.match_info["question"], text(given, "yaml")))


@routes.post("/api/configs/save")
async def save(request: web.Request) -> web.Response:
    """A new file in the first config folder; none is written over."""
    settings, given = request.app[STATE].settings, await body(request)
    name = text(given, "name")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,60}", name):
        raise UserError("the name of a config is made of letters, digits, - and _")
    check_allowed(forms.parse(text(given, "yaml")), settings)
    path = settings.configs[0] / f"{name}.yaml"
    if path.exists():
        raise UserError(f"{shown(settings, path)} exists already; choose another name")
    write_atomic(path, text(given, "yaml"))
    return answer(request, {"path": shown(settings, path)})


@routes.post("/api/launch")
async def launch(request: web.Request) -> web.Response:
    state, given = request.app[STATE], await body(request)
    yaml = text(given, "yaml")
    config = forms.parse(yaml)
    check_allowed(config, state.settings)
    title = text(given, "title")[:120] or config.env.benchmark or config.env.name
    started = state.launches.start("train", title, yaml, ["--fresh"] if given.get("fresh") else [])
    return answer(request, started.status(state.settings))


@routes.post(RUN + "/resume")
async def resume(request: web.Request) -> web.Response:
    """The run's own config again, in its own folder; limits and workers may be others."""
    state, given = request.app[STATE], await body(request)
    run = run_of(request)
    name = "/".join(request.match_info[part] for part in ("root", "benchmark", "run"))
    if holder(run.root):
        raise UserError("someone is working on this run already")
    check_newest(run)
    with run.as_written():
        yaml = read_text(run.config_yaml)
    overrides = [f"env.output_root={quoted(str(run.root.parent.parent))}"]
    for key, raw in table(given, "set").items():
        if key not in _AT_RESUME or not isinstance(raw, str):
            raise UserError(f"{key}: cannot be changed when a run continues")
        overrides.append(f"{key}={raw.strip() or 'null'}")
    going_on = ["--resume"] if run.state.exists() else []  # one that ended in its first evaluation has only its journal
    started = state.launches.start("train", f"resume {run.root.name}", yaml, [*going_on, *overrides], run=name)
    return answer(request, started.status(state.settings))


def check_newest(run: RunDirectory) -> None:
    """Of runs with one name only the newest can continue."""
    found = _NUMBERED.match(run.root.name)
    if found:
        following = run.root.with_name(f"{found[1]}-{int(found[2] or 1) + 1}")
        if following.exists():
            raise UserError(f"a newer run of the same config exists ({following.name}); only the newest can continue")
