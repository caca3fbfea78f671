"""The trajectories of a run, from all of its files: evaluations, training, gate, slow update."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from skillopt.errors import UserError
from skillopt.run.directory import RunDirectory

Trace = dict[str, Any]
"""A stored Trajectory, or a RolloutError (it has `error` and no `score`)."""


def trace_files(run: RunDirectory) -> list[Path]:
    """In the order of the run: evaluations, each step's batch, then its gate; the slow updates last."""
    measured = sorted(run.evaluations.glob("*.jsonl"))
    folders = [*sorted(run.steps.glob("step_*")), *sorted(run.root.glob("slow_update/epoch_*"))]
    rest = [folder / name for folder in folders for name in ("trajectories.jsonl", "gate_trajectories.jsonl")]
    return [path for path in (*measured, *rest) if path.is_file()]


def read_traces(run: RunDirectory) -> Iterator[Trace]:
    """All of them, one at a time: a long run has thousands."""
    for path in trace_files(run):
        with path.open(encoding="utf-8") as file:
            for line in file:
                if line.strip():
                    yield json.loads(line)


def find_trace(run: RunDirectory, trace_id: str) -> Trace:
    """The trajectory with that id, as edits cite it."""
    with run.as_written():
        wanted = json.dumps(trace_id)
        for path in trace_files(run):
            with path.open(encoding="utf-8") as file:
                for line in file:
                    if wanted in line and (trace := json.loads(line))["id"] == trace_id:
                        return dict(trace)
    raise UserError(f"{run.root}: has no trajectory '{trace_id}'; ids look like 0003-007 or gate-0003-012")


def result_of(trace: Trace) -> str:
    """What came out: the answer, and what became of the files."""
    changes = (f"{each['kind']} {each['path']}: {each['shown']}" for each in trace.get("changes", ()))
    return "\n".join([trace.get("output", ""), *changes]).strip()


def trace_lines(trace: Trace) -> list[str]:
    """One trajectory for a terminal; the caller makes it printable."""
    if "score" not in trace:
        return [f"{trace['id']}: item {trace['item_id']}, no score: {trace['error']}"]
    score = trace["score"]
    kind = f" ({trace['type']})" if trace.get("type") else ""
    lines = [f"{trace['id']}: item {trace['item_id']}{kind}, hard {score['hard']:g}, soft {score['soft']:.2f}"]
    lines.append(f"skill: {trace['skill_hash'][:12]}")
    if score.get("feedback"):
        lines.append(f"feedback: {score['feedback']}")
    if trace.get("opened"):
        lines.append(f"opened of the package: {', '.join(trace['opened'])}")
    for message in trace["messages"]:
        content = message.get("content", f"(the skill, {str(message.get('skill', ''))[:12]})")
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        calls = [call["function"] for call in message.get("tool_calls", ())]
        shown = [text] if text or not calls else []
        shown += [f"[calls {each['name']}: {_arguments(each['arguments'])}]" for each in calls]
        lines += ["", f"--- {message['role']} ---", *shown]
    for change in trace.get("changes", ()):
        lines += ["", f"--- {change['kind']} {change['path']} ---", *([change["shown"]] if change["shown"] else [])]
    return [*lines, "", "--- scored output ---", trace["output"]]


def _arguments(text: str) -> str:
    """The one argument of a call as it is, several as JSON."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return text
    values = list(given.values()) if isinstance(given, dict) else []
    return values[0] if len(values) == 1 and isinstance(values[0], str) else text
