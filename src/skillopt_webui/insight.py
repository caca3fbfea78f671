"""The report's findings for the page: blame, heat map, failures, costs. They are found in skillopt.report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from skillopt.report.blame import blame_run
from skillopt.report.costs import cost_rows, stage_seconds
from skillopt.report.failures import FailureGroup, failure_groups, lead
from skillopt.report.funnel import dropped, funnel
from skillopt.report.heatmap import heat_map
from skillopt.report.skill_diff import file_line
from skillopt.run.directory import RunDirectory
from skillopt.skill import FILE
from skillopt_webui import view
from skillopt_webui.files import Cache, load
from skillopt_webui.places import NotThereError

_cache = Cache(16)
"""Heat maps of large runs take a second to make."""


def blamed(run: RunDirectory, version: int) -> dict[str, Any]:
    """A version line by line, each with the edit that wrote it; each edit is there once, by number."""
    text = view.skill_text(run, version)
    lines = _cache.get(f"blame {version}", run.snapshot(version), lambda _: blame_run(run, version)) or []
    entries: dict[int, dict[str, Any]] = {}
    rows = []
    for line in lines:
        if line.entry and line.entry.seq not in entries:
            entries[line.entry.seq] = {
                "step": line.entry.step,
                "epoch": line.entry.epoch,
                "version": line.entry.version,
                "kind": line.entry.kind,
                "edit": line.entry.edit.model_dump(mode="json"),
                "evidence": line.entry.evidence,
            }
        if line.file != FILE and line.number == 1:
            rows.append([file_line(line.file), 0])
        rows.append([line.text, line.entry.seq if line.entry else 0])
    return {"version": version, "text": text, "lines": rows, "entries": entries}


def heat(run: RunDirectory) -> dict[str, Any]:
    """Items × versions, values as whole hundredths: a large map stays small on the wire."""
    known: dict[str, Any] | None = _cache.get("heat", run.history, lambda _: _heat(run))
    return known or {"versions": [], "items": [], "splits": [], "values": []}


def _heat(run: RunDirectory) -> dict[str, Any]:
    found = heat_map(run)
    return {
        "versions": found.versions,
        "items": found.items,
        "splits": found.splits,
        "values": [[-1 if v is None else round(v * 100) for v in row] for row in found.values],
    }


def cell(run: RunDirectory, item: str, version: int) -> dict[str, Any]:
    """The trajectory behind a field of the heat map: the gate that let the version in, or a batch it was trained on."""
    rows = view.overview(run)["steps"]
    current = 0
    for row in rows:
        if row["verdict"] == "accept" and row["version"] == version and (found := _in(run.step(row["step"]), 1, item)):
            return found | {"version": version}
        if current == version and (found := _in(run.step(row["step"]), 0, item)):
            return found | {"version": version}
        end = row["epoch_end"] or {}
        current = (end.get("slow_update") or {}).get("version") or row["version"]
    raise NotThereError(f"of '{item}' under version {version} only the score was kept (an evaluation of a whole split)")


def _in(folder: Path, gate: int, item: str) -> dict[str, Any] | None:
    path = folder / ("trajectories.jsonl", "gate_trajectories.jsonl")[gate]
    if not path.exists():
        return None
    wanted = json.dumps(item, ensure_ascii=False)
    with path.open(encoding="utf-8") as file:
        for line in file:
            if wanted in line and (row := json.loads(line))["item_id"] == item:
                return dict(row)
    return None


def failures(run: RunDirectory) -> dict[str, Any]:
    """Items that no skill has solved, by pattern, with what they point to; and items that the endpoint refuses."""
    groups = _cache.get("failures", run.history, lambda _: failure_groups(run)) or []
    summary = load(run.summary) if run.summary.exists() else {}
    shown = [_group(group) for group in groups]
    return {"general": lead(groups), "groups": shown, "set_aside": summary.get("set_aside", {})}


def _group(group: FailureGroup) -> dict[str, Any]:
    items = [
        {"item": item.item_id, "type": item.type, "skills": item.skills, "last": item.last and item.last["id"]}
        for item in group.items
    ]
    return {"pattern": group.pattern, "advice": group.advice, "items": items}


def costs(run: RunDirectory) -> dict[str, Any]:
    if not run.summary.exists():
        raise NotThereError("nothing is counted yet; the first step has to be finished")
    summary = load(run.summary)
    history = load(run.history) if run.history.exists() else []
    return {
        "rows": [vars(row) for row in cost_rows(summary)],
        "seconds": stage_seconds(summary, history),
        "funnel": funnel(history),
        "dropped": dropped(history),
        "plan": summary.get("plan"),
    }
