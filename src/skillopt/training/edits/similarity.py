"""Finds near-identical texts, plain contradictions and the facts of a text, from the words alone.

Here, two texts are the same if they differ only in case, punctuation, list marks and words such as "the" and "please".
Meanings are compared by the optimizer (training/edits/aggregate.py).
"""

from __future__ import annotations

import re

_HARMLESS = {"a", "an", "the", "please", "also", "just", "very", "really", "so", "then", "that", "which"}
"""Words that do not change an instruction's meaning if they are added."""
_NEGATION_WORDS = """
not no never none nor neither without avoid don't dont doesn't isn't aren't cannot can't cant won't shouldn't mustn't
refuse stop unless except
"""
NEGATIONS = set(_NEGATION_WORDS.split())
_FILLERS = _HARMLESS | {"do", "always", "should", "must"}
_WORD = re.compile(
    r"`(?:\w|[^\S\n])*[^\w\s`][^`\n]*`"  # code that is more than words stays unchanged
    r"|(?<![^\W_])[-−+.]{1,20}(?=\d)"  # a number's sign
    r"|[^\W_]+(?:(?:[-–'’./:_]|(?<=\d),(?=\d))[^\W_]+)*(?:\+\+|\#)?"  # words, names (C++, a_b) and numbers (1,5)
    r"|!=|[^\w\s.,;:!?'\"‘’“”„(){}\[\]*`#\-–—…_]"  # signs that carry meaning: < % $ & …
)
_QUOTED = re.compile(r"`[^`\n]+`|\"[^\"\n]+\"|“[^”\n]+”")
_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+|\n+")


def content_words(text: str) -> tuple[str, ...]:
    """The words of a text that carry its meaning, in order."""
    words = [w if w[0] == "`" else w.casefold().replace("’", "'") for w in _WORD.findall(text)]
    return tuple(word for word in words if word not in _HARMLESS)


def normal_name(pattern: str) -> str:
    """The name of a cause in lower case and without punctuation, so that names by two analysts can be compared."""
    return " ".join("".join(c if c.isalnum() else " " for c in pattern.casefold()).split())


def same_text(a: str, b: str) -> bool:
    """True if two texts have the same words in the same order, apart from words that carry no meaning."""
    return content_words(a) == content_words(b)


def opposite_text(a: str, b: str) -> bool:
    """True if two texts are the same instruction, once with and once without a negation."""
    left, right = content_words(a), content_words(b)
    bare = [tuple(w for w in side if w not in NEGATIONS and w not in _FILLERS) for side in (left, right)]
    negated = [sum(w in NEGATIONS for w in side) % 2 for side in (left, right)]
    return bool(bare[0]) and bare[0] == bare[1] and negated[0] != negated[1]


def other_value(a: str, b: str) -> bool:
    """True if two texts are the same instruction, except for one number, code or amount."""
    left, right = content_words(a), content_words(b)
    changed = [pair for pair in zip(left, right, strict=False) if pair[0] != pair[1]]
    return len(left) == len(right) and len(changed) == 1 and all(any(c.isdigit() for c in word) for word in changed[0])


def words_without_values(text: str) -> tuple[str, ...]:
    """The words of an instruction without negations, numbers and small words. Two contradicting instructions share
    these words."""
    left_out = NEGATIONS | _FILLERS
    return tuple(w for w in content_words(text) if w not in left_out and not any(c.isdigit() for c in w))


def quotations(text: str) -> set[str]:
    """The quoted strings and code in a text, without their quotation marks."""
    return {match[0][1:-1] for match in _QUOTED.finditer(text)}


def facts(text: str) -> set[str]:
    """The facts of a text: its quotations, its words that contain a digit, and its words that contain a capital but do
    not begin a sentence."""
    words: set[str] = set()
    for sentence in _SENTENCE_END.split(text):
        tokens = _WORD.findall(sentence)
        words |= {w for at, w in enumerate(tokens) if any(c.isdigit() for c in w) or (at and w != w.casefold())}
    return quotations(text) | words
