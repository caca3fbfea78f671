"""Output of the commands `check` and `lint` for CI: notes on a skill's lines in GitHub's log, and JUnit XML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from xml.etree import ElementTree as ET

from skillopt.measure.batch import CheckOutcome
from skillopt.preflight.lint import Finding
from skillopt.view.text import clipped, printable

_LONGEST = 2000


def of_outcome(outcome: CheckOutcome) -> list[Finding]:
    """A note on the first changed line of the skill if the verdict is `worse` or `cannot tell`; else no note."""
    if outcome.status not in ("worse", "cannot tell") or not outcome.skill.path:
        return []
    before, after = outcome.base.text.splitlines(), outcome.skill.text.splitlines()
    changed = [start for tag, _, _, start, _ in SequenceMatcher(None, before, after).get_opcodes() if tag != "equal"]
    return [
        Finding(
            rule=outcome.status.replace(" ", "-"),
            level="error" if outcome.status == "worse" else "warning",
            file=outcome.skill.path,
            line=min(changed[0] + 1, max(1, len(after))) if changed and outcome.base.path else 1,
            says=f"{outcome.target}: {outcome.sentence}",
            fix="the summary shows the items that changed",
        )
    ]


def github(notes: Iterable[Finding]) -> list[str]:
    """The notes as GitHub's workflow commands. Texts are escaped, so each command stays on one line."""
    kinds = {"error": "error", "warning": "warning", "note": "notice"}
    return [
        f"::{kinds[note.level]} file={_property(note.file)},line={note.line},"
        f"title={_property(f'skillopt {note.rule}')}::{_data(f'{note.says}; {note.fix}')}"
        for note in notes
    ]


def _data(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def junit(outcomes: Sequence[CheckOutcome]) -> str:
    """JUnit XML: a suite for each skill, with a case for the verdict and a case for each item that changed."""
    root = ET.Element("testsuites", name="skillopt check")
    for outcome in outcomes:
        cases = list(_cases(outcome))
        kinds = [kind for _, kind, _, _ in cases]
        name = outcome.name if not outcome.target else f"{outcome.name} on {outcome.target}"
        suite = ET.SubElement(root, "testsuite", name=_line(name), tests=str(len(cases)))
        for count, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(count, str(kinds.count(kind)))
        for title, kind, message, text in cases:
            case = ET.SubElement(suite, "testcase", classname=_line(outcome.name), name=_line(title))
            if kind:
                ET.SubElement(case, kind, message=_line(message)).text = printable(text)
            else:
                ET.SubElement(case, "system-out").text = printable(f"{message}\n{text}")
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _cases(outcome: CheckOutcome) -> Iterator[tuple[str, str, str, str]]:
    """The name, kind, message and text of each test case. An item with a lower score is a failure only if the whole
    skill is worse, because single items flip by chance."""
    kinds = {"worse": "failure", "error": "error", "stopped": "error", "better": "", "no worse": ""}
    yield "verdict", kinds.get(outcome.status, "skipped"), f"{outcome.status}: {outcome.sentence}", outcome.sentence
    for row in outcome.result.changed if outcome.result else ():
        lost = row.change == "regressed" and outcome.status == "worse"
        parts = (("task", row.input), ("base", row.base.output), ("skill", row.skill.output))
        text = "\n".join(f"{title}: {clipped(text, _LONGEST)}" for title, text in parts)
        message = f"{row.change}: {row.base.score:.2f} → {row.skill.score:.2f}"
        yield row.item_id, "failure" if lost else "", message, text


def _line(text: str) -> str:
    return " ".join(printable(text).split())
