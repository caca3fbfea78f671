"""The three scorers of the task sets for methods that are not ours: the same scores and feedback as `env.scoring`.

Tests and `run.py` compare them with what `skillopt eval` finds.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable

ANSWER = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL | re.IGNORECASE)
NUMBER = re.compile(r"(?:(?<!\w)-)?\d+(?:,\d{3})*(?:\.\d+)?")


def extracted(output: str) -> str:
    tagged = ANSWER.findall(output)
    return str(tagged[-1] if tagged else output).strip()


def normalised(text: str) -> str:
    words = text.lower().translate(str.maketrans("", "", string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", words).split())


def exact(output: str, answer: str) -> str:
    return "" if normalised(extracted(output)) == normalised(answer) else f'expected "{answer}"'


def regex(output: str, answer: str) -> str:
    same = re.fullmatch(answer, extracted(output), re.DOTALL)
    return "" if same else f'the reply does not match the pattern "{answer}"'


def number(output: str, answer: str) -> str:
    found = NUMBER.findall(extracted(output).rpartition("####")[2])
    if not found:
        return f'the reply holds no number; expected "{answer}"'
    got = float(found[-1].replace(",", ""))
    return "" if got == float(answer) else f'the number is wrong: got {got:g}; expected "{answer}"'


SCORERS: dict[str, Callable[[str, str], str]] = {"exact": exact, "regex": regex, "number": number}
"""Each returns the feedback, which is empty for a right reply."""
