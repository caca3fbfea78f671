"""One word for one thing: docs, messages and docstrings use none of the retired words of docs/concepts.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import REPO

RETIRED = {
    "case file": r"\bcase[ -]files?\b",
    "course": r"(?<!of )\bcourses? of (?:a |the |an )?(?:run|training|validation|score)",
    "door": r"\b(?:which|table of(?: the)?|every|each) doors?\b",
    "duel": r"\bduel(?:s|led|ling)?\b",
    "fate": r"\bfates?\b",
    "heat": r"\bheats?\b(?![ -]?maps?\b)",
    "is no text": r"(?<!there )\bis no (?:choice|file|folder|function|JSON|member|number|path|text|TOML|YAML)\b",
    "job": r"\b(?:target's|agent's|model's|optimizer's) jobs?\b|\b(?:does a|sees the|works? out the) job\b",
    "letter": r"\b(?:optimizer|analyst|reflection|stage)(?:'s|s')? letters?\b"
    r"|\bletters? (?:to|for) the (?:optimizer|model)\b|\breads? its letter\b",
    "place": r"\bfree places?\b|\b(?:waits? for|has|had|takes?) (?:a|one|two|no) places?\b",
    "pulse": r"(?<![`\w])pulses?\b(?!`)",
    "rehearsal": r"\brehears(?:al|als|e|es|ed|ing)\b",
    "room": r"\broom for (?:the |an? )?(?:edits?|examples?|requests?|tokens?|trajectories)\b|\bneeds room\b",
    "seal": r"\b(?:un)?seal(?:s|ed|ing)?\b",
    "second look": r"\bsecond looks?\b",
    "standing": r"\b(?:its|the|their|skill's|candidate's) standings?\b",
    "where": r"(?:^|[.;:|] )Where (?!to\b)|\b(?:[Nn]one|[Ee]mpty|[Nn]othing|silent|strict|also|else|only|even) where\b"
    r"|[;,] where (?:it|they|that|this|nothing|none|no|there|such|one)\b",
}
"""A pattern for each retired word that leaves its ordinary uses alone (a door hinge, a heat map, `pulse` the event)."""
PATTERNS = {
    word: re.compile(pattern, re.MULTILINE if word == "where" else re.IGNORECASE) for word, pattern in RETIRED.items()
}

NOT_CLEAN_YET: dict[str, list[str]] = {
    "seal": ["skillopt/record/damage.py", "skillopt/record/journal.py", "skillopt/sim"],
    "where": ["skillopt/tasks/judge.py", "skillopt/tasks/scoring.py"],
}
"""Files that may keep a word: a column of the journal is named `seal`, tickets of `sim` are sealed, and the texts of
requests to models stay as they are. Add none."""

CONCEPTS = (REPO / "docs" / "concepts.md").read_text(encoding="utf-8")
PAGES = [
    *(path for path in sorted((REPO / "docs").glob("*.md")) if path.name != "log.md"),
    *(REPO / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")),
    *sorted((REPO / "agent").rglob("*.md")),
]
"""docs/log.md is history and keeps the words of its time; docs/reference/ is made from the docstrings."""
SOURCES = [path for kind in ("py", "js") for path in sorted((REPO / "src").rglob(f"*.{kind}"))]
JS_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`')


def retired_words(text: str) -> dict[str, str]:
    hits = {word: pattern.search(text) for word, pattern in PATTERNS.items()}
    return {word: hit[0] for word, hit in hits.items() if hit}


def prose(path: Path) -> Iterator[str]:
    """The docstrings and messages of a source file: string literals of several words."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".js":
        literals = (re.sub(r"\$\{[^}]*\}", "", literal) for literal in JS_STRING.findall(text))
        yield from (literal for literal in literals if len(literal.split()) > 2)
    else:
        values = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
        yield from (value for value in values if isinstance(value, str) and len(value.split()) > 2)


def not_clean_yet(path: Path, word: str) -> bool:
    name = path.relative_to(REPO / "src").as_posix()
    return any(name == allowed or name.startswith(f"{allowed}/") for allowed in NOT_CLEAN_YET.get(word, []))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(REPO).as_posix())
def test_no_page_uses_a_retired_word(page: Path) -> None:
    assert retired_words(page.read_text(encoding="utf-8").partition("## Retired words")[0]) == {}


def test_no_message_or_docstring_uses_a_retired_word() -> None:
    hits = [
        f"{path.relative_to(REPO)}: {word}: {hit!r} in {text[:80]!r}"
        for path in SOURCES
        for text in prose(path)
        for word, hit in retired_words(text).items()
        if not not_clean_yet(path, word)
    ]
    assert hits == []


def test_the_glossary_lists_the_words_that_are_checked() -> None:
    rows = re.findall(r"^\| ([^|]+?) \| [^|]+ \|$", CONCEPTS.partition("## Retired words")[2], re.MULTILINE)
    listed = {word.partition(" (")[0].removesuffix(", sealed") for word in rows if word != "retired"}
    assert listed == set(RETIRED)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("It reads the case file.", "case file"),
        ("the course of the validation score", "course"),
        ("Who may do what, through which door", "door"),
        ("The repeats are the paired gate's duel.", "duel"),
        ("each edit with its fate", "fate"),
        ("Two heats decide.", "heat"),
        ("The optimizer sees the job.", "job"),
        ("The simulated optimizer reads its letter.", "letter"),
        ("A call that has a place is sent now.", "place"),
        ("the trainer's pulse", "pulse"),
        ("a rehearsal of one task", "rehearsal"),
        ("room for the trajectories", "room"),
        ("The test split is sealed.", "seal"),
        ("A second look at what was rejected.", "second look"),
        ("its standing after the gate", "standing"),
        ("of a file that is no text, its size", "is no text"),
        ("Where nothing is noisy, it equals strict.", "where"),
        ("the skill that a path names; None where it names none", "where"),
    ],
)
def test_a_retired_word_would_be_found(text: str, word: str) -> None:
    assert list(retired_words(text)) == [word]


@pytest.mark.parametrize(
    "text",
    [
        "A heat map of items, of course.",
        "Replace the first link with a copy in its place, rounded to two places.",
        "The job runs in CI; jobs: check. A door hinge squeaks. Two rooms, and no room for doubt.",
        "`pulse` is an event. `second_look: 0–60` is a stage. A long-standing rule.",
        "There is no text. It is no worse. The folder where runs are. Where to put it: see below.",
        "Answer letter 1, letter by letter; the right letter; `skillopt letters RUN --wait`.",
    ],
)
def test_an_ordinary_use_is_no_alarm(text: str) -> None:
    assert retired_words(text) == {}
