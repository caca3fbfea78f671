"""Floors: limits that every accepted candidate must keep (`evaluation.floors`). They work like vetoes.

A floor is checked on the samples that the gate has taken. Their tokens and seconds are in the journal, so a resumed run
makes the same decisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.models.prices import is_priced, price_of
from skillopt.record.step import Rule
from skillopt.skill import Applied, Skill
from skillopt.tasks.base import Env
from skillopt.training.context import Context
from skillopt.training.gates.base import EPSILON, Gate, Verdict
from skillopt.training.use import TaskUse, use_of

TYPE = "type:"
_USE = ("tokens", "turns", "cost", "seconds")


def check_floors(config: Config, env: Env) -> None:
    """Raise an error for a floor that can never be checked."""
    floors, types = config.evaluation.floors, sorted({item.type for item in env.items("val")})
    for name in floors:
        if name.startswith(TYPE) and name.removeprefix(TYPE) not in types:
            listed = ", ".join(each or "(none)" for each in types)
            raise UserError(f"evaluation.floors: {name}: no validation task has this type; the types are: {listed}")
    target = config.models.target_model
    if "cost" in floors and not is_priced(target, config.budget.prices):
        raise UserError(
            f"evaluation.floors: cost: the price of '{target}' is unknown; give the price as "
            f'budget.prices={{"{target}": {{input: 2.5, output: 10}}}} (dollars per million tokens), or '
            "set a floor for tokens"
        )


def with_floors(gate: Gate) -> Gate:
    """A gate whose accepted candidates, including guidance, must also keep every floor."""

    async def floored(
        skill: Skill,
        candidate: Applied,
        current: Mapping[str, float],
        ctx: Context,
        *,
        tag: str = "",
        rule: Rule = "strict",
    ) -> Verdict:
        verdict = await gate(skill, candidate, current, ctx, tag=tag, rule=rule)
        if not verdict.accepted or (verdict.after is None and not verdict.measured):
            return verdict
        broken = "; ".join(broken_floors(verdict, candidate.skill, ctx))
        changes: dict[str, Any] = {"decision": "reject", "reason": broken, "known_scores": {}}
        return verdict.model_copy(update=changes) if broken else verdict

    return floored


def broken_floors(verdict: Verdict, candidate: Skill, ctx: Context) -> Iterator[str]:
    """A text for each broken floor, such as `floor tokens: 812 a task is above 500`."""
    floors = ctx.config.evaluation.floors
    for name, before, after in _type_scores(verdict, ctx):
        least, most = floors.get(f"{TYPE}{name}"), floors.get("fall")
        if least is not None and after < min(least, before) - EPSILON:  # a score that rises breaks no floor
            yield f"floor {TYPE}{name}: {after:.2f} is below {least:g}"
        if most is not None and before - after > most + EPSILON:
            yield f"floor fall: task type '{name}' falls from {before:.2f} to {after:.2f}"
    refused = len(verdict.set_aside) / max(1, verdict.items + len(verdict.set_aside))
    if refused > floors.get("refusals", 1.0) + EPSILON:
        yield f"floor refusals: {refused:.3f} is above {floors['refusals']:g}"
    if wanted := [name for name in _USE if name in floors]:
        use = _use(verdict, candidate, ctx)
        values = {"tokens": use.tokens, "turns": use.turns, "cost": use.usd or 0.0, "seconds": use.seconds}
        for name in wanted:
            if values[name] > floors[name] + EPSILON:
                yield f"floor {name}: {values[name]:.4g} a task is above {floors[name]:g}"


def _type_scores(verdict: Verdict, ctx: Context) -> Iterator[tuple[str, float, float]]:
    """Each task type with its score under the current skill and under the candidate. These are the scores by which the
    gate decides."""
    types = {item.id: item.type for item in ctx.env.items("val")}
    groups: dict[str, list[tuple[float, float]]] = {}
    for row in verdict.evidence:
        groups.setdefault(types[row.item_id], []).append(row.pair)
    for name, pairs in sorted(groups.items()):
        yield name, fmean(before for before, _ in pairs), fmean(after for _, after in pairs)


def _use(verdict: Verdict, candidate: Skill, ctx: Context) -> TaskUse:
    config = ctx.config
    price = price_of(config.models.target_model, config.budget.prices)
    use = use_of((t for t in verdict.trajectories if t.skill_hash == candidate.hash), price)
    floors = config.evaluation.floors
    unknown = {"tokens": use is None or not use.tokens, "cost": use is None or not use.tokens or use.usd is None}
    if use is None or any(unknown.get(name) for name in floors):
        names = ", ".join(name for name in _USE if name in floors)
        raise UserError(
            f"evaluation.floors: {names}: cannot be checked, because the target reports no usage or the gate "
            f"'{verdict.gate}' keeps no trajectories; remove these floors"
        )
    return use
