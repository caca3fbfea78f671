"""The verdict: one or two plain sentences that say whether it got better, by how much, why not, and what it cost.

Every command that measures ends with one. It is made from the values below alone, so that the terminal, the files and
the pages all show the same sentence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from skillopt.run.summary import ROLES
from skillopt.statistics import gain_interval

Word = Literal["better", "no better", "worse", "cannot tell", "not finished", "measured"]
TASKS = {"train": "training task", "val": "validation task", "test": "held-out task"}
"""What people call an item of a split."""
MOST_NEEDED = 5000
"""Above this many tasks, a number that is needed helps nobody."""
_SHOWN_ANSWER = 40
"""Characters of the most frequent answer."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Two skills on the same tasks."""

    before: float
    after: float
    tasks: int
    split: str = "test"
    interval: tuple[float, float] | None = None
    """95 %, of the gain."""

    @property
    def value(self) -> float:
        return self.after - self.before

    @property
    def word(self) -> Word:
        """Sure only where the interval leaves out zero."""
        low, high = self.interval or (0.0, 0.0)
        if low > 0:
            return "better"
        if high < 0:
            return "worse"
        return "cannot tell" if self.value > 1e-9 else "no better"

    @property
    def tasks_needed(self) -> int | None:
        """About how many tasks would show a gain of this size; None where that is no help."""
        if self.interval is None or self.value <= 0:
            return None
        half = (self.interval[1] - self.interval[0]) / 2
        needed = math.ceil(self.tasks * (half / self.value) ** 2 * 1.1)
        return needed if self.tasks < needed <= MOST_NEEDED else None

    def __str__(self) -> str:
        return f"{self.after:.2f} on {self.on} against {self.before:.2f} before{self.sure}"

    def named(self, before: str, after: str) -> str:
        return f"{after} scores {self.after:.2f} on {self.on}, {before} {self.before:.2f}{self.sure}"

    @property
    def on(self) -> str:
        return counted(self.tasks, self.split)

    @property
    def sure(self) -> str:
        bounds = self.interval
        return f" (95 % interval of the gain: {bounds[0]:+.2f} to {bounds[1]:+.2f})" if bounds else ""


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What was paid for."""

    calls: int
    tokens: int
    usd: float | None
    """None where a price is unknown."""
    estimated: bool = False
    """The tokens are counted from the texts."""
    silent: bool = False
    """The target made calls and did not say what they took."""

    def __str__(self) -> str:
        about = "about " if self.estimated else ""
        money = "at a price that is unknown" if self.usd is None else _dollars(self.usd)
        silent = " (the target reported no usage)" if self.silent else ""
        return f"It cost {_number(self.calls, 'call')}, {about}{self.tokens:,} tokens, {money}{silent}."


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A word for programs, and the sentence for people."""

    word: Word
    text: str


def say(
    word: Word, what: str, *, because: str = "", note: str = "", advice: str = "", spent: Spent | None = None
) -> Verdict:
    """`Better: 0.42 on 48 held-out tasks against 0.00 before (…). It cost 541 calls, 212,000 tokens, $0.31.`

    `note` is a sentence that a reader must not miss, `advice` the one thing to do next.
    """
    reason = f", because {because}" if because else ""
    tried = f"Try {advice}." if advice else ""
    parts = [f"{word.capitalize()}: {what}{reason}.", note, tried, str(spent) if spent else ""]
    return Verdict(word=word, text=" ".join(part for part in parts if part))


def not_above_majority(score: float, always: Mapping[str, Any] | None, key: str) -> str:
    """A sentence where always giving the most frequent answer scores as much; its score is at `key` of `always`."""
    if not always or always.get(key) is None or score > always[key] + 1e-9:
        return ""
    answer = " ".join(str(always["answer"]).split())
    shown = answer if len(answer) <= _SHOWN_ANSWER else f"{answer[: _SHOWN_ANSWER - 1]}…"
    more = "more" if score < always[key] - 1e-9 else "the same"
    return f"Always answering {shown!r} scores {more}: {always[key]:.2f}."


def paired(before: Mapping[str, float], after: Mapping[str, float], split: str = "test") -> Gain | None:
    """The gain on the tasks that both were measured on; None where there is none."""
    shared = sorted(before.keys() & after.keys())
    if not shared:
        return None
    return Gain(
        before=fmean(before[item] for item in shared),
        after=fmean(after[item] for item in shared),
        tasks=len(shared),
        split=split,
        interval=gain_interval([after[item] - before[item] for item in shared]),
    )


def spent_on(paid: Mapping[str, Mapping[str, Any]]) -> Spent:
    """Over both roles; `paid` is what `usage` (run/summary.py) gives."""
    return added(
        Spent(
            calls=own["calls"],
            tokens=own["prompt_tokens"] + own["completion_tokens"],
            usd=own["usd"],
            estimated=own["estimated"],
            silent=role == "target" and _silent(own["calls"], own["prompt_tokens"] + own["completion_tokens"]),
        )
        for role, own in paid.items()
    )


def spent_in(summaries: Iterable[Mapping[str, Any]]) -> Spent:
    """Over all runs, by their summaries."""
    return added(
        Spent(
            calls=summary["calls"][role],
            tokens=summary["tokens"][role]["prompt"] + summary["tokens"][role]["completion"],
            usd=summary["cost_usd"][role],
            estimated=role in summary.get("tokens_estimated", ()),
            silent=role == "target" and _silent(summary["calls"][role], sum(summary["tokens"][role].values())),
        )
        for summary in summaries
        for role in ROLES
    )


def added(parts: Iterable[Spent]) -> Spent:
    """All of them together; the price is unknown where that of one part is."""
    own = list(parts)
    costs = [part.usd for part in own if part.usd is not None]
    return Spent(
        calls=sum(part.calls for part in own),
        tokens=sum(part.tokens for part in own),
        usd=math.fsum(costs) if len(costs) == len(own) else None,
        estimated=any(part.estimated for part in own),
        silent=any(part.silent for part in own),
    )


def _silent(calls: int, tokens: int) -> bool:
    return calls > 0 and not tokens


def compared(
    gain: Gain, *, names: tuple[str, str], same: bool, differing: int, spent: Spent, note: str = "", how: str = ""
) -> Verdict:
    """Of two skills that a user named."""
    first, second = names
    figures = gain.named(first, second)
    if same:
        by_chance = f"both are the same skill, and {differing} of {_number(gain.tasks, 'task')} differ by chance"
        return say("no better", by_chance, spent=spent)
    if gain.word == "cannot tell":
        return say("cannot tell", figures, because=too_few(gain), note=note, advice=more_tasks(gain, how), spent=spent)
    return say(gain.word, figures, note=note, spent=spent)


def measured_once(
    score: float, interval: tuple[float, float] | None, tasks: int, split: str, *, than: str, other: float, spent: Spent
) -> Verdict:
    """Of one skill, against a score that takes no skill; without one (`than` is empty), the figures alone."""
    sure = f" (95 % interval: {interval[0]:.2f} to {interval[1]:.2f})" if interval else ""
    figures = f"{score:.2f} on {counted(tasks, split)}{sure}"
    if not than:
        return Verdict(word="measured", text=f"Measured: {figures}. {spent}")
    low, high = interval or (0.0, 1.0)
    word: Word = (
        "better" if low > other else "worse" if high < other else "no better" if score <= other else "cannot tell"
    )
    why = "the interval contains both scores" if word == "cannot tell" else ""
    return say(word, f"{figures} against {other:.2f} for {than}", because=why, spent=spent)


def too_few(gain: Gain) -> str:
    few = "1 task is" if gain.tasks == 1 else f"{gain.tasks} tasks are"
    return f"{few} too few to tell a gain of this size from chance"


def more_tasks(gain: Gain, how: str = "") -> str:
    needed = gain.tasks_needed
    wanted = f"about {needed:,} {TASKS[gain.split]}s" if needed else f"more {TASKS[gain.split]}s"
    return f"{wanted}: {how}" if how else wanted


def counted(number: int, split: str) -> str:
    return _number(number, TASKS.get(split, f"{split} task"))


def _number(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _dollars(usd: float) -> str:
    return f"${usd:.2f}" if usd >= 0.01 or usd == 0 else f"${usd:.4f}"
