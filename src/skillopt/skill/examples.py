"""Worked examples in a skill: `Task: …`, then `Reply: …`."""

from __future__ import annotations

import re

_TASK = r"[^\S\n]*(?:[-*+>]|\d+[.)])?[^\S\n]*\**(?:task|question|input|example)[^:\n]{0,20}:\**[^\S\n]*\n?"
_REPLY = re.compile(r"[^\S\n]*(?:[-*+>]\s+)?\**(?:reply|answer|output|response)[^:\n]{0,20}:", re.IGNORECASE)
_NEXT = re.compile(rf"\s*(?:$|#{{1,6}}\s|{_TASK}|<!--|```|~~~)", re.IGNORECASE)


def without_example(text: str, task: str) -> str:
    """The text without examples of this task; unchanged if it has none.

    An example begins with a mark such as `Task:` and the whole task, word for word. It ends with the last line of the
    reply: before an empty line, a heading, a fence or the next example.
    """
    words = task.split()
    if not words or " ".join(words) not in " ".join(text.split()):
        return text
    task_again = r"\s+".join(map(re.escape, words))
    begins = re.compile(rf"^{_TASK}{task_again}[^\S\n]*$", re.IGNORECASE | re.MULTILINE)
    while match := begins.search(text):
        end = _end(text, match.end())
        if end < 0:
            return text
        text = text[: match.start()] + text[end:].removeprefix("\n")
    return text


def _end(text: str, at: int) -> int:
    """The end of the example whose task ends at position `at`; -1 if no reply follows the task."""
    rest = text[at:].removeprefix("\n")
    if not _REPLY.match(rest):
        return -1
    at = len(text) - len(rest)
    for number, line in enumerate(rest.splitlines(keepends=True)):
        if number and _NEXT.match(line):
            break
        at += len(line)
    return at
