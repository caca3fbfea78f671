"""Reads the tests in a config of promptfoo as tasks. Nothing in the config is run: tests with code, files or templates
are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skillopt.config.tree import parse_yaml
from skillopt.errors import UserError
from skillopt.record.files import read_bytes
from skillopt.tasks.base import Json
from skillopt.tasks.check_fields import MinedCheck, check_fields
from skillopt.tasks.data import Row
from skillopt.tasks.dialogs import asked_by
from skillopt.tasks.nested import at

LARGEST = 16 << 20
"""The maximum number of bytes of a config, because YAML is read as a whole, and slowly."""
_VARIABLE = re.compile(r"\{\{\s*([\w.]+)\s*\}\}")
_TEXTS = {"contains", "icontains", "contains-all", "icontains-all", "not-contains", "not-icontains"}
_ANY = {"contains-any", "icontains-any"}
_JUDGED = {"llm-rubric", "factuality", "model-graded-closedqa"}
_KNOWN = _TEXTS | _ANY | _JUDGED | {"equals", "regex"}


@dataclass(frozen=True, kw_only=True)
class PromptfooCase:
    """One test with one prompt."""

    number: int
    asked: Json
    """The fields of the task that come from the prompt."""
    check: MinedCheck | None
    problem: str
    """Why the test cannot be a task; empty if it can."""
    several: bool
    """Does the config have other prompts for the same test?"""

    @property
    def request(self) -> str:
        """The prompt as one text."""
        return "\n\n".join(str(text) for name in ("context", "question") if (text := self.asked.get(name)))


def promptfoo_rows(file: Path) -> Iterator[Row]:
    """A row for each test and prompt. If any test has a check other than an exact answer, each row with a check names
    its scorer, for `env.scoring: by_task`."""
    cases = list(read_promptfoo(file))
    plain = all(case.check is None or case.check.kind == "exact" for case in cases)
    for case in cases:
        where = f"{file}: test {case.number}"
        if case.problem:
            yield where, UserError(case.problem)
            continue
        fields = check_fields(case.check) if case.check else {}
        if plain:
            fields.pop("scoring", None)
        group = {"group": f"test {case.number}"} if case.several else {}
        yield where, {**case.asked, **fields, **group}


def read_promptfoo(file: Path) -> Iterator[PromptfooCase]:
    """The tests of a config. If a test cannot be a task, its `problem` says why."""
    try:
        value = parse_yaml(read_bytes(file, LARGEST).decode("utf-8-sig"))
    except ValueError as error:
        raise UserError(f"{file}: cannot be read as YAML ({error})") from None
    tests = at(value, "tests")
    if not isinstance(tests, list):
        kind = f"'{tests[:80]}', and tests in other files are not read" if isinstance(tests, str) else "missing"
        raise UserError(f"{file}: tests: is {kind}; write a list of tests there, each with 'vars' and 'assert'")
    given = at(value, "prompts")
    listed = given if isinstance(given, list) else [] if given is None else [given]
    prompts = [each if isinstance(each, str) else str(at(each, "raw") or "") for each in listed]
    usable = [each for each in prompts if not each.startswith(("file:", "exec:"))]
    lack = (
        f"the prompt '{prompts[0]}' is a file; write the prompt's text in place of the file's name"
        if prompts
        else "there are no prompts"
    )
    for number, test in enumerate(tests, 1):
        yield from _cases(number, test, at(value, "defaultTest"), usable, lack)


def _cases(number: int, test: Any, default: Any, prompts: Sequence[str], lack: str) -> Iterator[PromptfooCase]:
    variables = {**_object(at(default, "vars")), **_object(at(test, "vars"))}
    asserts = [*_list(at(default, "assert")), *_list(at(test, "assert"))]
    check = _check(asserts)
    problem = "" if isinstance(test, dict) else "is not a test with vars and assert"
    problem = problem or _refused(variables, asserts) or ("" if check or not asserts else _together(asserts))
    prompts = prompts or (["{{prompt}}"] if "prompt" in variables else [])
    if not prompts:
        yield PromptfooCase(number=number, asked={}, check=check, problem=problem or lack, several=False)
    for prompt in prompts:
        template = re.search(r"\{%.*?%\}|\{\{.*?\}\}", _VARIABLE.sub("", prompt))
        missing = [name for name in _VARIABLE.findall(prompt) if at(variables, name) is None]
        wrong = f"the prompt has {template[0]!r}; only {{{{name}}}} is filled in" if template else ""
        wrong = wrong or (f"vars.{missing[0]}: is missing; the prompt uses {{{{{missing[0]}}}}}" if missing else "")
        yield PromptfooCase(
            number=number,
            asked=_asked(prompt, variables),
            check=check,
            problem=problem or wrong,
            several=len(prompts) > 1,
        )


def _asked(prompt: str, variables: Json) -> Json:
    """The fields of a task from a prompt, which is a text or a JSON list of messages. A list is parsed before the
    variables are filled in, so that values may contain quotation marks. A prompt that becomes valid JSON only when the
    variables are filled in is parsed after that."""
    filled = _filled(prompt, variables)
    for text, values in ((prompt, variables), (filled, {})):
        if messages := _messages(text):
            return asked_by([{**each, "content": _filled(each.get("content"), values)} for each in messages])
    return {"question": filled}


def _messages(text: str) -> list[Json]:
    """The messages of a JSON list; empty if the text is something else."""
    try:
        messages = json.loads(text) if text.lstrip().startswith("[") else None
    except (ValueError, RecursionError):
        return []
    return messages if isinstance(messages, list) and all(at(each, "role") for each in messages) else []


def _filled(content: Any, variables: Json) -> Any:
    """A text, or the parts of a message, with the variables filled in."""
    if isinstance(content, str):
        return _VARIABLE.sub(lambda name: _text(at(variables, name[1])), content) if variables else content
    if isinstance(content, list):
        return [_filled(each, variables) for each in content]
    if isinstance(content, dict):
        return {name: _filled(value, variables) for name, value in content.items()}
    return content


def _refused(variables: Json, asserts: Sequence[Any]) -> str:
    for each in asserts:
        kind = str(at(each, "type"))
        if kind not in _KNOWN:
            code = "code, which is never run" if kind in {"javascript", "python", "ruby"} else "not a check of SkillOpt"
            return f"assert {kind}: is {code}; known are: {', '.join(sorted(_KNOWN))}"
    values = [(f"vars.{name}", value) for name, value in variables.items()]
    values += [(f"assert {at(each, 'type')}", value) for each in asserts for value in _list(at(each, "value"))]
    for name, value in values:
        if isinstance(value, str) and value.startswith(("file:", "exec:", "python:")):
            return f"{name}: '{value[:80]}' is a file or a program, which is neither read nor run; write its text here"
        if isinstance(value, list) and name.startswith("vars."):
            return f"{name}: is a list, from which promptfoo makes several tests; write one test per value"
    return ""


def _together(asserts: Sequence[Any]) -> str:
    kinds = sorted({str(at(each, "type")) for each in asserts})
    return f"assert: {' and '.join(kinds)} cannot be one check; keep one of these kinds"


def _check(asserts: Sequence[Any]) -> MinedCheck | None:
    """The one check that a test's assertions make together; None if there is none. Assertions that are code are never
    converted."""
    kinds = {str(at(each, "type")) for each in asserts}
    texts = [_text(value) for each in asserts for value in _list(at(each, "value"))]
    if kinds and kinds <= _TEXTS:
        unwanted = [_text(at(each, "value")) for each in asserts if str(at(each, "type")).startswith("not-")]
        wanted = tuple(text for text in texts if text not in unwanted)
        return MinedCheck(kind="contains", values=wanted, unwanted=tuple(unwanted))
    if kinds == {"equals"}:
        return MinedCheck(kind="exact", values=tuple(texts))
    if kinds == {"regex"} and len(asserts) == 1:
        return MinedCheck(kind="regex", values=tuple(texts))
    if len(kinds) == 1 and kinds <= _ANY:
        return MinedCheck(kind="regex", values=tuple(map(re.escape, texts)))
    if kinds and kinds <= _JUDGED:
        return MinedCheck(kind="rubric", values=("\n".join(texts),))
    return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
