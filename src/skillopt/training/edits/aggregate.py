"""Aggregate: merges the proposed edits of a step, so that each idea occurs once, and flags edits that contradict each
other.

The optimizer merges edits of several requests by meaning, level by level. A merged edit is not used if it cannot be
applied, or if it says something that no proposal says; then the proposals that it should replace stay. If a reply is
lost, nothing is merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from skillopt.models.call import gather_all
from skillopt.models.structured import ask
from skillopt.record.edits import Asked, Conflict, EditPool, Patch, Pooled
from skillopt.skill import Edit, Skill
from skillopt.skill.edit import whole_section
from skillopt.training import prompts
from skillopt.training.context import Context
from skillopt.training.edits.groups import unit
from skillopt.training.edits.losses import loss_problem, unnamed_losses
from skillopt.training.edits.similarity import facts, opposite_text, other_value, same_text
from skillopt.training.edits.update import update
from skillopt.training.requests.compose import merge_request
from skillopt.training.requests.context import OptimizerContext
from skillopt.training.requests.replies import MergedEdit, merge_schema, read_merge

CLEAR = 3
"""One side of a conflict is applied if it has at least this many times the support of the other side. The conflict
stays flagged."""


def pool_edits(edits: Iterable[Edit]) -> list[Pooled]:
    """Merge edits that have nearly the same text into the first of them, in the order of their ids."""
    groups: list[list[Edit]] = []
    for edit in sorted(edits, key=lambda edit: edit.id):
        home = next((group for group in groups if same_edit(group[0], edit)), None)
        if home is None:
            groups.append([edit])
        else:
            home.append(edit)
    return [pool_group(group) for group in groups]


def pool_of(
    pooled: Sequence[Pooled], proposed: int, asked: Sequence[Asked] = (), named: Sequence[Conflict] = ()
) -> EditPool:
    """Build the pool, with two kinds of conflicts: those that the optimizer named, and those that a comparison of the
    words finds."""
    conflicting = list(named)
    named_pairs = {frozenset((c.a.id, c.b.id)) for c in conflicting if c.b}
    for i, a in enumerate(pooled):
        for b in pooled[i + 1 :]:
            reason = contradiction(a.edit, b.edit)
            if reason and frozenset((a.edit.id, b.edit.id)) not in named_pairs:
                conflicting.append(Conflict(a=a.edit, b=b.edit, reason=reason))
    support = {p.edit.id: p.support for p in pooled}
    conflicts = tuple(_settled(conflict, support) for conflict in conflicting)
    out = {edit.id for c in conflicts for side, edit in c.sides.items() if side != c.applied}
    kept = tuple(p for p in pooled if p.edit.id not in out)
    return EditPool(edits=kept, conflicts=conflicts, proposed=proposed, asked=tuple(asked))


def pool_group(group: Sequence[Edit]) -> Pooled:
    """Merge a group into its first edit, which then cites the trajectories of all edits in the group."""
    cited = tuple(sorted({tid for edit in group for tid in edit.trajectory_ids}))
    edit = group[0].model_copy(update={"trajectory_ids": cited})
    return Pooled(edit=edit, support=len(cited), merged=tuple(edit.id for edit in group))


def alone(edit: Edit) -> Pooled:
    return Pooled(edit=edit, support=len(edit.trajectory_ids), merged=(edit.id,))


def same_edit(a: Edit, b: Edit) -> bool:
    """True if two edits ask for the same change of the same text in nearly the same words."""
    return a.op == b.op and a.file == b.file and a.anchor == b.anchor and same_text(a.text, b.text)


def contradiction(a: Edit, b: Edit) -> str:
    """The reason why two edits contradict each other; empty if a comparison of their words finds no contradiction."""
    if a.anchor != b.anchor or (a.anchor and a.file != b.file):
        return ""
    if {a.op, b.op} == {"delete", "modify"}:
        return "one deletes the text that the other changes"
    if a.op != b.op or a.op == "delete":
        return ""
    if opposite_text(a.text, b.text):
        return "they ask for opposite things"
    return "they give different values for one rule" if other_value(a.text, b.text) else ""


def _settled(conflict: Conflict, support: dict[str, int]) -> Conflict:
    if conflict.b is None:
        return conflict
    a, b = support.get(conflict.a.id, 0), support.get(conflict.b.id, 0)
    side = "a" if a >= CLEAR * b else "b" if b >= CLEAR * a else ""
    return conflict.model_copy(update={"applied": side}) if side and max(a, b) else conflict


_Merged = tuple[list[Pooled], list[Conflict], list[Asked]]


async def aggregate(patches: Sequence[Patch], skill: Skill, knowledge: OptimizerContext, ctx: Context) -> EditPool:
    """Build the pool of a step. If `gradient.merge` is `llm` and several replies propose edits, the optimizer merges
    these edits, `merge_fan_in` replies at a time."""
    asked_of = [patch for patch in patches if patch.source.startswith("llm/") and any(map(_is_single, patch.edits))]
    by_llm = ctx.config.gradient.merge == "llm" and len(asked_of) > 1
    to_merge = [list(filter(_is_single, patch.edits)) for patch in asked_of] if by_llm else []
    read = {id(edit) for edits in to_merge for edit in edits}
    rest = pool_edits(edit for patch in patches for edit in patch.edits if id(edit) not in read)
    proposed = sum(len(patch.edits) for patch in patches)
    if not by_llm:
        return pool_of(rest, proposed)
    with ctx.timed("merge"):
        merged, conflicts, asked = await _levels(list(map(pool_edits, to_merge)), skill, knowledge, ctx)
    return pool_of(sorted([*merged, *rest], key=lambda p: p.edit.id), proposed, asked, conflicts)


def _is_single(edit: Edit) -> bool:
    """True if an edit belongs to no group. Edits of a group are not merged, because that would tear the group apart."""
    return not edit.group


async def _levels(lists: list[list[Pooled]], skill: Skill, knowledge: OptimizerContext, ctx: Context) -> _Merged:
    """Merge the lists of proposals, `merge_fan_in` lists at a time, until one list is left."""
    conflicts: list[Conflict] = []
    asked: list[Asked] = []
    level, size = 0, ctx.config.gradient.merge_fan_in
    while len(lists) > 1:
        level += 1
        groups = [lists[at : at + size] for at in range(0, len(lists), size)]
        done = await gather_all(
            _group(group, skill, knowledge, ctx, label=f"{level}-{number:02d}") for number, group in enumerate(groups)
        )
        lists = [merged for merged, _, _ in done]
        conflicts += [conflict for _, named, _ in done for conflict in named]
        asked += [one for _, _, each in done for one in each]
    return lists[0], _still_open(conflicts, lists[0]), asked


def _still_open(conflicts: Sequence[Conflict], merged: Sequence[Pooled]) -> list[Conflict]:
    """The conflicts that remain after the merge, each once. A merged edit takes the place of every edit that it
    contains."""
    homes = {name: p.edit for p in merged for name in p.merged}
    still_open: dict[frozenset[str], Conflict] = {}
    for conflict in conflicts:
        a, b = homes[conflict.a.id], homes[conflict.b.id] if conflict.b else None
        if b and a.id != b.id:
            still_open.setdefault(frozenset((a.id, b.id)), conflict.model_copy(update={"a": a, "b": b}))
    return list(still_open.values())


async def _group(
    lists: Sequence[list[Pooled]], skill: Skill, knowledge: OptimizerContext, ctx: Context, *, label: str
) -> _Merged:
    pooled = _joined(p for each in lists for p in each)
    if len(lists) == 1 or len(pooled) < 2:
        return pooled, [], []
    shown = [(p.edit, p.support) for p in pooled]
    request = merge_request(prompts.load("merge", ctx.config.gradient.prompts_dir), skill, knowledge, shown)
    files = sorted({p.edit.file for p in pooled}) if skill.is_package else []
    schema = merge_schema([p.edit.id for p in pooled], len(pooled), files)
    label = f"{ctx.config.train.seed}/merge/{ctx.step:04d}/{label}"
    answer = await ask(ctx.optimizer, request, schema, read_merge, label=label)
    if answer.value is None:
        return pooled, [], [Asked(stage="merge", lost=answer.lost, unusable=answer.unusable)]
    rows, named = answer.value
    merged, problems = _replaced(pooled, rows, skill, ctx)
    conflicts = list(_named_conflicts(merged, named))
    return merged, conflicts, [Asked(stage="merge", unusable=(*answer.unusable, *problems))]


def _joined(pooled: Iterable[Pooled]) -> list[Pooled]:
    """Merge near-identical texts without asking the optimizer."""
    by_id = {each.edit.id: each for each in pooled}
    groups = pool_edits(p.edit for p in by_id.values())
    return [
        p.model_copy(update={"merged": tuple(name for edit_id in p.merged for name in by_id[edit_id].merged)})
        for p in groups
    ]


def _replaced(
    pooled: Sequence[Pooled], rows: Sequence[MergedEdit], skill: Skill, ctx: Context
) -> tuple[list[Pooled], list[str]]:
    """Put the merged edit of each usable row in place of the proposals that the row names. Also return the problems of
    the other rows."""
    left = {p.edit.id: p for p in pooled}
    made: list[Pooled] = []
    problems: list[str] = []
    for row in rows:
        group = [left[name] for name in row.ids if name in left]
        merged = _merged(group, row, skill, ctx) if group else "a merged edit names no proposal that is left"
        if isinstance(merged, str):
            problems.append(merged)
            continue
        for p in group:
            del left[p.edit.id]
        made.append(merged)
    return sorted([*made, *left.values()], key=lambda p: p.edit.id), problems


def _merged(group: Sequence[Pooled], row: MergedEdit, skill: Skill, ctx: Context) -> Pooled | str:
    """The merged edit for a group of proposals, or the reason why it cannot be used."""
    ids = sorted(p.edit.id for p in group)
    cited = tuple(sorted({tid for p in group for tid in p.edit.trajectory_ids}))
    if isinstance(row.edit, str):
        return f"the edit merged from {', '.join(ids)} is malformed: {row.edit}"
    name = group[0].edit.group if len({unit(p.edit) for p in group}) == 1 else ""
    fields = {"id": ids[0], "trajectory_ids": cited, "source": group[0].edit.source, "group": name}
    edit = row.edit.model_copy(update={**fields, "anchor": ""} if row.edit.op == "add" else fields)
    edit = whole_section(edit, skill)
    files = sorted({p.edit.file for p in group})
    if edit.file not in files:
        return f"the edit merged from {', '.join(ids)} is for another file than they are ({', '.join(files)})"
    texts = [skill.text, *(skill.read(name) or "" for name in files)]
    source = "\n".join([*texts, *(f"{p.edit.section}\n{p.edit.anchor}\n{p.edit.text}" for p in group)]).casefold()
    if invented := sorted(fact for fact in facts(edit.text) if fact.casefold() not in source):
        return f"the edit merged from {', '.join(ids)} says what no proposal said: {', '.join(invented[:5])}"
    if skips := update(skill, [edit], ctx).skipped:
        return f"the edit merged from {', '.join(ids)} {skips[0].reason}"
    edit = edit.model_copy(update={"dropped": (*edit.dropped, *(row for p in group for row in p.edit.dropped))})
    if lines := unnamed_losses(edit):
        return f"the edit merged from {', '.join(ids)} {loss_problem(lines)}"
    return Pooled(edit=edit, support=len(cited), merged=tuple(name for p in group for name in p.merged))


def _named_conflicts(merged: Sequence[Pooled], rows: Sequence[tuple[str, str, str]]) -> Iterator[Conflict]:
    homes = {name: p.edit for p in merged for name in p.merged}
    for *ids, reason in rows:
        a, b = map(homes.get, ids)
        if a and b and a.id != b.id:
            yield Conflict(a=a, b=b, reason=(reason or "they contradict each other")[:300])
