"""Evaluations, comparisons and checks: their results and items, wherever they were started."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from aiohttp import web
from pydantic import BaseModel

from skillopt.errors import Damaged
from skillopt.record.base import Record
from skillopt.record.directory import ALTERED, RunDirectory
from skillopt.record.results import CheckResult, Comparison, EvalSummary
from skillopt.record.run import Run, read_record
from skillopt_webui import items, view
from skillopt_webui.answers import STATE, answer, number
from skillopt_webui.api_runs import FoundItems
from skillopt_webui.files import Cache
from skillopt_webui.places import RESULTS, NotThereError, inside, plain_name
from skillopt_webui.settings import PageSettings

routes = web.RouteTableDef()
ONE = r"/api/measured/{root:\d+}/{kind:evaluations|comparisons|checks}/{benchmark}/{name}"
_MODELS: dict[str, type[items.Result]] = {"evaluations": EvalSummary, "comparisons": Comparison, "checks": CheckResult}
_cache = Cache(2000)


class MeasuredRow(Record):
    id: str
    kind: str
    changed: float
    result: items.Result
    """Without what grows with the items."""


class MeasuredList(Record):
    rows: list[MeasuredRow]


class MeasuredPage(Record):
    kind: str
    result: items.Result
    table: items.ItemTable


@routes.get("/api/measured")
async def measured(request: web.Request) -> web.Response:
    """All of them, the newest first."""
    return answer(request, await asyncio.to_thread(_list, request.app[STATE].settings))


def _list(settings: PageSettings) -> MeasuredList:
    rows = []
    for count, root in enumerate(settings.outputs):
        for kind, file in RESULTS.items():
            for path in root.glob(f"{kind}/*/*/{file}"):
                result = _cache.get("brief", path, partial(_brief, kind, path))
                if result and inside(path, [root]):
                    name = "/".join((str(count), *path.relative_to(root).parts[:3]))
                    rows.append(MeasuredRow(id=name, kind=kind, changed=path.stat().st_mtime, result=result))
    return MeasuredList(rows=sorted(rows, key=lambda row: -row.changed))


def _brief(kind: str, path: Path) -> items.Result:
    result = read_record(_MODELS[kind], path)
    if isinstance(result, EvalSummary):
        return result.model_copy(update={"scores": {}, "failed": (), "by_type": {}})
    if isinstance(result, CheckResult):
        return result.model_copy(update={"changed": ()})
    return result.model_copy(update={"lists": result.lists.model_copy(update=dict.fromkeys(dict(result.lists), ()))})


async def _read(request: web.Request, make: Callable[[Run, items.Result], BaseModel]) -> web.Response:
    """What `make` makes of a measurement's folder and result; if a file is damaged, the answer says so."""
    settings, parts = request.app[STATE].settings, request.match_info
    if int(parts["root"]) >= len(settings.outputs) or not all(plain_name(parts[n]) for n in ("benchmark", "name")):
        raise NotThereError("no such measurement")
    root = settings.outputs[int(parts["root"])]
    folder = root / parts["kind"] / parts["benchmark"] / parts["name"]
    path = folder / RESULTS[parts["kind"]]
    if not inside(path, [root]) or not path.is_file() or RunDirectory(folder).irregular():
        raise NotThereError("no such measurement")

    def made() -> BaseModel:
        try:
            return make(Run(RunDirectory(folder)), read_record(_MODELS[parts["kind"]], path))
        except (Damaged, *ALTERED) as error:
            raise Damaged(
                f"{folder}: a file is not as it was written ({type(error).__name__}); measure again"
            ) from error

    return answer(request, await asyncio.to_thread(made))


@routes.get(ONE)
async def one(request: web.Request) -> web.Response:
    """The result, and its table of items."""
    kind = request.match_info["kind"]
    return await _read(
        request,
        lambda folder, result: MeasuredPage(kind=kind, result=result, table=items.measured_items(folder, result)),
    )


@routes.get(ONE + "/items/search")
async def search(request: web.Request) -> web.Response:
    text = request.query.get("q", "")

    def matching(folder: Run, result: items.Result) -> FoundItems:
        files = [folder.root / "trajectories.jsonl"] if text else []
        return FoundItems(items=items.search(folder, files, text))

    return await _read(request, matching)


@routes.get(ONE + "/trajectory")
async def trajectory(request: web.Request) -> web.Response:
    column = number(re.sub(r"\D", "", request.query.get("column", "")) or "0")

    def cell(folder: Run, result: items.Result) -> view.Shown:
        rollout = items.measured_cell(folder, result, request.query.get("item", ""), column)
        model = result.target if isinstance(result, CheckResult) else ""
        return view.shown(rollout, None, model, {})

    return await _read(request, cell)
