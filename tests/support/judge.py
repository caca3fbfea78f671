"""A target and a judge of its answers, with a config that uses them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from skillopt.config import Config
from skillopt.models.base import ChatReply, ChatRequest


class Target:
    name = endpoint = "target"
    deterministic = True

    async def chat(self, request: ChatRequest) -> ChatReply:
        return ChatReply(text="a good answer" if "good" in str(request.messages[0]["content"]) else "a bad answer")

    async def close(self) -> None:
        return


class Optimizer:
    """Judges by a word of the answer; as an analyst it proposes the rule that works, if it is told the reason."""

    name = endpoint = "judge"
    deterministic = False
    text = "Give good answers."

    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken
        self.judged: list[dict[str, Any]] = []
        self.read: list[str] = []

    async def chat(self, request: ChatRequest) -> ChatReply:
        assert request.schema is not None
        text = str(request.messages[1]["content"])
        if request.schema.name == "judge":
            lines = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
            self.judged.append(lines)
            good = "good" in json.loads(lines["answer"])
            verdict = {"reason": "good" if good else "it is not friendly enough", "score": 4 if good else 1}
            return ChatReply(text="no idea" if self.broken else json.dumps(verdict))
        self.read.append(text)
        ids = request.schema.body["properties"]["patterns"]["items"]["properties"]["trajectory_ids"]["items"]["enum"]
        edit = {"op": "add", "section": "Tone", "anchor": "", "text": self.text, "rationale": "r"}
        more = {"pattern": "tone", "trajectory_ids": ids[:1], "impact": 1}
        return ChatReply(text=json.dumps({"patterns": [], "edits": [{**edit, **more}]}))

    async def close(self) -> None:
        return


def judge_config(folder: Path) -> Config:
    rows = [{"id": f"q{n}", "question": f"Answer letter {n}."} for n in range(15)]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Config.parse(
        {
            "train": {"num_epochs": 1, "batch_size": 5},
            "optimizer": {"use_meta_skill": False},
            "env": {
                "data": str(folder / "tasks.jsonl"),
                "split": {"train": 1, "val": 1, "test": 1},
                "scoring": "judge",
                "scoring_options": {"rubric": "It must be friendly."},
                "output_root": str(folder / "out"),
            },
        }
    )
