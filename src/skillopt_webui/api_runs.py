"""Answers the page's requests about runs."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from pydantic import BaseModel, Field, RootModel

from skillopt.keys import redact
from skillopt.record.base import Record
from skillopt.record.edits import FiledConflict
from skillopt.record.events import EventRow
from skillopt.record.package import zipped
from skillopt.record.run import Run
from skillopt.training.edits.review import checked_decision, write_decisions
from skillopt.view.curves import Point
from skillopt.view.review_dialog import status as conflict_status
from skillopt_webui import insight, items, launch, view
from skillopt_webui.answers import RUN, Body, Call, Done, Routes, answer, number, run_of
from skillopt_webui.places import NotThereError, find_run
from skillopt_webui.runs import Experiment
from skillopt_webui.stream import stream as stream_events

routes = Routes()


class Same(Record):
    """The answer if the table of runs has not changed since the last request."""

    same: bool = True


class SparksBody(Body):
    ids: list[str] = Field(default=[])


class Sparks(RootModel[dict[str, list[Point]]]):
    """For each run: the points of a small curve of its validation scores."""


class FoundItems(Record):
    items: list[str]


class ShownConflict(FiledConflict):
    status: str
    trajectories: dict[str, items.ItemRow]
    """The first trajectories that each side of the conflict cites, by the trajectory's id."""
    choice: str


class Conflicts(Record):
    conflicts: list[ShownConflict]


class DecisionBody(Body):
    choice: str = ""
    text: str = ""


class ConfigText(Record):
    yaml: str


class EventPage(Record):
    """Some events, the newest first, and the number of all events."""

    events: list[EventRow]
    total: int


@routes.read("/api/runs")
def list_runs(call: Call[Body]) -> Experiment | Same:
    """The table of runs; or `Same` if the table still has the stamp `since`."""
    table = call.server.index.table()
    return Same() if call.args.get("since") == table.stamp else table


@routes.change("/api/sparks", SparksBody)
def sparks(call: Call[SparksBody]) -> Sparks:
    return Sparks(call.server.index.sparks(call.wish.ids))


@routes.get(RUN + "/stream")
async def stream(request: web.Request) -> web.StreamResponse:
    return await stream_events(request, run_of(request))


@routes.read(RUN + r"/steps/{number:\d+}")
def step(call: Call[Body]) -> view.StepPage:
    return view.step(call.run, call.number("number"))


@routes.read(RUN + r"/steps/{number:\d+}/exchanges")
def exchanges(call: Call[Body]) -> view.Exchanges:
    return view.exchanges(call.run, call.number("number"))


@routes.read(RUN + r"/epochs/{number:\d+}")
def epoch(call: Call[Body]) -> view.EpochPage:
    return view.epoch(call.run, call.number("number"))


@routes.read(RUN + r"/skills/{version:\d+}")
def skill(call: Call[Body]) -> insight.BlamedSkill:
    return insight.blamed(call.run, call.number("version"))


@routes.read(RUN + "/items/search")
def search(call: Call[Body]) -> FoundItems:
    run, text = call.run, call.args.get("q", "")
    return FoundItems(items=items.search(run, run.trace_files if text else [], text))


class PairBody(Body):
    a: str
    b: str


@routes.change("/api/paired", PairBody)
def paired(call: Call[PairBody]) -> insight.PairedRuns:
    a, b = (find_run(call.settings, name) for name in (call.wish.a, call.wish.b))
    return insight.paired(a, b)


@routes.read(RUN + "/trajectory")
def trajectory(call: Call[Body]) -> view.ShownRollout:
    """A trajectory. The request names it by its `id`, by `item` and `version`, or by `item` and `bare` (the split that
    was measured without a skill)."""
    run, args = call.run, call.args
    item = args.get("item", "")
    try:
        if "id" in args:
            return view.trajectory(run, args["id"])
        if "bare" in args:
            return view.ShownRollout(rollout=items.bare_cell(run, item, args["bare"]))
        version = call.number("version")
        return view.ShownRollout(rollout=items.cell(run, item, version), version=version)
    except NotThereError as error:
        return view.ShownRollout(absent=str(error))


def conflicts(run: Run) -> Conflicts:
    """The conflicts of a run, each with the first trajectories that its two sides cite."""
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


@routes.change(RUN + r"/conflicts/{conflict:\d+-\d+}", DecisionBody)
def decide(call: Call[DecisionBody]) -> Conflicts:
    files = call.run.files
    write_decisions(files, [checked_decision(files, call.args["conflict"], call.wish.choice, call.wish.text)])
    return conflicts(call.run)


@routes.read(RUN + "/events")
def events(call: Call[Body]) -> EventPage:
    """One page of the events that contain the text `q`, with the number of all these events. The newest event is first.
    The page leaves out the first `skip` events and has at most `count` events."""
    skip, count = call.number("skip", "0"), call.number("count", "200")
    rows, total = call.run.event_page(skip, min(count, 1000), call.args.get("q", ""))
    return EventPage(events=[view.slim(row) for row in rows], total=total)


@routes.get(RUN + "/report")
async def report(request: web.Request) -> web.Response:
    """The report as a separate page. The browser runs no script in this page, and the page cannot use the rest of this
    site."""
    run = run_of(request)
    policy = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
    headers = {"Content-Security-Policy": policy}
    return web.Response(text=redact(run.text(run.files.report)), content_type="text/html", headers=headers)


@routes.get(RUN + r"/export/{what:best|v\d+}")
async def export(request: web.Request) -> web.Response:
    """A skill as a download, so that the browser never shows it as a page of this site. A package is a zip file."""
    run, what = run_of(request), request.match_info["what"]
    path = run.files.best_skill if what == "best" else run.files.snapshot(number(what.removeprefix("v")))
    packed = zipped(run.best_skill) if what == "best" and run.files.trains_package else None
    name = f"{run.root.parent.name}-{run.root.name}-{what}{'.zip' if packed else path.suffix}"
    headers = {
        "Content-Disposition": f'attachment; filename="{"".join(c for c in name if c.isascii() and c != chr(34))}"'
    }
    content = packed or redact(run.text(path)).encode()
    return web.Response(body=content, content_type="application/octet-stream", headers=headers)


@routes.change(RUN + "/pause", Body)
def pause(call: Call[Body]) -> Done:
    launch.pause(call.run.root)
    return Done()


@routes.post(RUN + "/stop")
async def stop(request: web.Request) -> web.Response:
    await launch.stop_now(run_of(request).root)
    return answer(Done())


READ: dict[str, Callable[[Run], BaseModel]] = {
    "": view.overview,
    "/items": items.run_items,
    "/costs": insight.costs,
    "/failures": insight.failures,
    "/conflicts": conflicts,
    "/config": lambda run: ConfigText(yaml=run.text(run.files.config_yaml)),
}
"""Functions that answer a request and need only the run. The keys are the ends of the requests' addresses."""


@routes.read(RUN + f"{{what:{'|'.join(READ)}}}")
def read(call: Call[Body]) -> BaseModel:
    return READ[call.args["what"]](call.run)
