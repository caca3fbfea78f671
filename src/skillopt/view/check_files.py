"""What a check and a lint write for CI: notes on lines in GitHub's log, and JUnit XML."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from html import escape
from xml.sax.saxutils import quoteattr

from skillopt.measure.batch import CheckOutcome
from skillopt.preflight.lint import Finding
from skillopt.record.results import ChangedItem
from skillopt.record.source import Source
from skillopt.view.text import clipped, counted, item_name, printable

_MOST_ITEMS = 8
_LONGEST = 2000


@dataclass(frozen=True, kw_only=True)
class Annotation:
    rule: str
    level: str
    """error, warning or note."""
    file: str
    line: int
    last: int
    says: str


def of_findings(findings: Iterable[Finding]) -> list[Annotation]:
    return [
        Annotation(rule=f.rule, level=f.level, file=f.file, line=f.line, last=f.line, says=f"{f.says}; {f.fix}")
        for f in findings
    ]


def of_outcome(outcome: CheckOutcome) -> list[Annotation]:
    """The verdict on the file, and lost items on the changed lines that they share words with."""
    return [note for note in _notes(outcome) if note.file]


def _notes(outcome: CheckOutcome) -> Iterator[Annotation]:
    levels = {"worse": "error", "cannot tell": "warning"}
    file, rule = outcome.skill.path, outcome.status.replace(" ", "-")
    if outcome.result is None or outcome.status not in levels:
        return
    level = levels[outcome.status]
    found = hunks(outcome.base, outcome.skill) if outcome.base.path else []
    lost = [row for row in outcome.result.changed if row.change == "regressed"]
    shares = blamed(found, lost)
    first = found[0].first if found else 1
    yield Annotation(
        rule=rule, level=level, file=file, line=first, last=first, says=f"{outcome.target}: {outcome.sentence}"
    )
    for place, rows in sorted(shares.items()):
        if place < 0:
            continue
        names = [item_name(row.item_id, row.input) for row in rows[:_MOST_ITEMS]]
        ids = ", ".join(names) + (" …" if len(rows) > _MOST_ITEMS else "")
        says = f"{counted(len(rows), 'item')} lost since these lines changed, by the words they share: {ids}"
        hunk = found[place]
        yield Annotation(rule="regressed", level=level, file=file, line=hunk.first, last=hunk.last, says=says)


def github(notes: Iterable[Annotation]) -> list[str]:
    """Workflow commands. Whatever the texts hold, each stays one command on one line."""
    kinds = {"error": "error", "warning": "warning", "note": "notice"}
    return [
        f"::{kinds[note.level]} file={_property(note.file)},line={note.line},endLine={note.last},"
        f"title={_property(f'skillopt {note.rule}')}::{_data(note.says)}"
        for note in notes
    ]


def _data(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# Which changed lines an item is about


@dataclass(frozen=True, kw_only=True)
class Hunk:
    """Neighbouring lines that changed together."""

    first: int
    """In the new file, from 1; where lines were only removed, the line before which they were."""
    last: int
    text: str
    """What was removed and what was added."""


def hunks(base: Source, skill: Source) -> list[Hunk]:
    """What differs between two versions of the whole main file."""
    before, after = base.text.splitlines(), skill.text.splitlines()
    found = []
    for tag, a, b, c, d in SequenceMatcher(None, before, after).get_opcodes():
        if tag != "equal":
            first = min(c + 1, max(1, len(after)))
            found.append(Hunk(first=first, last=max(first, d), text="\n".join([*before[a:b], *after[c:d]])))
    return found


def blamed(found: Sequence[Hunk], changed: Sequence[ChangedItem]) -> dict[int, list[ChangedItem]]:
    """For each item, the hunk with which it shares the rarest words, by the hunk's place; an item that shares none with
    any is under -1."""
    words = [_words(hunk.text) for hunk in found]
    common = Counter(word for own in words for word in own)
    shares: dict[int, list[ChangedItem]] = {}
    for row in changed:
        mentioned = _words(f"{row.input}\n{row.base.output}\n{row.skill.output}")
        weights = [math.fsum(sorted(1 / common[word] for word in hunk & mentioned)) for hunk in words]
        best = max(range(len(weights)), key=lambda n: (weights[n], -n), default=-1)
        shares.setdefault(best if best >= 0 and weights[best] > 0 else -1, []).append(row)
    return shares


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w{3,}", text.casefold()))


# JUnit XML


def junit(outcomes: Sequence[CheckOutcome]) -> str:
    """One suite a skill, a case for the verdict and one for each item that changed."""
    suites = "".join(_suite(outcome) for outcome in outcomes)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="skillopt check">\n{suites}</testsuites>\n'


def _suite(outcome: CheckOutcome) -> str:
    cases = list(_cases(outcome))
    counts = {kind: sum(f"<{kind}" in case for case in cases) for kind in ("failure", "error", "skipped")}
    name = outcome.name if not outcome.target else f"{outcome.name} on {outcome.target}"
    head = (
        f'<testsuite name={_attribute(name)} tests="{len(cases)}" failures="{counts["failure"]}" '
        f'errors="{counts["error"]}" skipped="{counts["skipped"]}">'
    )
    return f"  {head}\n{''.join(f'    {case}{chr(10)}' for case in cases)}  </testsuite>\n"


def _cases(outcome: CheckOutcome) -> Iterator[str]:
    """A lost item fails only if the skill as a whole is worse: single items come and go."""
    kinds = {"worse": "failure", "error": "error", "stopped": "error"}
    skipped = {"cannot tell", "unchanged", "removed", "not measured"}
    kind = kinds.get(outcome.status, "skipped" if outcome.status in skipped else "")
    yield _case(outcome, "verdict", kind, f"{outcome.status}: {outcome.sentence}", outcome.sentence)
    for row in outcome.result.changed if outcome.result else ():
        lost = row.change == "regressed" and outcome.status == "worse"
        message = f"{row.change}: {row.base.score:.2f} → {row.skill.score:.2f}"
        yield _case(outcome, row.item_id, "failure" if lost else "", message, _both(row))


def _case(outcome: CheckOutcome, name: str, kind: str, message: str, text: str) -> str:
    head = f"<testcase classname={_attribute(outcome.name)} name={_attribute(name)}>"
    said = escape(printable(text), quote=False)
    if not kind:
        return f"{head}<system-out>{escape(printable(message), quote=False)}\n{said}</system-out></testcase>"
    return f"{head}<{kind} message={_attribute(message)}>{said}</{kind}></testcase>"


def _both(row: ChangedItem) -> str:
    parts = (("task", row.input), ("base", row.base.output), ("skill", row.skill.output))
    return "\n".join(f"{title}: {clipped(text, _LONGEST)}" for title, text in parts)


def _attribute(text: str) -> str:
    return quoteattr(" ".join(printable(text).split()))
