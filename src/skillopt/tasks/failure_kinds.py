"""Classifies failures for the optimizer and for reports, as far as code can do this. Only the scorer decides which
answers are right."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from skillopt.record.trajectory import FailureKind, Trajectory
from skillopt.tasks.numbers import quantities
from skillopt.tasks.scoring import NO_ANSWER, SEVERAL, extract_answer, normalise

FORM: frozenset[FailureKind] = frozenset({"no_answer", "several_answers", "wrong_form", "empty"})
"""Kinds of failure in which the form of the reply is wrong; its content may be right."""
KINDS: dict[FailureKind, str] = {
    "cut_off": "cut off",
    "empty": "empty",
    "refused": "refused",
    "tool_error": "after a tool's error",
    "no_answer": "without an answer that could be right",
    "several_answers": "with several answers",
    "wrong_form": "with the right answer in a wrong form",
    "wrong_answer": "with a wrong answer",
}
"""Each kind of failure in words."""
MOST_CHOICES = 30
"""The maximum number of different answers that count as choices."""
_REFUSAL = re.compile(
    r"(?:(?:i['’]?m|i am)?\s?(?:so |very )?sorry|unfortunately|as an ai\b[^.,]*)?\W{0,5}(?:but )?"
    r"i\s?(?:can['’]?t|cannot|can not|won['’]?t|am unable to|['’]?m unable to|am not able to|['’]?m not able to)\s"
    r"(?:help|assist|comply|provide|answer|fulfil|discuss|do that|engage|share|support)",
    re.IGNORECASE,
)
BEGINNING = 200
"""The number of characters at the start of a reply that are searched for a refusal."""
_QUOTES = " \t\n\"'“”‘’*_#>-"
LONGEST_NUMBER = 40
"""An expected answer counts as a number only if it has at most this many characters."""
_TOOL_ERROR = re.compile(r"\s*(?:error\b|traceback \(most recent call last\))", re.IGNORECASE)


def failure_kind(failure: Trajectory, choices: Collection[str] = ()) -> FailureKind:
    """The kind of a failed rollout. `choices` are the possible answers if there are only a few (`choices_of`)."""
    signs: dict[FailureKind, bool] = {
        "cut_off": was_cut_off(failure),
        "tool_error": _ended_in_tool_error(failure),
        "empty": not failure.output.strip(),
        "refused": bool(_REFUSAL.match(failure.output.lstrip(_QUOTES)[:BEGINNING])),
        "several_answers": failure.score.feedback.startswith(SEVERAL),
        "no_answer": failure.score.feedback.startswith(NO_ANSWER),
    }
    return next((kind for kind, shown in signs.items() if shown), None) or _by_answer(failure, choices)


def _by_answer(failure: Trajectory, choices: Collection[str]) -> FailureKind:
    answer = extract_answer(failure.output)
    right = [gold for gold in failure.answers if _says(answer, gold)]
    if choices:
        said = [normalise(choice) for choice in choices if _says(answer, choice)]
        named = {name for name in said if not any(name != other and name in other for other in said)}
        if not named:  # a listed answer is a choice, even if no task of the batch expects it
            return "wrong_answer" if _says(failure.input, answer) else "no_answer"
        if len(named) > 1:
            return "several_answers"
        return "wrong_form" if named & set(map(normalise, right)) else "wrong_answer"
    if is_calculated(failure) and not quantities(answer):
        return "no_answer"
    return "wrong_form" if any(not _says(failure.input, gold) for gold in right) else "wrong_answer"


def _says(text: str, gold: str) -> bool:
    """Does the text contain the answer as whole words? A single letter is found only if it is marked as the answer or
    is the whole text."""
    plain = normalise(gold)
    if len(plain) == 1:
        mark = re.escape(re.sub(r"\W", "", gold) or gold)
        return text.strip() == mark or bool(re.search(rf"[(\[*:]\s*{mark}\s*(?:[)\].*]|$)", text))
    return bool(plain) and f" {plain} " in f" {normalise(text)} "


def is_calculated(task: Trajectory) -> bool:
    """Is the expected answer a number that the task does not contain?"""
    gold = task.answers[0] if task.answers else ""
    short = gold if len(gold) <= LONGEST_NUMBER else ""
    return bool(re.fullmatch(r"\W*[\d.,]*\d\W*\w{0,3}\W*", short)) and not _says(task.input, gold)


def _ended_in_tool_error(failure: Trajectory) -> bool:
    """Was the last result of a tool an error?"""
    results = [str(message.get("content") or "") for message in failure.messages if message.get("role") == "tool"]
    return bool(results and _TOOL_ERROR.match(results[-1]))


def was_cut_off(trajectory: Trajectory) -> bool:
    """Did the target's last reply reach its token limit?"""
    calls = trajectory.telemetry.get("calls")
    return bool(calls and calls[-1].get("cut_off"))


def output_tokens(trajectory: Trajectory) -> int:
    """The number of tokens of the target's last reply, as counted by the endpoint; 0 if that is unknown."""
    calls = trajectory.telemetry.get("calls")
    return int(calls[-1].get("completion") or 0) if calls else 0


def named_choice(trajectory: Trajectory, choices: Collection[str]) -> str:
    """The choice that an answer names; empty if the answer names no choice or several choices."""
    answer = extract_answer(trajectory.output)
    named = [choice for choice in choices if _says(answer, choice)]
    return named[0] if len(named) == 1 else ""


def choices_of(answers: Iterable[str]) -> tuple[str, ...]:
    """The different answers, if they are few and repeat (each task is then a choice among them); else empty."""
    counts = Counter(filter(None, answers))
    few = 2 <= len(counts) <= MOST_CHOICES and len(counts) * 2 <= counts.total()
    return tuple(sorted(counts)) if few and not all(map(_is_number, counts)) else ()


def expected(trajectories: Iterable[Trajectory]) -> list[str]:
    """The first expected answer of each task that has one."""
    return [t.answers[0] for t in trajectories if t.answers]


def _is_number(text: str) -> bool:
    return len(text) <= LONGEST_NUMBER and bool(re.fullmatch(r"\W*[\d.,]+\W*", text))


def count_kinds(trajectories: Sequence[Trajectory], choices: Collection[str]) -> dict[FailureKind, int]:
    """The number of failures of each kind, the most frequent kind first."""
    kinds = Counter(failure_kind(t, choices) for t in trajectories if t.score.hard < 1)
    return dict(sorted(kinds.items(), key=lambda pair: (-pair[1], pair[0])))
