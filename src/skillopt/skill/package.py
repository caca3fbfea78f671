"""An Agent Skills package: SKILL.md and further files. Agents list the front matter of SKILL.md, and load its body when
they need the skill.

Training changes only the body, or the description. Everything else stays the same, byte for byte.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass

import yaml
from pydantic import JsonValue

MAX_NAME, MAX_DESCRIPTION = 64, 1024
FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_DESCRIPTION = re.compile(r"^description[ \t]*:.*?(?=^\S|\Z)", re.DOTALL | re.MULTILINE)
"""Matches the description with its continuation lines: up to the next line that is not indented."""


class PackageError(ValueError):
    """A package is wrong; the message says how to fix it."""


@dataclass(frozen=True)
class Package:
    """The text of a SKILL.md, split into front matter and body."""

    front: str
    """The front matter with both `---` lines, unchanged; empty if the file has none."""
    body: str

    @property
    def text(self) -> str:
        return self.front + self.body

    @property
    def fields(self) -> dict[str, JsonValue]:
        match = _FRONT.match(self.front)
        try:
            fields = yaml.safe_load(match[1]) if match else {}
        except yaml.YAMLError as error:
            raise PackageError(f"the front matter is not readable as YAML: {error}") from None
        if not isinstance(fields, dict):
            raise PackageError("the front matter must be a list of fields (name: …, description: …)")
        return fields

    @property
    def name(self) -> str:
        return str(self.fields.get("name", "")).strip()

    @property
    def description(self) -> str:
        return str(self.fields.get("description", "")).strip()

    def with_body(self, body: str) -> Package:
        return Package(self.front, body)

    def with_description(self, description: str) -> Package:
        """The package with a different description; all other lines stay as they are."""
        if not _DESCRIPTION.search(self.front):
            raise PackageError("the front matter has no description to train")
        end = "\r\n" if self.front.startswith("---\r\n") else "\n"
        line = f"description: {quoted(description)}{end}"
        return Package(_DESCRIPTION.sub(lambda _: line, self.front, count=1), self.body)


def read_package(text: str) -> Package:
    match = _FRONT.match(text)
    return Package(text[: match.end()], text[match.end() :]) if match else Package("", text)


def one_line(text: str) -> str:
    """The text on one line, without characters that YAML does not allow."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def quoted(text: str) -> str:
    """The text as a YAML scalar on one line. Three hyphens, which would end the front matter, become a dash."""
    return json.dumps(re.sub("-{3,}", "—", one_line(text)), ensure_ascii=False)


def plain_description(text: str) -> str:
    """A trained document as the description of a package: one paragraph without headings and list marks."""
    lines = [line.strip() for line in text.splitlines()]
    bare = (re.sub(r"^(?:[-*+]|\d+[.)])\s+", "", line) for line in lines if not re.match(r"#{1,6}(?:\s|$)", line))
    return re.sub("-{3,}", "—", one_line(" ".join(bare)))


def problems(package: Package, folder: str) -> list[str]:
    """The problems that a validator of the format would report; `folder` is the name of the package's folder."""
    fields = package.fields
    messages = [f"front matter: unknown field '{name}'" for name in fields if name not in FIELDS]
    if problem := name_problem(package.name):
        messages.append(problem)
    elif unicodedata.normalize("NFKC", folder) != unicodedata.normalize("NFKC", package.name):
        messages.append(f"the package's name is '{package.name}', so its folder must be called that, not '{folder}'")
    if not package.description:
        messages.append("the description is empty; say what the skill does and when to use it")
    if len(package.description) > MAX_DESCRIPTION:
        messages.append(f"the description has {len(package.description)} characters; {MAX_DESCRIPTION} are allowed")
    return messages


def name_problem(name: str) -> str:
    """Why this is not a valid name of a package; empty if it is valid."""
    fits = name and len(name) <= MAX_NAME and name == name.lower() and "--" not in name and name.strip("-") == name
    if fits and all(c.isalnum() or c == "-" for c in name):
        return ""
    return f"'{name}' cannot be a package's name: 1 to {MAX_NAME} lower-case letters, digits and single hyphens"


def suggested_name(text: str) -> str:
    """A valid name made from a text: `my-task-2` from `My Task_2`."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:MAX_NAME].strip("-") or "skill"
