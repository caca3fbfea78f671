"""The optimizer's findings about the tasks and the target. A run keeps the findings, no matter what the gate decides.

A reply adds findings, or refers to an earlier finding by its number. The target never reads findings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import JsonValue, ValidationError

from skillopt.record.findings import ReportedFinding, TaskFinding
from skillopt.skill.tokens import count_tokens
from skillopt.training.edits.similarity import same_text
from skillopt.training.requests.blocks import block, data_line

MOST = 40
"""The maximum number of findings that a run keeps. Refuted findings are dropped first, then the oldest."""
MOST_REPORTED = 8
LONGEST = 300
"""The maximum number of characters of a finding."""
SHOWN = 800
"""The maximum number of tokens of findings in one request."""
SCHEMA_NOTE = (
    "What this batch teaches for later steps. number: that of a finding in <findings> which the batch supports or "
    "contradicts; 0 for a new one. kind: rule (of the task), form (that this agent follows or not), hypothesis."
)


def findings_schema(cited: JsonValue) -> dict[str, JsonValue]:
    text: dict[str, JsonValue] = {"type": "string"}
    fields: dict[str, JsonValue] = {
        "number": {"type": "integer"},
        "kind": {"type": "string", "enum": ["rule", "form", "hypothesis"]},
        "text": text,
        "supports": cited,
        "contradicts": cited,
    }
    row: JsonValue = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    return {"description": SCHEMA_NOTE, "type": "array", "maxItems": MOST_REPORTED, "items": row}


def read_findings(raw: Any, ids: Sequence[str]) -> tuple[ReportedFinding, ...]:
    """The usable findings of a reply; a reply may have none."""
    read = []
    for row in raw[:MOST_REPORTED] if isinstance(raw, list) else []:
        try:
            one = ReportedFinding.model_validate(row)
        except ValidationError:
            continue
        sides = {side: tuple(sorted(set(getattr(one, side)) & set(ids))) for side in ("supports", "contradicts")}
        if one.text.strip() or one.number:
            read.append(one.model_copy(update={**sides, "text": one.text.strip()[:LONGEST]}))
    return tuple(read)


def grown(
    known: Sequence[TaskFinding], reported: Sequence[ReportedFinding], items: dict[str, str], step: int
) -> list[TaskFinding]:
    """The findings after a step: the earlier ones and those that the step's replies report. `items` maps the id of a
    trajectory to the id of its training task."""
    kept = {finding.number: finding for finding in known}
    for one in reported:
        old = kept.get(one.number) or next((f for f in kept.values() if same_text(f.text, one.text)), None)
        number = old.number if old else max(kept, default=0) + 1
        old = old or TaskFinding(number=number, kind=one.kind, text=one.text, step=step)
        kept[number] = old.model_copy(
            update={
                "supports": tuple(sorted({*old.supports, *(items[t] for t in one.supports if t in items)})),
                "contradicts": tuple(sorted({*old.contradicts, *(items[t] for t in one.contradicts if t in items)})),
                "tested": step if step > old.step and (one.supports or one.contradicts) else old.tested,
            }
        )
    order = sorted(
        kept.values(), key=lambda finding: (not finding.refuted, finding.tested or finding.step, finding.number)
    )
    return sorted(order[-MOST:], key=lambda finding: finding.number)


def findings_block(findings: Sequence[TaskFinding]) -> str:
    """A block with as many findings as SHOWN tokens allow. Untested findings come first and refuted ones last; among
    equals, the newest come first."""
    return block("findings", "\n".join(_lines(findings)))


def _lines(findings: Sequence[TaskFinding]) -> Iterator[str]:
    left = SHOWN
    for one in sorted(findings, key=lambda f: (bool(f.tested or f.supports), f.refuted, -(f.tested or f.step))):
        line = data_line({"number": one.number, "kind": one.kind, "text": one.text, "status": one.status})
        left -= count_tokens(line)
        if left < 0:
            return
        yield line
