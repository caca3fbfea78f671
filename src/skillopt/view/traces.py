"""The trajectories of a run, from all of its files: evaluations, training, gate, slow update."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from skillopt.record.directory import RunDirectory
from skillopt.record.run import Run
from skillopt.record.trajectory import RolloutError, Trajectory

Trace = Trajectory | RolloutError


def trace_files(run: RunDirectory) -> list[Path]:
    """In the order of the run: evaluations, each step's batch, then its gate; the slow updates last."""
    measured = sorted(run.evaluations.glob("*.jsonl"))
    folders = [*sorted(run.steps.glob("step_*")), *sorted(run.root.glob("slow_update/epoch_*"))]
    rest = [folder / name for folder in folders for name in ("trajectories.jsonl", "gate_trajectories.jsonl")]
    return [path for path in (*measured, *rest) if path.is_file()]


def read_traces(run: Run) -> Iterator[Trace]:
    """All trajectories, one at a time: a long run has thousands."""
    for path in trace_files(run.files):
        yield from run.trajectories(path)


def find_trace(run: Run, trace_id: str) -> Trace | None:
    """The trajectory with that id, which edits cite. The id shows in which folder to look first."""
    home = re.match(r"(?:gate-)?(slow-)?(\d{2,9})-", trace_id)
    files = run.files
    likely = (files.slow_update if home[1] else files.step)(int(home[2])) if home else files.evaluations
    for path in sorted(trace_files(files), key=lambda path: path.parent != likely):
        for trace in run.trajectories(path):
            if trace.id == trace_id:
                return trace
    return None


def result_of(trace: Trajectory) -> str:
    """The result: the answer, and the changed files."""
    changes = (f"{change.kind} {change.path}: {change.shown}" for change in trace.changes)
    return "\n".join([trace.output, *changes]).strip()


def trace_lines(trace: Trace) -> list[str]:
    """One trajectory for a terminal; the caller makes it printable."""
    if isinstance(trace, RolloutError):
        return [f"{trace.id}: item {trace.item_id}, no score: {trace.error}"]
    score = trace.score
    kind = f" ({trace.type})" if trace.type else ""
    lines = [f"{trace.id}: item {trace.item_id}{kind}, hard {score.hard:g}, soft {score.soft:.2f}"]
    lines.append(f"skill: {trace.skill_hash[:12]}")
    if score.feedback:
        lines.append(f"feedback: {score.feedback}")
    if trace.opened:
        lines.append(f"opened of the package: {', '.join(trace.opened)}")
    for message in trace.messages:
        content = message.get("content", f"(the skill, {str(message.get('skill', ''))[:12]})")
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        calls = [call["function"] for call in message.get("tool_calls", ())]
        shown = [text] if text or not calls else []
        shown += [f"[calls {each['name']}: {_arguments(each['arguments'])}]" for each in calls]
        lines += ["", f"--- {message['role']} ---", *shown]
    for change in trace.changes:
        lines += ["", f"--- {change.kind} {change.path} ---", *([change.shown] if change.shown else [])]
    return [*lines, "", "--- scored output ---", trace.output]


def _arguments(text: str) -> str:
    """The one argument of a call as it is, several as JSON."""
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        return text
    values = list(arguments.values()) if isinstance(arguments, dict) else []
    return values[0] if len(values) == 1 and isinstance(values[0], str) else text
