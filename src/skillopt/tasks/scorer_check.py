"""Checks a scorer: does the same output always get the same score, and do right answers score higher than wrong ones?

The scorer is tried on each item's expected answers, on expected answers of other items, and on expected answers with a
few words left out. No model is asked, so judges are not tried.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from skillopt.errors import UserError
from skillopt.tasks.base import Env, Item, closed_set, is_noisy, score_output
from skillopt.tasks.data import shortened, shown_name
from skillopt.tasks.scoring import normalise

PROSE = 10
"""An answer with at least this number of words is free text: nobody writes it twice in the same words."""
INSTEAD = (
    "set env.scoring=f1 (shared words) and evaluation.metric=soft; or set env.scoring=judge (the optimizer model "
    "grades each reply)"
)
_TRIED = 5
"""The maximum number of items that are tried before a training. Three outputs of each item are scored twice."""
_WORD = re.compile(r"[^\W\d_]+")
_BREAK = re.compile(r"[,;|\n]")


@dataclass(frozen=True, kw_only=True)
class ScorerFault:
    """A fault of a scorer, and how to correct it."""

    says: str
    fix: str
    certain: bool = True
    """True if the fault affects most items; False if only some."""


def is_prose(items: Sequence[Item]) -> bool:
    """Are most expected answers free text? Labels, lists and texts that are copied from the task are not."""
    answers = [item.answers[0] for item in items if item.answers and not _is_copied(item)]
    prose = sum(_reads_as_prose(answer) for answer in answers)
    return prose * 2 > len(items) and not closed_set(items)


def words_of(items: Sequence[Item]) -> int:
    """The mean number of words of the expected answers."""
    return round(fmean(len(item.answers[0].split()) for item in items if item.answers))


def _reads_as_prose(answer: str) -> bool:
    words = len(_WORD.findall(answer))
    return words >= PROSE and words >= 3 * (1 + len(_BREAK.findall(answer)))


def _is_copied(item: Item) -> bool:
    """Does the task itself contain its answer, for example in a passage to quote or among the choices?"""
    return normalise(item.answers[0]) in normalise(f"{item.context} {item.question} {item.get('choices', '')}")


def can_be_tried(env: Env) -> bool:
    return not is_noisy(env) and not env.scores_files


async def two_scores(env: Env, item: Item, output: str) -> ScorerFault | None:
    """A fault if the scorer scores the same output differently the second time; else None. Only the feedback may
    differ."""
    first, second = await score_output(env, item, output), await score_output(env, item, output)
    if first.numbers == second.numbers:
        return None
    says = f"gives item '{item.id}' two different scores for one output"
    return ScorerFault(says=says, fix="make the score depend on the item and the output alone")


async def refuse_two_scores(env: Env) -> None:
    """Raise UserError, before anything is paid for, if the scorer scores the same output differently the second time.
    Errors of the scorer are ignored here, because the run's first task shows them."""
    for item in [] if is_noisy(env) else env.items("train")[:_TRIED]:
        for output in [""] if env.scores_files else [*item.answers[:1], "", item.question]:
            try:
                fault = await two_scores(env, item, output)
            except Exception:
                return
            if fault:
                raise UserError(
                    f"env '{env.name}': the scorer {fault.says}, so any gain could be luck; "
                    f"{fault.fix}, or declare the scorer noisy (env.scoring_options={{noisy: true}}; in a custom env, "
                    "noisy = True) and use the paired gate"
                )


async def scorer_finding(env: Env, items: Sequence[Item], metric: str) -> ScorerFault | None:
    """The first fault that the checks find in the scorer; None if they find none."""
    try:
        for check in (gives_nothing, word_for_word, cannot_tell):
            if finding := await check(env, items, metric):
                return finding
    except Exception as error:  # any error of a scorer is the result
        says = f"raises {type(error).__name__} on an expected answer: {error}"
        return ScorerFault(says=says, fix="let the scorer return a score for any text")
    return None


async def gives_nothing(env: Env, items: Sequence[Item], metric: str) -> ScorerFault | None:
    """A fault if the scorer gives 0 to every expected answer and never says why; else None."""
    answered = [item for item in items if item.answers]
    for item in answered:
        score = await score_output(env, item, item.answers[0])
        if score.value(metric) or score.feedback.strip():
            return None
    if not answered:
        return None
    shown = f"{shortened(answered[0].answers[0])!r} for {shown_name(answered[0])}"
    return ScorerFault(
        says=f"gives 0 to the items' own expected answers, such as {shown}, and does not say why",
        fix="correct the scorer; if it expects more than the bare answer, let it return (0, feedback) and say so in "
        "the feedback: the optimizer learns from it",
    )


async def word_for_word(env: Env, items: Sequence[Item], metric: str) -> ScorerFault | None:
    """A fault if the expected answers are free text and the scorer accepts only exactly these words; else None."""
    if not is_prose(items):
        return None
    tried = [item for item in items if item.answers and _reads_as_prose(item.answers[0])]
    lost = 0
    for item in tried:
        words = item.answers[0].split()
        fewer = " ".join(word for index, word in enumerate(words) if index % 8 != 3)
        right, nearly = [(await score_output(env, item, output)).value(metric) for output in (item.answers[0], fewer)]
        lost += right > 0 and nearly < right / 2
    if lost * 2 <= len(tried):
        return None
    return ScorerFault(
        says=f"wants free text word for word: the expected answers have {words_of(tried)} words on average, and an "
        "answer without a few of its words gets almost nothing",
        fix=INSTEAD,
    )


async def cannot_tell(env: Env, items: Sequence[Item], metric: str) -> ScorerFault | None:
    """A fault if items score as high with the expected answers of other items as with their own; else None."""
    pairs, alike = 0, []
    for item, other in _shuffled(items):
        right, wrong = [(await score_output(env, item, each.answers[0])).value(metric) for each in (item, other)]
        pairs += 1
        if wrong >= right > 0:
            names = shown_name(item), shown_name(other)
            alike.append(f"{names[0]} gets {right:.2f} for its own answer and {wrong:.2f} for that of {names[1]}")
    if not alike:
        return None
    return ScorerFault(
        says=f"cannot tell right answers from wrong ones in {len(alike)} of {pairs} items: {alike[0]}",
        fix="choose another env.scoring (judge for free text), or stricter env.scoring_options (threshold, tolerance)",
        certain=len(alike) * 2 > pairs,
    )


def _shuffled(items: Sequence[Item]) -> list[tuple[Item, Item]]:
    """Each item with the next item that has no expected answer in common with it."""
    answered = [item for item in items if item.answers]
    forms = [{normalise(answer) for answer in item.answers} for item in answered]
    pairs = []
    for index, item in enumerate(answered):
        order = [*range(index + 1, len(answered)), *range(index)]
        other = next((n for n in order if not forms[n] & forms[index]), None)
        if other is not None:
            pairs.append((item, answered[other]))
    return pairs
