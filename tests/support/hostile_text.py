"""Texts that try to be more than text, and a report that has one of them in every free field."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json, read_jsonl, write_json, write_jsonl
from skillopt.skill import PatchLog
from skillopt.view.html import write_report

HOSTILE = [
    "<script>alert(1)</script>",
    "</pre></style></title><img src=x onerror=alert(1)>",
    "\"' onmouseover='alert(1)' x=\"",
    "&lt;b&gt; &#60;i&#62;",
    "<!-- comment -->",
    "\x1b[31mred\x1b[2J\x1b]0;title\x07",
    "\u202eright to left\u200f\u2066",
    "\u200bzero\u200dwidth\ufeff",
    "back\b\b\b\rover",
    "\x9b31m\x85",
    "[red]markup[/red] [link=http://x]click[/link] [/]",
    "{0} {summary} %s",
]
ALL = " ".join(HOSTILE)


FREE_TEXT = {"text", "anchor", "section", "rationale", "pattern", "benchmark", "stop_reason", "reason", "error", "lost"}
FREE_TEXT |= {"path", "target", "optimizer", "name", "notes.init_skill", "notes.schedule"}


FREE_TEXT |= {"item_id", "type", "input", "output", "feedback", "cause", "who", "answer"}
FREE_LISTS = {"trajectory_ids", "persistent_failures", "answers"}


def inject(value: Any, text: str) -> Any:
    """The record with `text` in every place that a model, a task, an endpoint or a user writes to."""
    if isinstance(value, list):
        return [inject(inner, text) for inner in value]
    if not isinstance(value, dict):
        return value
    out = {key: inject(inner, text) for key, inner in value.items()}
    for key, inner in value.items():
        if key in FREE_TEXT and isinstance(inner, str):
            out[key] = text
        elif key in FREE_LISTS:
            out[key] = [text, text]
        elif key == "set_aside":
            out[key] = {text: text}
    return out


def report_with(trained: RunDirectory, folder: Path, text: str) -> str:
    shutil.copytree(trained.root, folder)
    run = RunDirectory(folder)
    for path in (
        run.history,
        run.summary,
        run.config_json,
        *run.root.glob("s*/*/*.json"),
        *run.evaluations.glob("*.json"),
    ):
        write_json(path, inject(read_json(path), text))
    for path in (run.test_reads, *run.root.glob("s*/*/*.jsonl"), *run.evaluations.glob("*.jsonl")):
        write_jsonl(path, [inject(row, text) for row in read_jsonl(path)])
    rewrite_log(run, text)
    run.best_skill.write_bytes(f"# Skill\n\n{text}\n".encode())
    write_report(run)
    return run.report.read_bytes().decode()


def rewrite_log(run: RunDirectory, text: str) -> None:
    """The same edits, with `text` wherever an optimizer may write what it likes; a chain that holds."""
    entries = list(run.patch_log.entries())
    run.patch_log.path.unlink()
    log = PatchLog(run.patch_log.path)
    for version in sorted({entry.version for entry in entries}):
        group = [entry for entry in entries if entry.version == version]
        free = {"rationale": text, "pattern": text, "source": text}
        log.append(
            [entry.edit.model_copy(update=free) for entry in group],
            kind=group[0].kind,
            step=group[0].step,
            epoch=group[0].epoch,
            version=version,
            before=run.read_skill(version - 1),
            after=run.read_skill(version),
            evidence=inject(group[0].evidence, text),
        )
