"""Checks a skill without running it: its form, links, scripts, lines and length."""

from __future__ import annotations

import ast
import json
import posixpath
import re
import tomllib
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from skillopt.config.tree import parse_yaml
from skillopt.keys import key_lines
from skillopt.record.source import Source
from skillopt.skill.document import FILE, Skill, open_fence
from skillopt.skill.package import PackageError, problems
from skillopt.skill.parts import Part, rules
from skillopt.skill.tokens import count_tokens
from skillopt.tasks.data import shortened
from skillopt.training.edits.similarity import (
    content_words,
    opposite_text,
    other_value,
    same_text,
    words_without_values,
)

Level = Literal["error", "warning"]
_MOST_LINES, _MOST_TOKENS = 500, 5000
"""The maximum numbers of lines and tokens in a skill's body that the authors of the Agent Skills form recommend."""
_LINK = re.compile(r"!?\[[^\]\n]*\]\(\s*<?([^)<>\s]+)>?(?:\s+[\"'(][^)\n]*)?\)|^\s{0,3}\[[^\]\n]+\]:\s*<?(\S+?)>?\s*$")
_NAMED = re.compile(r"(?<![\w/.-])((?:\./)?(?:references|scripts|assets)/[\w./-]*\w)")
"""Matches the name of a file of the package, such as `scripts/run.py`, in the text or in a command."""
_CODE_SPAN = re.compile(r"(`+)(.+?)\1")
_TIME = re.compile(
    r"\bas of (?:now|today|this writing|(?:\w+ )?\d{4})\b|\bat (?:the moment|present|this time)\b|\bnowadays\b"
    r"|\bcurrently\b|\bthese days\b|\brecently\b|\b(?:latest|newest|current) (?:version|release|model)\b"
    r"|\buntil further notice\b|\b(?:this|last|next) (?:year|month|quarter|week)\b"
    r"|\b(?:until|before|after|since) (?:early |mid |late )?20\d\d\b",
    re.IGNORECASE,
)
_LONGEST_LINE = 4000
"""Only this many characters at the beginning of a line are searched."""
_PATH = re.compile(
    r"(?<![\w.:/-])(?:/(?:home|Users|root|mnt|Volumes|private)/[^\s`'\"),;]+|[A-Za-z]:\\(?:[\w.-]+\\)*[\w.-]*)"
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One problem of a skill, and how to fix it."""

    rule: str
    level: Level
    file: str
    """The file's path as git names it."""
    line: int
    says: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The tokens of a skill in three parts, because a request or task does not always pay for all of them. The counts
    are exact only if SkillOpt is installed with the extra `tokens`."""

    listed: int
    """Tokens of the name and description. Every request to an agent that has the skill pays for them. A skill that is a
    single file has 0."""
    loaded: int
    """Tokens of the skill's main document. Every task that uses the skill pays for them."""
    on_demand: int
    """Tokens of the other Markdown files. Only tasks that read these files pay for them."""


@dataclass(frozen=True, kw_only=True)
class Linted:
    findings: tuple[Finding, ...]
    tokens: Tokens

    @property
    def counts(self) -> str:
        """The number of findings in words, such as `2 errors, 1 warning`; empty if there are no findings."""
        levels = [finding.level for finding in self.findings]
        known = ((levels.count(level), level) for level in ("error", "warning"))
        return ", ".join(f"{count} {level}{'s' * (count > 1)}" for count, level in known if count)


NOTHING = Linted(findings=(), tokens=Tokens(listed=0, loaded=0, on_demand=0))


def lint(source: Source) -> Linted:
    """Apply all rules to all files of a skill. Nothing is run, and no model is called."""
    found = [*_form(source), *_lines(source)]
    for name in sorted(source.files):
        found += _file(source, name)
    found.sort(key=lambda finding: (finding.level, finding.file, finding.line, finding.rule))
    return Linted(findings=tuple(found), tokens=_tokens(source))


def _form(source: Source) -> Iterator[Finding]:
    package = source.document
    if not package.body.strip():
        yield _finding(source, "empty", "error", 1, "the skill has no text", "write what the agent must do")
    if open_fence(source.text):
        line = _opened(source.text)
        yield _finding(source, "fence", "error", line, "a code fence is opened here and never closed", "close it")
    if not source.is_package:
        return
    if not package.front:
        fix = "begin the file with ---, name: …, description: …, ---"
        yield _finding(source, "form", "error", 1, "the file has no front matter, so no agent lists the skill", fix)
        return
    try:
        found = problems(package, source.folder)
    except PackageError as error:
        found = [str(error)]
    for problem in found:
        yield _finding(source, "form", "error", 1, problem, "see https://agentskills.io/specification")
    lines, tokens = package.body.count("\n"), count_tokens(package.body)
    if lines > _MOST_LINES or tokens > _MOST_TOKENS:
        says = f"the body has {lines:,} lines and {tokens:,} tokens; advised limits: {_MOST_LINES} and {_MOST_TOKENS:,}"
        yield _finding(source, "form", "warning", source.first_line, says, "move parts to references/")


def _lines(source: Source) -> Iterator[Finding]:
    """Findings on pairs of rules in the main document that say the same or contradict each other."""
    own = [part for part in rules(Skill(source.document.body)) if len(content_words(part.text)) > 2]
    first = source.text.count("\n") - source.document.body.count("\n")

    def at(part: Part) -> int:
        return first + part.lines[0]

    groups: dict[tuple[str, ...], list[Part]] = defaultdict(list)
    for part in own:
        groups[words_without_values(part.text)].append(part)
    for group in groups.values():
        for a, b in combinations(group[:50], 2):
            if same_text(a.text, b.text):
                says = f"says the same as line {at(a)}: '{shortened(b.text, 71)}'"
                yield _finding(source, "duplicate", "warning", at(b), says, "remove one of the two lines")
            elif opposite_text(a.text, b.text) or other_value(a.text, b.text):
                says = f"contradicts line {at(a)}: '{shortened(b.text, 71)}' / '{shortened(a.text, 71)}'"
                yield _finding(source, "contradiction", "warning", at(b), says, "remove the line that is wrong")


def _file(source: Source, name: str) -> Iterator[Finding]:
    try:
        text = source.files[name].decode("utf-8")
    except UnicodeDecodeError:
        return
    if "\0" in text:
        return
    if trouble := parse_trouble(name, text):
        yield _finding(source, "script", "error", trouble.line, trouble.says, "fix the syntax", name)
    for line in key_lines(text):
        fix = "remove the key and revoke it: somebody may have copied it"
        yield _finding(source, "secret", "error", line, "looks like a key or a password", fix, name)
    if name == source.main or name.lower().endswith((".md", ".markdown")):
        yield from _markdown(source, name, text)


def _markdown(source: Source, name: str, text: str) -> Iterator[Finding]:
    fence = ""
    for number, line in enumerate((one[:_LONGEST_LINE] for one in text.split("\n")), 1):
        inside, fence = bool(fence), open_fence(f"{fence}\n{line}" if fence else line)
        yield from _links(source, name, number, line, fenced=inside or bool(fence))
        if not inside and (match := _TIME.search(line)):
            says = f"'{match[0]}' makes this line true only for a time"
            yield _finding(
                source, "time", "warning", number, says, "write what is true at any time, or give the date", name
            )
        if match := _PATH.search(line):
            says = f"'{match[0][:80]}' is a path that exists on only one machine"
            yield _finding(
                source, "path", "warning", number, says, "write the path relative to the skill or the task", name
            )


def _links(source: Source, name: str, number: int, line: str, *, fenced: bool) -> Iterator[Finding]:
    bare = line if fenced else _CODE_SPAN.sub(lambda match: " " * len(match[0]), line)
    linked = [] if fenced else [match[1] or match[2] for match in _LINK.finditer(bare)]
    named = [match[1] for match in _NAMED.finditer(line)] if source.is_package else []
    for target in dict.fromkeys([*linked, *named]):
        if re.match(r"[a-z][a-z0-9+.-]*:|//", target, re.IGNORECASE):
            continue
        path = re.split("[#?]", target)[0]
        base = "" if target in named and target not in linked else posixpath.dirname(name)
        place = posixpath.normpath(posixpath.join(base, path)) if path else name
        if path.startswith("/") or place.startswith(".."):
            says = f"'{target}' leads out of the package; other machines do not have that file"
            yield _finding(source, "link", "warning", number, says, "copy the file into the package", name)
        elif not source.has(place):
            yield _finding(
                source, "link", "error", number, f"'{target}' does not exist", "add the file, or fix the link", name
            )


def _tokens(source: Source) -> Tokens:
    package = source.document
    listed = 0
    if source.is_package and package.front:
        try:
            listed = count_tokens(f"{package.name}\n{package.description}")
        except PackageError:  # reported as a finding
            listed = 0
    others = [
        content.decode("utf-8", "replace")
        for name, content in source.files.items()
        if name != source.main and name.lower().endswith(".md")
    ]
    body = package.body if source.main == FILE else source.text
    return Tokens(listed=listed, loaded=count_tokens(body), on_demand=sum(map(count_tokens, others)))


def _finding(
    source: Source, rule: str, level: Level, line: int, says: str, fix: str, name: str | None = None
) -> Finding:
    own = name if name is not None else source.main
    folder = source.path.removesuffix(source.main)
    return Finding(rule=rule, level=level, file=f"{folder}{own}", line=line, says=says, fix=fix)


def _opened(text: str) -> int:
    """The number of the line with the code fence that is never closed."""
    fence, line = "", 1
    for number, one in enumerate(text.split("\n"), 1):
        before, fence = fence, open_fence(f"{fence}\n{one}" if fence else one)
        line = number if fence and not before else line
    return line


# Files that are parsed: the ending of a file's name says how. Nothing is run


@dataclass(frozen=True)
class Trouble:
    line: int
    says: str


def parse_trouble(name: str, text: str) -> Trouble | None:
    """The reason why a file cannot be parsed. None if it can be parsed, or if files of its type are not checked."""
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    first = text.split("\n", 1)[0]
    if ending == "py" or (not ending and re.match(r"#!.*\bpython", first)):
        return _python(text)
    parsers = {"json": json.loads, "ipynb": json.loads, "toml": tomllib.loads, "yaml": parse_yaml, "yml": parse_yaml}
    if ending not in parsers:
        return None
    try:
        parsers[ending](text)  # type: ignore[operator]
    except (ValueError, RecursionError) as error:
        if "expected a single document" in str(error):  # a YAML file may contain several documents
            return None
        found = re.search(r"line (\d+)", str(error))
        return Trouble(int(found[1]) if found else 1, f"is not valid {ending.upper()}: {str(error)[:200]}")
    return None


def _python(text: str) -> Trouble | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        return Trouble(error.lineno or 1, f"does not parse as Python: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        return Trouble(1, f"does not parse as Python ({type(error).__name__})")
    return None
