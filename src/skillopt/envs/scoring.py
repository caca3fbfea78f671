"""Scores by name: an output and the accepted answers give hard 0/1 and soft 0..1."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

from skillopt.envs.base import Score

_ANSWER_TAG = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL | re.IGNORECASE)
"""A tag that is only spoken of before the real one begins nothing."""
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def extract_answer(output: str) -> str:
    """What the target means as its answer: the last `<answer>…</answer>`, or the whole output."""
    tagged = _ANSWER_TAG.findall(output)
    return (tagged[-1] if tagged else output).strip()


def normalise(text: str) -> str:
    """SQuAD's normal form: lower case, no punctuation, no articles, single spaces.

    Where that leaves nothing (choice `A`, sign `+`), articles and then punctuation stay: silence is never the answer.
    """
    lower = text.lower()
    words = lower.translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", words).split() or words.split() or lower.split())


def token_f1(answer: str, gold: str) -> float:
    got, want = normalise(answer).split(), normalise(gold).split()
    if not got or not want:
        return float(got == want)
    common = sum((Counter(got) & Counter(want)).values())
    return 2 * common / (len(got) + len(want))


def exact(output: str, answers: Sequence[str]) -> Score:
    """hard: equal to an answer in normal form; soft: the best token F1 with any of them."""
    answer = extract_answer(output)
    hard = any(normalise(answer) == normalise(gold) for gold in answers)
    soft = max(token_f1(answer, gold) for gold in answers)
    return Score(hard=float(hard), soft=1.0 if hard else soft, feedback="" if hard else _expected(answers))


def f1(output: str, answers: Sequence[str]) -> Score:
    """hard: token F1 of at least 0.5 with an answer; soft: the best token F1."""
    soft = max(token_f1(extract_answer(output), gold) for gold in answers)
    return Score(hard=float(soft >= 0.5), soft=soft, feedback="" if soft >= 0.5 else _expected(answers))


def _expected(answers: Sequence[str]) -> str:
    return "expected " + " or ".join(f'"{answer}"' for answer in answers[:3])


SCORERS: dict[str, Callable[[str, Sequence[str]], Score]] = {"exact": exact, "f1": f1}
