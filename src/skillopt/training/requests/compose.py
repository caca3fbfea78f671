"""One request for each stage. What does not change over a run comes first, so that prompt caches can hold it."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence

from skillopt.models.base import Message
from skillopt.record.state import Tried
from skillopt.skill import FILE, Edit, Skill
from skillopt.skill.document import OPEN_MARKER
from skillopt.skill.trained import total_tokens
from skillopt.tasks.agents import task_text
from skillopt.tasks.base import Trajectory
from skillopt.training.requests.blocks import (
    MOST_ANSWERS,
    block,
    data_line,
    fair_shares,
    shown_tokens,
    trajectory_lines,
    trim_middle,
)
from skillopt.training.requests.context import LONGEST_OTHER, MOST_OTHERS, OptimizerContext, Pair, TaskInfo
from skillopt.training.requests.files import file_blocks
from skillopt.training.requests.tools import tool_blocks

MOST_PASSES = 6
"""Passing trajectories that are shown for contrast, spread over the task types."""
MOST_STEPS = 8
"""Earlier steps that are shown with their results."""
LONGEST_SEEN = 150
"""Tokens of a task or an output under a rejected step."""
LONGEST_TRIED = 150
"""Tokens of an edit of an earlier step that are shown; an edit that is in the skill is shown shorter."""


def reflect_request(
    prompt: str,
    skill: Skill,
    knowledge: OptimizerContext,
    trajectories: Sequence[Trajectory],
    budget: int,
    cause: str = "",
) -> list[Message]:
    """Failures with a few passes, and everything else that is known. `cause` is the cause that a deep reflection is
    about."""
    failures, passes = shown_trajectories(trajectories)
    for_failures, for_passes = fair_shares([_size(failures), min(_size(passes), budget // 3)], budget)
    return _request(
        prompt,
        *_task_info(knowledge.task_info),
        *tool_blocks(trajectories),
        block("limits", _limits(skill, knowledge)),
        *_skill(skill, knowledge, trajectories),
        block("scores", _scores(trajectories, knowledge)),
        block("history", "\n".join(_tried_line(tried) for tried in knowledge.tried[-MOST_STEPS:])),
        block("notes", knowledge.notes),
        f"Cause to look into: {data_line(cause)}" if cause else "",
        block("failures", trajectory_lines(failures, for_failures)),
        block("passes", trajectory_lines(passes, for_passes)),
        block("other_tasks", _other_lines(knowledge, trajectories, [*failures, *passes])),
    )


def merge_request(
    prompt: str, skill: Skill, knowledge: OptimizerContext, edits: Sequence[tuple[Edit, int]]
) -> list[Message]:
    """The proposed edits, each with the number of trajectories that support it."""
    most, tokens = knowledge.edit_limits.edits, knowledge.edit_limits.sizes.max_edit_tokens
    limits = f"This step takes at most {most} edits. The text of an edit may have at most {tokens} tokens."
    return _request(
        prompt,
        *_task_info(knowledge.task_info),
        block("limits", limits),
        *_skill(skill, knowledge),
        block("edits", "\n".join(_edit_line(edit, support) for edit, support in edits)),
    )


def slow_update_request(
    prompt: str, knowledge: OptimizerContext, before: Skill, after: Skill, pairs: Sequence[Pair]
) -> list[Message]:
    """Both skills' difference, and both outputs for every item that improved or regressed."""
    urgency = ("regressed", "persistent_fail", "improved", "stable_success")
    ordered = sorted(pairs, key=lambda pair: (urgency.index(pair.change), pair.after.item_id))
    counts = Counter(pair.change for pair in pairs)
    return _request(
        prompt,
        *_task_info(knowledge.task_info),
        *tool_blocks(pair.after for pair in pairs),
        *_skill(after, knowledge),
        block("guidance", after.guidance),
        block("difference", _difference(before, after)),
        block("counts", ", ".join(f"{name} {counts[name]}" for name in urgency)),
        block("comparison", "\n".join(_pair_line(pair) for pair in ordered if pair.change != "stable_success")),
    )


def meta_skill_request(prompt: str, knowledge: OptimizerContext, skill: Skill, epoch: Sequence[Tried]) -> list[Message]:
    """The epoch's edits with their results, and the notes so far."""
    steps = "\n".join(_tried_line(tried) for tried in epoch)
    return _request(
        prompt,
        *_task_info(knowledge.task_info),
        *_skill(skill, knowledge),
        block("notes", knowledge.notes),
        block("epoch", steps),
    )


def shown_trajectories(trajectories: Sequence[Trajectory]) -> tuple[list[Trajectory], list[Trajectory]]:
    """The trajectories of a batch that one request shows: all failures, and some passes."""
    passes = [t for t in trajectories if t.score.hard >= 1]
    return [t for t in trajectories if t.score.hard < 1], contrast(passes)


def contrast(passes: Sequence[Trajectory]) -> list[Trajectory]:
    """A few passes, as many of each task type as possible, in their old order."""
    seen: Counter[str] = Counter()
    rounds = []
    for position, trajectory in enumerate(passes):
        seen[trajectory.type] += 1
        rounds.append((seen[trajectory.type], position))
    return [passes[position] for position in sorted(at for _, at in sorted(rounds)[:MOST_PASSES])]


def _request(prompt: str, *parts: str) -> list[Message]:
    user = "\n\n".join(part for part in parts if part)
    return [{"role": "system", "content": prompt}, {"role": "user", "content": user or "(nothing)"}]


def _task_info(info: TaskInfo) -> Iterable[str]:
    agent = f" The agent's model is {info.target}." if info.target else ""
    cut = f" A reply is cut off after {info.reply_tokens} tokens." if info.reply_tokens else ""
    yield block("task", f"{info.task}{agent}{cut}".strip())
    yield block("scoring", info.scoring)
    yield block("known_patterns", "\n".join(f"- {name}: {what}" for name, what in info.known_patterns.items()))
    comments = "\n".join(info.comments)
    yield block("comments", f"What people said of an earlier run on these tasks:\n{comments}" if comments else "")


def _skill(skill: Skill, knowledge: OptimizerContext, trajectories: Sequence[Trajectory] = ()) -> Iterable[str]:
    """The current skill: whether it is empty, what is protected, and the files of a package."""
    if not skill.text.strip():
        which = "SKILL.md" if skill.is_package else "The skill"
        of_it = " of it" if skill.is_package else ""
        yield f"{which} is empty: the agent gets no instructions yet. Every edit{of_it} must be an `add`."
    yield block("skill", skill.text)
    if skill.protected:
        yield f"The text from `{OPEN_MARKER}` to its closing marker is protected: no edit may touch it."
    yield from file_blocks(skill, knowledge.edit_limits.sizes.train, trajectories)


def _limits(skill: Skill, knowledge: OptimizerContext) -> str:
    most, sizes = knowledge.edit_limits.edits, knowledge.edit_limits.sizes
    left = max(0, sizes.max_skill_tokens - skill.tokens)
    examples = (
        " Besides, the section Examples may get failed tasks of this batch as they are (Task: …, then Reply: and the "
        "expected answer), if the agent does better with them. Write other examples than those."
    )
    return (
        f"This step takes at most {most} edits; they are applied together. The text of an edit may have at "
        f"most {sizes.max_edit_tokens} tokens. The skill has {skill.tokens} tokens and may grow by {left}."
        f"{_package_limits(skill, knowledge)}{examples if knowledge.edit_limits.examples else ''}"
    )


def _package_limits(skill: Skill, knowledge: OptimizerContext) -> str:
    if not skill.is_package:
        return ""
    total, limits = total_tokens(skill), knowledge.edit_limits.sizes
    return (
        f" That is SKILL.md. Another file may have at most {limits.max_file_tokens} tokens. All text files together "
        f"have {total} tokens and may grow by {max(0, limits.max_total_tokens - total)}."
    )


def _scores(trajectories: Sequence[Trajectory], knowledge: OptimizerContext) -> str:
    lines = [f"This batch: {_solved(trajectories)}."]
    types = sorted({t.type for t in trajectories if t.type})
    if len(types) > 1:
        by_type = (f"{data_line(name)} {_solved([t for t in trajectories if t.type == name])}" for name in types)
        lines.append(f"By type: {'; '.join(by_type)}.")
    if knowledge.validation_tasks:
        which = f"{knowledge.validation_tasks} validation tasks, which you never see"
        score = "not measured" if knowledge.validation is None else f"{knowledge.validation:.2f}"
        lines.append(f"The current skill's score on the {which}: {score}.")
    return "\n".join(lines)


def _solved(trajectories: Sequence[Trajectory]) -> str:
    return f"{sum(t.score.hard >= 1 for t in trajectories)} of {len(trajectories)} solved"


def _tried_line(tried: Tried) -> str:
    rows = []
    for edit in tried.edits:
        in_skill = tried.verdict == "accept" and edit.fate == "applied"
        where = {"file": edit.file} if edit.file else {}
        shown = {"op": edit.op, **where, "section": edit.section, "anchor": trim_middle(edit.anchor, 40)}
        rows.append({**shown, "text": trim_middle(edit.text, 40 if in_skill else LONGEST_TRIED), "fate": edit.fate})
    row: dict[str, str | int] = {"step": tried.step, "verdict": tried.verdict}
    if tried.before is None:
        row["validation"] = "not measured"
    elif tried.after is not None:
        row["validation"] = f"{tried.before:.2f} → {tried.after:.2f}"
    elif tried.verdict == "reject":
        row["validation"] = f"{tried.before:.2f} → at most {tried.at_most:.2f}, not better"
    if tried.paired_gain is not None:
        row["paired_gain"] = f"{tried.paired_gain:+.2f}, by fresh samples of both skills"
    if tried.remeasured is not None:
        row["current_skill_measured_again"] = f"{tried.remeasured:.2f}"
    if tried.verdict != "accept" and tried.measured:
        counts = f"{tried.gained} solved that failed before, {tried.lost} failed that were solved before"
        row["of_the_validation_tasks"] = f"{tried.measured} tried, until enough was known: {counts}"
    types = {"task_types_helped": list(tried.helped), "task_types_broken": list(tried.broke)}
    seen = [{name: trim_middle(text, LONGEST_SEEN) for name, text in output.items()} for output in tried.outputs]
    lists: dict[str, Sequence[object]] = {**types, "causes": tried.causes, "training_tasks_with_it": seen}
    return data_line({**row, **{name: values for name, values in lists.items() if values}, "edits": rows})


def _other_lines(knowledge: OptimizerContext, trajectories: Sequence[Trajectory], shown: Sequence[Trajectory]) -> str:
    """Tasks outside the batch, then passes of the batch that are not shown whole; a line each."""
    seen = {trajectory.id for trajectory in shown}
    rest = [t for t in trajectories if t.id not in seen]
    lines = [_other_line(item.type, task_text(item), item.answers) for item in knowledge.others]
    lines += [_other_line(t.type, t.input, t.answers, output=t.output) for t in rest[:MOST_OTHERS]]
    if len(rest) > MOST_OTHERS:
        lines.append(f"({len(rest) - MOST_OTHERS} more solved tasks of this batch are not shown.)")
    return "\n".join(lines)


def _other_line(kind: str, task: str, answers: Sequence[str], *, output: str | None = None) -> str:
    """`output` is that of a solved task; it is shown if there is no expected answer."""
    shown = {"expected": " | ".join(answers[:MOST_ANSWERS])} if answers else {"output": output or ""}
    row = {"type": kind, "task": task, **shown, "solved": "" if output is None else "yes"}
    return data_line({name: trim_middle(text, LONGEST_OTHER) for name, text in row.items() if text})


def _edit_line(edit: Edit, support: int) -> str:
    fields = {"op", "file", "section", "anchor", "text", "rationale", "pattern"}
    shown = edit.model_dump(mode="json", include=fields)
    return data_line({"id": edit.id, **shown, "support": support, "trajectory_ids": list(edit.trajectory_ids)})


def _pair_line(pair: Pair) -> str:
    after = pair.after
    shown = {"change": pair.change, "task": trim_middle(after.input, 250)}
    if pair.change != "persistent_fail":
        shown["output_before"] = trim_middle(pair.before.output, 200)
    shown["output_now"] = trim_middle(after.output, 200)
    if after.answers:
        shown["expected"] = " | ".join(after.answers[:3])
    return data_line({**shown, "feedback": trim_middle(after.score.feedback, 150)})


def _difference(before: Skill, after: Skill) -> str:
    """The whole difference, file by file."""
    lines: list[str] = []
    for path in [FILE, *sorted({*before.others, *after.others})]:
        old, new = before.read(path) or "", after.read(path) or ""
        which = "" if path == FILE else f": {path}"
        names = (f"skill of the previous epoch{which}", f"current skill{which}")
        lines += difflib.unified_diff(old.splitlines(), new.splitlines(), *names, lineterm="", n=1)
    return trim_middle("\n".join(lines), 3000)


def _size(trajectories: Sequence[Trajectory]) -> int:
    return sum(shown_tokens(trajectory) for trajectory in trajectories)
