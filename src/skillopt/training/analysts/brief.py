"""The analyst for small optimizers: asks one short question after a worked example, and turns the reply into one edit.

If there are only a few right answers, the analyst asks which tasks each answer belongs to; else it asks what the
instructions lack. In free text, a small optimizer speaks only of the answers that it saw last, and a small target does
not follow prose. So the edit has one line for each answer, in a form that a small target can imitate.

A model of a billion parameters fails at the full reflection: it summarises, cites and copies until the reply is cut
off. But if such a model first sees a question with its answer, and must give only a cause and a text, it writes rules
that help.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from skillopt.config import Config
from skillopt.models.base import JsonObject, Message, Schema
from skillopt.models.call import Caller
from skillopt.models.structured import ask
from skillopt.record.edits import Dropped, Patch, Pattern
from skillopt.skill import Edit, Skill
from skillopt.skill.edit import whole_section
from skillopt.skill.tokens import count_tokens
from skillopt.tasks.agents import task_text
from skillopt.tasks.base import Item, Trajectory
from skillopt.training import prompts
from skillopt.training.analysts.base import Kind, Minibatch, with_answer
from skillopt.training.requests.blocks import fair_shares, trim_middle
from skillopt.training.requests.context import LONGEST_OTHER, OptimizerContext
from skillopt.training.requests.replies import object_schema
from skillopt.training.requests.tools import tool_lines

SECTION = "Rules"
LONGEST_CAUSE, LONGEST_TEXT = 160, 600
"""The maximum number of characters of a cause, and of an edit's text. If a small model begins to repeat itself, it does
not stop without a limit."""
_PARTS = re.compile(r"\A(.*?)<example>\n(.*?)\n</example>\s*<reply>\n(.*?)\n</reply>\s*\Z", re.DOTALL)
NOT_KNOWN = Pattern(name="answers not known", cause="The instructions do not say which answer belongs to which tasks.")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_RIGHT_ANSWER = re.compile(r'Right answer: "([^"]+)"')


class BriefAnalyst:
    name = "brief"
    kinds: tuple[Kind, ...] = ("failure",)
    needs_optimizer = True

    async def propose(
        self, skill: Skill, minibatch: Minibatch, knowledge: OptimizerContext, optimizer: Caller, config: Config
    ) -> Patch:
        if tasks := few_answers(minibatch.trajectories, knowledge.others):
            return await _answers(skill, minibatch, tasks, knowledge, optimizer, config)
        prompt = prompts.load("brief", config.gradient.prompts_dir)
        messages = brief_messages(
            prompt, skill, minibatch.trajectories, knowledge.others, config.gradient.prompt_tokens
        )
        ids = tuple(trajectory.id for trajectory in minibatch.trajectories)
        label = f"{config.train.seed}/brief/{minibatch.id}"
        answer = await ask(optimizer, messages, brief_schema(), _fields, label=label)
        patch = with_answer(Patch(id=minibatch.id, source="brief/failure", trajectory_ids=ids), answer)
        if answer.value is None:
            return patch
        cause, written = answer.value
        text = new_sentences(written, skill)
        pattern = Pattern(name=" ".join(cause.split()[:8]), cause=cause, trajectory_ids=ids)
        edit = Edit(
            op="add",
            section=SECTION,
            text=text or written,
            rationale=cause,
            pattern=pattern.name,
            trajectory_ids=ids,
            impact=0.5,
            source=patch.source,
        )
        if echoed := echo(text, prompt):
            kind, reason = "echo", f"copies '{echoed}' from the example in the prompt"
        elif not text:
            kind, reason = "repeats", "says only what is already there"
        else:
            return patch.model_copy(update={"patterns": (pattern,), "edits": (edit,)})
        dropped = Dropped(kind=kind, reason=reason, edit=edit.model_dump(mode="json"))
        return patch.model_copy(update={"patterns": (pattern,), "dropped": (dropped,)})


async def _answers(
    skill: Skill,
    minibatch: Minibatch,
    tasks: dict[str, list[Task]],
    knowledge: OptimizerContext,
    optimizer: Caller,
    config: Config,
) -> Patch:
    """Ask which tasks each answer is for, and turn the reply into one edit."""
    shown = "\n".join(
        _line(task.kind, task.text, task.answer) for answer_tasks in tasks.values() for task in answer_tasks
    )
    prompt = prompts.load("brief_answers", config.gradient.prompts_dir)
    messages = _asked(prompt, f"The agent's instructions now:\n{skill.text.strip()}\n\nTasks:\n{shown}")
    label = f"{config.train.seed}/brief_answers/{minibatch.id}"
    answer = await ask(optimizer, messages, answers_schema(list(tasks)), topics, label=label)
    ids = tuple(trajectory.id for trajectory in minibatch.trajectories)
    patch = with_answer(Patch(id=minibatch.id, source="brief/failure", trajectory_ids=ids), answer)
    if answer.value is None:
        return patch
    edit = edit_for(answer.value, skill, tags="<answer>" in knowledge.task_info.scoring)
    fields = {"trajectory_ids": ids, "pattern": NOT_KNOWN.name, "rationale": NOT_KNOWN.cause, "source": patch.source}
    pattern = NOT_KNOWN.model_copy(update={"trajectory_ids": ids})
    return patch.model_copy(update={"patterns": (pattern,), "edits": (edit.model_copy(update=fields),)})


def brief_messages(
    prompt: str, skill: Skill, trajectories: Sequence[Trajectory], others: Sequence[Item], budget: int
) -> list[Message]:
    """The request: the skill, the tools, the failed tasks, and tasks of other batches whose right answers are
    different."""
    shares = fair_shares([count_tokens(t.input) for t in trajectories], budget)
    tasks = "\n".join(
        _task(number, trajectory, share)
        for number, (trajectory, share) in enumerate(zip(trajectories, shares, strict=True), 1)
    )
    tools = tool_lines(trajectories)
    user = f"The agent can call these tools:\n{tools}\n\n" if tools else ""
    user += f"The agent's instructions now:\n{skill.text.strip()}\n\nTasks that it failed:\n{tasks}"
    unseen = unseen_answers(trajectories, others)
    if more := "\n".join(_line(item.type, task_text(item), item.answer) for item in unseen):
        user += f"\n\nOther tasks:\n{more}"
    return _asked(prompt, user)


def _asked(prompt: str, user: str) -> list[Message]:
    """The messages of a request. The prompt's worked example becomes a turn before the question, because small models
    follow such a turn better than a description."""
    system, turns = prompt, list[Message]()
    if parts := _PARTS.match(prompt):
        system = parts[1]
        turns = [{"role": "user", "content": parts[2]}, {"role": "assistant", "content": parts[3]}]
    return [{"role": "system", "content": system.strip()}, *turns, {"role": "user", "content": user}]


def unseen_answers(trajectories: Sequence[Trajectory], others: Sequence[Item]) -> list[Item]:
    """One task of another batch for each right answer that no task of this batch has."""
    shown = {answer for trajectory in trajectories for answer in trajectory.answers[:1]}
    by_answer: dict[str, Item] = {}
    for item in others:
        if item.answer not in shown:
            by_answer.setdefault(item.answer, item)
    return list(by_answer.values())


def _line(kind: str, text: str, answer: str) -> str:
    named = f" ({kind})" if kind else ""
    return f"- Task{named}: {_quoted(trim_middle(text, LONGEST_OTHER))}\n  Right answer: {_quoted(answer)}"


def _task(number: int, trajectory: Trajectory, share: int) -> str:
    kind = f" ({trajectory.type})" if trajectory.type else ""
    answers = " or ".join(map(_quoted, trajectory.answers[:3]))
    right = f"Right answer: {answers}" if answers else f"Feedback: {_quoted(trajectory.score.feedback)}"
    wrote = _quoted(trim_middle(trajectory.output, 40))
    task = _quoted(trim_middle(trajectory.input, share))
    return f"{number}. Task{kind}: {task}\n   The agent wrote: {wrote}\n   {right}"


def _quoted(text: str) -> str:
    """The text as a JSON string on one line, so the text of a task cannot look like a new entry of the list."""
    return json.dumps(text, ensure_ascii=False)


def brief_schema() -> Schema:
    cause: JsonObject = {"type": "string", "maxLength": LONGEST_CAUSE}
    text: JsonObject = {"type": "string", "maxLength": LONGEST_TEXT}
    return Schema(name="brief", body=object_schema({"cause": cause, "text": text}))


def _fields(value: Any) -> tuple[str, str]:
    if not isinstance(value, dict) or not all(isinstance(value.get(key), str) for key in ("cause", "text")):
        raise ValueError("it is not an object with the strings cause and text")
    cause, text = " ".join(value["cause"].split())[:LONGEST_CAUSE], value["text"].strip()
    if not cause or not text:
        raise ValueError("cause or text is empty")
    if len(value["text"]) >= LONGEST_TEXT:  # the schema cut it off
        raise ValueError(f"text has {LONGEST_TEXT} characters or more; be shorter")
    return cause, text


def new_sentences(text: str, skill: Skill) -> str:
    """The text without sentences that the skill has already, and with each other sentence only once. Small models
    repeat much."""
    seen = set(_SENTENCE_END.split(" ".join(skill.text.split())))
    kept = []
    for sentence in _SENTENCE_END.split(" ".join(text.split())):
        if sentence not in seen:
            seen.add(sentence)
            kept.append(sentence)
    return " ".join(kept)


def echo(text: str, prompt: str) -> str:
    """An answer that the text copies from the worked example in the prompt; empty if there is none."""
    parts = _PARTS.match(prompt)
    answers = _RIGHT_ANSWER.findall(parts[2]) if parts else []
    return next((answer for answer in answers if answer in text), "")


ANSWERS_SECTION = "Answers"
MOST_CHOICES, LONGEST_CHOICE = 12, 40
"""The analyst asks about each answer if there are at most MOST_CHOICES answers, each of at most LONGEST_CHOICE
characters."""
EACH = 3
"""The maximum number of tasks that a request shows for one answer."""
LONGEST_TOPIC = 120
"""The maximum number of characters of the text that says what an answer is for."""


@dataclass(frozen=True)
class Task:
    kind: str
    text: str
    answer: str


def few_answers(trajectories: Sequence[Trajectory], others: Sequence[Item]) -> dict[str, list[Task]]:
    """The tasks by their right answer, if there are only a few right answers and all are short; else empty. For each
    answer, failed tasks come first."""
    tasks = [Task(t.type, t.input, t.answers[0] if t.answers else "") for t in trajectories]
    tasks += [Task(item.type, task_text(item), item.answer) for item in others]
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        groups.setdefault(task.answer, []).append(task)
    words = all(a.strip() and len(a) <= LONGEST_CHOICE and "\n" not in a and not _is_number(a) for a in groups)
    fits = words and 2 <= len(groups) <= MOST_CHOICES and len(tasks) > len(groups)
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
    """Read a reply: for each answer, a line that says which tasks it is for."""
    read = value.get("answers") if isinstance(value, dict) else None
    if not isinstance(read, dict) or not all(isinstance(text, str) and text.strip() for text in read.values()):
        raise ValueError("it is not an object with a text for each of the answers")
    return {answer: " ".join(text.split()).rstrip(" .,;") for answer, text in read.items()}


def edit_for(topic_of: dict[str, str], skill: Skill, *, tags: bool) -> Edit:
    """An edit that writes the section Answers, with one line for each answer. If the section exists, its text is
    replaced, but lines with other answers stay.

    If `tags` is true, the scorer reads the answer from a tag, so the target may name the topic before the answer. Small
    targets need this.
    """
    if tags:
        head = "First say what the task is about, then give the answer in answer tags, and write nothing else."
        lines = [
            f"- {text}. Reply: This is about {_topic(text)}, so <answer>{a}</answer>." for a, text in topic_of.items()
        ]
    else:
        head = f"Reply with one of these and nothing else: {', '.join(topic_of)}."
        lines = [f"- {text}. Reply: {answer}" for answer, text in topic_of.items()]
    there = "".join(skill.text[s.span.start : s.span.end] for s in skill.find_sections(ANSWERS_SECTION)).splitlines()
    kept = [line for line in there if line.startswith("- ") and _reply(line) not in topic_of]
    text = "\n".join([head, "", *lines, *kept])
    edit = Edit(op="modify" if skill.find_sections(ANSWERS_SECTION) else "add", section=ANSWERS_SECTION, text=text)
    return whole_section(edit, skill)


def _topic(text: str) -> str:
    return text.partition(":")[0].strip() or text


def _reply(line: str) -> str:
    """The answer in a line that `edit_for` wrote."""
    reply = line.rpartition("Reply: ")[2]
    return reply.partition("<answer>")[2].partition("</answer>")[0] or reply
