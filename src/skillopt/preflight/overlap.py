"""Finds descriptions in a library that an agent could mix up, because they have many words in common. No model is
called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

from skillopt.preflight.lint import Finding, Linted
from skillopt.record.source import Source
from skillopt.skill.package import PackageError
from skillopt.training.edits.similarity import content_words

_SHARED, _FEWEST = 0.5, 3
"""Two descriptions are similar if they have enough words in common: at least the share `_SHARED` of the words of the
shorter description, and at least `_FEWEST` words."""
_COMMON_WORDS = """
use used using uses when whenever for to of and or in on with from by as at it its is are be any all this these their
your you user users asks ask asked about need needs want wants how what do does not skill skills helps help task tasks
question questions request requests like them such other into
"""
_COMMON = frozenset(_COMMON_WORDS.split())


def with_overlaps(sources: Mapping[str, Source], linted: Mapping[str, Linted]) -> dict[str, Linted]:
    """The results of lint, with a warning for each skill whose description is similar to another skill's
    description."""
    words = {name: found for name, source in sources.items() if (found := _words(source))}
    findings: dict[str, list[Finding]] = {name: [] for name in linted}
    for a, b in combinations(sorted(words), 2):
        shared = words[a] & words[b]
        if len(shared) < _FEWEST or len(shared) < _SHARED * min(len(words[a]), len(words[b])):
            continue
        for name, other in ((a, b), (b, a)):
            if name in findings:
                findings[name].append(_finding(sources[name], other, shared))
    return {name: replace(own, findings=(*own.findings, *findings[name])) for name, own in linted.items()}


def _words(source: Source) -> set[str]:
    try:
        description = source.document.description if source.is_package else ""
    except PackageError:  # the rule `form` reports this problem
        return set()
    return {_stem(word) for word in content_words(description)} - _COMMON


def _stem(word: str) -> str:
    """The word without a plural `s`, so `codes` and `code` are the same word."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _finding(source: Source, other: str, shared: set[str]) -> Finding:
    lines = source.text.splitlines()
    line = next((number for number, text in enumerate(lines, 1) if text.startswith("description")), 1)
    return Finding(
        rule="overlap",
        level="warning",
        file=source.path,
        line=line,
        says=f"the description has many words in common with that of {other}: {', '.join(sorted(shared)[:8])}",
        fix="say in each description what its skill is not for; `skillopt route` measures which skill an agent loads",
    )
