"""Builds the `OptimizerContext`: the facts from which requests to the optimizer are written."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from skillopt.record.comments import Comment, read_comments
from skillopt.record.run import Run
from skillopt.record.state import Rejected, ShortForm, State, Tried, TriedEdit
from skillopt.skill import FILE, Edit
from skillopt.skill.tokens import count_tokens
from skillopt.tasks.agents import task_text
from skillopt.tasks.as_score import NOT_DESCRIBED
from skillopt.tasks.base import Item, Trajectory
from skillopt.tasks.failure_kinds import KINDS, choices_of, count_kinds, failure_kind, output_tokens
from skillopt.training.context import Context
from skillopt.training.edits.carry import slots
from skillopt.training.edits.similarity import normal_name
from skillopt.training.edits.update import EXAMPLES, limits_of, update
from skillopt.training.gates.base import Verdict, changed_types, mean
from skillopt.training.gates.strict import SOLVED
from skillopt.training.requests.blocks import MOST_ANSWERS, data_line, ends
from skillopt.training.requests.compose import PENDING
from skillopt.training.requests.context import (
    LONGEST_OTHER,
    MOST_OTHERS,
    Earlier,
    EditLimits,
    OptimizerContext,
    TaskInfo,
    tokens_for_others,
)
from skillopt.training.requests.findings import grown
from skillopt.training.rollout import roll_out_all
from skillopt.training.schedule import edits_for
from skillopt.training.step_files import StepWork

MOST_READ = 60
"""The maximum number of earlier steps whose recorded batches are read."""
MOST_STEPS = 12
"""The maximum number of steps that a run remembers for the optimizer."""
MOST_EDITS = 12
"""The maximum number of edits of one step that a run remembers for the optimizer; applied edits come first."""
BEATEN = "left out: the short text alone scored as well or better on the validation tasks"
LEFT_OUT = "rejected: validation tasks that it broke passed again without it"
LONGEST = 4000
"""The maximum number of characters of an edit's text that a run remembers for the optimizer."""
LONGEST_CAUSE = 200
"""The maximum number of characters of a cause that a run remembers for the optimizer."""


def task_info(ctx: Context) -> TaskInfo:
    """The facts about the tasks, their scoring and the target. Every request of a run has the same facts."""
    env, note = ctx.env, ctx.config.env.scoring_note
    return TaskInfo(
        task=ctx.config.env.task or env.task,
        scoring=note if env.scoring == NOT_DESCRIBED and note else f"{env.scoring} {note}".strip(),
        metric=ctx.config.evaluation.metric,
        training_tasks=len(env.items("train")),
        target=ctx.target.model.name,
        reply_tokens=ctx.config.role("target").max_tokens,
        known_patterns=env.patterns,
        comments=tuple(map(_comment_line, read_comments(ctx.run.feedback))),
    )


def _comment_line(comment: Comment) -> str:
    """A person's comment as a line of JSON: `{"about": "task: train-004, rated good", "said": "…"}`."""
    rated = f", rated {comment.rating}" if comment.rating else ""
    return data_line(
        {"about": f"{'task' if comment.kind == 'item' else 'line'}: {comment.about}{rated}", "said": comment.text}
    )


def optimizer_context(state: State, rate: float, ctx: Context, batch: Sequence[Item] = ()) -> OptimizerContext:
    """The facts for the requests of a step that trains on `batch`; if `batch` is empty, for the requests at the end of
    an epoch. In step 1, the facts contain no validation score, because it is still being measured."""
    examples = "exemplar" in ctx.config.gradient.analysts
    edits = edits_for(rate)
    edits -= slots(state.pending, edits)
    if edits > 2 and examples:
        edits -= 1  # one edit is reserved for worked examples from the data
    measured = ctx.step > 1 and state.score is not None
    since = _first_accepted(state) + 1
    never = never_solved(since, ctx) if batch else {}
    ids = {item.id for item in batch}
    return OptimizerContext(
        step=ctx.step if batch else 0,
        steps=ctx.steps if batch else 0,
        task_info=task_info(ctx),
        edit_limits=EditLimits(edits=edits, sizes=limits_of(ctx.config), examples=examples),
        validation=mean(state.val.values()) if measured else None,
        initial=state.initial_val if ctx.step > 1 else None,
        validation_tasks=len(state.val) if ctx.step > 1 else 0,
        tried=tuple(state.tried),
        rejected=(*state.rejected, *(Rejected(step=state.step, edit=edit) for edit in state.pending)),
        pending=tuple(state.pending),
        notes=state.memory,
        first_step=ctx.step == 1,
        short_form=_worth_showing(state.short_form, ctx.step),
        choices=choices_of(item.answer for item in ctx.env.items("train")) if batch else None,
        others=other_tasks({*state.set_aside, *(item.id for item in batch)}, ctx, never) if batch else (),
        never_solved=never,
        earlier=earlier_outcomes(ids, since, ctx) if batch else {},
        findings=tuple(state.findings),
        guidance_gate="" if batch else ctx.config.optimizer.slow_update_gate,
    )


def _worth_showing(form: ShortForm | None, step: int) -> ShortForm | None:
    """The minimal remedy if the skill contains it or the previous step tried it; else None."""
    return form if form and (form.accepted or form.step == step - 1) else None


def _first_accepted(state: State) -> int:
    """The first step whose edits were accepted; 0 if there is none. Rollouts up to this step used the initial skill, so
    they do not show the effect of later versions."""
    return next((tried.step for tried in state.tried if tried.verdict == "accept"), 0)


def never_solved(since: int, ctx: Context) -> dict[str, int]:
    """The training tasks that no step from step `since` on has solved, by id. The value is the number of steps that
    tried the task. At most the last MOST_READ steps are read."""
    run, tried, solved = Run(ctx.run), Counter[str](), set[str]()
    for step in range(max(since, ctx.step - MOST_READ), ctx.step):
        scores = run.batch(step).items
        tried.update(scores.keys())
        solved.update(item for item, score in scores.items() if score.hard >= 1)
    return {item: count for item, count in tried.items() if item not in solved}


def earlier_outcomes(ids: Collection[str], since: int, ctx: Context) -> dict[str, list[Earlier]]:
    """For each of these tasks: its newest solved output and its newest failed output in earlier steps, from step
    `since` on."""
    run = Run(ctx.run)
    newest: dict[tuple[str, bool], Earlier] = {}
    marks = [item.encode() for item in ids]
    for step in range(max(since, ctx.step - MOST_READ), ctx.step):
        if not ids & run.batch(step).items.keys():
            continue
        for each in run.trajectories(
            ctx.run.step(step) / "trajectories.jsonl", lambda line: any(m in line for m in marks)
        ):
            if isinstance(each, Trajectory) and each.item_id in ids:
                solved = each.score.hard >= 1
                newest[each.item_id, solved] = Earlier(step=step, output=ends(each.output, LONGEST), solved=solved)
    found: dict[str, list[Earlier]] = {}
    for (item, _), one in newest.items():
        found.setdefault(item, []).append(one)
    return {item: sorted(rollouts, key=lambda one: one.step) for item, rollouts in found.items()}


def other_tasks(
    left_out: Collection[str], ctx: Context, never: Mapping[str, int] = MappingProxyType({})
) -> tuple[Item, ...]:
    """Short training tasks that have an expected answer and are not in `left_out`; tasks that no step solved (`never`)
    come first. If there are too many for one request, return a random choice with as many different answers as
    possible."""
    items = ctx.env.items("train")
    positions = ctx.rng("other_tasks").sample(range(len(items)), min(len(items), 4 * MOST_OTHERS))
    drawn = [(at, item) for at in positions if (item := items[at]).answers and item.id not in left_out]
    seen: Counter[str] = Counter()
    turns = []
    for position, item in drawn:
        seen[item.answer] += 1
        turns.append((item.id not in never, seen[item.answer], position, item))
    chosen: dict[int, Item] = {}
    left = tokens_for_others(ctx.config.gradient.prompt_tokens)
    for *_, position, item in sorted(turns, key=lambda turn: turn[:2]):
        size = _size(item)
        if size <= min(LONGEST_OTHER, left) and len(chosen) < MOST_OTHERS:
            chosen[position] = item
            left -= size
    return tuple(chosen[position] for position in sorted(chosen, key=lambda at: (chosen[at].id not in never, at)))


def _size(item: Item) -> int:
    text = "\n".join([task_text(item), *item.answers[:MOST_ANSWERS]])
    return count_tokens(text) if len(text) <= 20 * LONGEST_OTHER else LONGEST_OTHER + 1


def remember(state: State, work: StepWork, probed: Sequence[Trajectory], ctx: Context) -> None:
    """Add a step to the state, for later requests: its edits, causes and findings, and the outputs of its rejected
    candidate (`probed`). A step without edits and causes adds only its findings."""
    verdict = work.verdict
    items = {t.id: t.item_id for t in work.results}
    state.findings = grown(state.findings, [one for patch in work.patches for one in patch.findings], items, ctx.step)
    helped, broke = changed_types(verdict, ctx)
    read = [patch for patch in work.patches if not patch.source.startswith(EXAMPLES)]
    causes: dict[str, str] = {}
    for pattern in (pattern for patch in read for pattern in patch.patterns):
        causes.setdefault(normal_name(pattern.name), f"{pattern.name}: {pattern.cause}"[:LONGEST_CAUSE])
    choices = choices_of(item.answer for item in ctx.env.items("train"))
    passed = {t.item_id for t in work.results if isinstance(t, Trajectory) and t.score.hard >= 1}
    pending = {edit.id for edit in state.pending}
    edits = tuple(_fates(work, pending))[:MOST_EDITS]
    if not edits and not causes:
        return
    tried = Tried(
        step=ctx.step,
        epoch=ctx.epoch,
        verdict=verdict.decision,
        before=verdict.before,
        after=verdict.after,
        at_most=verdict.at_most,
        paired_gain=verdict.paired_gain,
        remeasured=verdict.remeasured,
        measured=len(verdict.evidence),
        failed_before=sum(row.before < SOLVED for row in verdict.evidence),
        gained=sum(row.change > 0 for row in verdict.evidence),
        lost=sum(row.change < 0 for row in verdict.evidence),
        lost_kinds=count_kinds(_broken(verdict), choices),
        edits=edits,
        helped=helped,
        broke=broke,
        causes=tuple(causes.values())[:MOST_EDITS],
        outputs=tuple(_output(t, choices, solved_before=t.item_id in passed) for t in probed),
    )
    state.tried = [*state.tried, tried][-MOST_STEPS:]


def _output(trajectory: Trajectory, choices: Collection[str], *, solved_before: bool) -> dict[str, str]:
    texts = {"task": trajectory.input, "output": trajectory.output, "expected": " | ".join(trajectory.answers[:1])}
    shown = {name: ends(text, LONGEST) for name, text in texts.items() if text}
    if tokens := output_tokens(trajectory):
        shown["output_tokens"] = str(tokens)
    if trajectory.score.hard < 1:
        shown["failure"] = KINDS[failure_kind(trajectory, choices)]
    yes_or_no = {"solved_before": solved_before, "solved": trajectory.score.hard >= 1}
    return {**shown, **{name: "yes" if value else "no" for name, value in yes_or_no.items()}}


def like_broken(verdict: Verdict, solved: Sequence[Item]) -> list[Item]:
    """The few solved tasks that share the most words with the validation tasks that the candidate broke; empty if the
    candidate broke none."""
    broken = [_words(t.input) for t in _broken(verdict)]

    def likeness(item: Item) -> float:
        words = _words(task_text(item))
        return max((len(words & other) / len(words | other) for other in broken if words | other), default=0.0)

    return sorted(solved, key=lambda item: (-likeness(item), item.id))[:MOST_PROBED_PASSES] if broken else []


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


def _broken(verdict: Verdict) -> list[Trajectory]:
    """The candidate's rollouts of the validation tasks that it broke."""
    fell = {row.item_id for row in verdict.evidence if row.change < 0}
    return [t for t in verdict.trajectories if t.item_id in fell]


def _fates(work: StepWork, pending: Collection[str]) -> Iterator[TriedEdit]:
    applied = {edit.id for edit in work.candidate.applied}
    taken_out = {skip.edit_id: skip.reason for skip in work.candidate.skipped}
    broke = {edit.id for edit in work.credited.left_out}
    beaten = {edit.id for edit in work.credited.beaten}
    for edit in work.candidate.applied:
        yield _fate(edit, LEFT_OUT if edit.id in broke else PENDING if edit.id in pending else "applied")
    for row in work.ranked:
        if row.edit.id in applied:
            continue
        if row.edit.id in broke:
            yield _fate(row.edit, LEFT_OUT)
            continue
        if row.edit.id in beaten:
            yield _fate(row.edit, BEATEN)
            continue
        reason = taken_out.get(row.edit.id) or ("left out of the best candidate" if row.selected else row.reason)
        yield _fate(row.edit, f"not tried: {reason}")
    if (form := work.short_form) and not form.accepted:
        yield TriedEdit(
            op="add", text=form.text, fate=f"minimal remedy, tried alone: at most {form.at_most:.2f}, not better"
        )
    for conflict in work.pool.conflicts:
        for side, edit in conflict.sides.items():
            if side != conflict.applied:
                yield _fate(edit, f"in conflict: {conflict.reason}")
    for patch in work.patches:
        for dropped in patch.dropped:
            fields = {name: str(dropped.edit.get(name) or "") for name in ("op", "file", "section", "anchor", "text")}
            if fields["text"]:
                yield _trimmed(fields, f"dropped: {dropped.reason}")


def _fate(edit: Edit, fate: str) -> TriedEdit:
    fields = {"op": edit.op, "section": edit.section, "anchor": edit.anchor, "text": edit.text}
    return _trimmed({**fields, "file": "" if edit.file == FILE else edit.file}, fate)


def _trimmed(fields: dict[str, str], fate: str) -> TriedEdit:
    return TriedEdit(**{name: ends(text, LONGEST) for name, text in fields.items()}, fate=fate[:300])


MOST_PROBED = 4
"""The maximum number of failed tasks of a batch that are done again with a rejected candidate."""
MOST_PROBED_PASSES = 2
"""The maximum number of solved tasks of a batch that are done again with a candidate that broke validation tasks."""


async def probe_rejected(work: StepWork, ctx: Context) -> list[Trajectory]:
    """Let the rejected candidate do a few tasks of the batch: failed tasks, and the solved tasks that are most similar
    to the validation tasks that the candidate broke. Later requests may show these results, but
    they never show a validation task.

    If the minimal remedy beat the complete remedy, the complete remedy does the tasks. Return an empty list if nothing
    was rejected, or if no analyst calls the optimizer.
    """
    read = any(analyst.needs_optimizer for analyst in ctx.analysts)
    edits = work.credited.beaten or (work.candidate.applied if work.verdict.decision == "reject" else ())
    if not read or not edits:
        return []
    rejected = update(work.skill, edits, ctx).skill
    solved = {t.item_id: t.score.hard >= 1 for t in work.results if isinstance(t, Trajectory)}
    items = [item for item in work.step.items if solved.get(item.id) is False]
    some = items[:: max(1, len(items) // MOST_PROBED)][:MOST_PROBED]
    some += like_broken(work.verdict, [item for item in work.step.items if solved.get(item.id)])
    with ctx.timed("rollout"):
        results = await roll_out_all(rejected, some, ctx, tag=f"rejected-{ctx.step:04d}", stage="second_look")
    return [result for result in results if isinstance(result, Trajectory)]
