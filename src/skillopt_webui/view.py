"""One run as the page shows it: its state, its steps, what was proposed and why, and its trajectories."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skillopt.config import Price
from skillopt.edits.review import decisions
from skillopt.measure.course import verdict_of
from skillopt.models.base import Usage
from skillopt.models.handoff import box_of
from skillopt.models.prices import cost_of, price_of
from skillopt.report.curves import Curves, curves, guided_tokens
from skillopt.report.ranking import ranking_words
from skillopt.report.skill_diff import whole_text
from skillopt.report.traces import find_trace, traces_in
from skillopt.run.comments import feedback_of
from skillopt.run.directory import RunDirectory
from skillopt.run.events import last_events, parsed
from skillopt.run.files import read_json, read_jsonl, read_text
from skillopt.run.measured import versions_by_hash
from skillopt.run.status import remedy, status_of
from skillopt_webui.alive import holder
from skillopt_webui.files import Cache
from skillopt_webui.places import NotThereError

_cache = Cache(64)
"""Parsed histories are the largest; a server watches few runs at once."""


def overview(run: RunDirectory) -> dict[str, Any]:
    """All that the first view needs, in one answer."""
    pid = holder(run.root)
    summary = _cache.get("json", run.summary, read_json)
    status, reason = status_of(summary, run.events, busy=bool(pid))
    return {
        "pid": pid,
        "status": status,
        "reason": reason,
        "remedy": remedy(status, reason),
        "verdict": _cache.get("verdict", run.summary, lambda _: verdict(run, summary)) or "",
        "live": live(run) if pid else None,
        "events": run.events.stat().st_size if run.events.exists() else 0,
        "started": _cache.get("started", run.events, started),
        "summary": summary,
        "config": _cache.get("json", run.config_json, read_json),
        "steps": _cache.get("steps", run.history, lambda path: [step_row(r) for r in read_json(path)]) or [],
        "curves": vars_of(drawn(run)),
        "estimate": estimate(run) if pid else None,
        "versions": run.versions(),
        "conflicts": open_conflicts(run) if status != "finished" else 0,
        "letters": letters(run),
        "comments": len(feedback_of(run.comments)),
        "log": recent(run),
        "report": run.report.exists(),
    }


def verdict(run: RunDirectory, summary: Mapping[str, Any]) -> str:
    """The result in a sentence."""
    return verdict_of(run, summary, read_json(run.history) if run.history.exists() else [])


def open_conflicts(run: RunDirectory) -> int:
    """How many wait for a person."""
    if not run.conflicts.exists():
        return 0
    state = _cache.get("json", run.state, read_json) or {}
    decided = {*decisions(run), *state.get("reviewed", {})}
    return sum(row["id"] not in decided for row in read_jsonl(run.conflicts))


def drawn(run: RunDirectory) -> Curves:
    """What the charts show, from the function that the report's charts come from."""

    def made(path: Path) -> Curves:
        history = read_json(run.history) if run.history.exists() else []
        return curves(history, read_json(path), guided_tokens(run, history))

    known: Curves | None = _cache.get("curves", run.summary, made)  # the summary is written after the history
    return known or Curves()


def vars_of(value: Curves) -> dict[str, Any]:
    return {**vars(value), "marks": [vars(mark) for mark in value.marks]}


def estimate(run: RunDirectory) -> dict[str, Any] | None:
    """What the steps that are left will take if they take as much as those before: dollars, seconds, rollouts."""
    history = _cache.get("json", run.history, read_json) or []
    planned = ((_cache.get("started", run.events, started) or {}).get("steps") or 0) - len(history)
    if not history or planned <= 0:
        return None
    seconds = sum(sum(record["telemetry"].get("seconds", {}).values()) for record in history)
    paid = history[-1]["telemetry"].get("paid_so_far", {})
    costs = [role["usd"] for role in paid.values()]
    share = planned / len(history)
    return {
        "steps": planned,
        "usd": None if None in costs else sum(costs) * share,
        "seconds": seconds * share,
        "calls": round(sum(role["calls"] for role in paid.values()) * share),
    }


def letters(run: RunDirectory) -> int | None:
    """How many wait for a reply; None for a run whose optimizer is no handoff."""
    config = _cache.get("json", run.config_json, read_json) or {}
    if not str(config.get("models.optimizer_model", "")).startswith("handoff"):
        return None
    return len(box_of(run.root).open_letters())


def live(run: RunDirectory) -> dict[str, Any] | None:
    """What the trainer's pulse says: stage, progress, calls in flight, what is spent."""
    known: dict[str, Any] | None = _cache.get("json", run.live, read_json)
    return known


def started(events: Path) -> dict[str, Any] | None:
    """The newest start of this run: how many steps it has, and over what."""
    starts = [event for event in last_events(events, 400_000) if event["kind"] == "run_started"]
    with events.open("rb") as file:
        found = starts[-1] if starts else parsed(file.readline())
    return {k: v for k, v in found.items() if k != "path"} if found else None


def recent(run: RunDirectory) -> list[dict[str, Any]]:
    """The last events, for the log and for the strip of stages."""
    return [slim(event) for event in last_events(run.events, 60_000)[-60:]]


def events(run: RunDirectory, skip: int, count: int, wanted: str) -> dict[str, Any]:
    """A page of events, the newest first, and how many there are in all."""
    needle, found, total = wanted.casefold(), [], 0
    lines = run.events.read_bytes().split(b"\n") if run.events.exists() else []
    for line in reversed(lines):
        if not line or (needle and needle not in line.decode("utf-8", "replace").casefold()):
            continue
        total += 1
        if skip < total <= skip + count and (event := parsed(line)):
            found.append(slim(event))
    return {"events": found, "total": total}


def slim(event: dict[str, Any]) -> dict[str, Any]:
    """An event without what the page reads from files anyway."""
    return {k: v for k, v in event.items() if k not in {"summary", "record", "path", "outcome"}}


def step_row(record: dict[str, Any]) -> dict[str, Any]:
    """A line of the table of steps, and a point of every curve."""
    evidence = record["evidence"]
    paid = record["telemetry"].get("paid_so_far", {})
    costs = [role["usd"] for role in paid.values()]
    end = record.get("epoch_end")
    return {
        "step": record["step"],
        "epoch": record["epoch"],
        "train": record["train_score"],
        "before": evidence["before"],
        "after": evidence["after"],
        "at_most": evidence["at_most"],
        "verdict": record["verdict"],
        "score": evidence["after"] if record["verdict"] == "accept" else evidence["before"],
        "rate": record["learning_rate"]["used"],
        "edits": {k: v for k, v in record["edits"].items() if isinstance(v, int)},
        "version": record["version"],
        "tokens": record["skill_tokens"],
        "candidate_tokens": record["candidate_tokens"],
        "errors": record["rollout_errors"],
        "usd": None if None in costs else sum(costs),
        "calls": sum(role["calls"] for role in paid.values()),
        "rollouts": paid.get("target", {}).get("rollouts", paid.get("target", {}).get("calls", 0)),
        "seconds": record["telemetry"].get("seconds", {}),
        "epoch_end": _end(end) if end else None,
    }


def _end(end: dict[str, Any]) -> dict[str, Any]:
    slow = end.get("slow_update")
    return {
        "epoch": end["epoch"],
        "slow_update": slow and {k: slow.get(k) for k in ("decision", "version", "counts", "lost", "equal")},
        "meta_skill": "meta_skill" in end,
    }


def step(run: RunDirectory, number: int) -> dict[str, Any]:
    """Everything that happened in one step, stage by stage."""
    folder = run.step(number)
    if not folder.is_dir():
        raise NotThereError(f"step {number} is not finished, or does not exist")
    selected = read_json(folder / "selected.json")
    return {
        "record": read_json(folder / "step_record.json"),
        "patches": read_json(folder / "patches.json"),
        "aggregate": read_json(folder / "aggregate.json"),
        "ranked": [
            row | {"said": said}
            for row, said in zip(selected["ranked"], ranking_words(selected["ranked"]), strict=True)
        ],
        "skipped": selected["skipped"],
        "gate": read_json(folder / "gate.json"),
        "digest": read_json(folder / "trajectory_digest.json"),
    }


def epoch(run: RunDirectory, number: int) -> dict[str, Any]:
    """The epoch's end: slow update and meta skill."""
    slow, meta = run.slow_update(number), run.meta_skill(number)
    if not slow.is_dir() and not meta.is_dir():
        raise NotThereError(f"the end of epoch {number} has not been reached")
    return {
        "comparison": read_json(slow / "comparison.json") if (slow / "comparison.json").exists() else None,
        "gate": read_json(slow / "gate.json") if (slow / "gate.json").exists() else None,
        "memory": read_text(meta / "memory.md") if (meta / "memory.md").exists() else None,
    }


def trajectory(run: RunDirectory, name: str) -> dict[str, Any]:
    """One trajectory by its id, whole."""
    if found := find_trace(run, name):
        return found | {"version": version_of(run, found.get("skill_hash", ""))}
    raise NotThereError(f"no trajectory '{name}' was kept")


def priced(trace: Mapping[str, Any], config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Tokens, seconds and dollars of each call of the target; earlier versions did not keep them."""
    own = {name: Price.model_validate(row) for name, row in (config.get("budget.prices") or {}).items()}
    price = price_of(str(config.get("models.target_model", "")), own)
    rows = (trace.get("telemetry") or {}).get("calls", [])
    return [
        {**row, "usd": cost_of(Usage(**{k: row[k] for k in ("prompt", "completion", "cached")}), price)} for row in rows
    ]


def trajectory_of(run: RunDirectory, kind: str, number: int, item: str) -> dict[str, Any]:
    """An item's trajectory in a step's batch (`train`), its gate (`gate`) or a slow update (`slow`)."""
    paths = {
        "train": run.step(number) / "trajectories.jsonl",
        "gate": run.step(number) / "gate_trajectories.jsonl",
        "slow": run.slow_update(number) / "trajectories.jsonl",
    }
    if kind not in paths:
        raise NotThereError(f"no trajectories of kind '{kind}'")
    rows = [row for row in traces_in(paths[kind], item) if row["item_id"] == item]
    if rows:
        return rows[-1] | {"version": version_of(run, rows[-1].get("skill_hash", ""))}
    raise NotThereError(f"no trajectory of '{item}' was kept there")


def version_of(run: RunDirectory, skill_hash: str) -> int | None:
    known: dict[str, int] = _cache.get("hashes", run.skills, lambda _: versions_by_hash(run)) or {}
    return known.get(skill_hash)


def skill_text(run: RunDirectory, version: int) -> str:
    path = run.snapshot(version)
    if not path.is_file():
        raise NotThereError(f"no version {version}")
    return whole_text(run.read_skill(version))


def diff(a: str, b: str) -> list[dict[str, Any]]:
    """Two texts side by side: blocks of equal, changed, removed and added lines."""
    left, right = a.split("\n"), b.split("\n")
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    return [
        {"op": op, "a": left[i1:i2], "b": right[j1:j2], "a_line": i1 + 1, "b_line": j1 + 1}
        for op, i1, i2, j1, j2 in matcher.get_opcodes()
    ]
