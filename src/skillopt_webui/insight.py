"""The report's findings for the page: blame, failures, costs. They are found in skillopt.report."""

from __future__ import annotations

from typing import Any

from skillopt.report.blame import blame_run
from skillopt.report.costs import cost_rows, stage_seconds
from skillopt.report.failures import FailureGroup, failure_groups, lead
from skillopt.report.funnel import dropped, funnel
from skillopt.report.skill_diff import file_line
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_json
from skillopt.skill import FILE
from skillopt_webui import items, view
from skillopt_webui.files import Cache
from skillopt_webui.places import NotThereError

_cache = Cache(16)
"""Provenance of a long skill takes a while to replay."""


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


def best(run: RunDirectory) -> dict[str, Any]:
    """What the best skill does that the initial one did not: validation items, and the lines that are new."""
    summary = read_json(run.summary) if run.summary.exists() else None
    if not summary:
        raise NotThereError("nothing is measured yet")
    version = summary["best"]["version"]
    table = items.run_items(run)
    moved: dict[str, list[str]] = {"improved": [], "regressed": []}
    if version and {"v0", f"v{version}"} <= set(table["columns"]):
        before, after = (table["columns"].index(name) for name in ("v0", f"v{version}"))
        for row in table["rows"]:
            a, b = row["scores"][before], row["scores"][after]
            if row["split"] == "val" and None not in (a, b) and a != b:
                moved["improved" if b > a else "regressed"].append(row["item"])
    blame = blamed(run, version) if version else {"lines": [], "entries": {}}
    lines = [
        {"text": text, "step": blame["entries"][seq]["step"]} for text, seq in blame["lines"] if seq and text.strip()
    ]
    return {"version": version, **moved, "lines": lines}


def failures(run: RunDirectory) -> dict[str, Any]:
    """Items that no skill has solved, by cause, with what the evidence allows; and items that the endpoint refuses."""
    groups = _cache.get("failures", run.summary, lambda _: failure_groups(run)) or []
    summary = read_json(run.summary) if run.summary.exists() else {}
    shown = [_group(group) for group in groups]
    return {"general": lead(groups), "groups": shown, "set_aside": summary.get("set_aside", {})}


def _group(group: FailureGroup) -> dict[str, Any]:
    rows = [
        {"item": item.item_id, "type": item.type, "said": item.said, "last": item.last and item.last["id"]}
        for item in group.items
    ]
    standing = group.items[0].standing
    return {"pattern": group.pattern, "advice": group.advice, "standing": standing, "items": rows}


def costs(run: RunDirectory) -> dict[str, Any]:
    if not run.summary.exists():
        raise NotThereError("nothing is counted yet; the first step has to be finished")
    summary = read_json(run.summary)
    history = read_json(run.history) if run.history.exists() else []
    return {
        "rows": [vars(row) for row in cost_rows(summary)],
        "seconds": stage_seconds(summary, history),
        "funnel": funnel(history),
        "dropped": dropped(history),
        "plan": summary.get("plan"),
    }
