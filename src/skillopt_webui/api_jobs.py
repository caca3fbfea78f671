"""What the page asks of commands: evaluations and comparisons, and how any started command is doing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from aiohttp import web

from skillopt.envs.base import SPLITS
from skillopt.errors import UserError
from skillopt.report.runs_table import side_of
from skillopt.report.skill_diff import whole_text
from skillopt.run.files import read_text
from skillopt_webui import forms, view
from skillopt_webui.allowed import check_allowed
from skillopt_webui.answers import STATE, answer, body, number, text
from skillopt_webui.launch import quoted
from skillopt_webui.places import find_file, find_run, shown
from skillopt_webui.settings import Settings

routes = web.RouteTableDef()


@routes.get("/api/launches")
async def launches(request: web.Request) -> web.Response:
    """Measurements that are at work (they come first) or that failed, the newest first: `count` of them after the
    first `skip`, of those with `q` in their title; and how many there are."""
    state, query = request.app[STATE], request.query
    skip, count = (number(query.get(name, default)) for name, default in (("skip", "0"), ("count", "20")))

    def found() -> dict[str, Any]:
        wanted = [each for each in state.launches.all() if each.unfinished() and each.called(query.get("q", ""))]
        wanted.sort(key=lambda each: not each.running())
        page = wanted[skip : skip + min(count, 1000)]
        return {"launches": [each.status(state.settings) for each in page], "total": len(wanted)}

    return answer(request, await asyncio.to_thread(found))


@routes.get("/api/launches/{id}")
async def one(request: web.Request) -> web.Response:
    state = request.app[STATE]
    return answer(request, state.launches.get(request.match_info["id"]).status(state.settings))


@routes.post("/api/launches/{id}/stop")
async def stop(request: web.Request) -> web.Response:
    state = request.app[STATE]
    found = state.launches.get(request.match_info["id"])
    state.launches.stop(found)
    return answer(request, found.status(state.settings))


@routes.get("/api/skills")
async def skills(request: web.Request) -> web.Response:
    """Skill files that lie under the data folders; those of runs are named by run and version."""
    settings = request.app[STATE].settings
    return answer(request, {"files": await asyncio.to_thread(_skill_files, settings)})


def _skill_files(settings: Settings) -> list[str]:
    found = []
    for folder in settings.data:
        for path in sorted(folder.glob("data/**/*.md")) + sorted(folder.glob("*skill*.md")):
            if path.name != "README.md" and not any(part.startswith(".") for part in path.parts[len(folder.parts) :]):
                found.append(shown(settings, path))
    return found


@routes.post("/api/evaluate")
async def evaluate(request: web.Request) -> web.Response:
    """`skill` on `split`: `{run, version}` or `{file}`; tasks and target of `config`, or else of the run."""
    state, given = request.app[STATE], await body(request)
    skill, name = _skill(state.settings, given.get("skill"))
    split = _split(given)
    yaml, overrides = _config(state.settings, given)
    arguments = ["--skill", str(skill), "--split", split, *overrides]
    started = state.launches.start("eval", f"{name} on {split}", yaml, arguments)
    return answer(request, started.status(state.settings))


@routes.post("/api/compare")
async def compare(request: web.Request) -> web.Response:
    """Two skills on the same items: a paired test, and the items that improved or regressed."""
    state, given = request.app[STATE], await body(request)
    (a, a_name), (b, b_name) = (_skill(state.settings, given.get(side)) for side in ("a", "b"))
    split = _split(given)
    repeats = given.get("repeats", 1)
    if not isinstance(repeats, int) or not 1 <= repeats <= 30:
        raise UserError("repeats: must be a whole number from 1 to 30")
    yaml, overrides = _config(state.settings, given)
    arguments = [str(a), str(b), *overrides, "--split", split, "--repeats", str(repeats)]
    started = state.launches.start("compare", f"{a_name} against {b_name} on {split}", yaml, arguments)
    return answer(request, started.status(state.settings))


@routes.post("/api/diff")
async def diff(request: web.Request) -> web.Response:
    """Any two skills side by side."""
    state, given = request.app[STATE], await body(request)
    (a, a_name), (b, b_name) = (_skill(state.settings, given.get(side)) for side in ("a", "b"))
    blocks = await asyncio.to_thread(view.diff, *(whole_text(side_of(each).skill) for each in (a, b)))
    return answer(request, {"a": a_name, "b": b_name, "blocks": blocks})


def _split(given: dict[str, Any]) -> str:
    split = text(given, "split", "val")
    if split not in SPLITS:
        raise UserError(f"split: must be one of {', '.join(SPLITS)}")
    return split


def _skill(settings: Settings, given: Any) -> tuple[str, str]:
    """A skill as a command takes it (a file, a package's folder, RUN@3), and its name."""
    if isinstance(given, dict) and isinstance(given.get("run"), str):
        run = find_run(settings, given["run"])
        version = given.get("version", "best")
        path = run.best_skill if version == "best" else run.snapshot(number(str(version)))
        if not path.is_file():
            raise UserError(f"{given['run']}: has no version {version}")
        if run.trains_package:
            path = run.best_package if version == "best" else Path(f"{run.root}@{version}")
        return str(path), f"{run.root.name} {'best' if version == 'best' else f'v{version}'}"
    if isinstance(given, dict) and isinstance(given.get("file"), str):
        path = find_file(settings, given["file"], what="skill")
        if path.suffix != ".md" or any(part.startswith(".") for part in Path(given["file"]).parts):
            raise UserError(f"{given['file']}: a skill is a .md file")
        return str(path), Path(given["file"]).name
    raise UserError("choose a skill")


def _config(settings: Settings, given: dict[str, Any]) -> tuple[str, list[str]]:
    """The tasks and the target: a config file, or a run's own. Results go below the output folders in any case."""
    if name := text(given, "run"):
        run = find_run(settings, name)
        with run.as_written():
            return read_text(run.config_yaml), [f"env.output_root={quoted(str(run.root.parent.parent))}"]
    path = find_file(settings, text(given, "config"), what="config", folders=settings.configs)
    yaml = forms.load(path, settings.workspace)
    config = forms.parse(yaml)
    overrides = [f"env.output_root={quoted(str(settings.outputs[0]))}"]
    check_allowed(
        config.model_copy(update={"env": config.env.model_copy(update={"output_root": str(settings.outputs[0])})}),
        settings,
    )
    return yaml, overrides
