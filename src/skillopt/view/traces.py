"""Finds a trajectory of a run by its id, and shows it."""

from __future__ import annotations

import json
import re

from skillopt.record.run import Run
from skillopt.record.trajectory import RolloutError, Trajectory
from skillopt.tasks.data import shortened

Trace = Trajectory | RolloutError
_HASH = re.compile(r"[0-9a-f]{16}")


def find_trace(run: Run, trace_id: str) -> Trace | None:
    """The trajectory with this id, or the error of its rollout; None if the run has neither. The id tells which folder
    to search first."""
    home = re.match(r"(?:gate-)?(slow-)?(\d{2,9})-", trace_id)
    files = run.files
    likely = (files.slow_update if home[1] else files.step)(int(home[2])) if home else files.evaluations
    for path in sorted(run.trace_files, key=lambda path: path.parent != likely):
        for trace in run.trajectories(path):
            if trace.id == trace_id:
                return trace
    return None


def item_name(item_id: str, task: str) -> str:
    """An item's name for people: its id or, if the id is a hash (tasks/data.py), the beginning of its question."""
    if not _HASH.fullmatch(item_id) or not task.strip():
        return item_id
    question = task.rpartition("\n\n")[2]
    return f"“{shortened(question, 49)}”"


def result_of(trace: Trajectory) -> str:
    """The result of a trajectory: the answer, and the changed files."""
    changes = (f"{change.kind} {change.path}: {change.shown}" for change in trace.changes)
    return "\n".join([trace.output, *changes]).strip()


def trace_lines(trace: Trace) -> list[str]:
    """A trajectory as lines for a terminal. Control characters stay: the caller makes the lines printable."""
    if isinstance(trace, RolloutError):
        return [f"{trace.id}: item {trace.item_id}, no score: {trace.error}"]
    score = trace.score
    kind = f" ({trace.type})" if trace.type else ""
    lines = [f"{trace.id}: item {trace.item_id}{kind}, hard {score.hard:g}, soft {score.soft:.2f}"]
    lines.append(f"skill: {trace.skill_hash[:12]}")
    if score.feedback:
        lines.append(f"feedback: {score.feedback}")
    if trace.opened:
        lines.append(f"opened files of the package: {', '.join(trace.opened)}")
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
    """The arguments of a tool call as text. A single string is shown without JSON, anything else as JSON."""
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        return text
    values = list(arguments.values()) if isinstance(arguments, dict) else []
    return values[0] if len(values) == 1 and isinstance(values[0], str) else text
