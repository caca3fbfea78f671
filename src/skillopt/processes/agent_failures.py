"""Classifies the errors that a command prints: a missing login, a limit that ends after some time, or something
else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

Kind = Literal["login", "limit", "other"]

_LOGIN = re.compile(
    r"not logged in|not signed in|please (?:run .{0,20})?(?:/?log ?in|sign ?in)|log ?in (?:required|to continue)|"
    r"(?:you need|needs?|have) to (?:log ?in|sign ?in|authenticate)|no authentication information|"
    r"authentication (?:failed|required)|not authenticated|unauthenticated|set an auth method|no auth type|"
    r"invalid auth|invalid (?:api.?key|x-api-key)|incorrect api key|\b401\b|unauthorized|"
    r"(?:token|credentials?|session) (?:has |have |is |are )?(?:expired|missing|invalid)|"
    r"visit .{0,80} to (?:log|sign) in",
    re.IGNORECASE,
)
_LIMIT = re.compile(
    r"rate.?limit|too many requests|\b429\b|\b529\b|overloaded|usage limit|session limit|weekly limit|hit your limit|"
    r"limit (?:was |is |has been )?(?:reached|exceeded)|quota|resource.?exhausted|at capacity",
    re.IGNORECASE,
)
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_WORDS = "ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?"
_SPAN = rf"(?:\d{{1,9}}(?:\.\d+)?\s*(?:{_WORDS})\b[\s,]*(?:and\s+)?)+"
_IN = re.compile(
    rf"(?:again|retry|retrying|resets?|wait|available)\b[^.\n]{{0,40}}?\b(?:in|for)\s+(?:about\s+)?({_SPAN})", re.I
)
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|m|h|d)", re.IGNORECASE)
_AFTER = re.compile(r"retry.?after[\"':=\s]{1,4}(\d{1,9}(?:\.\d+)?)(?!\d)", re.IGNORECASE)
_EPOCH = re.compile(r"(?:limit|resets?)[^\n]{0,40}?[|:\s](1\d{9})\b", re.IGNORECASE)
_CLOCK = re.compile(r"(?:resets?|again)\s+(?:at\s+)?(0?[1-9]|1[0-2])(?::([0-5]\d))?\s*(am|pm)\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class AgentFailure:
    kind: Kind
    wait: float | None = None
    """Seconds until the limit ends; None if the message does not say."""


def classify_failure(text: str, now: datetime | None = None) -> AgentFailure:
    """Classify the output of a failed command. Signs of a limit are searched first, because messages about limits often
    contain signs of a missing login, too."""
    if _LIMIT.search(text):
        return AgentFailure(kind="limit", wait=_wait(text, now or datetime.now().astimezone()))
    return AgentFailure(kind="login" if _LOGIN.search(text) else "other")


def _wait(text: str, now: datetime) -> float | None:
    if match := _IN.search(text):
        return sum(float(number) * _unit(unit) for number, unit in _PART.findall(match[1]))
    if match := _AFTER.search(text):
        return float(match[1])
    if match := _EPOCH.search(text):
        return max(0.0, float(match[1]) - now.timestamp())
    if match := _CLOCK.search(text):
        hour = int(match[1]) % 12 + 12 * (match[3].lower() == "pm")
        then = now.replace(hour=hour, minute=int(match[2] or 0), second=0, microsecond=0)
        return (then + timedelta(days=then <= now) - now).total_seconds()
    return None


def _unit(word: str) -> float:
    word = word.lower()
    return _UNITS["ms"] if word.startswith(("ms", "milli")) else _UNITS[word[0]]
