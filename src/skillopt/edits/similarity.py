"""When two instructions say the same, and when one says the opposite of the other.

A text is brought to a canonical form: a sequence of concepts in which turns of speech, fillers and a clause's place in
front of the sentence no longer show, but every number, name, code, negation and the order of things do. Two texts with
the same form say the same. There is no threshold, so that merging does not depend on what is compared first.
bench/similarity.py measures it on labelled pairs.
"""

from __future__ import annotations

import re
from functools import lru_cache

from skillopt.edits.vocabulary import ANTONYMS, DROPPED, PHRASES, STEM, SYNONYM, VERBS

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
_LIST_MARK = re.compile(r"\A\s*(?:[-*+]\s+)?")
_FRONTED = re.compile(
    r"(?P<clause>(?:if|when|whenever|once|before|after|for|in|to|on|from|until|unless|by)\b[^,;:]*),\s*(?P<main>.+)",
    re.IGNORECASE | re.DOTALL,
)
_JOINED = re.compile(r"[,;:]|\b(?:and|or|but)\b", re.IGNORECASE)
"""What joins two things to do; which of them comes first may matter."""
_ORDERING = frozenset(
    {"first", "last", "the_first", "the_last", "then", "next", "before", "after", "until", "from", "over", "than", ";"}
)
"""Words that make the order of the others count."""
_LINKS = frozenset({"in", "to"})
"""Prepositions that may go where a verb says what is done with what."""
_MOBILE = frozenset({"only", "first", "verbatim"})
"""Words that may stand before or behind what they qualify, in short sentences."""


def essence(text: str) -> tuple[str, ...]:
    """The words that carry the meaning, in order."""
    words = [w if w[0] == "`" else w.casefold().replace("’", "'") for w in _WORD.findall(text)]
    return tuple(word for word in words if word not in _HARMLESS)


def normal_name(pattern: str) -> str:
    """Two analysts' names for one cause, made equal where only case and punctuation differ."""
    return " ".join("".join(c if c.isalnum() else " " for c in pattern.casefold()).split())


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
    one, other = _linear(a), _linear(b)
    return _negates(one, other) or _turns(one, other)


@lru_cache(maxsize=4096)
def meaning(text: str) -> tuple[str, ...]:
    """The canonical form, sentence by sentence."""
    out: list[str] = []
    for sentence in _sentences(text):
        if concepts := _concepts(sentence):
            out += [*([";"] if out else []), *_settled(concepts, simple=not _JOINED.search(sentence))]
    return tuple(out)


def _linear(text: str) -> list[str]:
    """All concepts in the order in which they stand."""
    return [concept for sentence in _sentences(text) for concept in _concepts(sentence)]


def _sentences(text: str) -> list[str]:
    """The sentences, a fronted clause behind its main clause."""
    bare = [_LIST_MARK.sub("", sentence).rstrip(" .!?;") for sentence in _SENTENCE_END.split(text.strip())]
    fronted = [_FRONTED.fullmatch(sentence) for sentence in bare]
    return [f"{f['main']} {f['clause']}" if f else sentence for f, sentence in zip(fronted, bare, strict=True)]


def _concepts(sentence: str) -> list[str]:
    """Words to concepts. What stands in quotes or code is taken as it is."""
    quotes: dict[str, str] = {}
    mark = "quoted"
    while mark in sentence:
        mark += "x"

    def put_aside(match: re.Match[str]) -> str:
        quotes[f"{mark}{len(quotes)}"] = match[0][1:-1]
        return f" {mark}{len(quotes) - 1} "

    text = _QUOTED.sub(put_aside, sentence)
    for phrase, short in PHRASES:
        text = phrase.sub(short, text)
    concepts = []
    for at, word in enumerate(_WORD.findall(text)):
        if word in quotes:
            concepts.append(f'"{quotes[word]}"')
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


def _settled(concepts: list[str], *, simple: bool) -> list[str]:
    """`X after Y` as `Y before X`; in short sentences `only` stands last wherever it stood."""
    if concepts.count("after") == 1:
        at = concepts.index("after")
        if 0 < at < len(concepts) - 1:
            concepts = [*concepts[at + 1 :], "before", *concepts[:at]]
    mobile = [word for word in concepts if word in _MOBILE]
    rest = [word for word in concepts if word not in _MOBILE]
    if mobile and len(rest) <= (3 if "only" in mobile else 4) and rest[:1] != ["not"]:
        return [*rest, *sorted(mobile)]
    return _turned(concepts) if simple else concepts


def _turned(concepts: list[str]) -> list[str]:
    """`Heat the food in the oven` and `Use the oven to heat the food` are one sequence, begun at two places.

    Where one verb and two other things are named, beginning elsewhere cannot swap what is done with what, or when.
    """
    things = [word for word in concepts if word not in _LINKS]
    if len(things) < 3 or sum(word in VERBS for word in things) != 1 or _ORDERING & set(things):
        return concepts
    return min(things[at:] + things[:at] for at in range(len(things)))


def _without_do(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for word in words if word not in {"do", "always", "should", "must"})


def _negates(one: list[str], other: list[str]) -> bool:
    bare = [[word for word in side if word not in {"not", "include"}] for side in (one, other)]
    return bool(bare[0]) and bare[0] == bare[1] and one.count("not") % 2 != other.count("not") % 2


def _turns(one: list[str], other: list[str]) -> bool:
    """Exactly one concept differs, and it is the other's antonym."""
    if len(one) != len(other):
        return False
    pairs = [frozenset(pair) for pair in zip(one, other, strict=True) if pair[0] != pair[1]]
    return len(pairs) == 1 and pairs[0] in ANTONYMS


def same_facts(a: str, b: str) -> bool:
    """Could two texts be wordings of one instruction? Not where a number, a name, a quotation or a negation differs,
    nor where all but one word is the same: that word is then what they are about."""
    one, other = _linear(a), _linear(b)
    changed = [pair for pair in zip(one, other, strict=False) if pair[0] != pair[1]]
    if len(one) == len(other) and len(changed) == 1:
        return False
    return _facts(a) == _facts(b) and one.count("not") % 2 == other.count("not") % 2


def _facts(text: str) -> set[str]:
    """Quotations, and words with a digit or a capital that does not begin a sentence."""
    quoted = {match[0][1:-1] for match in _QUOTED.finditer(text)}
    words: set[str] = set()
    for sentence in _SENTENCE_END.split(_QUOTED.sub(" ", text)):
        found = _WORD.findall(sentence)
        words |= {SYNONYM[w.casefold()] for w in found if SYNONYM.get(w.casefold(), "").isdigit()}
        words |= {w for at, w in enumerate(found) if any(c.isdigit() for c in w) or (at and w != w.casefold())}
    return quoted | words
