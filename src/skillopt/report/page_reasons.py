"""The parts of the report that show why: the skill by line, accepted edits with evidence, persistent failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skillopt.report.blame import by_file, spread
from skillopt.report.console import gate_line
from skillopt.report.failures import StuckItem, lead
from skillopt.report.funnel import step_funnel
from skillopt.report.markup import bullets, fold, table, tag, text
from skillopt.report.measured_tables import VERDICTS
from skillopt.report.run_facts import Change, Facts, cited_ids
from skillopt.report.skill_diff import DiffLine, diff_skills
from skillopt.report.text import clipped, counted, score
from skillopt.report.traces import Trace, result_of
from skillopt.skill import FILE, Entry

SKILL_LEAD = "Every line of the best version in the colour of the step that wrote it; older steps are bluer."
CHANGES_LEAD = "Each accepted version: what changed, what the gate measured, and trajectories that the edits cite."
_LISTED = 12
"""Item ids that are named in a line."""
_SHOWN = 420
"""Characters of a task or an answer in a trajectory."""


def skill(facts: Facts) -> str:
    if facts.trouble:
        return tag("p", text(f"No provenance: {facts.trouble}. `skillopt verify` shows more."), cls="reject")
    if not facts.lines:
        return tag("p", "The skill is empty.", cls="soft")
    written = spread(facts.lines)
    hues = _hues(sorted(step for step in written if step))
    key = "".join(
        f'<span class="swatch" style="--h:{hues[step]}">step {step} · {count}</span>'
        if step
        else f'<span class="swatch seed">initial · {count}</span>'
        for step, count in written.items()
    )
    rows = []
    package = len(by_file(facts.lines)) > 1
    for line in facts.lines:
        if package and line.number == 1:
            rows.append(f'<div class="seed"><i></i><em>file</em><span>{text(line.file)}</span></div>')
        kind = f'style="--h:{hues[line.step]}"' if line.step else 'class="seed"'
        who = f"step {line.step}, edit {line.entry.edit.id}" if line.entry else "initial skill"
        step = str(line.step) if line.step else "seed"
        rows.append(
            f'<div {kind} title="{text(who)}"><i>{line.number}</i><em>{step}</em><span>{text(line.text)}</span></div>'
        )
    told = tag("p", text(f"Version {facts.shown}; lines by step:"), cls="soft")
    return told + tag("div", key) + tag("div", *rows, cls="code") + "".join(map(_ablation, facts.ablations))


def _ablation(result: Mapping[str, Any]) -> str:
    """What each part is worth, where that was measured."""
    rows = []
    for row in result["rows"]:
        low, high = row["interval"] or (0.0, 0.0)
        cells = (f"{row['worth']:+.3f}", f"{low:+.3f} to {high:+.3f}", str(row["tokens"]))
        said = tag("span", text(VERDICTS[row["verdict"]]), cls=_VERDICT_CLASS.get(row["verdict"], ""))
        rows.append([*(text(cell) for cell in cells), said, text(row["name"]), text(clipped(row["text"], 160))])
    head = ("worth", "95 %", "tokens", "verdict", result["by"], "")
    title = f"What each {result['by']} is worth: the validation score with it minus the score without it"
    return fold(text(title), table(head, rows, numbers=(0, 1, 2)))


_VERDICT_CLASS = {"earns": "accept", "harmful": "reject", "nothing": "skipped"}


def _hues(steps: Sequence[int]) -> dict[int, int]:
    """From blue for the first step that still has a line to orange for the last."""
    last = max(len(steps) - 1, 1)
    return {step: round(225 - 200 * n / last) for n, step in enumerate(steps)}


def changes(facts: Facts) -> str:
    if not facts.changes:
        return tag("p", "Nothing was accepted.", cls="soft")
    few = len(facts.changes) <= 3
    return "".join(_change(change, facts, opened=few) for change in facts.changes)


def _change(change: Change, facts: Facts, *, opened: bool) -> str:
    first = change.first
    before, after = first.evidence["before"], first.evidence["after"]
    what = "guidance of the slow update" if first.kind == "guidance" else counted(len(change.entries), "edit")
    gain = f"{score(before)} → {score(after)}"
    title = f"<b>Version {first.version}</b> · step {first.step} · {text(gain)} · {text(what)}"
    proof = [
        tag("p", text(f"Gate: {gate_line(first.evidence)}; measured on {first.evidence['measured']} items.")),
        tag("p", text(_moved(change, facts.names)), cls="soft"),
    ]
    diff = _diff(diff_skills(change.before, change.after))
    return fold(title, *proof, diff, *(_edit(entry, facts) for entry in change.entries), opened=opened)


def _moved(change: Change, names: Mapping[str, str]) -> str:
    improved, regressed = ([names.get(item, item) for item in own] for own in (change.improved, change.regressed))
    return f"Solved now: {_named(improved)}. Lost: {_named(regressed)}."


def _named(items: Sequence[str]) -> str:
    if not items:
        return "none"
    more = f" and {len(items) - _LISTED} more" if len(items) > _LISTED else ""
    return f"{len(items)} ({', '.join(items[:_LISTED])}{more})"


def _diff(lines: Sequence[DiffLine]) -> str:
    rows = (f'<span class="{line.kind}">{line.mark} {text(line.text)}</span>' for line in lines)
    return tag("div", *rows, cls="diff")


def _edit(entry: Entry, facts: Facts) -> str:
    edit = entry.edit
    place = "" if edit.file == FILE else f" in {edit.file}"
    place += f" in “{edit.section}”" if edit.section else ""
    title = f"<b>{text(edit.op)}</b> {text(f'{edit.id}{place}')}" + (f" · {text(edit.pattern)}" if edit.pattern else "")
    cited = len(edit.trajectory_ids)
    told = [
        f"Why: {edit.rationale}" if edit.rationale else "",
        f"Proposed by {edit.source}; expected impact {edit.impact:.2f}" if edit.source else "",
        f"Cites {counted(cited, 'trajectory', 'trajectories')}: {_named(edit.trajectory_ids)}",
    ]
    traces = "".join(_trace(facts.traces[i]) for i in cited_ids(entry) if i in facts.traces)
    return fold(title, bullets(line for line in told if line), traces)


def _trace(trace: Trace) -> str:
    if "score" not in trace:
        return ""
    found = (
        f"{trace['id']} · item {trace['item_id']} · hard {trace['score']['hard']:g}, soft {trace['score']['soft']:.2f}"
    )
    parts = [("task", trace["input"]), ("answer", result_of(trace)), ("scorer", trace["score"].get("feedback", ""))]
    parts += [("opened of the package", ", ".join(trace.get("opened", ())))]
    body = "\n".join(f"<b>{name}</b> {text(clipped(said, _SHOWN))}" for name, said in parts if said)
    return tag("div", f"<b>{text(found)}</b>\n{body}", cls="trace")


def failures(facts: Facts) -> str:
    if not facts.failures:
        ended = facts.summary["status"] != "running"
        return tag("p", "None." if ended else "Counted when the run has ended.", cls="soft")
    parts = [tag("p", text(lead(facts.failures)))]
    for group in facts.failures:
        title = f"<b>{text(group.pattern)}</b> · {counted(len(group.items), 'item')}"
        rows = [_stuck(item, facts) for item in group.items]
        head = ("item", "type", "evidence", "last answer", "expected")
        parts.append(fold(title, tag("p", text(group.advice)), table(head, rows), opened=len(parts) <= 3))
    return "".join(parts)


def _stuck(item: StuckItem, facts: Facts) -> list[str]:
    last = item.last or {}
    expected = ", ".join(str(answer) for answer in last.get("answers", ()))
    name = facts.names.get(item.item_id, item.item_id)
    cells = (name, item.type, item.said, clipped(result_of(last), 160), clipped(expected, 120))
    return [text(cell) for cell in cells]


def steps(facts: Facts) -> str:
    if not facts.history:
        return tag("p", "No step is finished yet.", cls="soft")
    rows = []
    for record in facts.history:
        counts = step_funnel(record)
        flow = " → ".join(str(counts[stage]) for stage in ("proposed", "distinct", "selected", "applied", "accepted"))
        verdict = record["verdict"] if record["verdict"] in _DECISIONS else ""
        rows.append(
            [
                str(record["step"]),
                score(record["train_score"]),
                tag("span", text(gate_line(record["evidence"])), cls=verdict),
                f"{record['learning_rate']['used']:.1f}",
                flow,
                str(record["skill_tokens"]),
            ]
        )
    head = ("step", "train", "gate", "rate", "proposed → merged → selected → applied → accepted", "tokens")
    shown = table(head, rows, numbers=(0, 1, 3, 5))
    return shown if len(rows) <= 24 else fold(f"{len(rows)} steps", shown)


_DECISIONS = {"accept", "reject", "indecisive", "skipped"}
