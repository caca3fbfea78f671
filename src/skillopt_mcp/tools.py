"""The tools that an agent gets. The agent reads their docstrings."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, JsonValue

from skillopt.errors import UserError
from skillopt.keys import redact
from skillopt.models.handoff import Box
from skillopt.models.handoff.page import page
from skillopt.models.handoff.status import LOOK
from skillopt.record.base import Number, Record
from skillopt.record.run import Run
from skillopt.record.summary import BestScores, InitialScores
from skillopt.skill import FILE
from skillopt.training.requests.answers import hand_in
from skillopt.view.blame import blame_run
from skillopt.view.blame_lines import blame_lines, line_story
from skillopt.view.markdown import markdown
from skillopt.view.run_facts import read_facts
from skillopt.view.skill_diff import whole_text
from skillopt_mcp.workspace import Workspace
from skillopt_webui import launch, view
from skillopt_webui.api_letters import LetterRow, letters_of, open_letters
from skillopt_webui.launch import Launches
from skillopt_webui.questions import Questions
from skillopt_webui.runs import RunIndex

LONGEST_WATCH = 50.0
"""The maximum number of seconds that `watch_run` waits; many clients end a tool's call after a minute."""
_BEGINS = 30.0
"""The maximum number of seconds until a started run has its folder."""


class ListedRun(Record):
    """One run in a list of runs. Unknown values are left out."""

    optional: ClassVar = frozenset({"reason", "name", "target", "steps", "initial", "best", "test", "usd"})

    run: str
    status: str
    reason: str | None = None
    name: str | None = None
    target: str | None = None
    steps: int | None = None
    initial: float | None = None
    best: float | None = None
    test: float | None = None
    usd: float | None = None


class StartedRun(Record):
    run: str


class RunProgress(Record):
    """The state of a run: steps, scores, costs."""

    steps: int
    of: JsonValue
    initial: InitialScores | None
    best: BestScores | None
    spent: dict[str, tuple[Number, Number | None]] | None
    stop_reason: str


class WatchedRun(Record):
    run: str
    status: str
    reason: str
    letters: list[LetterRow]
    """The open letters."""
    progress: RunProgress


class Tools:
    def __init__(self, root: Path) -> None:
        self._space = Workspace(root)

    def list_configs(self) -> list[str]:
        """List the config files of this folder."""
        return self._space.configs()

    def list_runs(self, count: int = 20) -> list[ListedRun]:
        """List the newest `count` runs of this folder: name, status, validation and test scores, cost."""
        rows = RunIndex(self._space.settings).rows()[: max(count, 0)]
        return [
            ListedRun(
                run=row.id.partition("/")[2],
                status=row.status,
                reason=row.reason or None,
                name=row.labels.name or None,
                target=row.target or None,
                steps=row.steps or None,
                initial=row.initial_val,
                best=row.best_val,
                test=row.best_test,
                usd=row.usd,
            )
            for row in rows
        ]

    async def plan(self, config: str, changes: list[str] | None = None) -> BaseModel:
        """Show what a training would take: steps, calls, tokens, dollars, seconds. Nothing is spent.

        `changes` are `section.key=value`, such as `models.optimizer_model=handoff`.
        """
        _, text = await asyncio.to_thread(self._space.load, config, changes or [])
        return await Questions(self._space.settings).ask("plan", text)

    async def start_run(self, config: str, changes: list[str] | None = None, fresh: bool = False) -> StartedRun:
        """Start a training in a separate process, or continue the one that this config has begun.

        With `models.optimizer_model=handoff` you are the optimizer: watch the run and answer its letters. A model that
        costs money needs `budget.max_usd=…`, `budget.max_calls=…` or `budget.max_tokens=…` among the changes or in the
        config. Changes may only lower the config's limits, and all runs that you start share these limits. With
        `fresh`, a new run begins.
        """
        text, allowed = await asyncio.to_thread(self._space.load_to_start, config, changes or [], fresh=fresh)
        settings = self._space.settings
        started = Launches(settings).start("train", config, text, ["--fresh"] if fresh else [])
        end = time.monotonic() + _BEGINS
        while True:
            status = await asyncio.to_thread(started.status, settings)
            if status.begun or status.state != "running":
                break
            if time.monotonic() > end:
                raise UserError("the run has not begun after 30 s; list_runs shows it as soon as it has begun")
            await asyncio.sleep(LOOK)
        if not status.run:
            self._space.allowances.give_back(allowed)
            raise UserError(f"the run did not begin: {redact(status.log.strip())[-1500:]}")
        return StartedRun(run=status.run.partition("/")[2])

    async def watch_run(self, run: str, seconds: float = 30.0) -> WatchedRun:
        """Wait until a letter is open, the run has ended, or `seconds` (at most 50) are over. Return the run's status,
        open letters and progress."""
        folder = self._space.run(run)
        end = time.monotonic() + min(max(seconds, 0.0), LONGEST_WATCH)
        while True:
            letters = await asyncio.to_thread(self._letters, folder)
            status, reason = await asyncio.to_thread(lambda: Run(folder.files).status)
            if letters or status != "running" or time.monotonic() >= end:
                break
            await asyncio.sleep(LOOK)
        progress = await asyncio.to_thread(_progress, folder)
        return WatchedRun(run=run, status=status, reason=reason, letters=letters, progress=progress)

    def stop_run(self, run: str) -> str:
        """Stop a run cleanly. Everything paid for is kept; start_run with the same config continues it."""
        launch.pause(self._space.run(run).root)
        return "stopping; open letters stay open"

    def list_letters(self, run: str) -> list[LetterRow]:
        """List the open letters of a run: number, stage, and what was wrong with the last reply."""
        return self._letters(self._space.run(run))

    def read_letter(self, run: str, number: int) -> str:
        """Read a letter: what is asked, and the form of the reply. Use nothing but the letter for your answer."""
        return redact(page(self._box(run).letter(number)))

    def answer_letter(self, run: str, number: int, reply: str) -> str:
        """Submit the reply to a letter, as text: usually a JSON object. If the reply does not have the right form, the
        error says why."""
        box = self._box(run)
        hand_in(box, number, reply.encode("utf-8", "replace"))
        return f"taken; {len(box.open_letters())} letters are open"

    def best_skill(self, run: str) -> str:
        """Return the best version of the skill so far. For a package, return all files that edits may touch, each under
        its name."""
        folder = self._space.run(run)
        if not folder.files.best_skill.is_file():
            raise UserError(f"{run}: has no skill yet")
        return redact(whole_text(folder.best_skill))

    def evidence(self, run: str, line: int | None = None, file: str = FILE) -> str:
        """Without `line`: the step and the edit that each line of the best skill comes from. With `line`: everything
        that led to this line. For a package, `file` names the line's file."""
        lines = blame_run(self._space.run(run).files, None)
        return redact("\n".join(blame_lines(lines) if line is None else line_story(lines, line, file)))

    def report(self, run: str) -> str:
        """Return the run's report as Markdown: scores with intervals, what changed and why, what still fails, and
        costs."""
        folder = self._space.run(run)
        if not folder.files.summary.is_file():
            raise UserError(f"{run}: has nothing to report yet; try again when its first step is done")
        return redact(markdown(read_facts(folder.files)))

    def as_written(self, run: str | None) -> AbstractContextManager[None]:
        """Inside the block, a damaged file of the run becomes an error that an agent can read."""
        return nullcontext() if run is None else self._space.run(run).files.as_written()

    def _box(self, run: str) -> Box:
        return letters_of(self._space.run(run), self._space.settings)

    def _letters(self, run: Run) -> list[LetterRow]:
        return open_letters(letters_of(run, self._space.settings)).letters


def _progress(run: Run) -> RunProgress:
    shown = view.overview(run)
    summary = shown.summary
    return RunProgress(
        steps=len(shown.steps),
        of=(shown.started or {}).get("steps"),
        initial=summary.initial if summary else None,
        best=summary.best if summary else None,
        spent=shown.live.spent if shown.live else None,
        stop_reason=summary.stop_reason if summary else "",
    )


ALL = (
    *("list_configs", "list_runs", "plan", "start_run", "watch_run", "stop_run", "list_letters", "read_letter"),
    *("answer_letter", "best_skill", "evidence", "report"),
)
"""The tools' names, in the order in which an agent needs them."""
