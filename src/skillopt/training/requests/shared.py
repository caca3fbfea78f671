"""Finds text that all tasks of a request share (a schema, a list of labels, an instruction), so that the request shows
it only once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from skillopt.skill import Skill
from skillopt.skill.tokens import count_tokens

LEAST_SHARED = 20
"""The minimum number of tokens of a shared text that gets a separate block."""
FEWEST_TASKS = 3
SHORTEST_EXAMPLE = 12
"""A task in a skill is regarded as an example only if the task has at least this many characters. A shorter text may
occur in a skill by chance."""


@dataclass(frozen=True)
class SharedText:
    parts: tuple[str, ...] = ()

    def rest(self, task: str) -> str:
        """The task with a mark in place of each shared part."""
        for number, part in enumerate(self.parts, 1):
            task = task.replace(part, f"[shared {number}]", 1)
        return task

    def is_example(self, task: str, skill: Skill) -> bool:
        """True if a task is in the skill, word for word except for the text that all tasks share."""
        for part in self.parts:
            task = task.replace(part, " ", 1)
        plain = _plain(task)
        return len(plain) >= SHORTEST_EXAMPLE and plain in _plain(skill.shown.text)


NOTHING_SHARED = SharedText()


def shared_text(tasks: Sequence[str]) -> SharedText:
    """The beginning, the end and the sequences of lines that all of these tasks share."""
    different = list(dict.fromkeys(tasks))
    if len(different) < FEWEST_TASKS:
        return NOTHING_SHARED
    start = _beginning(different)
    rests = [task[len(start) :] for task in different]
    end = _beginning([rest[::-1] for rest in rests])[::-1]
    middles = [rest[: len(rest) - len(end)] for rest in rests]
    return SharedText(tuple(part for part in (start, *_runs(middles), end) if part))


def _beginning(texts: Sequence[str]) -> str:
    """The beginning that all texts share, cut after a whole line; if that is too short, cut after a whole word. Empty
    if that is too short, too."""
    first, last = min(texts), max(texts)
    same = (at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    common = first[: next(same, min(len(first), len(last)))]
    for space in ("\n", " "):
        part = common[: common.rfind(space) + 1]
        if count_tokens(part) >= LEAST_SHARED:
            return part
    return ""


def _runs(texts: Sequence[str]) -> Iterator[str]:
    """The sequences of whole lines that are in every text, in the same order."""
    shortest = min(texts, key=len)
    others = ["\n" + text + "\n" for text in texts]
    run: list[str] = []
    for line in [*shortest.split("\n"), ""]:
        longer = "\n".join([*run, line])
        if line.strip() and all(f"\n{longer}\n" in text for text in others):
            run.append(line)
            continue
        if count_tokens("\n".join(run)) >= LEAST_SHARED:
            yield "\n".join(run)
        run = [line] if line.strip() and all(f"\n{line}\n" in text for text in others) else []


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
