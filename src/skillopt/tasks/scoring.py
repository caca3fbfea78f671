"""The built-in scorers. For any output, they return a hard score (0 or 1) and a soft score (0 to 1)."""

from __future__ import annotations

import json
import math
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from skillopt.models.base import ChatReply
from skillopt.models.structured import parse
from skillopt.tasks.base import Score
from skillopt.tasks.data import shortened
from skillopt.tasks.numbers import Quantity, known_unit, quantities

_ANSWER_TAG = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL | re.IGNORECASE)
"""Matches an answer in its tags. An opening tag that is only mentioned before the real one is ignored."""
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_UNFINISHED = re.compile(r"[^=\s][ \t]*[=≈][^\w=]*\Z")
"""Matches a calculation that ends before its result."""


NO_ANSWER = ("the reply names no choice", "the reply holds no number", "the reply holds no usable JSON object")
SEVERAL = ("the reply names several choices",)
"""`NO_ANSWER` and `SEVERAL` are beginnings of the feedback on replies from which no single answer can be read."""

Choices = Sequence[str | int | float] | Mapping[str, str | int | float]


def extract_answer(output: str) -> str:
    """The target's answer: the text in the last `<answer>…</answer>`; without such a tag, the whole output."""
    tagged = _ANSWER_TAG.findall(output)
    return (tagged[-1] if tagged else output).strip()


@lru_cache(maxsize=4096)
def normalise(text: str) -> str:
    """SQuAD's normal form: lower case, no punctuation, no articles, single spaces.

    If this would leave nothing (for example for the answer `A` or `+`), keep the articles; if the text would still be
    empty, keep the punctuation, too, because an empty text is never the answer.
    """
    lower = text.lower()
    words = lower.translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", words).split() or words.split() or lower.split())


def token_f1(answer: str, gold: str) -> float:
    got, want = normalise(answer).split(), normalise(gold).split()
    if not got or not want:
        return float(got == want)
    return 2 * (Counter(got) & Counter(want)).total() / (len(got) + len(want))


def exact(output: str, answers: Sequence[str]) -> Score:
    """The hard score is 1 if the reply equals an answer in normal form. The soft score is the highest token F1 with any
    of the answers."""
    answer = extract_answer(output)
    hard = any(normalise(answer) == normalise(gold) for gold in answers)
    soft = max(token_f1(answer, gold) for gold in answers)
    return Score(hard=float(hard), soft=1.0 if hard else soft, feedback="" if hard else expected_feedback(answers))


def f1(output: str, answers: Sequence[str], *, threshold: float = 0.5) -> Score:
    """The hard score is 1 if the token F1 is at least `threshold`. The soft score is the highest token F1 with any of
    the answers."""
    soft = max(token_f1(extract_answer(output), gold) for gold in answers)
    return Score(
        hard=float(soft >= threshold), soft=soft, feedback="" if soft >= threshold else expected_feedback(answers)
    )


def contains(output: str, answers: Sequence[str], *, every: bool = False) -> Score:
    """The hard score is 1 if the output contains an answer as whole words. With `every`, it must contain all answers,
    and the soft score is the share of answers that it contains."""
    answer = f" {normalise(extract_answer(output))} "
    missing = [gold for gold in answers if f" {normalise(gold)} " not in answer]
    share = 1 - len(missing) / len(answers)
    hard = not missing if every else len(missing) < len(answers)
    if hard:
        return Score(hard=1, soft=1)
    feedback = f"the reply does not contain {_quoted(missing)}" if every else expected_feedback(answers)
    return Score(hard=0, soft=share if every else 0, feedback=feedback)


def choice(output: str, answers: Sequence[str], *, choices: Choices = ()) -> Score:
    """Both scores are 1 if the reply names the right choice and no other, by its letter or its text.

    `choices` is {letter: text}, or a list of texts. If all expected answers are letters, the texts of a list get the
    letters A, B, C …; else each text is its own label.
    """
    texts = _lettered(choices, answers)
    named = _named_choices(extract_answer(output), texts)
    right = {label for label in texts for gold in answers if normalise(gold) in {label, normalise(texts[label])}}
    right = right or {normalise(gold) for gold in answers}
    if named and named <= right:
        return Score(hard=1, soft=1)
    reason = NO_ANSWER[0] if not named else ""
    reason = SEVERAL[0] if len(named) > 1 else reason
    return Score(hard=0, soft=0, feedback=f"{reason}{'; ' * bool(reason)}{expected_feedback(answers)}")


def _lettered(choices: Choices, answers: Sequence[str]) -> dict[str, str]:
    """The choices as label (in normal form) → text. Without choices, the labels are letters, digits or the answers."""
    if isinstance(choices, Mapping):
        return {normalise(str(label)): str(text) for label, text in choices.items()}
    by_letter = all(re.fullmatch(r"\W*[A-Za-z]\W*", gold) for gold in answers)
    texts = [str(text) for text in choices]
    if texts and not by_letter:
        return {normalise(text): text for text in texts}
    if texts:
        return {string.ascii_lowercase[index]: text for index, text in enumerate(texts[:26])}
    if by_letter:
        return dict.fromkeys(string.ascii_lowercase[:10], "")
    by_digit = all(re.fullmatch(r"\W*\d\W*", gold) for gold in answers)
    return dict.fromkeys(string.digits, "") if by_digit else {normalise(g): g for g in answers}


def _named_choices(answer: str, texts: Mapping[str, str]) -> set[str]:
    """The labels of the choices that a reply names. The reply may be only the label, may mark it (`(B)`, `the answer is
    B`), or may contain the text of the choice."""
    short = normalise(answer)
    if short in texts:
        return {short}
    whole = {label for label, text in texts.items() if text and normalise(text) == short}
    if whole:
        return whole
    if texts and all(len(label) == 1 for label in texts):
        lead, named_as, marked = _label_patterns(frozenset(texts))
        first = lead.match(answer)
        named = [first[1]] if first else named_as.findall(answer)[-1:] or marked.findall(answer)[-1:]
        if named:
            return {normalise("".join(each)) for each in named}
    reply = f" {short} "
    telling = {label: text for label, text in texts.items() if len(text) > 1 or text.isdigit()}  # `a` is a word, too
    by_text = {label for label, text in telling.items() if f" {normalise(text)} " in reply}
    return {a for a in by_text if not any(a != b and normalise(texts[a]) in normalise(texts[b]) for b in by_text)}


@lru_cache(maxsize=256)
def _label_patterns(labels: frozenset[str]) -> tuple[re.Pattern[str], ...]:
    """Three patterns for a label of one character. The first finds it at the beginning; the second, after a word such
    as `answer`; the third, if it is marked, as in `(B)`."""
    label = f"([{re.escape(''.join(sorted(labels)))}])"
    patterns = (
        rf"\W*{label}(?:[).:\]](?!\d)|\s*$|\s+[-–—])",
        rf"\b(?:answer|option|choice)\b\W{{0,6}}(?:is|:|=)?\W{{0,6}}{label}\b(?![’']|[.,]\d)",
        rf"\({label}\)|\*\*{label}\*\*",
    )
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)


def number(
    output: str,
    answers: Sequence[str],
    *,
    tolerance: float = 0.0,
    relative_tolerance: float = 0.0,
    units: Literal["optional", "required", "ignore"] = "optional",
    decimal: Literal[".", ","] = ".",
) -> Score:
    """Both scores are 1 if the last number of the reply (or of its `<answer>`) equals an accepted one within the
    tolerance.

    `units`: `optional` (if the reply has a unit, it must fit; `2 km` equals `2000 m`), `required` or `ignore`.
    `decimal`: the decimal separator for ambiguous numbers; `1,234` is 1234 if the separator is `.`.
    """
    answer = _last_line_of_answer(output)
    unfinished = _UNFINISHED.search(answer[-2000:])
    numbers = [] if unfinished else quantities(answer, decimal)
    got = numbers[-1] if numbers else None
    problems = ["the reply ends before the result of its calculation"] if unfinished else []
    for gold in answers:
        wanted = quantities(gold, decimal)
        if not wanted:
            if normalise(extract_answer(output)) == normalise(gold):
                return Score(hard=1, soft=1)
            continue
        problem = _number_problem(got, wanted[-1], max(tolerance, relative_tolerance * abs(wanted[-1].value)), units)
        if not problem:
            return Score(hard=1, soft=1)
        problems.append(problem)
    return Score(hard=0, soft=0, feedback="; ".join([*problems[:1], expected_feedback(answers)]))


def _last_line_of_answer(output: str) -> str:
    """The part of a reply that contains the number: the text in `\\boxed{…}`; else the text after `####`; else the
    whole answer."""
    answer = extract_answer(output)
    boxed = re.findall(r"\\boxed\{([^{}]*)\}", answer[-20_000:])
    return boxed[-1] if boxed else answer.rpartition("####")[2]


def _number_problem(got: Quantity | None, want: Quantity, tolerance: float, units: str) -> str:  # noqa: PLR0911
    """Why the number is wrong; empty if it is right."""
    if got is None:
        return NO_ANSWER[1]
    unit = got.unit if known_unit(got.unit) or got.unit == want.unit else ""
    measured = Quantity(got.value, unit)
    value: float | None = got.value
    if units != "ignore" and want.unit and (unit or units == "required"):
        if not unit:
            return f"the unit is missing ({want.unit})"
        value = measured.in_unit_of(want)
    if value is None:
        return f"the unit is wrong: got {got}"
    if abs(value - want.value) <= tolerance + 1e-9 * max(1.0, abs(want.value)):
        return ""
    for factor in (10, 100, 1000, 1e6):
        if want.value and any(math.isclose(value / want.value, ratio) for ratio in (factor, 1 / factor)):
            return f"the number is off by a factor of {factor:g}: got {got}"
    if want.value and math.isclose(value, -want.value):
        return f"the number has the wrong sign: got {got}"
    return f"the number is wrong: got {got}"


def anls(output: str, answers: Sequence[str], *, threshold: float = 0.5) -> Score:
    """The soft score is 1 − d, or 0 if d is `threshold` or more; d is the normalised edit distance. The hard score is 1
    if the soft score is at least 0.999."""
    answer = " ".join(extract_answer(output).lower().split())
    soft = max(_similarity(answer, " ".join(gold.lower().split()), threshold) for gold in answers)
    return Score(hard=float(soft >= 0.999), soft=soft, feedback="" if soft >= 0.999 else expected_feedback(answers))


def _similarity(a: str, b: str, threshold: float) -> float:
    longer = max(len(a), len(b))
    if not longer:
        return 1.0
    if (longer - min(len(a), len(b))) / longer >= threshold:
        return 0.0
    distance = edit_distance(a, b) / longer
    return 1 - distance if distance < threshold else 0.0


def edit_distance(a: str, b: str) -> int:
    """The Levenshtein distance. The bits of one integer represent a column of the table (Myers 1999, Hyyrö 2003)."""
    if not a or not b:
        return len(a) or len(b)
    places: dict[str, int] = {}
    for index, char in enumerate(a):
        places[char] = places.get(char, 0) | 1 << index
    ones, last = (1 << len(a)) - 1, 1 << (len(a) - 1)
    up, down, distance = ones, 0, len(a)
    for char in b:
        same = places.get(char, 0)
        diagonal = (((same & up) + up) ^ up) | same | down
        right, left = down | ~(diagonal | up) & ones, up & diagonal
        distance += bool(right & last) - bool(left & last)
        right, left = (right << 1 | 1) & ones, left << 1 & ones
        up, down = left | ~(diagonal | right) & ones, right & diagonal
    return distance


def regex(output: str, answers: Sequence[str], *, search: bool = False, ignore_case: bool = True) -> Score:
    """Both scores are 1 if the whole answer matches one of the patterns; with `search`, if a part of it does."""
    answer = extract_answer(output)
    for pattern in answers:
        compiled = _compiled(pattern, ignore_case)
        if compiled.search(answer) if search else compiled.fullmatch(answer):
            return Score(hard=1, soft=1)
    return Score(hard=0, soft=0, feedback=f"the reply does not match the pattern {_quoted(answers)}")


@lru_cache(4096)
def _compiled(pattern: str, ignore_case: bool) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL | (re.IGNORECASE if ignore_case else 0))


def json_fields(output: str, answers: Sequence[str], *, fields: Sequence[str] = (), tolerance: float = 0.0) -> Score:
    """The hard score is 1 if the reply's JSON has all fields of an answer, with the same values. The soft score is the
    share of the fields that have the same values.

    `fields` (dotted, such as `address.city`) are the fields that are compared; by default all fields of the answer.
    Numbers within the tolerance are equal; case and spaces of texts are ignored. The reply may have further fields.
    """
    try:
        got = parse(ChatReply(text=extract_answer(output)))
    except (ValueError, RecursionError) as error:
        return Score(hard=0, soft=0, feedback=f"{NO_ANSWER[2]}: {str(error)[:100]}")
    scores = [_json_score(got, gold, fields, tolerance) for gold in answers]
    return max(scores, key=lambda score: (score.hard, score.soft))


def _json_score(got: Any, gold: str, fields: Sequence[str], tolerance: float) -> Score:
    want = json.loads(gold)
    wanted = {name: _at(want, name) for name in fields} if fields else dict(_leaves(want, ""))
    problems = []
    for name, value in wanted.items():
        actual = _at(got, name)
        if not _same(actual, value, tolerance):
            wrong = "is missing" if actual is _MISSING else f"is {_short(actual)}, expected {_short(value)}"
            problems.append(f"field '{name}' {wrong}" if name else f"the value {wrong}")
    soft = 1 - len(problems) / len(wanted) if wanted else 1.0
    return Score(hard=float(not problems), soft=soft, feedback="; ".join(problems[:5]))


_MISSING = object()


def _leaves(value: Any, name: str) -> list[tuple[str, Any]]:
    """The fields of a JSON value, as (name, value). Fields of inner objects have dotted names; a list is one value."""
    if not isinstance(value, dict) or not value:
        return [(name, value)]
    return [leaf for key, below in value.items() for leaf in _leaves(below, f"{name}.{key}" if name else key)]


def _at(value: Any, dotted: str) -> Any:
    """The value at a dotted name; `_MISSING` if there is none. A key that itself contains dots is found as well."""
    if not dotted:
        return value
    if isinstance(value, dict) and dotted in value:
        return value[dotted]
    head, _, rest = dotted.partition(".")
    if isinstance(value, dict) and head in value and rest:
        return _at(value[head], rest)
    if isinstance(value, list) and head.isdecimal() and len(head) < 9 and int(head) < len(value):
        return _at(value[int(head)], rest)
    return _MISSING


def _same(a: Any, b: Any, tolerance: float) -> bool:
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b or _near(a, b, tolerance)
    if isinstance(a, str) and isinstance(b, str):
        return " ".join(a.casefold().split()) == " ".join(b.casefold().split())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return all(_same(a.get(key, _MISSING), value, tolerance) for key, value in b.items())
    return False


def _near(a: float, b: float, tolerance: float) -> bool:
    try:
        return abs(a - b) <= tolerance + 1e-9 * max(1.0, abs(b))
    except OverflowError:  # an integer that is too large for a float
        return False


def _short(value: Any) -> str:
    return shortened(json.dumps(value, ensure_ascii=False, default=repr), 80)


def expected_feedback(answers: Sequence[str]) -> str:
    """The feedback on a wrong answer if a scorer has no more precise feedback."""
    return "expected " + " or ".join(f'"{answer}"' for answer in answers[:3])


def _quoted(texts: Sequence[str]) -> str:
    return " or ".join(f'"{text}"' for text in texts[:3])


_TAG = (
    "If the reply has an <answer>…</answer> tag, only the last tag counts, and the agent may write anything before "
    "the tag; without a tag the whole reply is the answer."
)
DESCRIPTIONS = {
    "exact": f"A reply is right if it equals an expected answer; case, punctuation and a/an/the do not count. {_TAG}",
    "contains": "A reply is right if an expected answer occurs in it as whole words; other text does no harm.",
    "choice": f"A reply is right if it names the right choice, by letter or by text, and no other. {_TAG}",
    "number": "The last number of the reply is the answer, so the agent may calculate before it. If the reply has an "
    "<answer>…</answer> tag, only the tag counts. If the reply gives a unit, the unit must be right.",
    "f1": f"A reply is right if it shares enough words with an expected answer: extra words cost points. {_TAG}",
    "anls": f"A reply is right if it is spelled like an expected answer; a few wrong letters cost little. {_TAG}",
    "regex": f"A reply is right if it matches the expected pattern. {_TAG}",
    "json": "The reply must hold a JSON object with the expected fields and values; text around it does no harm.",
}
"""The description of each scorer for the optimizer."""

SCORERS: dict[str, Callable[..., Score]] = {
    "exact": exact,
    "contains": contains,
    "choice": choice,
    "number": number,
    "f1": f1,
    "anls": anls,
    "regex": regex,
    "json": json_fields,
}
"""The built-in scorers by name. Options are keyword arguments, from `env.scoring_options` or an item's fields."""
