"""The lines of a skill that changed, and the items that each change most likely is about."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from skillopt.run.source import Source


@dataclass(frozen=True, kw_only=True)
class Hunk:
    """Neighbouring lines that changed together."""

    first: int
    """In the new file, from 1; where lines were only removed, the line before which they were."""
    last: int
    text: str
    """What was removed and what was added."""


def hunks(base: Source, skill: Source) -> list[Hunk]:
    """What differs between two versions of the whole main file."""
    before, after = base.text.splitlines(), skill.text.splitlines()
    found = []
    for tag, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            first = min(c + 1, max(1, len(after)))
            found.append(Hunk(first=first, last=max(first, d), text="\n".join([*before[a:b], *after[c:d]])))
    return found


def blamed(found: Sequence[Hunk], changed: Sequence[Mapping[str, Any]]) -> dict[int, list[Mapping[str, Any]]]:
    """For each item, the hunk with which it shares the rarest words, by the hunk's place; an item that shares none with
    any is under -1."""
    words = [_words(hunk.text) for hunk in found]
    common = Counter(word for own in words for word in own)
    shares: dict[int, list[Mapping[str, Any]]] = {}
    for row in changed:
        said = _words(f"{row['input']}\n{row['base']['output']}\n{row['skill']['output']}")
        weights = [math.fsum(sorted(1 / common[word] for word in own & said)) for own in words]
        best = max(range(len(weights)), key=lambda n: (weights[n], -n), default=-1)
        shares.setdefault(best if best >= 0 and weights[best] > 0 else -1, []).append(row)
    return shares


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w{3,}", text.casefold()))
