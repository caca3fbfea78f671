"""Policy: edits that would have whoever runs the skill follow a link, run a command or hand over a secret wait for a
person (`gradient.review_risky`), and so do edits to a package's scripts (`package.review_scripts`).

What an optimizer proposes comes in the end from task texts and target outputs, which anybody may have written. The gate
only sees whether scores rise.
"""

from __future__ import annotations

import re

from skillopt.record.edits import Conflict, EditPool
from skillopt.skill import Edit, Skill
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
    """The pool with its risky edits among what a person must decide."""
    risks = {p.edit.id: _risk(p.edit, skill, ctx) for p in pool.edits}
    asked = tuple(
        Conflict(a=p.edit, reason=f"it {risk}; it is left out until you accept it")
        for p in pool.edits
        if (risk := risks[p.edit.id])
    )
    kept = tuple(p for p in pool.edits if not risks[p.edit.id])
    return pool.model_copy(update={"edits": kept, "conflicts": (*pool.conflicts, *asked)})


def _risk(edit: Edit, skill: Skill, ctx: Context) -> str:
    """Why a person must decide about an edit; empty if nobody must."""
    if ctx.config.package.review_scripts and part_of(edit.file) == "scripts":
        return f"changes the script {edit.file} (package.review_scripts)"
    risk = new_risk(f"{edit.section}\n{edit.text}", skill) if ctx.config.gradient.review_risky else ""
    return f"holds {risk}" if risk else ""


def new_risk(text: str, skill: Skill) -> str:
    """What risk a text would bring into a skill that does not hold it yet; empty if none."""
    texts = "\n".join([skill.text, *(skill.read(path) or "" for path in skill.others)])
    for kind, pattern in _RISKS.items():
        for match in pattern.finditer(text):
            if match[0] not in texts:
                return f"{kind}: {match[0][:80]!r}"
    return ""
