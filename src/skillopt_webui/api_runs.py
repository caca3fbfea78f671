"""What the page asks of runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from aiohttp import web

from skillopt.edits.review import checked_decision, decisions, filed, write_decisions
from skillopt.keys import redact
from skillopt.report.review_dialog import status as conflict_status
from skillopt.report.skill_diff import whole_text
from skillopt.report.traces import trace_files
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_json, read_jsonl, read_text
from skillopt.run.package import zipped
from skillopt_webui import insight, items, launch, view
from skillopt_webui.answers import RUN, STATE, answer, body, number, run_of, text
from skillopt_webui.places import NotThereError
from skillopt_webui.stream import stream as stream_events

T = TypeVar("T")
routes = web.RouteTableDef()


async def _read(run: RunDirectory, make: Callable[..., T], *given: Any) -> T:
    """What is made of a run's files; where one was altered, that is said."""

    def made() -> T:
        with run.as_written():
            return make(run, *given)

    return await asyncio.to_thread(made)


@routes.get("/api/runs")
async def list_runs(request: web.Request) -> web.Response:
    """All rows, or only that they are the `same` as at the stamp `since`."""
    table = await asyncio.to_thread(request.app[STATE].index.table)
    if request.query.get("since") == table["stamp"]:
        return answer(request, {"same": True})
    folders = [str(path) for path in request.app[STATE].settings.outputs]
    return answer(request, {**table, "folders": folders})


@routes.post("/api/sparks")
async def sparks(request: web.Request) -> web.Response:
    ids = (await body(request)).get("ids")
    names = [name for name in ids if isinstance(name, str)] if isinstance(ids, list) else []
    return answer(request, await asyncio.to_thread(request.app[STATE].index.sparks, names))


@routes.get(RUN + "/stream")
async def stream(request: web.Request) -> web.StreamResponse:
    return await stream_events(request, run_of(request))


@routes.get(RUN + r"/steps/{number:\d+}")
async def step(request: web.Request) -> web.Response:
    run, wanted = run_of(request), number(request.match_info["number"])
    found = await _read(run, view.step, wanted)
    return answer(request, found | {"tables": await _read(run, items.step_tables, wanted)})


@routes.get(RUN + r"/epochs/{number:\d+}")
async def epoch(request: web.Request) -> web.Response:
    return answer(request, await _read(run_of(request), view.epoch, number(request.match_info["number"])))


@routes.get(RUN + r"/skills/{version:\d+}")
async def skill(request: web.Request) -> web.Response:
    run, version = run_of(request), number(request.match_info["version"])
    return answer(request, await _read(run, insight.blamed, version))


@routes.get(RUN + "/diff")
async def diff(request: web.Request) -> web.Response:
    run = run_of(request)
    a, b = [await _read(run, view.skill_text, number(request.query.get(side, ""))) for side in ("a", "b")]
    return answer(request, {"blocks": await asyncio.to_thread(view.diff, a, b)})


@routes.get(RUN + "/items/search")
async def search(request: web.Request) -> web.Response:
    wanted = request.query.get("q", "")
    files = trace_files(run_of(request)) if wanted else []
    return answer(request, {"items": await asyncio.to_thread(items.search, files, wanted)})


@routes.get(RUN + "/trajectory")
async def trajectory(request: web.Request) -> web.Response:
    """By `id`; or by `item` and a `version`, `bare` (a split, without a skill), or a step's `gate` or `train`."""
    run = run_of(request)
    try:
        found = await _read(run, _trajectory, request.query)
    except NotThereError as error:  # of evaluations a run keeps the scores alone, so that this is no failure
        found = {"absent": str(error)}
    return answer(request, found)


def _trajectory(run: RunDirectory, query: Mapping[str, str]) -> dict[str, Any]:
    found = _found(run, query)
    return found | {"calls": view.priced(found, read_json(run.config_json))}


def _found(run: RunDirectory, query: Mapping[str, str]) -> dict[str, Any]:
    if "id" in query:
        return view.trajectory(run, query["id"])
    if "version" in query:
        return items.cell(run, query.get("item", ""), number(query["version"]))
    if "bare" in query:
        return items.bare_cell(run, query.get("item", ""), query["bare"])
    kind = next((name for name in ("train", "gate", "slow") if name in query), "")
    return view.trajectory_of(run, kind, number(query.get(kind, "")), query.get("item", ""))


def _conflicts(run: RunDirectory) -> dict[str, Any]:
    """Each with both sides' first trajectories."""
    out, decided = [], decisions(run)
    for conflict in filed(run):
        rows = {row["id"]: row for row in read_jsonl(run.step(conflict.step) / "trajectories.jsonl")}
        cited = {tid for edit in conflict.sides.values() for tid in edit.trajectory_ids[:6]}
        shown = {name: items.trace_row(rows[name], "train") for name in sorted(cited) if name in rows}
        known = {"status": conflict_status(run, conflict), "trajectories": shown}
        choice = decided[conflict.id].choice if conflict.id in decided else ""
        out.append(conflict.model_dump(mode="json") | known | {"choice": choice})
    return {"conflicts": out}


@routes.post(RUN + r"/conflicts/{conflict:\d+-\d+}")
async def decide(request: web.Request) -> web.Response:
    run, given = run_of(request), await body(request)
    chosen = (request.match_info["conflict"], text(given, "choice"), text(given, "text"))
    decision = await _read(run, checked_decision, *chosen)
    await asyncio.to_thread(write_decisions, run, [decision])
    return answer(request, await _read(run, _conflicts))


@routes.get(RUN + "/report")
async def report(request: web.Request) -> web.Response:
    """The report as a separate page: no script runs in it, and it belongs to no site."""
    run = run_of(request)
    if not run.report.resolve().is_relative_to(run.root.resolve()):
        raise NotThereError("the report is a link that leads out of the run")
    text = redact(await asyncio.to_thread(run.report.read_text, encoding="utf-8", errors="replace"))
    policy = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
    return web.Response(text=text, content_type="text/html", headers={"Content-Security-Policy": policy})


@routes.get(RUN + "/events")
async def events(request: web.Request) -> web.Response:
    """Events, the newest first: `count` of them after the first `skip`, of those that contain `q`; and how many
    there are."""
    skip, count = (number(request.query.get(name, default)) for name, default in (("skip", "0"), ("count", "200")))
    given = (skip, min(count, 1000), request.query.get("q", ""))
    return answer(request, await _read(run_of(request), view.events, *given))


@routes.get(RUN + r"/export/{what:best|report|v\d+}")
async def export(request: web.Request) -> web.Response:
    """A skill (a package zipped) or the report as a download; never shown by the browser under this page's address."""
    run, what = run_of(request), request.match_info["what"]
    path = {"best": run.best_skill, "report": run.report}.get(what)
    path = path or run.snapshot(number(what.removeprefix("v")))
    packed = zipped(run.read_best()) if what == "best" and run.trains_package else None
    name = f"{run.root.parent.name}-{run.root.name}-{what}{'.zip' if packed else path.suffix}"
    headers = {
        "Content-Disposition": f'attachment; filename="{"".join(c for c in name if c.isascii() and c != chr(34))}"'
    }
    if not path.resolve().is_relative_to(run.root.resolve()):
        raise NotThereError(f"'{what}' is a link that leads out of the run")
    text = "" if packed else redact(path.read_text(encoding="utf-8", errors="replace"))
    return web.Response(body=packed or text.encode(), content_type="application/octet-stream", headers=headers)


@routes.post(RUN + "/pause")
async def pause(request: web.Request) -> web.Response:
    launch.pause(run_of(request).root)
    return answer(request, {"ok": True})


@routes.post(RUN + "/stop")
async def stop(request: web.Request) -> web.Response:
    await launch.stop_now(run_of(request).root)
    return answer(request, {"ok": True})


def _compared(run: RunDirectory) -> dict[str, Any]:
    """What a comparison of runs needs of each."""
    found = view.overview(run)
    kept = {key: found[key] for key in ("summary", "config", "steps", "versions", "curves")}
    return kept | {"best": whole_text(run.read_best()) if run.best_skill.exists() else ""}


READ: dict[str, Callable[[RunDirectory], dict[str, Any]]] = {
    "": view.overview,
    "/items": items.run_items,
    "/best": insight.best,
    "/costs": insight.costs,
    "/failures": insight.failures,
    "/conflicts": _conflicts,
    "/config": lambda run: {"yaml": read_text(run.config_yaml)},
    "/compare": _compared,
}
"""What is made of a run's files alone, by the end of its address."""


@routes.get(RUN + f"{{what:{'|'.join(READ)}}}")
async def read(request: web.Request) -> web.Response:
    return answer(request, await _read(run_of(request), READ[request.match_info["what"]]))
