"""A headroom probe as lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from skillopt.record.probe import Probe, ProbePlan, Replies
from skillopt.view.columns import table_lines
from skillopt.view.plan_lines import likely
from skillopt.view.text import dollars


def plan_line(plan: ProbePlan) -> str:
    cost = "unknown" if plan.usd is None else likely(plan.usd, dollars)
    return f"Probe: {plan.calls:,} calls, {likely(plan.tokens)} tokens, {cost} (estimate)"


def probe_lines(result: Probe) -> Iterator[str]:
    """The finding first, then the evidence."""
    yield result.sentence
    yield f"Target {result.target}; {len(result.items)} training tasks of {result.benchmark}, {result.samples} samples"
    rows = [("pass@1", f"{result.pass_1:.2f}")]
    if result.samples > 1:
        rows.append((f"pass@{result.samples}", f"{result.pass_any:.2f}"))
    if result.with_form:
        rows.append(("form shown", f"{result.with_form.right:.2f}"))
    if result.majority:
        rows.append((f"always {result.majority.answer!r}", f"{result.majority.score:.2f}"))
    yield from table_lines(("", "solved"), rows, left=(0,))
    yield f"Replies: {_unusable(result.plain)}" + (
        f"; with the form shown: {_unusable(result.with_form)}" if result.with_form else ""
    )
    if result.set_aside:
        yield f"Without a score: {', '.join(result.set_aside)} ({list(result.set_aside.values())[-1]})"
    yield f"Paid: {result.paid.calls:,} calls, {result.paid.tokens.total:,} tokens, {dollars(result.paid.usd)}"


def _unusable(replies: Replies) -> str:
    return f"{replies.cut_off:.0%} cut off, {replies.unparsable:.0%} not of an answer's form"
