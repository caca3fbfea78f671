"""Merge by meaning: the optimizer turns the proposals of several letters into few complementary edits, level by level.

What it returns is checked: an edit that says something no proposal said, or that cannot be applied, is not used, and
the proposals that it would have replaced stay. A lost reply leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from skillopt import prompts
from skillopt.analysts.base import Patch
from skillopt.core.context import Context
from skillopt.edits.aggregate import Asked, Conflict, Pool, Pooled, pool_edits, pool_of
from skillopt.edits.similarity import facts
from skillopt.edits.update import update
from skillopt.letters.case import CaseFile
from skillopt.letters.compose import merge_letter, rank_letter
from skillopt.letters.replies import merged_rows, ranked_ids
from skillopt.letters.schemas import merge_schema, rank_schema
from skillopt.models.call import gather_all
from skillopt.models.structured import ask
from skillopt.skill import Edit, Skill
from skillopt.skill.edit import whole_section

_Merged = tuple[list[Pooled], list[Conflict], list[Asked]]


async def aggregate(patches: Sequence[Patch], skill: Skill, case: CaseFile, ctx: Context) -> Pool:
    """The pool of a step. The optimizer merges what came from several of its own replies, `merge_fan_in` at a time."""
    asked_of = [patch for patch in patches if patch.source.startswith("llm/") and patch.edits]
    by_llm = ctx.config.gradient.merge == "llm" and len(asked_of) > 1
    read = {patch.id for patch in asked_of} if by_llm else set()
    rest = pool_edits(edit for patch in patches if patch.id not in read for edit in patch.edits)
    proposed = sum(len(patch.edits) for patch in patches)
    if not by_llm:
        return pool_of(rest, proposed)
    with ctx.timed("merge"):
        merged, conflicts, asked = await _levels([pool_edits(p.edits) for p in asked_of], skill, case, ctx)
    return pool_of(sorted([*merged, *rest], key=lambda p: p.edit.id), proposed, asked, conflicts)


async def rank(pool: Pool, skill: Skill, case: CaseFile, ctx: Context) -> tuple[list[str], list[Asked]]:
    """The ids in the optimizer's order; empty where it is not asked (`gradient.rank`)."""
    if ctx.config.gradient.rank == "local" or len(pool.edits) < 2:
        return [], []
    ids = [pooled.edit.id for pooled in pool.edits]
    shown = [(pooled.edit, pooled.support) for pooled in pool.edits]
    letter = rank_letter(prompts.load("rank", ctx.config.gradient.prompts_dir), skill, case, shown)
    with ctx.timed("rank"):
        answer = await ask(ctx.optimizer, letter, rank_schema(ids), ranked_ids, label=_label(ctx, "rank"))
    order = [name for name in dict.fromkeys(answer.value or []) if name in ids]
    return order, [Asked(stage="rank", lost=answer.lost, unusable=answer.unusable)]


async def _levels(lists: list[list[Pooled]], skill: Skill, case: CaseFile, ctx: Context) -> _Merged:
    """Lists of proposals, merged group by group until one list is left."""
    conflicts: list[Conflict] = []
    asked: list[Asked] = []
    level, size = 0, ctx.config.gradient.merge_fan_in
    while len(lists) > 1:
        level += 1
        groups = [lists[at : at + size] for at in range(0, len(lists), size)]
        done = await gather_all(
            _group(group, skill, case, ctx, label=f"{level}-{number:02d}") for number, group in enumerate(groups)
        )
        lists = [merged for merged, _, _ in done]
        conflicts += [conflict for _, found, _ in done for conflict in found]
        asked += [one for _, _, each in done for one in each]
    return lists[0], _still_open(conflicts, lists[0]), asked


def _still_open(conflicts: Sequence[Conflict], merged: Sequence[Pooled]) -> list[Conflict]:
    """Each contradiction once, between the edits that its sides have become on higher levels."""
    homes = {name: p.edit for p in merged for name in p.merged}
    found: dict[frozenset[str], Conflict] = {}
    for conflict in conflicts:
        a, b = homes[conflict.a.id], homes[conflict.b.id] if conflict.b else None
        if b and a.id != b.id:
            found.setdefault(frozenset((a.id, b.id)), conflict.model_copy(update={"a": a, "b": b}))
    return list(found.values())


async def _group(lists: Sequence[list[Pooled]], skill: Skill, case: CaseFile, ctx: Context, *, label: str) -> _Merged:
    pooled = _joined(p for each in lists for p in each)
    if len(lists) == 1 or len(pooled) < 2:
        return pooled, [], []
    shown = [(p.edit, p.support) for p in pooled]
    letter = merge_letter(prompts.load("merge", ctx.config.gradient.prompts_dir), skill, case, shown)
    files = sorted({p.edit.file for p in pooled}) if skill.is_package else []
    schema = merge_schema([p.edit.id for p in pooled], len(pooled), files)
    answer = await ask(ctx.optimizer, letter, schema, merged_rows, label=f"{_label(ctx, 'merge')}/{label}")
    if answer.value is None:
        return pooled, [], [Asked(stage="merge", lost=answer.lost, unusable=answer.unusable)]
    rows, named = answer.value
    merged, problems = _replaced(pooled, rows, skill, ctx)
    conflicts = list(_named_conflicts(merged, named))
    return merged, conflicts, [Asked(stage="merge", unusable=(*answer.unusable, *problems))]


def _joined(pooled: Any) -> list[Pooled]:
    """Nearly identical texts first: nobody need be asked about them."""
    out: dict[str, Pooled] = {}
    for each in pooled:
        out[each.edit.id] = each
    groups = pool_edits(p.edit for p in out.values())
    return [
        p.model_copy(update={"merged": tuple(name for own in p.merged for name in out[own].merged)}) for p in groups
    ]


def _replaced(
    pooled: Sequence[Pooled], rows: Sequence[dict[str, Any]], skill: Skill, ctx: Context
) -> tuple[list[Pooled], list[str]]:
    """The proposals with each usable row in place of those that it names."""
    left = {p.edit.id: p for p in pooled}
    made: list[Pooled] = []
    problems: list[str] = []
    for row in rows:
        group = [left[name] for name in dict.fromkeys(map(str, row.get("ids") or ())) if name in left]
        found = _merged(group, row, skill, ctx) if group else "a merged edit names no proposal that is left"
        if isinstance(found, str):
            problems.append(found)
            continue
        for p in group:
            del left[p.edit.id]
        made.append(found)
    return sorted([*made, *left.values()], key=lambda p: p.edit.id), problems


def _merged(group: Sequence[Pooled], row: dict[str, Any], skill: Skill, ctx: Context) -> Pooled | str:
    """One edit for a group, or why it cannot be used."""
    ids = sorted(p.edit.id for p in group)
    cited = tuple(sorted({tid for p in group for tid in p.edit.trajectory_ids}))
    try:
        edit = Edit.model_validate({**row, "id": ids[0], "trajectory_ids": cited, "source": group[0].edit.source})
    except ValidationError as error:
        return f"the edit merged from {', '.join(ids)} is malformed: {error.errors()[0]['msg']}"
    edit = edit.model_copy(update={"anchor": ""}) if edit.op == "add" else whole_section(edit, skill)
    files = sorted({p.edit.file for p in group})
    if edit.file not in files:
        return f"the edit merged from {', '.join(ids)} is for another file than they are ({', '.join(files)})"
    known = [skill.text, *(skill.read(name) or "" for name in files)]
    said = "\n".join([*known, *(f"{p.edit.section}\n{p.edit.anchor}\n{p.edit.text}" for p in group)]).casefold()
    if invented := sorted(fact for fact in facts(edit.text) if fact.casefold() not in said):
        return f"the edit merged from {', '.join(ids)} says what no proposal said: {', '.join(invented[:5])}"
    if skips := update(skill, [edit], ctx).skipped:
        return f"the edit merged from {', '.join(ids)} {skips[0].reason}"
    return Pooled(edit=edit, support=len(cited), merged=tuple(name for p in group for name in p.merged))


def _named_conflicts(merged: Sequence[Pooled], rows: Sequence[dict[str, Any]]) -> Any:
    homes = {name: p.edit for p in merged for name in p.merged}
    for row in rows:
        a, b = homes.get(str(row.get("a"))), homes.get(str(row.get("b")))
        if a and b and a.id != b.id:
            yield Conflict(a=a, b=b, reason=str(row.get("reason") or "they contradict each other")[:300])


def _label(ctx: Context, stage: str) -> str:
    return f"{ctx.config.train.seed}/{stage}/{ctx.step:04d}"
