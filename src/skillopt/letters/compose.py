"""One letter for each stage. What does not change over a run comes first, so that prompt caches can hold it."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence

from skillopt.envs.agents import task_text
from skillopt.envs.base import Trajectory
from skillopt.letters.blocks import (
    MOST_ANSWERS,
    block,
    data_line,
    fair_shares,
    shown_tokens,
    trajectory_lines,
    trim_middle,
)
from skillopt.letters.case import LONGEST_OTHER, MOST_OTHERS, CaseFile, Job, Pair
from skillopt.letters.files import file_blocks
from skillopt.models.base import Message
from skillopt.run.state import Tried
from skillopt.skill import FILE, Edit, Skill
from skillopt.skill.document import OPEN_MARKER
from skillopt.skill.trained import total_tokens

MOST_PASSES = 6
"""Passing trajectories that are shown for contrast, spread over the task types."""
MOST_STEPS = 8
"""Earlier steps whose fate is shown."""
LONGEST_SEEN = 150
"""Tokens of a task or an output under a rejected step."""
LONGEST_TRIED = 150
"""Tokens of an edit of an earlier step that are shown; of one that is in the skill, only its beginning."""


def reflect_letter(
    prompt: str, skill: Skill, case: CaseFile, trajectories: Sequence[Trajectory], budget: int, cause: str = ""
) -> list[Message]:
    """Failures with a few passes, and all else that is known. `cause` is the one that a deep reflection looks into."""
    failures, passes = in_letter(trajectories)
    for_failures, for_passes = fair_shares([_size(failures), min(_size(passes), budget // 3)], budget)
    return _letter(
        prompt,
        *_job(case.job),
        block("limits", _limits(skill, case)),
        *_skill(skill, case, trajectories),
        block("scores", _scores(trajectories, case)),
        block("history", "\n".join(_tried_line(tried) for tried in case.tried[-MOST_STEPS:])),
        block("notes", case.notes),
        f"Cause to look into: {data_line(cause)}" if cause else "",
        block("failures", trajectory_lines(failures, for_failures)),
        block("passes", trajectory_lines(passes, for_passes)),
        block("other_tasks", _other_lines(case, trajectories, [*failures, *passes])),
    )


def merge_letter(prompt: str, skill: Skill, case: CaseFile, edits: Sequence[tuple[Edit, int]]) -> list[Message]:
    """The proposed edits, each with the number of trajectories that support it."""
    most, tokens = case.room.edits, case.room.limits.max_edit_tokens
    room = f"This step takes at most {most} edits. The text of an edit may have at most {tokens} tokens."
    return _letter(
        prompt,
        *_job(case.job),
        block("limits", room),
        *_skill(skill, case),
        block("edits", "\n".join(_edit_line(edit, support) for edit, support in edits)),
    )


def rank_letter(prompt: str, skill: Skill, case: CaseFile, edits: Sequence[tuple[Edit, int]]) -> list[Message]:
    room = f"Only the first {case.room.edits} of your order will be tried, together."
    tried = "\n".join(_tried_line(tried) for tried in case.tried[-MOST_STEPS:])
    lines = "\n".join(_edit_line(edit, support) for edit, support in edits)
    parts = (block("limits", room), *_skill(skill, case), block("history", tried), block("edits", lines))
    return _letter(prompt, *_job(case.job), *parts)


def slow_update_letter(
    prompt: str, case: CaseFile, before: Skill, after: Skill, pairs: Sequence[Pair]
) -> list[Message]:
    """Both skills' difference, and both outputs for every item that improved or regressed."""
    urgency = ("regressed", "persistent_fail", "improved", "stable_success")
    ordered = sorted(pairs, key=lambda pair: (urgency.index(pair.change), pair.after.item_id))
    counts = Counter(pair.change for pair in pairs)
    return _letter(
        prompt,
        *_job(case.job),
        *_skill(after, case),
        block("guidance", after.guidance),
        block("difference", _difference(before, after)),
        block("counts", ", ".join(f"{name} {counts[name]}" for name in urgency)),
        block("comparison", "\n".join(_pair_line(pair) for pair in ordered if pair.change != "stable_success")),
    )


def meta_skill_letter(prompt: str, case: CaseFile, skill: Skill, epoch: Sequence[Tried]) -> list[Message]:
    """The epoch's edits and their fates, and the notes so far."""
    steps = "\n".join(_tried_line(tried) for tried in epoch)
    return _letter(prompt, *_job(case.job), *_skill(skill, case), block("notes", case.notes), block("epoch", steps))


def in_letter(trajectories: Sequence[Trajectory]) -> tuple[list[Trajectory], list[Trajectory]]:
    """Of a batch, what one letter shows: all failures, and some passes."""
    passes = [t for t in trajectories if t.score.hard >= 1]
    return [t for t in trajectories if t.score.hard < 1], contrast(passes)


def contrast(passes: Sequence[Trajectory]) -> list[Trajectory]:
    """A few passes, as many of each task type as possible, in their old order."""
    seen: Counter[str] = Counter()
    rounds = []
    for place, trajectory in enumerate(passes):
        seen[trajectory.type] += 1
        rounds.append((seen[trajectory.type], place))
    return [passes[place] for place in sorted(place for _, place in sorted(rounds)[:MOST_PASSES])]


def _letter(prompt: str, *parts: str) -> list[Message]:
    user = "\n\n".join(part for part in parts if part)
    return [{"role": "system", "content": prompt}, {"role": "user", "content": user or "(nothing)"}]


def _job(job: Job) -> Iterable[str]:
    agent = f" The agent's model is {job.target}." if job.target else ""
    cut = f" A reply is cut off after {job.reply_tokens} tokens." if job.reply_tokens else ""
    yield block("task", f"{job.task}{agent}{cut}".strip())
    yield block("scoring", job.scoring)
    yield block("known_patterns", "\n".join(f"- {name}: {what}" for name, what in job.known_patterns.items()))
    said = "\n".join(job.comments)
    yield block("comments", f"What people said of an earlier run on these tasks:\n{said}" if said else "")


def _skill(skill: Skill, case: CaseFile, trajectories: Sequence[Trajectory] = ()) -> Iterable[str]:
    """The skill in force; an empty one says so, what is protected is named, and of a package its files follow."""
    if not skill.text.strip():
        which = "SKILL.md" if skill.is_package else "The skill"
        of_it = " of it" if skill.is_package else ""
        yield f"{which} is empty: the agent gets no instructions yet. Every edit{of_it} must be an `add`."
    yield block("skill", skill.text)
    if skill.protected:
        yield f"The text from `{OPEN_MARKER}` to its closing marker is protected: no edit may touch it."
    yield from file_blocks(skill, case.room.limits.train, trajectories)


def _limits(skill: Skill, case: CaseFile) -> str:
    room = case.room
    left = max(0, room.limits.max_skill_tokens - skill.tokens)
    others = (
        " Besides, the section Examples may get failed tasks of this batch as they are (Task: …, then Reply: and the "
        "expected answer), if the agent does better with them. Write other examples than those."
    )
    return (
        f"This step takes at most {room.edits} edits; they are applied together. The text of an edit may have at "
        f"most {room.limits.max_edit_tokens} tokens. The skill has {skill.tokens} tokens and may grow by {left}."
        f"{_package_limits(skill, case)}{others if room.examples else ''}"
    )


def _package_limits(skill: Skill, case: CaseFile) -> str:
    if not skill.is_package:
        return ""
    total, limits = total_tokens(skill), case.room.limits
    return (
        f" That is SKILL.md. Another file may have at most {limits.max_file_tokens} tokens. All text files together "
        f"have {total} tokens and may grow by {max(0, limits.max_total_tokens - total)}."
    )


def _scores(trajectories: Sequence[Trajectory], case: CaseFile) -> str:
    lines = [f"This batch: {_solved(trajectories)}."]
    types = sorted({t.type for t in trajectories if t.type})
    if len(types) > 1:
        by_type = (f"{data_line(name)} {_solved([t for t in trajectories if t.type == name])}" for name in types)
        lines.append(f"By type: {'; '.join(by_type)}.")
    if case.validation is not None:
        which = f"{case.validation_tasks} validation tasks, which you never see"
        lines.append(f"The current skill's score on the {which}: {case.validation:.2f}.")
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
    known: dict[str, object] = {"step": tried.step, "verdict": tried.verdict}
    if tried.after is not None:
        known["validation"] = f"{tried.before:.2f} → {tried.after:.2f}"
    elif tried.verdict == "reject":
        known["validation"] = f"{tried.before:.2f} → at most {tried.at_most:.2f}, not better"
    if tried.verdict != "accept" and tried.measured:
        counts = f"{tried.gained} solved that failed before, {tried.lost} failed that were solved before"
        known["of_the_validation_tasks"] = f"{tried.measured} tried, until enough was known: {counts}"
    types = {"task_types_helped": list(tried.helped), "task_types_broken": list(tried.broke)}
    seen = [{name: trim_middle(text, LONGEST_SEEN) for name, text in row.items()} for row in tried.outputs]
    lists: dict[str, Sequence[object]] = {**types, "causes": tried.causes, "training_tasks_with_it": seen}
    return data_line({**known, **{name: of for name, of in lists.items() if of}, "edits": rows})


def _other_lines(case: CaseFile, trajectories: Sequence[Trajectory], shown: Sequence[Trajectory]) -> str:
    """Tasks outside the batch, then passes of the batch that are not shown whole; a line each."""
    seen = {trajectory.id for trajectory in shown}
    rest = [t for t in trajectories if t.id not in seen]
    lines = [_other_line(item.type, task_text(item), item.answers) for item in case.others]
    lines += [_other_line(t.type, t.input, t.answers, output=t.output) for t in rest[:MOST_OTHERS]]
    if len(rest) > MOST_OTHERS:
        lines.append(f"({len(rest) - MOST_OTHERS} more solved tasks of this batch are not shown.)")
    return "\n".join(lines)


def _other_line(kind: str, task: str, answers: Sequence[str], *, output: str | None = None) -> str:
    """`output` is that of a solved task; it is shown where there is no expected answer."""
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
