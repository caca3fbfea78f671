"""What the page asks of configs: the form, checks as one types, questions before a start, and the start itself."""

from __future__ import annotations

import asyncio
import re

from aiohttp import web
from pydantic import Field

from skillopt.errors import UserError
from skillopt.record.base import Record
from skillopt.record.files import write_atomic
from skillopt.record.run import Run
from skillopt_webui import forms
from skillopt_webui.alive import holder
from skillopt_webui.allowed import check_allowed, problems, run_config
from skillopt_webui.answers import RUN, STATE, Body, answer, body, run_of
from skillopt_webui.launch import quoted
from skillopt_webui.places import find_config, find_run, listed_configs, shown
from skillopt_webui.settings import PageSettings

routes = web.RouteTableDef()
_NUMBERED = re.compile(r"(.*-[0-9a-f]{8})(?:-(\d+))?\Z")
_AT_RESUME = ("budget.max_usd", "budget.max_calls", "budget.max_tokens", "budget.max_minutes", "hardware.workers")
"""Keys that may change between a stop and a resume, and that the page offers."""


class Configs(Record):
    files: list[str]
    folders: list[str]
    templates: list[str]
    sections: list[forms.FormSection]


class LoadBody(Body):
    """One of a run, a config file or a template."""

    run: str = ""
    path: str = ""
    template: str = ""


class CheckBody(Body):
    yaml: str = ""
    set: dict[str, str | None] = Field(default={})
    """Changes of single fields."""


class QuestionBody(Body):
    yaml: str = ""


class SaveBody(QuestionBody):
    name: str = ""


class SavedConfig(Record):
    path: str


class LaunchBody(QuestionBody):
    title: str = ""
    fresh: bool = False


class ResumeBody(Body):
    set: dict[str, str] = Field(default={})


@routes.get("/api/configs")
async def list_configs(request: web.Request) -> web.Response:
    settings = request.app[STATE].settings
    files = [shown(settings, path) for path in await asyncio.to_thread(lambda: list(listed_configs(settings)))]
    folders = [str(path) for path in settings.configs]
    templates, sections = list(forms.TEMPLATES), forms.schema()
    return answer(request, Configs(files=files, folders=folders, templates=templates, sections=sections))


@routes.post("/api/configs/load")
async def load(request: web.Request) -> web.Response:
    """The text of a config file, a run or a template; and all that the form needs of it."""
    settings, wish = request.app[STATE].settings, await body(request, LoadBody)
    if wish.run:
        path = find_run(settings, wish.run).files.config_yaml
    elif wish.path:
        path = find_config(settings, wish.path)
        if path.suffix not in {".yaml", ".yml"}:
            raise UserError(f"{wish.path}: is not a YAML file")
    else:
        return answer(request, _checked(settings, forms.TEMPLATES.get(wish.template, "")))
    return answer(request, _checked(settings, await asyncio.to_thread(forms.load, path, settings)))


@routes.post("/api/configs/check")
async def check(request: web.Request) -> web.Response:
    wish = await body(request, CheckBody)
    return answer(request, _checked(request.app[STATE].settings, wish.yaml, wish.set))


def _checked(settings: PageSettings, yaml: str, changes: dict[str, str | None] | None = None) -> forms.CheckedConfig:
    """What the config itself refuses, and what this page does."""
    checked = forms.check(yaml, changes)
    if checked.valid and (errors := problems(forms.parse(checked.yaml), settings)):
        return checked.model_copy(update={"errors": errors, "valid": False})
    return checked


@routes.post(r"/api/configs/{question:preview|plan|doctor|connection}")
async def ask(request: web.Request) -> web.Response:
    state, wish = request.app[STATE], await body(request, QuestionBody)
    check_allowed(forms.parse(wish.yaml), state.settings)
    return answer(request, await state.questions.ask(request.match_info["question"], wish.yaml))


@routes.post("/api/configs/save")
async def save(request: web.Request) -> web.Response:
    """A new file in the first config folder; none is written over."""
    settings, wish = request.app[STATE].settings, await body(request, SaveBody)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,60}", wish.name):
        raise UserError("the name of a config is made of letters, digits, - and _")
    check_allowed(forms.parse(wish.yaml), settings)
    path = settings.configs[0] / f"{wish.name}.yaml"
    if path.exists():
        raise UserError(f"{shown(settings, path)} exists already; choose another name")
    write_atomic(path, wish.yaml)
    return answer(request, SavedConfig(path=shown(settings, path)))


@routes.post("/api/launch")
async def launch(request: web.Request) -> web.Response:
    state, wish = request.app[STATE], await body(request, LaunchBody)
    config = forms.parse(wish.yaml)
    check_allowed(config, state.settings)
    title = wish.title[:120] or config.env.benchmark or config.env.name
    started = state.launches.start("train", title, wish.yaml, ["--fresh"] if wish.fresh else [])
    return answer(request, started.status(state.settings))


@routes.post(RUN + "/resume")
async def resume(request: web.Request) -> web.Response:
    """The run's config again, in its folder; limits and workers may be others."""
    state, wish = request.app[STATE], await body(request, ResumeBody)
    run = run_of(request)
    name = "/".join(request.match_info[part] for part in ("root", "benchmark", "run"))
    if holder(run.root):
        raise UserError("someone is working on this run already")
    check_newest(run)
    yaml = run_config(run, state.settings)
    overrides = [f"env.output_root={quoted(str(run.root.parent.parent))}"]
    for key, text in wish.set.items():
        if key not in _AT_RESUME:
            raise UserError(f"{key}: cannot be changed when a run continues")
        overrides.append(f"{key}={text.strip() or 'null'}")
    resuming = ["--resume"] if run.files.state.exists() else []  # one that ended in its first evaluation has no state
    started = state.launches.start("train", f"resume {run.root.name}", yaml, [*resuming, *overrides], run=name)
    return answer(request, started.status(state.settings))


def check_newest(run: Run) -> None:
    """Of runs with one name only the newest can continue."""
    if numbered := _NUMBERED.match(run.root.name):
        following = run.root.with_name(f"{numbered[1]}-{int(numbered[2] or 1) + 1}")
        if following.exists():
            raise UserError(f"a newer run of the same config exists ({following.name}); only the newest can continue")
