"""The tools that an agent is given. Their docstrings are what it reads of them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from skillopt.errors import UserError
from skillopt.keys import redact
from skillopt.models.handoff.page import page
from skillopt.models.handoff.status import LOOK, standing
from skillopt.report.blame import blame_run
from skillopt.report.blame_lines import blame_lines, line_story
from skillopt.report.skill_diff import whole_text
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_text
from skillopt.skill import FILE
from skillopt_mcp.workspace import Workspace, require_budget
from skillopt_webui import launch, view
from skillopt_webui.api_letters import letters_of
from skillopt_webui.ask import Worker
from skillopt_webui.launch import Launches
from skillopt_webui.runs import RunIndex

LONGEST_WATCH = 50.0
"""Seconds; many clients give a tool a minute."""
_BEGINS = 30.0
"""Seconds until a started run has its folder."""


class Tools:
    def __init__(self, root: Path) -> None:
        self._space = Workspace(root)

    def list_configs(self) -> list[str]:
        """List the config files of this folder."""
        return self._space.configs()

    def list_runs(self) -> list[dict[str, Any]]:
        """List the runs of this folder, the newest first: name, status, scores, cost."""
        rows = RunIndex(self._space.settings).rows()[:100]
        return [row | {"run": row.pop("id").partition("/")[2]} for row in map(dict, rows)]

    async def plan(self, config: str, changes: list[str] | None = None) -> dict[str, Any]:
        """Show what a training would take: steps, calls, tokens, dollars, seconds. Nothing is spent.

        `changes` are `section.key=value`, such as `models.optimizer_model=handoff`.
        """
        _, text = await asyncio.to_thread(self._space.load, config, changes or [])
        return await Worker(self._space.settings).ask("plan", text)

    async def start_run(self, config: str, changes: list[str] | None = None, fresh: bool = False) -> dict[str, Any]:
        """Start a training, or continue the one that this config has begun. It runs in a separate process.

        With `models.optimizer_model=handoff` you are the optimizer: watch the run and answer its letters. A model that
        costs money needs `budget.max_usd=…`, `budget.max_calls=…` or `budget.max_tokens=…` among the changes or in the
        config. `fresh` begins another run.
        """
        loaded, text = await asyncio.to_thread(self._space.load, config, changes or [])
        require_budget(loaded)
        settings = self._space.settings
        started = Launches(settings).start("train", config, text, ["--fresh"] if fresh else [])
        end = time.monotonic() + _BEGINS
        while True:
            status = await asyncio.to_thread(started.status, settings)
            if status["run"] or status["state"] != "running":
                break
            if time.monotonic() > end:
                raise UserError("the run has not begun after 30 s; list_runs shows whether it does")
            await asyncio.sleep(LOOK)
        if not status["run"]:
            raise UserError(f"the run did not begin: {redact(status['log'].strip())[-1500:]}")
        return {"run": status["run"].partition("/")[2]}

    async def watch_run(self, run: str, seconds: float = 30.0) -> dict[str, Any]:
        """Wait until a letter is open, the run has ended, or `seconds` (at most 50) are over; say how it is doing."""
        directory = self._space.run(run)
        end = time.monotonic() + min(max(seconds, 0.0), LONGEST_WATCH)
        while True:
            found = await asyncio.to_thread(self._standing, directory)
            if found["letters"] or found["status"] != "running" or time.monotonic() >= end:
                break
            await asyncio.sleep(LOOK)
        return {**found, "run": run, "progress": await asyncio.to_thread(_progress, directory)}

    def stop_run(self, run: str) -> str:
        """Stop a run cleanly. Everything paid for is kept; start_run with the same config continues it."""
        launch.pause(self._space.run(run).root)
        return "stopping; open letters stay open"

    def list_letters(self, run: str) -> list[dict[str, Any]]:
        """List the open letters of a run: number, stage, and what was wrong with the last reply."""
        return list(self._standing(self._space.run(run))["letters"])

    def read_letter(self, run: str, number: int) -> str:
        """Read a letter: what is asked, and the form of the reply. Answer from it alone."""
        return redact(page(self._box(run).letter(number)))

    def answer_letter(self, run: str, number: int, reply: str) -> str:
        """Hand in the reply to a letter, as text: usually a JSON object. One that does not fit is refused with why."""
        box = self._box(run)
        box.hand_in(number, reply.encode("utf-8", "replace"))
        return f"taken; {len(box.open_letters())} letters are open"

    def best_skill(self, run: str) -> str:
        """The best version of the skill so far; of a package, all files that edits may touch, each under its name."""
        directory = self._space.run(run)
        if not directory.best_skill.is_file():
            raise UserError(f"{run}: has no skill yet")
        return redact(whole_text(directory.read_best()))

    def evidence(self, run: str, line: int | None = None, file: str = FILE) -> str:
        """For each line of the best skill the step and edit that it comes from; for one `line` (of a package: of one
        `file`) all that led to it."""
        lines = blame_run(self._space.run(run), None)
        return redact("\n".join(blame_lines(lines) if line is None else line_story(lines, line, file)))

    def report(self, run: str) -> str:
        """The run's report as Markdown: scores with intervals, what changed and why, what still fails, costs."""
        path = self._space.run(run).report_md
        if not path.is_file():
            raise UserError(f"{run}: has no report yet; it is written when the run ends or is stopped")
        return redact(read_text(path))

    def _box(self, run: str) -> Any:
        return letters_of(self._space.run(run), self._space.settings)

    def _standing(self, directory: RunDirectory) -> dict[str, Any]:
        letters_of(directory, self._space.settings)
        found = standing(directory.root)
        kept = ("number", "stage", "problem")
        return {**found, "letters": [{key: row[key] for key in kept} for row in found["letters"]]}


def _progress(run: RunDirectory) -> dict[str, Any]:
    """Where it is: steps, scores, what is spent."""
    seen = view.overview(run)
    summary, pulse = seen["summary"] or {}, seen["live"] or {}
    return {
        "steps": len(seen["steps"]),
        "of": (seen["started"] or {}).get("steps"),
        "initial": summary.get("initial"),
        "best": summary.get("best"),
        "spent": pulse.get("spent"),
        "stop_reason": summary.get("stop_reason", ""),
    }


ALL = (
    *("list_configs", "list_runs", "plan", "start_run", "watch_run", "stop_run", "list_letters", "read_letter"),
    *("answer_letter", "best_skill", "evidence", "report"),
)
"""The tools' names, in the order in which an agent needs them."""
