"""When two instructions say the same, and when one says the opposite of the other.

A text is brought to a canonical form: a sequence of concepts in which turns of speech, fillers and a clause's place in
front of the sentence no longer show, but every number, name, code, negation and the order of things do. Two texts with
the same form say the same. There is no threshold, so that merging does not depend on what is compared first.
bench/similarity.py measures it on labelled pairs.
"""

from __future__ import annotations

import re
from functools import lru_cache

from skillopt.loop.vocabulary import ANTONYMS, DROPPED, PHRASES, STEM, SYNONYM, VERBS

_HARMLESS = {"a", "an", "the", "please", "also", "just", "very", "really", "so", "then", "that", "which"}
"""Words whose presence does not change what an instruction asks for."""
_NEGATION_WORDS = """
not no never none nor neither without avoid don't dont doesn't isn't aren't cannot can't cant won't shouldn't mustn't
refuse stop unless except
"""
_NEGATIONS = set(_NEGATION_WORDS.split())
_WORD = re.compile(
    r"`[^`\n]*[^\w\s`][^`\n]*`"  # code with more than words in it, as it stands
    r"|(?<![^\W_])[-−+.]+(?=\d)"  # a number's sign
    r"|[^\W_]+(?:(?:[-–'’./:_]|(?<=\d),(?=\d))[^\W_]+)*(?:\+\+|\#)?"  # words, names (C++, a_b) and numbers (1,5)
    r"|!=|[^\w\s.,;:!?'\"‘’“”„(){}\[\]*`#\-–—…_]"  # signs that carry meaning: < % $ & …
)
_QUOTED = re.compile(r"`[^`\n]+`|\"[^\"\n]+\"|“[^”\n]+”")
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n+")
_FRONTED = re.compile(
    r"(?P<clause>(?:if|when|whenever|once|before|after|for|in|to|on|from|until|unless|by)\b[^,;:]*),\s*(?P<main>.+)",
    re.IGNORECASE | re.DOTALL,
)
_ORDERING = frozenset({"first", "last", "the_first", "the_last", "then", "next", "before", "after", "until", "from", "over", "than", ";"})
"""Words that make the order of the others count."""
_LINKS = frozenset({"in", "to"})
"""Prepositions that may go where a verb says what is done with what."""
_MOBILE = frozenset({"only", "first", "verbatim"})
"""Words that may stand before or behind what they qualify, in short sentences."""


def essence(text: str) -> tuple[str, ...]:
    """The words that carry the meaning, in order."""
    words = [w if w[0] == "`" else w.casefold().replace("’", "'") for w in _WORD.findall(text)]
    return tuple(word for word in words if word not in _HARMLESS)


def same_meaning(a: str, b: str) -> bool:
    """Do two instructions ask for the same? Never where a number, a name, a code or a negation differs."""
    return essence(a) == essence(b) or (meaning(a) == meaning(b) and bool(set(meaning(a)) - {"not"}))


def opposite_meaning(a: str, b: str) -> bool:
    """The same instruction once with and once without a negation, or with one word turned into its opposite."""
    left, right = essence(a), essence(b)
    bare_left, bare_right = (tuple(w for w in side if w not in _NEGATIONS) for side in (left, right))
    odd = (len(left) - len(bare_left)) % 2 != (len(right) - len(bare_right)) % 2
    if bare_left and odd and _without_do(bare_left) == _without_do(bare_right):
        return True
    one, other = ([word for concepts in _sentences(text) for word in concepts] for text in (a, b))
    return _negates(one, other) or _turns(one, other)


@lru_cache(maxsize=4096)
def meaning(text: str) -> tuple[str, ...]:
    """The canonical form, sentence by sentence."""
    out: list[str] = []
    for concepts in _sentences(text):
        out += [*([";"] if out else []), *_settled(concepts)]
    return tuple(out)


def _sentences(text: str) -> list[list[str]]:
    """Each sentence's concepts in order, a fronted clause behind its main clause."""
    found = []
    for sentence in _SENTENCE_END.split(text.strip()):
        bare = sentence.strip(" -*+.!?;")
        fronted = _FRONTED.fullmatch(bare)
        found.append(_concepts(f"{fronted['main']} {fronted['clause']}" if fronted else bare))
    return [concepts for concepts in found if concepts]


def _concepts(sentence: str) -> list[str]:
    """Words to concepts. What stands in quotes or code is taken as it is."""
    quotes: list[str] = []

    def put_aside(match: re.Match[str]) -> str:
        quotes.append(match[0][1:-1])
        return f" quoted_{len(quotes) - 1} "

    text = _QUOTED.sub(put_aside, sentence)
    for phrase, short in PHRASES:
        text = phrase.sub(short, text)
    concepts = []
    for at, word in enumerate(_WORD.findall(text)):
        if re.fullmatch(r"quoted_\d+", word):
            concepts.append(f'"{quotes[int(word[7:])]}"')
            continue
        if at and len(word) == 1 and word.isupper():  # a name: `Replace A with B`
            concepts.append(word)
            continue
        plain = word.casefold().replace("’", "'").removesuffix("'s")
        plain = SYNONYM.get(plain, STEM.get(plain, plain))
        plain = SYNONYM.get(plain, plain)
        if plain not in DROPPED:
            concepts.append(plain)
    return concepts


def _settled(concepts: list[str]) -> list[str]:
    """`X after Y` as `Y before X`; in short sentences `only` stands last wherever it stood."""
    if concepts.count("after") == 1:
        at = concepts.index("after")
        if 0 < at < len(concepts) - 1:
            concepts = [*concepts[at + 1 :], "before", *concepts[:at]]
    mobile = [word for word in concepts if word in _MOBILE]
    rest = [word for word in concepts if word not in _MOBILE]
    if mobile and len(rest) <= (3 if "only" in mobile else 4) and rest[:1] != ["not"]:
        return [*rest, *sorted(mobile)]
    return _turned(concepts)


def _turned(concepts: list[str]) -> list[str]:
    """`Heat the food in the oven` and `Use the oven to heat the food` are one sequence, begun at two places.

    Where a verb and two other things are named, beginning elsewhere cannot swap what is done with what.
    """
    things = [word for word in concepts if word not in _LINKS]
    if len(things) < 3 or not VERBS & set(things) or _ORDERING & set(things):
        return concepts
    return min(things[at:] + things[:at] for at in range(len(things)))


def _without_do(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for word in words if word not in {"do", "always", "should", "must"})


def _negates(one: list[str], other: list[str]) -> bool:
    bare = [[word for word in side if word != "not"] for side in (one, other)]
    return bool(bare[0]) and bare[0] == bare[1] and one.count("not") % 2 != other.count("not") % 2


def _turns(one: list[str], other: list[str]) -> bool:
    """Exactly one concept differs, and it is the other's antonym."""
    if len(one) != len(other):
        return False
    pairs = [frozenset(pair) for pair in zip(one, other, strict=True) if pair[0] != pair[1]]
    return len(pairs) == 1 and pairs[0] in ANTONYMS
