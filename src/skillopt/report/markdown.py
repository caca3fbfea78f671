"""`report.md`: the report for a terminal, a chat or a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from skillopt.report.blame import by_file
from skillopt.report.costs import cost_rows, stage_seconds, total_usd
from skillopt.report.failures import lead
from skillopt.report.funnel import funnel
from skillopt.report.plan_lines import planned_rows
from skillopt.report.run_facts import Change, Facts
from skillopt.report.text import clipped, dollars, duration, printable, ranged, score
from skillopt.skill import FILE

_SPECIAL = re.compile(r"([\\`*_\[\]<>#!|~^@&]|:(?=//|[\w+-]+:)|(?<![\s(])\$|\$(?!\d))")
"""Marks that mean something within a line; no text of others ever begins one. A colon does before a link and around an
emoji's name, a dollar sign around a formula; "$0.31" has none."""


def plain(value: object) -> str:
    """Any text as text in one line of Markdown: it cannot become a mark, link, tag or table cell."""
    return _SPECIAL.sub(r"\\\1", " ".join(printable(str(value)).split()))


def fenced(text: str, kind: str = "") -> str:
    """Any text in a fence that it cannot close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind}\n{printable(text).rstrip()}\n{fence}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(head), " | ".join("---" for _ in head), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def markdown(facts: Facts) -> str:
    return "\n\n".join(part for part in _parts(facts) if part) + "\n"


def _parts(facts: Facts) -> Iterator[str]:
    summary = facts.summary
    initial, best, rate = summary["initial"], summary["best"], summary["edit_acceptance_rate"]
    yield f"# {plain(summary['benchmark'])}, seed {summary['seed']}: {plain(summary['status'])}"
    yield plain(facts.verdict)
    yield table(
        ("", "initial", "best"),
        [
            ("validation score", *(ranged(s["val"], s["val_interval"]) for s in (initial, best))),
            ("test score", *(ranged(s["test"], s["test_interval"]) for s in (initial, best))),
            ("skill length (tokens)", str(initial["tokens"]), str(best["tokens"])),
            ("edit acceptance rate", "", "–" if rate is None else f"{rate:.0%}"),
            ("persistent failures", "", str(len(summary["persistent_failures"]))),
            ("cost", "", dollars(total_usd(summary))),
            ("time", "", duration(summary["seconds"])),
        ],
    )
    yield "## Edits"
    yield " → ".join(f"{stage} {count}" for stage, count in funnel(facts.history).items())
    yield "## Accepted versions" if facts.changes else ""
    for change in facts.changes:
        yield _change(change)
    yield "## Persistent failures" if facts.failures else ""
    yield lead(facts.failures) if facts.failures else ""
    for group in facts.failures:
        items = ", ".join(plain(facts.names.get(item.item_id, item.item_id)) for item in group.items)
        yield f"- **{plain(group.pattern)}** ({len(group.items)}): {items}. {plain(group.advice)}"
    yield "## What it took"
    yield table(
        ("role", "stage", "calls", "prompt tokens", "reply tokens", "cost"),
        [
            (row.role, plain(row.stage), f"{row.calls:,}", _count(row.prompt), _count(row.completion), dollars(row.usd))
            for row in cost_rows(summary)
        ],
    )
    seconds = stage_seconds(summary, facts.history)
    yield "Time by stage: " + ", ".join(f"{plain(stage)} {duration(taken)}" for stage, taken in seconds.items())
    yield table(("", "planned (estimate)", "actual"), planned_rows(summary["plan"]))
    yield "## Best skill"
    files = by_file(facts.lines)
    for path, own in files.items():
        if len(files) > 1:
            yield f"`{plain(path)}`"
        yield fenced("\n".join(line.text for line in own), "markdown" if path.endswith(".md") else "text")
    if not files:
        yield fenced("", "markdown")


def _change(change: Change) -> str:
    first = change.first
    gain = f"{score(first.evidence['before'])} → {score(first.evidence['after'])}"
    lines = [f"- Version {first.version}, step {first.step}, validation {gain}"]
    for entry in change.entries:
        edit = entry.edit
        said = clipped(edit.text or edit.anchor, 240)
        place = edit.section if edit.file == FILE else f"{edit.file} {edit.section}".strip()
        lines.append(f"  - {edit.op} {plain(edit.id)}, {plain(place)}: {plain(said)}")
    return "\n".join(lines)


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
