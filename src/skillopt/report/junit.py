"""JUnit XML of a check: one suite a skill, a case for the verdict and one for each item that changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from skillopt.measure.suite import Outcome
from skillopt.report.text import clipped, printable

_LONGEST = 2000


def junit(outcomes: Sequence[Outcome]) -> str:
    suites = "".join(_suite(outcome) for outcome in outcomes)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="skillopt check">\n{suites}</testsuites>\n'


def _suite(outcome: Outcome) -> str:
    cases = list(_cases(outcome))
    counts = {kind: sum(f"<{kind}" in case for case in cases) for kind in ("failure", "error", "skipped")}
    name = outcome.name if not outcome.target else f"{outcome.name} on {outcome.target}"
    head = (
        f'<testsuite name={_attribute(name)} tests="{len(cases)}" failures="{counts["failure"]}" '
        f'errors="{counts["error"]}" skipped="{counts["skipped"]}">'
    )
    return f"  {head}\n{''.join(f'    {case}{chr(10)}' for case in cases)}  </testsuite>\n"


def _cases(outcome: Outcome) -> Iterator[str]:
    """A lost item fails only where the skill as a whole is worse: single items come and go."""
    kinds = {"worse": "failure", "error": "error", "stopped": "error"}
    skipped = {"cannot tell", "unchanged", "removed", "not measured"}
    kind = kinds.get(outcome.status, "skipped" if outcome.status in skipped else "")
    yield _case(outcome, "verdict", kind, f"{outcome.status}: {outcome.says}", outcome.says)
    for row in (outcome.result or {}).get("changed", ()):
        lost = row["change"] == "regressed" and outcome.status == "worse"
        message = f"{row['change']}: {row['base']['score']:.2f} → {row['skill']['score']:.2f}"
        yield _case(outcome, row["item_id"], "failure" if lost else "", message, _both(row))


def _case(outcome: Outcome, name: str, kind: str, message: str, text: str) -> str:
    head = f"<testcase classname={_attribute(outcome.name)} name={_attribute(name)}>"
    said = escape(printable(text))
    if not kind:
        return f"{head}<system-out>{escape(printable(message))}\n{said}</system-out></testcase>"
    return f"{head}<{kind} message={_attribute(message)}>{said}</{kind}></testcase>"


def _both(row: Mapping[str, Any]) -> str:
    parts = (("task", row["input"]), ("base", row["base"]["output"]), ("skill", row["skill"]["output"]))
    return "\n".join(f"{title}: {clipped(text, _LONGEST)}" for title, text in parts)


def _attribute(text: str) -> str:
    return quoteattr(" ".join(printable(text).split()))
