"""The paired gate, for targets that answer the same task differently each time.

1. Screen. The candidate does each item once, against what is known of the current skill; it is rejected as soon as it
   is clearly behind.
2. Repeats. Where the two differ, both do the item again, round after round. Only these fresh samples count: what they
   were chosen by is never evidence. An item whose samples are all equal is left alone after two rounds. A round that is
   clear enough ends it; so does one without hope.
3. Confirmation. Before anything is accepted, the candidate does the other items that the current skill solves a second
   time. Where it now differs, the item joins the others: a loss that the screen missed by luck does not slip through.

docs/gate.md has the simulations by which this was chosen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from skillopt.core.context import Context
from skillopt.core.retry import all_measured
from skillopt.core.rollout import require_few, roll_out_one
from skillopt.envs.base import Item, Trajectory
from skillopt.gates.base import ItemEvidence, Rule, Verdict, fallen_type, nothing
from skillopt.gates.duel import Ask, Duel, Side
from skillopt.gates.race import Race, run_race, settling_order
from skillopt.gates.strict import strict_gate
from skillopt.skill import Applied, Skill

_LENIENCE = 1.5
"""How many standard deviations the candidate may be behind in the screen, which a lucky sample of either can do."""


async def paired_gate(
    skill: Skill,
    candidate: Applied,
    current: Mapping[str, float],
    ctx: Context,
    *,
    tag: str = "",
    rule: Rule = "strict",
) -> Verdict:
    """Decide between the candidate and `skill`, of whose score on each selection item `current` is an estimate.

    Where nothing is noisy there is nothing to repeat: there, paired is strict.
    """
    if not ctx.noisy:
        return await strict_gate(skill, candidate, current, ctx, tag=tag, rule=rule)
    if not candidate.applied:
        return nothing(current, ctx)
    tag = tag or f"gate-{ctx.step:04d}"
    items = {item.id: item for item in ctx.env.items("val") if item.id in current}
    race = Screen(settling_order(items, current, candidate.applied), current, rule)
    with ctx.timed("gate"):
        shown = await run_race(candidate.skill, items, race, ctx, tag)
        prefix = race.deciding_prefix()
        trial = _Trial(candidate.skill, skill, items, race, ctx, tag)
        trial.require_few({i: race.refused[i] for i in prefix if i in race.refused})
        trial.recorded = [shown[i] for i in prefix if i in shown]
        if race.beaten(prefix):
            return trial.screened_out(prefix, len(shown))
        return await trial.decide(len(shown))


class Screen(Race):
    """The strict gate's race, but a candidate that is only a little behind stays in it."""

    def slack(self, shown: Sequence[str]) -> float:
        counted = self.counted(shown)
        seen = {i for i in shown if i in self.known}
        differences = [(self.known[i] if i in seen else 1.0) - self.current[i] for i in counted]
        by_chance = math.sqrt(math.fsum(abs(difference) for difference in differences))
        slack = math.fsum(differences) + _LENIENCE * by_chance
        return slack - 1e-9 if self.rule == "strict" else slack + 1e-9


class _Trial:
    """One candidate's way through the gate, and the verdict with its evidence."""

    def __init__(
        self, candidate: Skill, skill: Skill, items: Mapping[str, Item], race: Screen, ctx: Context, tag: str
    ) -> None:
        self.skills: dict[Side, Skill] = {"current": skill, "candidate": candidate}
        self.items = items
        self.race = race
        self.ctx = ctx
        self.tag = tag
        self.recorded: list[Trajectory] = []
        self.refused: dict[str, str] = {}

    def screened_out(self, prefix: Sequence[str], launched: int) -> Verdict:
        """Rejected without a repeat: clearly behind."""
        race = self.race
        counted = race.counted(prefix)
        kept = [i for i in prefix if i in race.known]
        best_case = race.best_case(prefix) / len(counted)
        rows = tuple(self._row(i, race.current[i], race.known[i], 0) for i in kept)
        return self._verdict(
            rows,
            decision="reject",
            before=math.fsum(race.current[i] for i in counted) / len(counted),
            after=best_case if len(prefix) == len(race.order) else None,
            at_most=best_case,
            items=len(counted),
            set_aside={i: race.refused[i] for i in prefix if i in race.refused},
            telemetry={"rollouts": launched, "saved": len(race.order) - launched},
        )

    async def decide(self, launched: int) -> Verdict:
        """The duel, sample by sample. The candidate's score is that of its full pass, where no item was chosen; the
        current skill's is less by the difference that the fresh samples show."""
        race, evaluation = self.race, self.ctx.config.evaluation
        duel = Duel(
            order=[i for i in race.order if i in race.known],
            current=race.current,
            screened=race.known,
            metric=evaluation.metric,
            rule=race.rule,
            alpha=evaluation.alpha,
            max_repeats=evaluation.max_repeats,
        )
        play = duel.play()
        asked = 0
        try:
            asks = next(play)
            while True:
                asked += len(asks)
                asks = play.send(await self._sample(asks))
        except StopIteration as end:
            decision = end.value
        rows = tuple(self._duel_row(duel, i) for i in duel.order if i not in duel.refused)
        reason = fallen_type(rows, self.items, evaluation.regression_margin) if decision == "accept" else ""
        decision = "reject" if reason else decision
        after = math.fsum(duel.screened[row.item_id] for row in rows) / len(rows)
        before = min(1.0, max(0.0, after - duel.gain / len(rows)))
        return self._verdict(
            rows,
            decision=decision,
            before=before,
            after=after,
            at_most=after,
            items=len(rows),
            p=duel.p if duel.repeats else None,
            repeats=duel.repeats,
            reason=reason,
            set_aside={**race.refused, **self.refused},
            standing=_standing(duel, accepted=decision == "accept"),
            telemetry={"rollouts": launched + asked, "saved": len(race.order) - launched},
        )

    async def _sample(self, asks: Sequence[Ask]) -> list[float | None]:
        """Fresh samples: the label names the purpose, the round and the side."""
        work = [
            partial(
                roll_out_one,
                self.skills[ask.side],
                self.items[ask.item_id],
                self.ctx,
                tag=f"{self.tag}-{ask.name}-{ask.side}",
                number=self.race.order.index(ask.item_id),
                stage="gate",
            )
            for ask in asks
        ]
        values: list[float | None] = []
        for result in await all_measured(work, self.ctx, "gate"):
            if isinstance(result, Trajectory):
                self.recorded.append(result)
                values.append(result.score.value(self.ctx.config.evaluation.metric))
            else:
                self.refused[result.item_id] = result.error
                values.append(None)
        self.require_few(self.race.refused | self.refused)
        return values

    def require_few(self, refused: Mapping[str, str]) -> None:
        before = len(self.ctx.env.items("val")) - len(self.items)
        require_few(refused, len(self.items), set_aside=before)

    def _duel_row(self, duel: Duel, item_id: str) -> ItemEvidence:
        """Where the two do not differ, both have what is known of the current skill."""
        if item_id not in duel.samples:
            known = duel.current[item_id]
            return self._row(item_id, known, known, 0)
        before, after = duel.samples[item_id]
        return self._row(item_id, fmean(before), fmean(after), len(after))

    def _row(self, item_id: str, before: float, after: float, repeats: int) -> ItemEvidence:
        own = self.skills["candidate"].hash
        hard = [t.score.hard for t in self.recorded if t.item_id == item_id and t.skill_hash == own]
        solved = float(fmean(hard) >= 0.5)
        return ItemEvidence(item_id=item_id, before=before, after=after, hard=solved, repeats=repeats)

    def _verdict(self, rows: tuple[ItemEvidence, ...], **known: Any) -> Verdict:
        return Verdict(
            gate="paired",
            rule=self.race.rule,
            metric=self.ctx.config.evaluation.metric,
            measured=len(rows),
            evidence=rows,
            trajectories=tuple(self.recorded),
            **known,
        )


def _standing(duel: Duel, *, accepted: bool) -> dict[str, float]:
    """What is known now of the skill that training goes on from.

    The sample by which a candidate came this far was chosen for being high, so that fresh ones replace it. Samples that
    were chosen by nothing are averaged with what was known.
    """
    known = {}
    for item_id in duel.order:
        old = duel.current[item_id]
        before, after = duel.samples.get(item_id, ([], []))
        if accepted:
            again = [duel.second[item_id]] if item_id in duel.second else []
            known[item_id] = fmean(after) if after else fmean([old, duel.screened[item_id], *again])
        elif before:
            known[item_id] = fmean([old, *before])
    return {item_id: value for item_id, value in known.items() if item_id not in duel.refused}
