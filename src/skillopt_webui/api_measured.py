"""Evaluations, comparisons and checks: their results and items, wherever they were started."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from aiohttp import web

from skillopt.run.files import read_json
from skillopt_webui import items, view
from skillopt_webui.answers import STATE, answer, number
from skillopt_webui.files import Cache
from skillopt_webui.places import RESULTS, NotThereError, inside, plain_name
from skillopt_webui.settings import Settings

routes = web.RouteTableDef()
ONE = r"/api/measured/{root:\d+}/{kind:evaluations|comparisons|checks}/{benchmark}/{name}"
_cache = Cache(2000)
_LONG = {"failed", "lists", "changed", "by_type", "items_changed", "rows"}


@routes.get("/api/measured")
async def measured(request: web.Request) -> web.Response:
    """All of them, the newest first."""
    return answer(request, {"rows": await asyncio.to_thread(_rows, request.app[STATE].settings)})


def _rows(settings: Settings) -> list[dict[str, Any]]:
    rows = []
    for count, root in enumerate(settings.outputs):
        for kind, file in RESULTS.items():
            for path in root.glob(f"{kind}/*/*/{file}"):
                if (result := _cache.get("brief", path, _brief)) and inside(path, [root]):
                    name = "/".join((str(count), *path.relative_to(root).parts[:3]))
                    rows.append({"id": name, "kind": kind, "changed": path.stat().st_mtime, "result": result})
    return sorted(rows, key=lambda row: -row["changed"])


def _brief(path: Path) -> dict[str, Any]:
    """Without what grows with the items; of a check, `scores` are the two sides'."""
    data = read_json(path)
    return {k: v for k, v in data.items() if k not in _LONG and (k != "scores" or "base" in data)}


def _folder(request: web.Request) -> tuple[Path, dict[str, Any]]:
    settings, parts = request.app[STATE].settings, request.match_info
    if int(parts["root"]) >= len(settings.outputs) or not all(plain_name(parts[n]) for n in ("benchmark", "name")):
        raise NotThereError("no such measurement")
    root = settings.outputs[int(parts["root"])]
    folder = root / parts["kind"] / parts["benchmark"] / parts["name"]
    path = folder / RESULTS[parts["kind"]]
    if not inside(path, [root]) or not path.is_file():
        raise NotThereError("no such measurement")
    return folder, read_json(path)


@routes.get(ONE)
async def one(request: web.Request) -> web.Response:
    """The result, and its table of items."""
    folder, result = await asyncio.to_thread(_folder, request)
    table = await asyncio.to_thread(items.measured_items, folder, result)
    return answer(request, {"kind": request.match_info["kind"], "result": result, "table": table})


@routes.get(ONE + "/items/search")
async def search(request: web.Request) -> web.Response:
    folder, _ = await asyncio.to_thread(_folder, request)
    path, wanted = folder / "trajectories.jsonl", request.query.get("q", "")
    files = [path] if wanted and path.is_file() else []
    return answer(request, {"items": await asyncio.to_thread(items.search, files, wanted)})


@routes.get(ONE + "/trajectory")
async def trajectory(request: web.Request) -> web.Response:
    folder, result = await asyncio.to_thread(_folder, request)
    column = re.sub(r"\D", "", request.query.get("column", "")) or "0"
    given = (folder, result, request.query.get("item", ""), number(column))
    found = await asyncio.to_thread(items.measured_cell, *given)
    return answer(request, found | {"calls": view.priced(found, {"models.target_model": result.get("target", "")})})
