"""Writes the request of each stage. A request begins with the text that is the same in the whole run, so that prompt
caches can reuse it."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from statistics import mean

from skillopt.models.base import Message
from skillopt.record.state import ShortForm, Tried
from skillopt.skill import FILE, Edit, Skill
from skillopt.skill.document import OPEN_MARKER
from skillopt.skill.trained import total_tokens
from skillopt.tasks.agents import task_text
from skillopt.tasks.base import Trajectory
from skillopt.tasks.failure_kinds import KINDS, count_kinds, expected, named_choice
from skillopt.tasks.scoring import expected_feedback
from skillopt.training.requests.blocks import (
    MOST_ANSWERS,
    Shown,
    block,
    data_line,
    fair_shares,
    shown_tokens,
    trajectory_lines,
    trim_middle,
)
from skillopt.training.requests.context import LONGEST_OTHER, MOST_OTHERS, OptimizerContext, Pair, TaskInfo
from skillopt.training.requests.contrast import contrast_block, ready_block, ready_examples
from skillopt.training.requests.files import file_blocks
from skillopt.training.requests.findings import findings_block
from skillopt.training.requests.shared import NOTHING_SHARED, SharedText, shared_text
from skillopt.training.requests.tools import tool_blocks

MOST_PASSES = 6
"""The maximum number of passing trajectories that are shown for contrast, spread over the task types."""
MOST_STEPS = 8
"""The maximum number of earlier steps that are shown with their results."""
LONGEST_SEEN = 150
"""The maximum number of tokens of a task or an output if a request shows it as part of a rejected step."""
URGENCY = ("regressed", "persistent_fail", "improved", "stable_success")
"""The classes of compared tasks, by the results of the two epochs' skills; the most urgent class comes first."""
LONGEST_TASK = 60
"""The maximum number of tokens of a compared task in the request for notes."""
LONGEST_TRIED = 150
"""A request shows at most this many tokens of an earlier step's edit, and fewer of an edit that is in the skill."""
LONGEST_REJECTED = 700
MOST_WHOLE = 2
"""The number of rejected steps, from the newest on, whose edits are shown with up to LONGEST_REJECTED tokens each."""
UNDONE = "undone with the step"
PENDING = "pending"
"""The outcome of an edit that stays pending: its candidate was rejected, but broke nothing."""
IN_PENDING = "in <pending>"
NO_LONGER_PENDING = "was pending; a later step has used or dropped it"
NOTHING_TRIED = "no edit was proposed"
FEW_ANSWERS = 4
"""If at most this many answers are possible, guessing solves many tasks."""
FEW_TOKENS = 10
"""If a skill has grown by more than this factor, it is described as new, not as changed."""
_ABOUT_DATA = re.compile(r"^- (?:<(\w+)>|`(score|in_skill)`) .*\n(?:  .*\n)*", re.MULTILINE)
"""Matches a list item of a prompt that explains a block or a field of the data."""
_METRICS = {
    "hard": " (hard: the share that is solved)",
    "soft": " (soft: the mean partial credit)",
    "mixed": " (mixed: the mean of hard and soft score)",
}
_GUIDANCE_GATES = {
    "": "",
    "keep": "Before your lines enter the guidance, they are tested: they must not lower the validation score.",
    "strict": "Before your lines enter the guidance, they are tested: they must raise the validation score.",
}


def reflect_request(
    prompt: str,
    skill: Skill,
    knowledge: OptimizerContext,
    trajectories: Sequence[Trajectory],
    budget: int,
    cause: str = "",
) -> list[Message]:
    """The request to reflect on a batch: failures, a few passes and all other known facts. In deep reflection, `cause`
    is the cause that the optimizer looks into."""
    failures, passes = shown_trajectories(trajectories)
    shared = shared_text([*(t.input for t in trajectories), *map(task_text, knowledge.others)])
    how = Shown(
        skill=skill,
        shared=shared,
        reply_tokens=knowledge.task_info.reply_tokens,
        guessable=_guessable(knowledge.choices_in(trajectories)),
    )
    sizes = [sum(shown_tokens(t, shared) for t in some) for some in (failures, passes)]
    rest = [t for t in trajectories if t.score.hard >= 1 and t not in passes]
    ready = ready_examples(rest, how)
    for_failures, for_passes = fair_shares([sizes[0], min(sizes[1], budget // 3)], budget)
    return _request(
        prompt,
        *_task_info(knowledge.task_info),
        *tool_blocks(trajectories),
        block("limits", _limits(skill, knowledge)),
        *_skill(skill, knowledge, trajectories),
        block("scores", _scores(trajectories, knowledge, how)),
        block("history", "\n".join(_history(knowledge.tried[-MOST_STEPS:], shared, knowledge.pending))),
        block("pending", "\n".join(map(_short_line, knowledge.pending))),
        block("proposed", "\n".join(map(_short_line, knowledge.proposed))),
        block("short_form", _short_form(knowledge.short_form)),
        block("notes", knowledge.notes),
        "" if cause else findings_block(knowledge.findings),
        f"Cause to look into: {data_line(cause)}" if cause else "",
        _shared_block(shared),
        block("failures", trajectory_lines(failures, for_failures, how)),
        block("passes", trajectory_lines(passes, for_passes, how)),
        contrast_block(trajectories, knowledge.earlier, [*failures, *passes], how),
        ready_block(ready, how),
        block("other_tasks", _other_lines(knowledge, trajectories, [*failures, *passes, *ready], how)),
    )


def merge_request(
    prompt: str, skill: Skill, knowledge: OptimizerContext, edits: Sequence[tuple[Edit, int]]
) -> list[Message]:
    """The request to merge the proposed edits, each with the number of trajectories that support it."""
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
    """The request for guidance: the difference between two epochs' skills, and the compared tasks that at least one of
    the two skills fails."""
    shared = shared_text([pair.after.input for pair in pairs])
    return _request(
        prompt,
        *_task_info(knowledge.task_info),
        *tool_blocks(pair.after for pair in pairs),
        *_skill(after, knowledge, protect=False),
        block("guidance", after.guidance),
        block("scores", _slow_scores(knowledge, pairs)),
        block("difference", _difference(before, after)),
        block("counts", _counts(pairs)),
        _shared_block(shared),
        block("comparison", "\n".join(_pair_line(pair, shared) for pair in _changed(pairs))),
    )


def meta_skill_request(
    prompt: str,
    knowledge: OptimizerContext,
    before: Skill,
    skill: Skill,
    epoch: Sequence[Tried],
    pairs: Sequence[Pair] = (),
) -> list[Message]:
    """The request for notes. It contains the epoch's changes to the skill, the results of the compared tasks, the
    epoch's edits with their results, and the old notes."""
    steps = "\n".join(_history(epoch, pending=knowledge.pending))
    return _request(
        prompt,
        *_task_info(knowledge.task_info),
        *_skill(skill, knowledge),
        block("notes", knowledge.notes),
        block("difference", _epoch_difference(before, skill)),
        block("counts", _counts(pairs)),
        block("comparison", "\n".join(map(_task_line, _changed(pairs)))),
        block("epoch", steps),
        block("pending", "\n".join(map(_short_line, knowledge.pending))),
    )


def _epoch_difference(before: Skill, skill: Skill) -> str:
    """The difference between two skills; if nearly all of the new skill is new text, only a sentence that says so."""
    if before.tokens * FEW_TOKENS < skill.tokens and not skill.is_package:
        return f"The skill of the epoch before had {before.tokens} tokens: nearly all of the current one is new."
    return _difference(before, skill) or "The epoch has not changed the skill."


def _counts(pairs: Sequence[Pair]) -> str:
    counts = Counter(pair.change for pair in pairs)
    return ", ".join(f"{name} {counts[name]}" for name in URGENCY) if pairs else ""


def _changed(pairs: Sequence[Pair]) -> list[Pair]:
    """The compared tasks, without those that both skills solve; the most urgent tasks come first."""
    ordered = sorted(pairs, key=lambda pair: (URGENCY.index(pair.change), pair.after.item_id))
    return [pair for pair in ordered if pair.change != "stable_success"]


def _task_line(pair: Pair) -> str:
    return data_line({"change": pair.change, "task": trim_middle(pair.after.input, LONGEST_TASK)})


def shown_trajectories(trajectories: Sequence[Trajectory]) -> tuple[list[Trajectory], list[Trajectory]]:
    """The trajectories of a batch that one request shows: all failures, and some passes."""
    passes = [t for t in trajectories if t.score.hard >= 1]
    return [t for t in trajectories if t.score.hard < 1], contrast(passes)


def contrast(passes: Sequence[Trajectory]) -> list[Trajectory]:
    """A few passes, spread evenly over the task types. They stay in their order."""
    seen: Counter[str] = Counter()
    rounds = []
    for position, trajectory in enumerate(passes):
        seen[trajectory.type] += 1
        rounds.append((seen[trajectory.type], position))
    return [passes[position] for position in sorted(at for _, at in sorted(rounds)[:MOST_PASSES])]


def _request(prompt: str, *parts: str) -> list[Message]:
    """A request. If a list item of the prompt explains a block or a field that the request does not have, the item is
    left out."""
    user = "\n\n".join(part for part in parts if part)
    absent = [m for m in _ABOUT_DATA.finditer(prompt) if (f"<{m[1]}>" if m[1] else f'"{m[2]}": ') not in user]
    for match in reversed(absent):
        prompt = prompt[: match.start()] + prompt[match.end() :]
    return [{"role": "system", "content": prompt}, {"role": "user", "content": user or "(nothing)"}]


def _task_info(info: TaskInfo) -> Iterable[str]:
    agent = f" The agent's model is {info.target}." if info.target else ""
    cut = f" A reply is cut off after {info.reply_tokens} tokens." if info.reply_tokens else ""
    yield block("task", f"{info.task}{agent}{cut}".strip())
    yield block("scoring", info.scoring)
    yield block("known_patterns", "\n".join(f"- {name}: {what}" for name, what in info.known_patterns.items()))
    comments = "\n".join(info.comments)
    yield block("comments", f"What people said of an earlier run on these tasks:\n{comments}" if comments else "")


def _skill(
    skill: Skill, knowledge: OptimizerContext, trajectories: Sequence[Trajectory] = (), *, protect: bool = True
) -> Iterable[str]:
    """The parts of a request about the current skill: its text, what is protected, and the files of a package."""
    if not skill.shown.text.strip():
        which = "SKILL.md" if skill.is_package else "The skill"
        of_it = " of it" if skill.is_package else ""
        yield f"{which} is empty: the agent gets no instructions yet. Every edit{of_it} must be an `add`."
    yield block("skill", skill.text)
    if skill.protected and protect:
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
        f"This step takes at most {most} edits (a group counts as one); they are applied together. The text of an edit "
        f"may have at most {sizes.max_edit_tokens} tokens. The skill has {skill.tokens} tokens and may grow by {left}."
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


def _scores(trajectories: Sequence[Trajectory], knowledge: OptimizerContext, how: Shown) -> str:
    size = (
        f"The training set has {knowledge.task_info.training_tasks} tasks."
        if knowledge.task_info.training_tasks
        else ""
    )
    step = f"Step {knowledge.step} of {knowledge.steps}." if knowledge.step else ""
    lines = [" ".join(filter(None, (step, size)))] if step or size else []
    known = sum(t.score.hard >= 1 and how.shared.is_example(t.input, how.skill) for t in trajectories)
    examples = f", {known} of these stand in the skill as examples" if known else ""
    soft = mean(t.score.soft for t in trajectories) if any(0 < t.score.soft < 1 for t in trajectories) else None
    partial = "" if soft is None else f" (hard), mean score {soft:.2f} (soft)"
    choices = knowledge.choices_in(trajectories)
    failures = f"{_kinds(trajectories, choices)}{_luck(trajectories, choices)}"
    lines.append(f"This batch: {_share(trajectories)} solved{partial}{examples}.{failures}")
    types = sorted({t.type for t in trajectories if t.type})
    if len(types) > 1:
        by_type = (f"{data_line(name)} {_share([t for t in trajectories if t.type == name])}" for name in types)
        lines.append(f"Solved by type: {'; '.join(by_type)}.")
    return "\n".join([*lines, *_validation(knowledge)])


def _validation(knowledge: OptimizerContext) -> Iterable[str]:
    if knowledge.validation_tasks:
        which = f"{knowledge.validation_tasks} validation tasks, which you never see"
        score = "not measured" if knowledge.validation is None else f"{knowledge.validation:.2f}"
        metric = "" if knowledge.validation is None else _METRICS.get(knowledge.task_info.metric, "")
        yield f"The current skill's score on the {which}: {score}{metric}."


def _slow_scores(knowledge: OptimizerContext, pairs: Sequence[Pair]) -> str:
    """Sentences on how guidance is measured, and on the source of the compared tasks."""
    total = knowledge.task_info.training_tasks
    which = f"a random draw from the {total}" if total > len(pairs) else "all"
    drawn = [f"The {len(pairs)} compared tasks are {which} training tasks."] if total else []
    return "\n".join([*_validation(knowledge), *drawn, *filter(None, [_GUIDANCE_GATES[knowledge.guidance_gate]])])


def _guessable(choices: Sequence[str]) -> bool:
    return 0 < len(choices) <= FEW_ANSWERS


def _luck(trajectories: Sequence[Trajectory], choices: Sequence[str]) -> str:
    """Sentences on guessing, if only a few answers are possible: how often the agent gave each answer, and how many
    tasks it would solve if it always gave the most frequent one."""
    right = Counter(expected(trajectories))
    if not _guessable(choices) or not right:
        return ""
    answer, solved = right.most_common(1)[0]
    counts = Counter(filter(None, (named_choice(t, choices) for t in trajectories))).most_common()
    given = f" The agent answered {', '.join(f'{data_line(name)} {count} times' for name, count in counts)}."
    return (
        f" Only {len(choices)} different answers are expected in all tasks: a pass may be luck, and always answering "
        f"{data_line(answer)} would solve {solved} of {len(trajectories)}.{given if counts else ''}"
    )


def _shared_block(shared: SharedText) -> str:
    """A block with the text that all tasks share, each part once."""
    return block("shared", "\n".join(data_line({f"shared {n}": part}) for n, part in enumerate(shared.parts, 1)))


def _kinds(trajectories: Sequence[Trajectory], choices: Sequence[str]) -> str:
    """A sentence on the kinds of failure, unless all are wrong answers."""
    counts = count_kinds(trajectories, choices)
    if not counts.keys() - {"wrong_answer"}:
        return ""
    return f" Failures: {', '.join(f'{count} {KINDS[kind]}' for kind, count in counts.items())}."


def _short_form(form: ShortForm | None) -> str:
    """The sentences on the minimal remedy's score, which every addition has to beat; empty if no minimal remedy was
    tried."""
    if form is None:
        return ""
    short, complete = ("rejected" if score is None else f"{score:.2f}" for score in (form.score, form.complete))
    kept = (
        "this short text alone" if form.accepted else "all edits together" if form.complete is not None else "nothing"
    )
    head = (
        f"Step {form.step} tried two remedies on the validation tasks: this short text alone ({short}), and all edits "
        f"together ({complete}). The skill got {kept}."
    )
    return f"{head}\n{data_line({'text': trim_middle(form.text, LONGEST_TRIED)})}"


def _share(trajectories: Sequence[Trajectory]) -> str:
    return f"{sum(t.score.hard >= 1 for t in trajectories)} of {len(trajectories)}"


def _short_line(edit: Edit) -> str:
    file = "" if edit.file == FILE else edit.file
    fields = {"op": edit.op, "file": file, "section": edit.section, "anchor": edit.anchor, "text": edit.text}
    return data_line({name: text for name, text in fields.items() if text})


def _history(steps: Sequence[Tried], shared: SharedText = NOTHING_SHARED, pending: Sequence[Edit] = ()) -> list[str]:
    """A line for each step. In the newest rejected steps, edits are shown with more tokens, because such edits may be
    proposed again. `pending` edits have a block of their own."""
    whole = [tried.step for tried in steps if tried.verdict != "accept"][-MOST_WHOLE:]
    waiting = {(edit.anchor, edit.text) for edit in pending}
    lines, last = [], steps[0].step if steps else 0
    for tried in steps:
        between = range(last + 1, tried.step)
        lines += [data_line({"step": number, "verdict": NOTHING_TRIED, "edits": []}) for number in between]
        lines.append(_tried_line(tried, shared, LONGEST_REJECTED if tried.step in whole else LONGEST_TRIED, waiting))
        last = tried.step
    return lines


def _tried_line(tried: Tried, shared: SharedText, longest: int, waiting: Collection[tuple[str, str]]) -> str:
    rows = []
    for edit in tried.edits:
        applied = edit.fate == "applied"
        in_skill = tried.verdict == "accept" and applied
        fields = {"op": edit.op, "file": edit.file, "section": edit.section, "anchor": trim_middle(edit.anchor, 40)}
        fields["text"] = trim_middle(edit.text, 40 if in_skill else longest if applied else LONGEST_TRIED)
        shown = {name: text for name, text in fields.items() if text}
        fate = UNDONE if applied and not in_skill else edit.fate
        if fate == PENDING:
            fate = IN_PENDING if (edit.anchor, edit.text) in waiting else NO_LONGER_PENDING
        rows.append({**shown, "fate": fate})
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
        kinds = ", ".join(f"{count} {KINDS[kind]}" for kind, count in tried.lost_kinds.items())
        counts = f"{tried.gained} solved that failed before, {tried.lost} failed that were solved before"
        counts += f" ({kinds})" if kinds else ""
        known = f"{tried.measured} tried, until enough was known ({tried.failed_before} of them had failed before)"
        row["of_the_validation_tasks"] = f"{known}: {counts}"
    types = {"task_types_helped": list(tried.helped), "task_types_broken": list(tried.broke)}
    seen = [{name: trim_middle(shared.rest(text), LONGEST_SEEN) for name, text in row.items()} for row in tried.outputs]
    lists: dict[str, Sequence[object]] = {**types, "causes": tried.causes, "training_tasks_with_all_edits": seen}
    return data_line({**row, **{name: values for name, values in lists.items() if values}, "edits": rows})


def _other_lines(
    knowledge: OptimizerContext, trajectories: Sequence[Trajectory], shown: Sequence[Trajectory], how: Shown
) -> str:
    """A line for each task of another batch, and then a line for each pass of this batch that the request does not show
    in full."""
    seen = {trajectory.id for trajectory in shown}
    rest = [t for t in trajectories if t.id not in seen]
    lines = [
        _other_line(item.type, task_text(item), item.answers, how, tried=knowledge.never_solved.get(item.id, 0))
        for item in knowledge.others
    ]
    lines += [_other_line(t.type, t.input, t.answers, how, output=t.output) for t in rest[:MOST_OTHERS]]
    if len(rest) > MOST_OTHERS:
        lines.append(f"({len(rest) - MOST_OTHERS} more solved tasks of this batch are not shown.)")
    return "\n".join(lines)


def _other_line(
    kind: str, task: str, answers: Sequence[str], how: Shown, *, output: str | None = None, tried: int = 0
) -> str:
    """One task as a line of JSON. `output` is the output of a solved task; it is shown if the task has no expected
    answer."""
    shown = {"expected": " | ".join(answers[:MOST_ANSWERS])} if answers else {"output": output or ""}
    solved = (
        f"in none of the {tried} earlier steps that had it"
        if tried > 1
        else "not in the step that had it"
        if tried
        else ""
    )
    example = "yes" if how.shared.is_example(task, how.skill) else ""
    row = {"type": kind, "task": how.shared.rest(task), **shown, "in_skill": example}
    row["solved"] = solved if output is None else "yes"
    return data_line({name: trim_middle(text, LONGEST_OTHER) for name, text in row.items() if text})


def _edit_line(edit: Edit, support: int) -> str:
    fields = {"op", "file", "section", "anchor", "text", "rationale", "pattern"}
    shown = edit.model_dump(mode="json", include=fields)
    return data_line({"id": edit.id, **shown, "support": support, "trajectory_ids": list(edit.trajectory_ids)})


def _pair_line(pair: Pair, shared: SharedText) -> str:
    after = pair.after
    shown = {"change": pair.change, "task": trim_middle(shared.rest(after.input), 250)}
    if pair.change != "persistent_fail":
        shown["output_before"] = trim_middle(pair.before.output, 200)
    shown["output_now"] = trim_middle(after.output, 200)
    if after.answers:
        shown["expected"] = " | ".join(after.answers[:3])
    feedback = "" if after.score.feedback == expected_feedback(after.answers) else after.score.feedback
    return data_line({**shown, **({"feedback": trim_middle(feedback, 150)} if feedback else {})})


def _difference(before: Skill, after: Skill) -> str:
    """The difference between two skills, file by file."""
    lines: list[str] = []
    for path in [FILE, *sorted({*before.others, *after.others})]:
        old, new = before.read(path) or "", after.read(path) or ""
        which = "" if path == FILE else f": {path}"
        names = (f"skill of the previous epoch{which}", f"current skill{which}")
        lines += difflib.unified_diff(old.splitlines(), new.splitlines(), *names, lineterm="", n=1)
    return trim_middle("\n".join(lines), 3000)
