"""Tasks whose result is files, an agent that is a shell script, and one rollout of it."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

from skillopt.config import Config
from skillopt.models.bound import BoundChat
from skillopt.record.journal import Journal
from skillopt.skill import Skill
from skillopt.tasks.qa import QAEnv
from skillopt.training.callers import make_callers

SKILL = Skill("Upper case.")


ROWS: list[dict[str, Any]] = [
    {
        "id": f"q{n}",
        "question": f"Make a.txt upper case, task {n}.",
        "workspace": {"a.txt": f"word {n}\n", "b/keep.txt": "keep\n"},
        "expected": {"a.txt": f"WORD {n}\n"},
    }
    for n in range(8)
]


def script(path: Path, text: str) -> Path:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def config_of(folder: Path, rows: list[dict[str, Any]] = ROWS, **env: Any) -> Config:
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tree = {"data": str(folder / "tasks.jsonl"), "output_root": str(folder / "out"), "scoring": "files", **env}
    return Config.parse({"env": tree, "hardware": {"max_retries": 0}})


def rolled_out(config: Config, journal: Path | str = ":memory:", model: Any = None, skill: Skill = SKILL) -> Any:
    """One rollout, through the real caller and journal."""
    env = QAEnv(config.env)

    async def work() -> Any:
        from skillopt.models import open_model

        callers, _, _ = make_callers(config, Journal(journal), {"target": model or open_model("target", config)})
        return await env.run(env.items("train")[0], skill, BoundChat(callers["target"], label="x", stage="rollout"))

    try:
        return asyncio.run(work())
    finally:
        env.close()
