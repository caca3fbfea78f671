"""Writes verdicts: one or two sentences that say whether a skill is better, by how much (or why not), and what it cost.

Every command that measures ends with a verdict. The terminal, the files and the pages all show the same sentence,
because it is made only from values that are in the files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from skillopt.record.base import ByRole, Role
from skillopt.record.costs import Bill, Paid, TokenCounts
from skillopt.record.results import Spent
from skillopt.record.summary import Gain
from skillopt.tasks.data import shortened

Word = Literal["better", "no better", "no worse", "worse", "cannot tell", "not finished", "measured"]
TASKS = {"train": "training task", "val": "validation task", "test": "held-out task"}
"""The words for an item, by split."""
_SHOWN_ANSWER = 40
"""The maximum number of characters of the most frequent answer that a sentence shows."""


def spent_sentence(spent: Spent) -> str:
    about = "about " if spent.estimated else ""
    money = "at an unknown price" if spent.usd is None else _dollars(spent.usd)
    silent = " (the target reported no usage)" if spent.silent else ""
    return f"It cost {_number(spent.calls, 'call')}, {about}{spent.tokens:,} tokens, {money}{silent}."


def figures(gain: Gain) -> str:
    return f"{gain.after:.2f} on {counted(gain.tasks, gain.split)} against {gain.before:.2f} before{_interval(gain)}"


def named_figures(gain: Gain, before: str, after: str) -> str:
    tasks = counted(gain.tasks, gain.split)
    return f"{after} scores {gain.after:.2f} on {tasks}, {before} {gain.before:.2f}{_interval(gain)}"


def _interval(gain: Gain) -> str:
    bounds = gain.interval
    return f" (95 % interval of the gain: {bounds[0]:+.2f} to {bounds[1]:+.2f})" if bounds else ""


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A verdict: a word for programs, and a sentence for people."""

    word: Word
    text: str


def say(
    word: Word,
    what: str,
    *,
    than: str = "",
    because: str = "",
    note: str = "",
    advice: str = "",
    spent: Spent | None = None,
) -> Sentence:
    """Build a verdict, such as `Better: 0.42 on 48 held-out tasks against 0.00 before (…). It cost 541 calls, …`

    `than` is the text after the first word (`Better than before, but …`), `note` is a sentence that a reader must not
    miss, and `advice` is the one thing to do next.
    """
    reason = f", because {because}" if because else ""
    tried = f"Try {advice}." if advice else ""
    parts = [f"{word.capitalize()}{than}: {what}{reason}.", note, tried, spent_sentence(spent) if spent else ""]
    return Sentence(word=word, text=" ".join(part for part in parts if part))


def always_answering(answer: str) -> str:
    return f"always answering {shortened(answer, _SHOWN_ANSWER)!r}"


def not_above(score: float, constants: Mapping[str, float | None]) -> tuple[str, str]:
    """Two texts about a trivial baseline that reaches `score`, too: the text that follows `Better`, and a sentence.
    Both are empty if no baseline reaches it. `constants` has the baselines' scores by name, such as `doing nothing`."""
    reached = {name: value for name, value in constants.items() if value and value > score - 1e-9}
    if not reached:
        return "", ""
    name = max(reached, key=reached.__getitem__)
    below = score < reached[name] - 1e-9
    than = f" than before, but {'worse' if below else 'no better'} than {name} ({reached[name]:.2f})"
    return than, f"{name[0].upper()}{name[1:]} scores {'higher' if below else 'the same'}: {reached[name]:.2f}."


def spent_on(paid: ByRole[Paid]) -> Spent:
    """The costs of all roles together."""
    return added(
        _spent(role, paid.of(role).calls, paid.of(role).tokens, paid.of(role).usd, paid.of(role).estimated)
        for role in paid.roles
    )


def spent_in(summaries: Iterable[Bill]) -> Spent:
    """The costs of several runs together, from their summaries."""
    return added(
        _spent(role, bill.calls.of(role), bill.tokens.of(role), bill.cost_usd.of(role), role in bill.tokens_estimated)
        for bill in summaries
        for role in bill.calls.roles
    )


def _spent(role: Role, calls: int, tokens: TokenCounts, usd: float | None, estimated: bool) -> Spent:
    silent = role == "target" and calls > 0 and not tokens.total
    return Spent(calls=calls, tokens=tokens.total, usd=usd, estimated=estimated, silent=silent)


def added(parts: Iterable[Spent]) -> Spent:
    """The sum of several costs. If the dollars of one part are None, the dollars of the sum are None."""
    every = list(parts)
    costs = [part.usd for part in every if part.usd is not None]
    return Spent(
        calls=sum(part.calls for part in every),
        tokens=sum(part.tokens for part in every),
        usd=math.fsum(costs) if len(costs) == len(every) else None,
        estimated=any(part.estimated for part in every),
        silent=any(part.silent for part in every),
    )


def measured_once(
    score: float,
    interval: tuple[float, float] | None,
    tasks: int,
    split: str,
    *,
    than: str,
    constant: float,
    spent: Spent,
) -> Sentence:
    """The verdict on one skill against a baseline's score. If `than` is empty, the text has only the figures."""
    sure = f" (95 % interval: {interval[0]:.2f} to {interval[1]:.2f})" if interval else ""
    measured = f"{score:.2f} on {counted(tasks, split)}{sure}"
    if not than:
        return Sentence(word="measured", text=f"Measured: {measured}. {spent_sentence(spent)}")
    low, high = interval or (0.0, 1.0)
    word: Word = (
        "better"
        if low > constant
        else "worse"
        if high < constant
        else "no better"
        if score <= constant
        else "cannot tell"
    )
    why = "the interval contains both scores" if word == "cannot tell" else ""
    return say(word, f"{measured} against {constant:.2f} for {than}", because=why, spent=spent)


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
