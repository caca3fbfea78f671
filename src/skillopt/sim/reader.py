"""The simulated world's reader of sessions: it finds the turns in which a user states the code of a topic."""

from __future__ import annotations

import json
import re
from typing import Any

from skillopt.models.base import ChatRequest
from skillopt.sim.optimizer import ASKED, SimReply

_STATED = re.compile(r"\b([a-z]+) is ([A-Z]{2}-\d{2})\b")


def mined(request: ChatRequest, stage: str) -> SimReply:
    """Return the reply to a harvest's request: corrections in sessions, or groups of equal rules."""
    text = str(request.messages[-1]["content"])
    rows: list[Any] = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    if stage == "mine_group":
        numbers: dict[str, list[int]] = {}
        for row in rows:
            numbers.setdefault(row["rule"], []).append(row["n"])
        return {"groups": [{"rule": rule, "members": list(members)} for rule, members in numbers.items()]}
    corrections = []
    for before, row in zip(rows, rows[2:], strict=False):
        asked, codes = ASKED.search(before["text"]), dict(_STATED.findall(row["text"]))
        if row["role"] == "user" and asked and codes:
            answer = " ".join(codes.get(topic.strip(), "unknown") for topic in asked[1].split(","))
            rule = " ".join(f"For {topic}, answer {code}." for topic, code in sorted(codes.items()))
            check = {"kind": "exact", "values": [answer], "unwanted": []}
            place = {"session": row["session"], "line": row["line"]}
            task = {"rule": rule, "instruction": before["text"], "context": "", "check": check}
            corrections.append({**place, **task})
    return {"corrections": corrections}
