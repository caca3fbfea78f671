"""What a check and a lint found as notes on lines: commands for GitHub's log, and a SARIF file for everybody else."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from skillopt.measure.suite import Outcome
from skillopt.preflight.lint import RULES, Finding
from skillopt.report.text import counted, item_name, printable
from skillopt.run.source import Source
from skillopt.version import __version__

CHECK_RULES = {
    "worse": "The skill scores lower than its base",
    "regressed": "Items that the base solves and the skill does not",
    "cannot-tell": "The items do not show whether the skill is worse",
}
_MOST_ITEMS = 8


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


def of_outcome(outcome: Outcome) -> list[Annotation]:
    """The verdict on the file, and lost items on the changed lines that they share words with."""
    return [note for note in _notes(outcome) if note.file]


def _notes(outcome: Outcome) -> Iterator[Annotation]:
    levels = {"worse": "error", "cannot tell": "warning"}
    file, rule = outcome.skill.path, outcome.status.replace(" ", "-")
    if outcome.result is None or outcome.status not in levels:
        return
    level = levels[outcome.status]
    found = hunks(outcome.base, outcome.skill) if outcome.base.path else []
    lost = [row for row in outcome.result["changed"] if row["change"] == "regressed"]
    shares = blamed(found, lost)
    first = found[0].first if found else 1
    yield Annotation(
        rule=rule, level=level, file=file, line=first, last=first, says=f"{outcome.target}: {outcome.says}"
    )
    for place, rows in sorted(shares.items()):
        if place < 0:
            continue
        names = [item_name(row["item_id"], row["input"]) for row in rows[:_MOST_ITEMS]]
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


def sarif(notes: Sequence[Annotation]) -> dict[str, Any]:
    """SARIF 2.1.0, which code scanners and editors read."""
    rules = {**RULES, **CHECK_RULES}
    used = sorted({note.rule for note in notes})
    driver = {
        "name": "skillopt",
        "version": __version__,
        "rules": [{"id": rule, "shortDescription": {"text": rules[rule]}} for rule in used],
    }
    results = [
        {
            "ruleId": note.rule,
            "level": note.level,
            "message": {"text": printable(note.says)},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": note.file},
                        "region": {"startLine": note.line, "endLine": note.last},
                    }
                }
            ],
        }
        for note in notes
    ]
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


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
    for tag, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            first = min(c + 1, max(1, len(after)))
            found.append(Hunk(first=first, last=max(first, d), text="\n".join([*before[a:b], *after[c:d]])))
    return found


def blamed(found: Sequence[Hunk], changed: Sequence[Mapping[str, Any]]) -> dict[int, list[Mapping[str, Any]]]:
    """For each item, the hunk with which it shares the rarest words, by the hunk's place; an item that shares none with
    any is under -1."""
    words = [_words(hunk.text) for hunk in found]
    common = Counter(word for own in words for word in own)
    shares: dict[int, list[Mapping[str, Any]]] = {}
    for row in changed:
        said = _words(f"{row['input']}\n{row['base']['output']}\n{row['skill']['output']}")
        weights = [math.fsum(sorted(1 / common[word] for word in own & said)) for own in words]
        best = max(range(len(weights)), key=lambda n: (weights[n], -n), default=-1)
        shares.setdefault(best if best >= 0 and weights[best] > 0 else -1, []).append(row)
    return shares


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w{3,}", text.casefold()))
