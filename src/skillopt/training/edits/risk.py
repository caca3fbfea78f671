"""Policy: some edits wait for a person's decision. These are edits that tell an agent to follow a link, run a command
or give away a secret (`gradient.review_risky`), and edits to a package's scripts (`package.review_scripts`).

The optimizer writes edits from task texts and target outputs, which anybody may have written. The gate cannot find
harmful edits: it only sees whether scores rise.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from skillopt.record.edits import Conflict, EditPool
from skillopt.skill import Edit, Skill, Skip
from skillopt.skill.trained import part_of
from skillopt.training.context import Context

_RISKS = {
    "a URL or an address": re.compile(
        r"\b(?:https?|ftp|file|data|javascript):\S+|\bwww\.\S+|\b[\w.+-]+@[\w-]+\.[\w.-]+|\b\d{1,3}(?:\.\d{1,3}){3}\b",
        re.IGNORECASE,
    ),
    "a shell command": re.compile(
        r"\b(?:sudo|curl|wget|chmod|chown|scp|ssh|netcat|powershell|Invoke-\w+)\b|\brm\s+-\w|\b(?:ba|z)?sh\s+-c\b"
        r"|\|\s*(?:ba|z)?sh\b|\$\([^)]|\b(?:pip|npm|apt|apt-get|brew)\s+install\b|\bos\.system\b|\bsubprocess\b|\beval\(",
        re.IGNORECASE,
    ),
    "a request for secrets": re.compile(
        r"\b(?:pass(?:word|wd|phrase)|api[ _-]?keys?|(?:access|auth|bearer|secret|session)[ _-]?(?:key|token)s?"
        r"|credentials?|private[ _-]key|environment variables?)\b|(?<!\w)\.env\b|\bid_rsa\b|/etc/(?:passwd|shadow)",
        re.IGNORECASE,
    ),
}


def held_back(pool: EditPool, skill: Skill, ctx: Context) -> EditPool:
    """The pool, with its risky edits moved to the conflicts that a person decides."""
    risks = {p.edit.id: risk_of(p.edit, skill, ctx) for p in pool.edits}
    asked = tuple(
        Conflict(a=p.edit, reason=f"it {risk}; it is left out until you accept it")
        for p in pool.edits
        if (risk := risks[p.edit.id])
    )
    kept = tuple(p for p in pool.edits if not risks[p.edit.id])
    return pool.model_copy(update={"edits": kept, "conflicts": (*pool.conflicts, *asked)})


def risk_of(edit: Edit, skill: Skill, ctx: Context) -> str:
    """The reason why a person must decide about an edit; empty if nobody must."""
    if ctx.config.package.review_scripts and part_of(edit.file) == "scripts":
        return f"changes the script {edit.file} (package.review_scripts)"
    risk = new_risk(f"{edit.section}\n{edit.text}", skill) if ctx.config.gradient.review_risky else ""
    return f"holds {risk}" if risk else ""


_GRADERS = r"(?:judge|grader|evaluator|examiner|assessor)s?"
_ANSWER = r"(?:answer|response|reply|submission)"
_JUDGE = re.compile(
    r"\b(?:give|award|assign|grant|deserv\w+|earn\w*|scor\w+|rat(?:e|ed|ing)|mark(?:ed)?|grad(?:e|ed|ing))\b[^.]{0,40}"
    r"\b(?:full|maximum|max|top|highest|perfect)[ -](?:marks?|scores?|points?|grades?|ratings?|credit)\b"
    r"|\b(?:ignore|disregard|forget|override|overlook|skip)\b[^.]{0,40}"
    r"\b(?:rubrics?|grading|grad(?:er|ing)['’]?s? \w+|scoring (?:rules?|criteria|guide\w*)|reference answers?)\b"
    r"|\b(?:dear|attention|note (?:to|for)|message (?:to|for)|hello|instructions? (?:to|for)),? (?:the |all |any )?"
    rf"{_GRADERS}\b"
    rf"|\bto (?:the |all |any |every )?{_GRADERS}:"
    rf"|\b{_GRADERS}, (?:please|give|score|rate|mark|note|you)\b"
    rf"|\b{_GRADERS} (?:should|must|will|has to|have to|shall) (?:award|give|score|rate|mark|grade|accept)\b"
    rf"|\b(?:convince|persuade|flatter|impress|tell|remind|instruct|thank)\b (?:the )?{_GRADERS}\b"
    rf"|\bwho(?:ever)? (?:grades|scores|rates|evaluates|judges) (?:this|the|your) {_ANSWER}\b"
    rf"|\b(?:grade|score|rate|prefer) this {_ANSWER}\b|\b(?:give|award) this {_ANSWER} (?:a|the|full|\d)\b"
    rf"|\bthis {_ANSWER} (?:is|deserves|should be|must be|has been|meets|fulfils|satisfies)[^.]{{0,30}}"
    r"\b(?:graded|scored|rated|verified as (?:correct|right)|(?:4|10|100) (?:of|out of|points)|(?:all|every|full)\b)"
    rf"|\b(?:state|claim|assert|declare|say|write) that (?:this|your|the) {_ANSWER} (?:is|meets|deserves) "
    r"(?:fully |completely |entirely )?(?:correct|right|perfect|complete|excellent|all|full)\b"
    r"|\b(?:scores?|grades?|ratings?)\b[^.]{0,10}\b(?:4 ?/ ?4|5 ?/ ?5|10 ?/ ?10|100 ?/ ?100|(?:4 (?:out )?of 4))(?!\w)",
    re.IGNORECASE,
)
"""Matches text that speaks to a judge, but finds only plain cases. A calibrated judge that reads outputs as data
protects against the other cases."""


def without_judge_talk(edits: Iterable[Edit], skill: Skill) -> tuple[list[Edit], list[Skip]]:
    """The edits that may stay, and a `Skip` for each refused edit. Edits that speak to the judge are refused, because a
    skill must not ask a judge for points."""
    kept, refused = [], []
    for edit in edits:
        if said := judge_talk(f"{edit.section}\n{edit.text}", skill):
            refused.append(Skip(edit_id=edit.id, kind="addresses_judge", reason=f"speaks to the judge: {said!r}"))
        else:
            kept.append(edit)
    return kept, refused


def judge_talk(text: str, skill: Skill) -> str:
    """The part of a text that speaks to a judge and is new to the skill; empty if there is none."""
    there = _as_read(_texts(skill))
    return next((match[0][:80] for match in _JUDGE.finditer(_as_read(text)) if match[0] not in there), "")


def _as_read(text: str) -> str:
    """A text as a model reads it: without emphasis, invisible characters and unusual forms of letters. A line break
    after a paragraph or list item becomes a full stop; any other line break becomes a space."""
    plain = "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf")
    whole = re.sub(r"\n\s*(?=[-*+#>|\n]|\d+[.)])", ". ", plain)
    return " ".join(re.sub(r"[*_`~]", "", whole).split())


def _texts(skill: Skill) -> str:
    return "\n".join([skill.text, *(skill.read(path) or "" for path in skill.others)])


def new_risk(text: str, skill: Skill) -> str:
    """The first risk in a text that is new to the skill; empty if there is none."""
    texts = _texts(skill)
    for kind, pattern in _RISKS.items():
        for match in pattern.finditer(text):
            if match[0] not in texts:
                return f"{kind}: {match[0][:80]!r}"
    return ""
