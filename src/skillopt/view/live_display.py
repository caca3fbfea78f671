"""The live display of a run: its progress, calls in flight, the scores so far, the budget and the time left."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from skillopt.record import events
from skillopt.record.events import Event
from skillopt.view.text import dollars, duration, printable, score

_BARS = "▁▂▃▄▅▆▇█"
_STAGES = {
    "evaluation_started": "evaluate",
    "rollout_started": "rollout",
    "reflect_started": "reflect",
    "selected": "gate",
    "slow_update_started": "slow update",
    "ablation_started": "ablate",
}
"""Events that begin a stage, each with the name of the stage."""


@contextmanager
def live_display(console: Console) -> Iterator[View]:
    """Show a live display, three lines at the bottom of the terminal, until the block ends."""
    view = View()
    with Live(console=console, get_renderable=view.render, refresh_per_second=4, transient=True):
        yield view


class View:
    """Collects the state of a run from its events, and draws the live display."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.stage, self.done, self.total = "", 0, 0
        self.step = self.steps = self.epoch = self.epochs = 0
        self.scores: list[float] = []
        self.in_flight = 0
        self.spent: Mapping[str, Sequence[float | None]] = {}
        self.started = time.monotonic()
        self._steps_started: float | None = None
        self._steps_done = self._earlier = 0

    def update(self, event: Event) -> None:
        if event.kind in _STAGES:
            self.stage, self.done, self.total = _STAGES[event.kind], 0, int(event.get("items", 0))
        if isinstance(event, events.RunStarted):
            self._begin()
            self.steps, self.epochs = event.steps, event.epochs
            self.step = self._earlier = event.done
        elif isinstance(event, events.Progress):
            self.stage, self.done, self.total = event.stage, event.done, event.total
        elif isinstance(event, events.Pulse):
            self.in_flight, self.spent = sum(event.in_flight.values()), event.spent
        elif isinstance(event, events.EvaluationFinished) and event.split == "val" and not self.scores:
            self.scores.append(event.score)
        elif isinstance(event, events.RolloutStarted):
            self._steps_started = self._steps_started or time.monotonic()
            self.step, self.epoch = event.step, event.epoch
        elif isinstance(event, events.StepFinished):
            self._steps_done += 1
            self.scores += [] if event.record.val is None else [event.record.val]

    def seconds_left(self) -> float | None:
        """The estimated seconds until the end of the run, from the steps of this session; None until one step is
        done."""
        if not self._steps_done or self._steps_started is None:
            return None
        each = (time.monotonic() - self._steps_started) / self._steps_done
        return each * max(0, self.steps - self._earlier - self._steps_done)

    def render(self) -> RenderableType:
        if not self.stage:
            return Text("")
        line = Table.grid(padding=(0, 2, 0, 0))
        bar = ProgressBar(total=self.total, completed=self.done, width=32) if self.total else Text("…")
        line.add_row(
            Text(printable(self.stage.replace("_", " ").title()), style="bold"),
            bar,
            Text(f"{self.done}/{self.total}" if self.total else ""),
            Text(f"{self.in_flight} in flight", style="dim"),
        )
        return Group(Text(self._where()), line, Text(self._taken(), style="dim"))

    def _where(self) -> str:
        if not self.steps:
            return ""
        epochs = f" · epoch {self.epoch}/{self.epochs}" if self.epoch else ""
        scores = f" · validation {sparkline(self.scores)} {score(self.scores[-1])}" if self.scores else ""
        return f"step {self.step}/{self.steps}{epochs}{scores}"

    def _taken(self) -> str:
        left = self.seconds_left()
        parts = [
            *(_amount(name, *pair) for name, pair in self.spent.items() if name in {"calls", "tokens", "usd"}),
            duration(time.monotonic() - self.started) + _of_minutes(self.spent.get("minutes")),
            f"about {duration(round(left))} left" if left else "",
        ]
        return " · ".join(part for part in parts if part)


def _amount(name: str, used: float | None, limit: float | None) -> str:
    """An amount with its limit: `512 of 5,000 calls`. Empty for dollars if none are spent and there is no limit."""
    if name == "usd":
        return f"{dollars(used)}{f' of {dollars(limit)}' if limit else ''}" if used or limit else ""
    return f"{used or 0:,.0f}{f' of {limit:,.0f}' if limit else ''} {name}"


def _of_minutes(pair: Sequence[float | None] | None) -> str:
    return f" of {duration(60 * pair[1])}" if pair and pair[1] else ""


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """The last scores as bars, scaled between the lowest and the highest score."""
    shown = values[-width:]
    low, high = min(shown), max(*shown, min(shown) + 0.1)
    return "".join(_BARS[round((value - low) / (high - low) * (len(_BARS) - 1))] for value in shown)
