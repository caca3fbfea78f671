"""What the page asks of runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from aiohttp import web
from pydantic import BaseModel, Field, RootModel

from skillopt.keys import redact
from skillopt.record.base import Record
from skillopt.record.edits import FiledConflict
from skillopt.record.package import zipped
from skillopt.record.run import Run, Settings
from skillopt.record.summary import Summary
from skillopt.training.edits.review import checked_decision, write_decisions
from skillopt.view.curves import Curves
from skillopt.view.review_dialog import status as conflict_status
from skillopt.view.skill_diff import whole_text
from skillopt.view.traces import trace_files
from skillopt_webui import insight, items, launch, view
from skillopt_webui.answers import RUN, STATE, Body, Done, answer, body, number, run_of
from skillopt_webui.places import NotThereError
from skillopt_webui.stream import stream as stream_events

routes = web.RouteTableDef()


class Same(Record):
    """Nothing has changed."""

    same: bool = True


class SparksBody(Body):
    ids: list[str] = Field(default=[])


class Sparks(RootModel[dict[str, list[float]]]):
    """Small curves by run."""


class FoundItems(Record):
    items: list[str]


class Absent(Record):
    """Why there is no trajectory. Of evaluations a run keeps the scores alone, so that this is not a failure."""

    absent: str


class ShownConflict(FiledConflict):
    status: str
    trajectories: dict[str, items.ItemRow]
    """The first of each side, by id."""
    choice: str


class Conflicts(Record):
    conflicts: list[ShownConflict]


class DecisionBody(Body):
    choice: str = ""
    text: str = ""


class ConfigText(Record):
    yaml: str


class ComparedRun(Record):
    """What a comparison of runs needs of each."""

    summary: Summary | None
    config: Settings | None
    steps: list[view.StepRow]
    versions: list[int]
    curves: Curves
    best: str
    """The text of the best skill."""


@routes.get("/api/runs")
async def list_runs(request: web.Request) -> web.Response:
    """All rows, or only that they are the `same` as at the stamp `since`."""
    table = await asyncio.to_thread(request.app[STATE].index.table)
    return answer(request, Same() if request.query.get("since") == table.stamp else table)


@routes.post("/api/sparks")
async def sparks(request: web.Request) -> web.Response:
    names = (await body(request, SparksBody)).ids
    return answer(request, Sparks(await asyncio.to_thread(request.app[STATE].index.sparks, names)))


@routes.get(RUN + "/stream")
async def stream(request: web.Request) -> web.StreamResponse:
    return await stream_events(request, run_of(request))


@routes.get(RUN + r"/steps/{number:\d+}")
async def step(request: web.Request) -> web.Response:
    run, wanted = run_of(request), number(request.match_info["number"])
    return answer(request, await asyncio.to_thread(view.step, run, wanted))


@routes.get(RUN + r"/epochs/{number:\d+}")
async def epoch(request: web.Request) -> web.Response:
    run, wanted = run_of(request), number(request.match_info["number"])
    return answer(request, await asyncio.to_thread(view.epoch, run, wanted))


@routes.get(RUN + r"/skills/{version:\d+}")
async def skill(request: web.Request) -> web.Response:
    run, version = run_of(request), number(request.match_info["version"])
    return answer(request, await asyncio.to_thread(insight.blamed, run, version))


@routes.get(RUN + "/diff")
async def diff(request: web.Request) -> web.Response:
    run, (a, b) = run_of(request), (number(request.query.get(side, "")) for side in ("a", "b"))
    blocks = await asyncio.to_thread(lambda: view.diff(view.skill_text(run, a), view.skill_text(run, b)))
    return answer(request, view.Diff(blocks=blocks))


@routes.get(RUN + "/items/search")
async def search(request: web.Request) -> web.Response:
    run, text = run_of(request), request.query.get("q", "")
    files = trace_files(run.files) if text else []
    return answer(request, FoundItems(items=await asyncio.to_thread(items.search, run, files, text)))


@routes.get(RUN + "/trajectory")
async def trajectory(request: web.Request) -> web.Response:
    """By `id`; or by `item` and a `version`, `bare` (a split, without a skill), or a step's `gate` or `train`."""
    try:
        return answer(request, await asyncio.to_thread(_trajectory, run_of(request), request.query))
    except NotThereError as error:
        return answer(request, Absent(absent=str(error)))


def _trajectory(run: Run, query: Mapping[str, str]) -> view.Shown:
    item = query.get("item", "")
    if "id" in query:
        return view.trajectory(run, query["id"])
    if "version" in query:
        version = number(query["version"])
        return view.shown_in(run, items.cell(run, item, version), version)
    if "bare" in query:
        return view.shown_in(run, items.bare_cell(run, item, query["bare"]), None)
    kind = next((name for name in ("train", "gate", "slow") if name in query), "")
    return view.trajectory_of(run, kind, number(query.get(kind, "")), item)


def conflicts(run: Run) -> Conflicts:
    """Each with both sides' first trajectories."""
    shown, decided = [], run.decisions
    for conflict in run.conflicts:
        rollouts = {rollout.id: rollout for rollout in run.batch_trajectories(conflict.step)}
        cited = sorted({tid for edit in conflict.sides.values() for tid in edit.trajectory_ids[:6]} & rollouts.keys())
        shown.append(
            ShownConflict(
                **dict(conflict),
                status=conflict_status(run.files, conflict),
                trajectories={name: items.rollout_row(rollouts[name], "train") for name in cited},
                choice=decided[conflict.id].choice if conflict.id in decided else "",
            )
        )
    return Conflicts(conflicts=shown)


@routes.post(RUN + r"/conflicts/{conflict:\d+-\d+}")
async def decide(request: web.Request) -> web.Response:
    run, wish = run_of(request), await body(request, DecisionBody)

    def decided() -> Conflicts:
        decision = checked_decision(run.files, request.match_info["conflict"], wish.choice, wish.text)
        write_decisions(run.files, [decision])
        return conflicts(run)

    return answer(request, await asyncio.to_thread(decided))


@routes.get(RUN + "/report")
async def report(request: web.Request) -> web.Response:
    """The report as a separate page: no script runs in it, and it belongs to no site."""
    run = run_of(request)
    text = redact(await asyncio.to_thread(run.text, run.files.report))
    policy = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
    return web.Response(text=text, content_type="text/html", headers={"Content-Security-Policy": policy})


@routes.get(RUN + "/events")
async def events(request: web.Request) -> web.Response:
    """Events, the newest first: `count` of them after the first `skip`, of those that contain `q`; and how many
    there are."""
    skip, count = (number(request.query.get(name, default)) for name, default in (("skip", "0"), ("count", "200")))
    page = await asyncio.to_thread(view.events, run_of(request), skip, min(count, 1000), request.query.get("q", ""))
    return answer(request, page)


@routes.get(RUN + r"/export/{what:best|report|v\d+}")
async def export(request: web.Request) -> web.Response:
    """A skill (a package zipped) or the report as a download; never shown by the browser under this page's address."""
    run, what = run_of(request), request.match_info["what"]
    path = {"best": run.files.best_skill, "report": run.files.report}.get(what)
    path = path or run.files.snapshot(number(what.removeprefix("v")))
    packed = zipped(run.best_skill) if what == "best" and run.files.trains_package else None
    name = f"{run.root.parent.name}-{run.root.name}-{what}{'.zip' if packed else path.suffix}"
    headers = {
        "Content-Disposition": f'attachment; filename="{"".join(c for c in name if c.isascii() and c != chr(34))}"'
    }
    content = packed or redact(run.text(path)).encode()
    return web.Response(body=content, content_type="application/octet-stream", headers=headers)


@routes.post(RUN + "/pause")
async def pause(request: web.Request) -> web.Response:
    launch.pause(run_of(request).root)
    return answer(request, Done())


@routes.post(RUN + "/stop")
async def stop(request: web.Request) -> web.Response:
    await launch.stop_now(run_of(request).root)
    return answer(request, Done())


def compared(run: Run) -> ComparedRun:
    shown = view.overview(run)
    return ComparedRun(
        summary=shown.summary,
        config=shown.config,
        steps=shown.steps,
        versions=shown.versions,
        curves=shown.curves,
        best=whole_text(run.best_skill) if run.files.best_skill.exists() else "",
    )


READ: dict[str, Callable[[Run], BaseModel]] = {
    "": view.overview,
    "/items": items.run_items,
    "/best": insight.best,
    "/costs": insight.costs,
    "/failures": insight.failures,
    "/conflicts": conflicts,
    "/config": lambda run: ConfigText(yaml=run.text(run.files.config_yaml)),
    "/compare": compared,
}
"""What is made of a run's files alone, by the end of its address."""


@routes.get(RUN + f"{{what:{'|'.join(READ)}}}")
async def read(request: web.Request) -> web.Response:
    return answer(request, await asyncio.to_thread(READ[request.match_info["what"]], run_of(request)))
