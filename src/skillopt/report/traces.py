"""The trajectories of a run, from all of its files: evaluations, training, gate, slow update."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
        yield from traces_in(path)


def traces_in(path: Path, about: str = "") -> Iterator[Trace]:
    """Those of one file; `about` an id or item, those in whose line it occurs, without parsing the others."""
    wanted = json.dumps(about, ensure_ascii=False) if about else ""
    if path.is_file():
        with path.open(encoding="utf-8") as file:
            for line in file:
                if line.strip() and wanted in line:
                    yield json.loads(line)


def find_trace(run: RunDirectory, trace_id: str) -> Trace | None:
    """The trajectory with that id, as edits cite it; its id says in which folder it probably is."""
    home = re.match(r"(?:gate-)?(slow-)?(\d{2,9})-", trace_id)
    likely = (run.slow_update if home[1] else run.step)(int(home[2])) if home else run.evaluations
    for path in sorted(trace_files(run), key=lambda path: path.parent != likely):
        for trace in traces_in(path, trace_id):
            if trace["id"] == trace_id:
                return trace
    return None


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
