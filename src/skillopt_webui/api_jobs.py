"""What the page asks of commands: evaluations and comparisons, and how any started command is doing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from aiohttp import web
from pydantic import Field

from skillopt.errors import UserError
from skillopt.record.base import Record
from skillopt.tasks.base import SPLITS
from skillopt.view.runs_table import side_of
from skillopt.view.skill_diff import whole_text
from skillopt_webui import forms, view
from skillopt_webui.allowed import check_allowed, run_config, with_outputs
from skillopt_webui.answers import STATE, Body, answer, body, number
from skillopt_webui.launch import LaunchStatus, quoted
from skillopt_webui.places import find_config, find_file, find_run, shown
from skillopt_webui.settings import PageSettings

routes = web.RouteTableDef()


class LaunchPage(Record):
    launches: list[LaunchStatus]
    total: int


class SkillFiles(Record):
    files: list[str]


class ChosenSkill(Body):
    """A version of a run, or a file."""

    run: str | None = None
    version: int | str = "best"
    file: str | None = None


class MeasureBody(Body):
    """Tasks and target of `config`, or of a run."""

    split: str = "val"
    config: str = ""
    run: str = ""


class EvaluateBody(MeasureBody):
    skill: ChosenSkill | None = None


class DiffBody(Body):
    a: ChosenSkill | None = None
    b: ChosenSkill | None = None


class CompareBody(DiffBody, MeasureBody):
    repeats: Annotated[int, Field(ge=1, le=30)] = 1


@routes.get("/api/launches")
async def launches(request: web.Request) -> web.Response:
    """Measurements that are at work (they come first) or that failed, the newest first: `count` of them after the
    first `skip`, of those with `q` in their title; and how many there are."""
    state, query = request.app[STATE], request.query
    skip, count = (number(query.get(name, default)) for name, default in (("skip", "0"), ("count", "20")))

    def page() -> LaunchPage:
        wanted = [each for each in state.launches.all() if each.unfinished() and each.called(query.get("q", ""))]
        wanted.sort(key=lambda each: not each.running())
        shown = [each.status(state.settings) for each in wanted[skip : skip + min(count, 1000)]]
        return LaunchPage(launches=shown, total=len(wanted))

    return answer(request, await asyncio.to_thread(page))


@routes.get("/api/launches/{id}")
async def one(request: web.Request) -> web.Response:
    state = request.app[STATE]
    return answer(request, state.launches.get(request.match_info["id"]).status(state.settings))


@routes.post("/api/launches/{id}/stop")
async def stop(request: web.Request) -> web.Response:
    state = request.app[STATE]
    launch = state.launches.get(request.match_info["id"])
    state.launches.stop(launch)
    return answer(request, launch.status(state.settings))


@routes.get("/api/skills")
async def skills(request: web.Request) -> web.Response:
    """Skill files that lie under the data folders; those of runs are named by run and version."""
    settings = request.app[STATE].settings
    return answer(request, SkillFiles(files=await asyncio.to_thread(_skill_files, settings)))


def _skill_files(settings: PageSettings) -> list[str]:
    found = []
    for folder in settings.data:
        for path in sorted(folder.glob("data/**/*.md")) + sorted(folder.glob("*skill*.md")):
            if path.name != "README.md" and not any(part.startswith(".") for part in path.parts[len(folder.parts) :]):
                found.append(shown(settings, path))
    return found


@routes.post("/api/evaluate")
async def evaluate(request: web.Request) -> web.Response:
    """A skill on a split."""
    state, wish = request.app[STATE], await body(request, EvaluateBody)
    skill, name = _skill(state.settings, wish.skill)
    split = _split(wish)
    yaml, overrides = _config(state.settings, wish)
    arguments = ["--skill", skill, "--split", split, *overrides]
    started = state.launches.start("eval", f"{name} on {split}", yaml, arguments)
    return answer(request, started.status(state.settings))


@routes.post("/api/compare")
async def compare(request: web.Request) -> web.Response:
    """Two skills on the same items: a paired test, and the items that improved or regressed."""
    state, wish = request.app[STATE], await body(request, CompareBody)
    (a, a_name), (b, b_name) = _skill(state.settings, wish.a), _skill(state.settings, wish.b)
    split = _split(wish)
    yaml, overrides = _config(state.settings, wish)
    arguments = [a, b, *overrides, "--split", split, "--repeats", str(wish.repeats)]
    started = state.launches.start("compare", f"{a_name} against {b_name} on {split}", yaml, arguments)
    return answer(request, started.status(state.settings))


@routes.post("/api/diff")
async def diff(request: web.Request) -> web.Response:
    """Any two skills side by side."""
    settings, wish = request.app[STATE].settings, await body(request, DiffBody)
    (a, a_name), (b, b_name) = _skill(settings, wish.a), _skill(settings, wish.b)
    blocks = await asyncio.to_thread(view.diff, *(whole_text(side_of(each).skill) for each in (a, b)))
    return answer(request, view.Diff(a=a_name, b=b_name, blocks=blocks))


def _split(wish: MeasureBody) -> str:
    if wish.split not in SPLITS:
        raise UserError(f"split: must be one of {', '.join(SPLITS)}")
    return wish.split


def _skill(settings: PageSettings, chosen: ChosenSkill | None) -> tuple[str, str]:
    """A skill as a command takes it (a file, a package's folder, RUN@3), and its name."""
    if chosen and chosen.run is not None:
        run, version = find_run(settings, chosen.run), chosen.version
        files = run.files
        path = files.best_skill if version == "best" else files.snapshot(number(str(version)))
        if not path.is_file():
            raise UserError(f"{chosen.run}: has no version {version}")
        if files.trains_package:
            path = files.best_package if version == "best" else Path(f"{run.root}@{version}")
        return str(path), f"{run.root.name} {'best' if version == 'best' else f'v{version}'}"
    if chosen and chosen.file is not None:
        path = find_file(settings, chosen.file, what="skill")
        if path.suffix != ".md":
            raise UserError(f"{chosen.file}: a skill is a .md file")
        return str(path), Path(chosen.file).name
    raise UserError("choose a skill")


def _config(settings: PageSettings, wish: MeasureBody) -> tuple[str, list[str]]:
    """The tasks and the target: a config file, or a run's. Results go below the output folders in any case."""
    if wish.run:
        run = find_run(settings, wish.run)
        return run_config(run, settings), [f"env.output_root={quoted(str(run.root.parent.parent))}"]
    path = find_config(settings, wish.config)
    yaml = forms.load(path, settings)
    check_allowed(with_outputs(forms.parse(yaml), settings.outputs[0]), settings)
    return yaml, [f"env.output_root={quoted(str(settings.outputs[0]))}"]
