"""Answers the page's requests about configs: fills the form, checks it while the user types, answers questions before a
start, and starts the run."""

from __future__ import annotations

from aiohttp import web
from pydantic import Field

from skillopt.errors import UserError
from skillopt.record.base import Record
from skillopt_webui import forms
from skillopt_webui.alive import holder
from skillopt_webui.allowed import check_allowed, problems, run_config
from skillopt_webui.answers import RUN, STATE, Body, Call, Routes, answer, body, run_name
from skillopt_webui.launch import LaunchStatus, quoted
from skillopt_webui.places import find_config, find_run, listed_configs, shown
from skillopt_webui.settings import PageSettings

routes = Routes()
_AT_RESUME = ("budget.max_usd", "budget.max_calls", "budget.max_tokens", "budget.max_minutes", "hardware.workers")
"""Keys that a user may change on the page when a stopped run continues."""


class Configs(Record):
    files: list[str]
    templates: list[str]
    sections: list[forms.FormSection]


class LoadBody(Body):
    """Names the run, the config file or the template whose config is loaded."""

    run: str = ""
    path: str = ""
    template: str = ""


class CheckBody(Body):
    yaml: str = ""
    set: dict[str, str | None] = Field(default={})
    """The new text of each changed field; null removes the field from the config."""


class QuestionBody(Body):
    yaml: str = ""


class LaunchBody(QuestionBody):
    title: str = ""
    fresh: bool = False


class ResumeBody(Body):
    set: dict[str, str] = Field(default={})


@routes.read("/api/configs")
def list_configs(call: Call[Body]) -> Configs:
    return Configs(
        files=[shown(call.settings, path) for path in listed_configs(call.settings)],
        templates=list(forms.TEMPLATES),
        sections=forms.schema(),
    )


@routes.change("/api/configs/load", LoadBody)
def load(call: Call[LoadBody]) -> forms.CheckedConfig:
    """The config of a file, a run or a template, as text and as values for the form."""
    settings, wish = call.settings, call.wish
    if wish.run:
        path = find_run(settings, wish.run).files.config_yaml
    elif wish.path:
        path = find_config(settings, wish.path)
        if path.suffix not in {".yaml", ".yml"}:
            raise UserError(f"{wish.path}: is not a YAML file")
    else:
        return _checked(settings, forms.TEMPLATES.get(wish.template, ""))
    return _checked(settings, forms.load(path, settings))


@routes.change("/api/configs/check", CheckBody)
def check(call: Call[CheckBody]) -> forms.CheckedConfig:
    return _checked(call.settings, call.wish.yaml, call.wish.set)


def _checked(settings: PageSettings, yaml: str, changes: dict[str, str | None] | None = None) -> forms.CheckedConfig:
    """Check a config, also against the limits of this page."""
    checked = forms.check(yaml, changes)
    if checked.valid and (errors := problems(forms.parse(checked.yaml), settings)):
        return checked.model_copy(update={"errors": errors, "valid": False})
    return checked


@routes.post(r"/api/configs/{question:preview|plan|doctor|connection}")
async def ask(request: web.Request) -> web.Response:
    state, wish = request.app[STATE], await body(request, QuestionBody)
    check_allowed(forms.parse(wish.yaml), state.settings)
    return answer(await state.questions.ask(request.match_info["question"], wish.yaml))


@routes.change("/api/launch", LaunchBody)
def launch(call: Call[LaunchBody]) -> LaunchStatus:
    wish, config = call.wish, forms.parse(call.wish.yaml)
    check_allowed(config, call.settings)
    title = wish.title[:120] or config.env.benchmark or config.env.name
    started = call.server.launches.start("train", title, wish.yaml, ["--fresh"] if wish.fresh else [])
    return started.status(call.settings)


@routes.change(RUN + "/resume", ResumeBody)
def resume(call: Call[ResumeBody]) -> LaunchStatus:
    """Continue a run in its folder, with its own config. Only the keys in `_AT_RESUME` may change."""
    run = call.run
    if holder(run.root):
        raise UserError("a process is already working on this run; wait until it ends, or stop it")
    yaml = run_config(run, call.settings)
    overrides = [f"env.output_root={quoted(str(run.root.parent.parent))}"]
    for key, text in call.wish.set.items():
        if key not in _AT_RESUME:
            raise UserError(f"{key}: cannot be changed when a run continues; start a new run to change it")
        overrides.append(f"{key}={text.strip() or 'null'}")
    resuming = ["--resume"] if run.files.state.exists() else []  # no state if it ended in its first evaluation
    title, name = f"resume {run.root.name}", run_name(call.args)
    return call.server.launches.start("train", title, yaml, [*resuming, *overrides], run=name).status(call.settings)
