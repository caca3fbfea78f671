"""The leak guard: finds and flags edits that copy long strings from training items.

A skill that contains its training items scores well on them and teaches nothing. Validation and test items need no
guard, because no analyst ever sees them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from skillopt.record.edits import Leak
from skillopt.skill import Edit, Skill

LONGEST_COPY = 8
"""The maximum number of words in a row that an edit may share with a training item. Labels and codes are shorter;
copied tasks are longer."""
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+")
"""Matches a word; in scripts without spaces between words, it matches a single character."""


def find_leaks(edits: Iterable[Edit], shown: Mapping[str, str], skill: Skill) -> tuple[Leak, ...]:
    """The leaks: edits that share more than LONGEST_COPY words in a row with an item, unless the skill has these words
    already. `shown` has the text of each item with its answers, by item id."""
    in_skill = _runs(_words(skill.text))
    runs = {item_id: _runs(_words(text)) - in_skill for item_id, text in shown.items()}
    leaks = []
    for edit in edits:
        words = _words(edit.text) if edit.op != "delete" else []
        copies = [(_longest(words, item_runs), item_id) for item_id, item_runs in sorted(runs.items())]
        copied, item_id = max(copies, key=lambda pair: len(pair[0]), default=([], ""))
        if copied:
            leaks.append(Leak(edit_id=edit.id, item_id=item_id, copied=" ".join(copied)))
    return tuple(leaks)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _runs(words: list[str]) -> set[tuple[str, ...]]:
    size = LONGEST_COPY + 1
    return {tuple(words[at : at + size]) for at in range(len(words) - size + 1)}


def _longest(words: list[str], runs: set[tuple[str, ...]]) -> list[str]:
    """The longest part of `words` in which every sequence of LONGEST_COPY + 1 words is among `runs`."""
    size = LONGEST_COPY + 1
    best: list[str] = []
    start = None
    for at in range(len(words) - size + 2):
        if at <= len(words) - size and tuple(words[at : at + size]) in runs:
            start = at if start is None else start
        elif start is not None:
            best = max(best, words[start : at + size - 1], key=len)
            start = None
    return best
