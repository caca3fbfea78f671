"""The candidates of a step: the complete remedy, and the wordings of a minimal remedy if the optimizer offered one."""

from __future__ import annotations

from collections.abc import Sequence

from skillopt.record.edits import Patch, Ranked
from skillopt.skill import Applied, Edit, Skill
from skillopt.training.context import Context
from skillopt.training.edits.risk import risk_of
from skillopt.training.edits.select import REVIEW
from skillopt.training.edits.update import update


def candidates(
    skill: Skill, ranked: Sequence[Ranked], patches: Sequence[Patch], ctx: Context
) -> tuple[Applied, list[Applied]]:
    """The complete remedy, which contains every selected edit, and the wordings of the minimal remedy. Edits that a
    person chose are in all of them. If no selected edit can be applied, the first wording replaces the complete remedy.

    Edits are applied in the order in which they were proposed, not by rank: a reader sees rules before examples.
    """
    chosen = sorted((row.edit for row in ranked if row.selected), key=lambda edit: edit.id)
    by_people = [edit for edit in chosen if edit.source.startswith(REVIEW)]
    complete = update(skill, chosen, ctx)
    wordings = {complete.skill.hash: complete}
    for short in minimal_of(patches, skill, ctx):
        one = update(skill, [*by_people, short], ctx)
        if one.applied:
            wordings.setdefault(one.skill.hash, one)
    first, *rest = wordings.values()
    return (rest[0], rest[1:]) if rest and not first.applied else (first, rest)


def minimal_of(patches: Sequence[Patch], skill: Skill, ctx: Context) -> tuple[Edit, ...]:
    """The wordings of the minimal remedy, from the reply whose wordings cite the most failures. Wordings that would
    need a person's decision are left out."""
    offered = [[edit for edit in p.minimal or () if not risk_of(edit, skill, ctx)] for p in patches]
    cited = [(len({i for edit in edits for i in edit.trajectory_ids}), edits) for edits in offered if edits]
    return tuple(max(cited, key=lambda pair: pair[0])[1]) if cited else ()
