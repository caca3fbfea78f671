"""Shows the result of a check: as lines and tables on a terminal, or as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from skillopt.measure.batch import CheckOutcome
from skillopt.measure.matrix import CellChange
from skillopt.measure.verdict import spent_sentence
from skillopt.preflight.lint import Finding, Linted
from skillopt.record.matrix import Matrix
from skillopt.record.results import CheckResult, ScoreWithInterval, SideTakes
from skillopt.view.columns import table_lines
from skillopt.view.markdown import fenced, plain, table
from skillopt.view.text import clipped, counted, duration, printable, ranged
from skillopt.view.traces import item_name

_SHOWN, _MOST = 600, 12
"""The limits of summary.md: characters of an output, and number of items. `check.json` contains everything."""
_HEAD = ("per task", "base", "skill")
_ROWS = ("score", "prompt tokens", "reply tokens", "dollars", "turns", "seconds", "refused by the endpoint")


# On a terminal


def outcome_table(result: CheckResult) -> list[str]:
    """A table of both skills: the score, and the tokens, turns, dollars and seconds per task."""
    return table_lines(_HEAD, list(_both_columns(result)))


def target_lines(outcomes: Sequence[CheckOutcome]) -> list[str]:
    """A table with a row for each pair of skill and target."""
    head = ("target", "verdict", "base score", "skill score", "difference", "items", "$ per task", "skill")
    rows: list[Sequence[str]] = []
    for outcome in outcomes:
        cells = _row(outcome)
        rows.append([outcome.target, outcome.status, *cells[:4], cells[6], outcome.name])
    return table_lines(head, rows, left=range(8))


def matrix_lines(matrix: Matrix) -> list[str]:
    """The matrix as a table: a row per skill, a column per target, one word per cell."""
    rows = []
    for skill in matrix.skills:
        cells = [matrix.cell(skill, target) for target in matrix.targets]
        rows.append((skill, *(cell.word if cell else "–" for cell in cells)))
    return table_lines(("skill", *matrix.targets), rows, left=range(1 + len(matrix.targets)))


def change_line(change: CellChange) -> str:
    """A changed cell as a line: `worse: skills/triage on openai:x: keep → retrain. …`"""
    cell, before = change.after, change.before.word if change.before else "new"
    return (
        f"{'worse' if change.worse else 'changed'}: {cell.skill} on {cell.target}: {before} → {cell.word}. {cell.why}"
    )


def outcome_lines(outcome: CheckOutcome) -> list[str]:
    """The verdict in plain words, and the number of rollouts behind it."""
    result = outcome.result
    if result is None or result.same_text:
        return [f"{outcome.status.upper()}  {outcome.name}: {outcome.sentence}"]
    repeats = f", up to {counted(result.repeats, 'repeat')} of an item" if result.repeats else ""
    return [
        f"{outcome.status.upper()}  {outcome.name}: {outcome.sentence} {spent_sentence(result.telemetry.paid)}",
        f"{result.rollouts.asked} rollouts{repeats}; one pass over all items with both skills takes "
        f"{result.rollouts.full_pass}.",
    ]


def changed_lines(result: CheckResult, most: int = 5) -> Iterator[str]:
    """Lines on the items that changed, the largest losses first: the scores and outputs of both skills."""
    for row in result.changed[:most]:
        name = item_name(row.item_id, row.input)
        yield f"{row.change}: {name} ({row.base.score:.2f} → {row.skill.score:.2f})"
        for title, side in (("base", row.base), ("skill", row.skill)):
            yield f"  {title}: {clipped(' '.join(side.output.split()), 160)}"
    if left := len(result.changed) - most:
        yield f"… and {counted(left, 'more item')} that changed" if left > 0 else ""


def finding_line(finding: Finding) -> str:
    """A finding of lint as a line: `error  skills/a/SKILL.md:12 link: 'references/x.md' does not exist → add the
    file`."""
    where = f"{finding.file}:{finding.line}"
    return f"{finding.level}  {where} {finding.rule}: {finding.says} → {finding.fix}"


def token_line(linted: Linted) -> str:
    """A sentence that says how many tokens a skill adds to every request, to every task that uses the skill, and to a
    task that also reads all its other documents."""
    tokens = linted.tokens
    listed = f"{tokens.listed:,} in every request (name and description), " if tokens.listed else ""
    read = f", {tokens.on_demand:,} more if the task reads all other documents" if tokens.on_demand else ""
    return f"Tokens: {listed}{tokens.loaded:,} in every task that uses the skill{read}."


# For a pull request


def summary(outcomes: Sequence[CheckOutcome]) -> str:
    """A page of Markdown: a table of all checks, then for each check the items that changed and the findings of
    lint."""
    parts = [f"# Skill check: {_counts(outcomes)}"]
    if outcomes:
        head = (
            "skill",
            "target",
            "verdict",
            "base score",
            "skill score",
            "difference",
            "items",
            "tokens per task",
            "turns",
            "$ per task",
            "seconds",
        )
        parts.append(table(head, [_summary_row(outcome) for outcome in outcomes]))
    for outcome in outcomes:
        parts += _details(outcome)
    return "\n\n".join(part for part in parts if part) + "\n"


def _counts(outcomes: Sequence[CheckOutcome]) -> str:
    if not outcomes:
        return "no skill is listed"
    statuses = [outcome.status for outcome in outcomes]
    return ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))


def _summary_row(outcome: CheckOutcome) -> tuple[str, ...]:
    mark = {0: "✓", 1: "✗", 4: "?"}.get(outcome.code, "!")
    return (plain(outcome.name), plain(outcome.target), f"{mark} {outcome.status}", *_row(outcome))


def _row(outcome: CheckOutcome) -> list[str]:
    """The cells of a row: both scores, their difference, items, tokens, turns, dollars, seconds."""
    result = outcome.result
    if result is None or result.same_text:
        return ["–"] * 8
    base, skill = result.takes.base, result.takes.skill
    tokens = (base.prompt_tokens + base.completion_tokens, skill.prompt_tokens + skill.completion_tokens)
    return [
        f"{result.scores.base.score:.2f}",
        f"{result.scores.skill.score:.2f}",
        f"{result.difference:+.2f}",
        f"{result.measured} of {result.items}",
        f"{tokens[0]:,.0f} → {tokens[1]:,.0f}",
        f"{base.turns:.1f} → {skill.turns:.1f}",
        f"{_dollars(base)} → {_dollars(skill)}",
        f"{base.telemetry.seconds:.1f} → {skill.telemetry.seconds:.1f}",
    ]


def _dollars(takes: SideTakes) -> str:
    return "unknown" if takes.usd is None else f"{takes.usd:.5f}"


def _details(outcome: CheckOutcome) -> Iterator[str]:
    if outcome.status == "unchanged" and not outcome.linted.findings:
        return
    yield f"## {plain(outcome.name)}: {outcome.status}"
    yield plain(outcome.sentence)
    result = outcome.result
    if result and not result.same_text:
        yield plain(" ".join(outcome_lines(outcome)[1:]))
        yield table(_HEAD, _both_columns(result))
        yield from _changed(result)
    yield from _lint(outcome.linted)


def _changed(result: CheckResult) -> Iterator[str]:
    rows = result.changed
    if not rows:
        return
    lost = sum(row.change == "regressed" for row in rows)
    yield f"### Items that changed: {lost} regressed, {len(rows) - lost} improved"
    for row in rows[:_MOST]:
        name = escape(printable(" ".join(item_name(row.item_id, row.input).split())))
        scores = f"{row.base.score:.2f} → {row.skill.score:.2f}"
        head = f"<details><summary>{row.change}: {name} ({scores})</summary>"
        shown = [("Task", row.input), ("Base", row.base.output), ("Skill", row.skill.output)]
        body = "\n\n".join(f"{title}:\n\n{fenced(clipped(text, _SHOWN))}" for title, text in shown)
        yield f"{head}\n\n{body}\n\n</details>"
    if len(rows) > _MOST:
        yield f"… and {counted(len(rows) - _MOST, 'more item')}; check.json has them all."


def _lint(linted: Linted) -> Iterator[str]:
    if linted.findings:
        yield "### Lint"
        yield "\n".join(f"- {plain(finding_line(finding))}" for finding in linted.findings[:50])
    yield plain(token_line(linted))


def _both_columns(result: CheckResult) -> Iterator[tuple[str, str, str]]:
    base = _column(result.scores.base, result.takes.base)
    return zip(_ROWS, base, _column(result.scores.skill, result.takes.skill), strict=True)


def _column(scores: ScoreWithInterval, takes: SideTakes) -> list[str]:
    return [
        ranged(scores.score, scores.interval),
        f"{takes.prompt_tokens:,.0f}",
        f"{takes.completion_tokens:,.0f}",
        _dollars(takes),
        f"{takes.turns:.1f}",
        duration(takes.telemetry.seconds),
        str(takes.refused),
    ]
