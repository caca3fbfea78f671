"""Answers requests for the results and items of evaluations, comparisons and checks. The measurements may have
been started from the page or from a terminal."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from skillopt.errors import Damaged
from skillopt.record.base import Record
from skillopt.record.directory import ALTERED, RunDirectory
from skillopt.record.results import CheckResult, Comparison, EvalSummary
from skillopt.record.run import Run, read_record
from skillopt_webui import items, view
from skillopt_webui.answers import Body, Call, Routes
from skillopt_webui.api_runs import FoundItems
from skillopt_webui.files import Stamp, readable, stamp
from skillopt_webui.places import RESULTS, NotThereError, inside, plain_name

routes = Routes()
ONE = r"/api/measured/{root:\d+}/{kind:evaluations|comparisons|checks}/{benchmark}/{name}"
_MODELS: dict[str, type[items.Result]] = {"evaluations": EvalSummary, "comparisons": Comparison, "checks": CheckResult}
Made = TypeVar("Made", bound=BaseModel)


class MeasuredRow(Record):
    id: str
    kind: str
    changed: float
    result: items.Result
    """The record of the measurement. Its lists of items are left out."""


class MeasuredList(Record):
    rows: list[MeasuredRow]
    names: dict[str, str]
    """The names that people gave to runs, by the name of the run's folder."""


class MeasuredPage(Record):
    kind: str
    names: dict[str, str]
    result: items.Result
    table: items.ItemTable


@routes.read("/api/measured")
def measured(call: Call[Body]) -> MeasuredList:
    """All measurements below the output folders, the newest first."""
    rows = []
    for count, root in enumerate(call.settings.outputs):
        for kind, file in RESULTS.items():
            for path in root.glob(f"{kind}/*/*/{file}"):
                result = readable(partial(_brief, kind, path, stamp(path)))
                if result and inside(path, [root]):
                    name = "/".join((str(count), *path.relative_to(root).parts[:3]))
                    rows.append(MeasuredRow(id=name, kind=kind, changed=path.stat().st_mtime, result=result))
    return MeasuredList(rows=sorted(rows, key=lambda row: -row.changed), names=_names(call))


def _names(call: Call[Body]) -> dict[str, str]:
    return {row.name: row.labels.name for row in call.server.index.rows() if row.labels.name}


@lru_cache(2000)
def _brief(kind: str, path: Path, state: Stamp | None) -> items.Result:
    result = read_record(_MODELS[kind], path)
    if isinstance(result, EvalSummary):
        return result.model_copy(update={"scores": {}, "failed": (), "by_type": {}})
    if isinstance(result, CheckResult):
        return result.model_copy(update={"changed": ()})
    return result.model_copy(update={"lists": result.lists.model_copy(update=dict.fromkeys(dict(result.lists), ()))})


def _read(call: Call[Body], make: Callable[[Run, items.Result], Made]) -> Made:
    """Return what `make` returns for a measurement's folder and its stored record. Raises Damaged if a file is
    damaged."""
    outputs, args = call.settings.outputs, call.args
    if call.number("root") >= len(outputs) or not all(plain_name(args[name]) for name in ("benchmark", "name")):
        raise NotThereError("no such measurement")
    root = outputs[call.number("root")]
    folder = root / args["kind"] / args["benchmark"] / args["name"]
    path = folder / RESULTS[args["kind"]]
    if not inside(path, [root]) or not path.is_file() or RunDirectory(folder).irregular():
        raise NotThereError("no such measurement")
    try:
        return make(Run(RunDirectory(folder)), read_record(_MODELS[args["kind"]], path))
    except (Damaged, *ALTERED) as error:
        raise Damaged(f"{folder}: a file is damaged ({type(error).__name__}); measure again") from error


@routes.read(ONE)
def one(call: Call[Body]) -> MeasuredPage:
    """The result of a measurement, and its table of items."""

    def page(folder: Run, result: items.Result) -> MeasuredPage:
        table = items.measured_items(folder, result)
        return MeasuredPage(kind=call.args["kind"], names=_names(call), result=result, table=table)

    return _read(call, page)


@routes.read(ONE + "/items/search")
def search(call: Call[Body]) -> FoundItems:
    text = call.args.get("q", "")
    files = ["trajectories.jsonl"] if text else []
    return _read(call, lambda run, _: FoundItems(items=items.search(run, [run.root / name for name in files], text)))


@routes.read(ONE + "/trajectory")
def trajectory(call: Call[Body]) -> view.ShownRollout:
    item, column = call.args.get("item", ""), call.number("column", "0")
    return _read(call, lambda run, result: view.ShownRollout(rollout=items.measured_cell(run, result, item, column)))
