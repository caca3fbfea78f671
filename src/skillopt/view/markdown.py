"""`report.md`: the report for a terminal, a chat or a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from skillopt.view.blame import by_file, where
from skillopt.view.console import early_line, extension_lines, validation_change
from skillopt.view.failures import lead
from skillopt.view.figures import COST_HEAD, cost_table, funnel, measured_skills, stage_seconds, use_table
from skillopt.view.plan_lines import planned_rows
from skillopt.view.run_facts import Change, Facts, lines_lost
from skillopt.view.text import clipped, duration, printable, ranged
from skillopt.view.text import counted as number_of
from skillopt.view.traces import result_of
from skillopt.view.use import HeldOutAnswer

_SPECIAL = re.compile(r"([\\`*_\[\]<>#!|~^@&]|:(?=//|[\w+-]+:)|(?<=[^\s(])\$|\$(?!\d))")
"""Matches the characters of a line that Markdown would read as markup, so that they can be escaped. A colon matches
only before `//` (a link), or before a name and a second colon (an emoji). A dollar sign does not match in
an amount such as `$0.31`."""


def plain(value: object) -> str:
    """Any text as one line of Markdown, escaped: nothing in it becomes a format, link, tag or table cell."""
    return _SPECIAL.sub(r"\\\1", " ".join(printable(str(value)).split()))


def fenced(text: str, kind: str = "") -> str:
    """Any text in a code fence that is longer than every fence in the text."""
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
    yield f"# {plain(summary.benchmark)}, seed {summary.seed}: {plain(summary.status)}"
    yield plain(facts.verdict)
    yield plain("".join(early_line(summary)))
    figures = ((each.name, each.initial, each.best, each.note) for each in facts.figures)
    yield table(("", "initial", "best", ""), figures)
    measured = (
        (skill.name, ranged(skill.val, skill.val_interval), ranged(skill.test, skill.test_interval))
        for skill in measured_skills(summary)
    )
    yield table(("skill", "validation", "test"), measured)
    if facts.use.initial and facts.use.best:
        yield "## The skill in use"
        yield table(("", "initial skill", "best skill"), use_table(facts.use.initial, facts.use.best))
        yield "\n".join(_answer(each) for each in facts.use.answers)
    rejected = (record for record in facts.history if record.evidence.reason)
    yield "\n".join(f"- Step {record.step}: rejected: {plain(record.evidence.reason)}" for record in rejected)
    yield f"Schedule: {plain(summary.plan.schedule)}" if summary.plan and summary.plan.schedule else ""
    yield "## Edits"
    yield " → ".join(f"{stage} {count}" for stage, count in funnel(facts.history).items())
    yield f"Accepted edits removed {number_of(facts.lines_lost, 'line')}." if facts.lines_lost else ""
    yield "## Accepted versions" if facts.changes else ""
    for change in facts.changes:
        yield _change(change)
    yield "## Persistent failures" if facts.failures else ""
    yield lead(facts.failures) if facts.failures else ""
    for group in facts.failures:
        items = ", ".join(plain(facts.names.get(item.item_id, item.item_id)) for item in group.items)
        yield f"- **{plain(group.pattern)}** ({len(group.items)}): {items}. {plain(group.advice)}"
    yield "## Cost and time"
    yield table(COST_HEAD, (list(map(plain, row)) for row in cost_table(summary)[0]))
    seconds = stage_seconds(summary)
    yield "Time by stage: " + ", ".join(
        f"{stage.replace('_', ' ')} {duration(took)}" for stage, took in seconds.items()
    )
    yield table(("", "planned (estimate)", "actual"), planned_rows(summary.plan)) if summary.plan else ""
    yield plain(" ".join(extension_lines(summary)))
    reads = (f"{read.when[:19]} by {read.who}, {read.items} items" for read in facts.test_reads)
    yield f"Reads of the held-out test split: {plain('; '.join(reads))}" if facts.test_reads else ""
    yield "## Best skill"
    files = by_file(facts.lines)
    for path, lines in files.items():
        if len(files) > 1:
            yield f"`{plain(path)}`"
        yield fenced("\n".join(line.text for line in lines), "markdown" if path.endswith(".md") else "text")
    if not files:
        yield fenced("", "markdown")


def _answer(pair: HeldOutAnswer) -> str:
    """A line on a held-out task, with its scores and answers under the initial and the best skill."""
    scores = f"{pair.before.score.soft:.2f} → {pair.after.score.soft:.2f}"
    before, after = (plain(clipped(result_of(each), 160)) for each in (pair.before, pair.after))
    task = plain(clipped(pair.before.input, 160))
    return f"- {task} Score {scores}. Before: {before or 'nothing'}. After: {after or 'nothing'}."


def _change(change: Change) -> str:
    first = change.first
    lines = [f"- Version {first.version}, step {first.step}, validation {validation_change(change.evidence)}"]
    for entry in change.entries:
        edit = entry.edit
        words = plain(f"{edit.id}{where(edit)}: {clipped(edit.text or edit.anchor, 240)}")
        lines.append(f"  - {edit.op} {words}")
        for line, reason in lines_lost(entry).items():
            lines.append(f"    - removes “{plain(clipped(line, 240))}”: {plain(clipped(reason or 'no reason', 240))}")
    return "\n".join(lines)
