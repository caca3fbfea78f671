"""A simulated capable reader of the planted history: it knows the wordings, and still misreads some turns."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from skillopt.models.base import ChatModel, ChatReply, ChatRequest
from support.planted_history import RULES

_BY_WORDING = {wording: rule for rule in RULES for wording in rule.wordings}
_PARAPHRASES = ("{}", "{} Always.", "The user wants this: {}")


class PlantedReader(ChatModel):
    """Overlooks one correction in eight, takes one other turn in 150 for one, and words each rule in three ways."""

    name = endpoint = "planted-reader"
    deterministic = True

    def __init__(self) -> None:
        self.requests: list[str] = []

    async def chat(self, request: ChatRequest) -> ChatReply:
        text = str(request.messages[-1]["content"])
        self.requests.append(json.dumps(request.messages))
        rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        assert request.schema is not None
        value = self._mine(rows) if request.schema.name == "mine" else self._group(rows)
        return ChatReply(text=json.dumps(value))

    def _mine(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        found = []
        for row in rows:
            luck = int(hashlib.sha256(json.dumps(row).encode()).hexdigest()[:8], 16)
            rule = _BY_WORDING.get(row["text"])
            if row["role"] != "user" or (luck % 8 == 0 if rule else luck % 150):
                continue
            words = _PARAPHRASES[luck % 3].format(rule.rule) if rule else f"Remember: {row['text']}"
            check = {"kind": "rubric", "values": [words], "unwanted": []}
            place = {"session": row["session"], "line": row["line"]}
            found.append({**place, "rule": words, "instruction": "", "context": "", "check": check})
        return {"corrections": found}

    def _group(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        groups: dict[str, list[int]] = {}
        for row in rows:
            name = next((rule.rule for rule in RULES if rule.rule in row["rule"]), row["rule"])
            groups.setdefault(name, []).append(row["n"])
        return {"groups": [{"rule": rule, "members": members} for rule, members in groups.items()]}
