"""What a small optimizer is asked if tasks have a few right answers: which tasks does each answer belong to?

A free text speaks of the answers that it was shown last, and a small target does not follow prose. Here every answer
gets one line, in a form that a small target can imitate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from skillopt.models.base import Schema
from skillopt.skill import Edit, Skill
from skillopt.skill.edit import whole_section
from skillopt.tasks.agents import task_text
from skillopt.tasks.base import Item, Trajectory
from skillopt.training.requests.replies import object_schema

SECTION = "Answers"
MOST, LONGEST = 12, 40
"""Answers, and characters of one; more of them, or longer ones, are no choice among a few."""
EACH = 3
"""Tasks that are shown of one answer."""
LONGEST_TOPIC = 120
"""Characters that say what an answer is for."""


@dataclass(frozen=True)
class Task:
    kind: str
    text: str
    answer: str


def few_answers(trajectories: Sequence[Trajectory], others: Sequence[Item]) -> dict[str, list[Task]]:
    """The tasks by their right answer, failures first, if all answers are a few words; else empty."""
    tasks = [Task(t.type, t.input, t.answers[0] if t.answers else "") for t in trajectories]
    tasks += [Task(item.type, task_text(item), item.answer) for item in others]
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        groups.setdefault(task.answer, []).append(task)
    words = all(a.strip() and len(a) <= LONGEST and "\n" not in a and not _is_number(a) for a in groups)
    fits = words and 2 <= len(groups) <= MOST and len(tasks) > len(groups)
    return {answer: groups[answer][:EACH] for answer in sorted(groups)} if fits else {}


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", ""))
    except ValueError:
        return False
    return True


def answers_schema(answers: Sequence[str]) -> Schema:
    topic: JsonValue = {"type": "string", "maxLength": LONGEST_TOPIC}
    inner = object_schema(dict.fromkeys(answers, topic))
    return Schema(name="brief_answers", body=object_schema({"answers": inner}))


def topics(value: Any) -> dict[str, str]:
    """Reads a reply: what each answer is for, on one line."""
    read = value.get("answers") if isinstance(value, dict) else None
    if not isinstance(read, dict) or not all(isinstance(text, str) and text.strip() for text in read.values()):
        raise ValueError("it is not an object with a text for each of the answers")
    return {answer: " ".join(text.split()).rstrip(" .,;") for answer, text in read.items()}


def edit_for(topic_of: dict[str, str], skill: Skill, *, tags: bool) -> Edit:
    """A section with a line for each answer; one that is there is replaced, but for answers that only it has. `tags`:
    the scorer reads an answer tag, so that the target may name the topic before the answer, which a small one needs."""
    if tags:
        head = "First say what the task is about, then give the answer in answer tags, and write nothing else."
        lines = [f"- {text}. Reply: This is about {_topic(text)}, so {_tagged(a)}." for a, text in topic_of.items()]
    else:
        head = f"Reply with one of these and nothing else: {', '.join(topic_of)}."
        lines = [f"- {text}. Reply: {answer}" for answer, text in topic_of.items()]
    there = "".join(skill.text[s.span.start : s.span.end] for s in skill.find_sections(SECTION)).splitlines()
    kept = [line for line in there if line.startswith("- ") and _reply(line) not in topic_of]
    text = "\n".join([head, "", *lines, *kept])
    edit = Edit(op="modify" if skill.find_sections(SECTION) else "add", section=SECTION, text=text)
    return whole_section(edit, skill)


def _topic(text: str) -> str:
    return text.partition(":")[0].strip() or text


def _reply(line: str) -> str:
    """The answer of a line that `edit_for` wrote."""
    reply = line.rpartition("Reply: ")[2]
    return reply.partition("<answer>")[2].partition("</answer>")[0] or reply


def _tagged(answer: str) -> str:
    return f"<answer>{answer}</answer>"
