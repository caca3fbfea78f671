"""The paired gate, for targets that answer the same task differently each time.

1. Screen. The candidate does each item once. It is rejected as soon as it is clearly behind the current skill's known
   scores.
2. Repeats. The items on which the two skills differ are done again with both skills, round after round. Only these
   fresh samples are evidence, not the samples by which the items were selected. If all samples of an item are equal
   after two rounds, the item is not sampled again. The rounds end when the evidence is clear, or when the candidate
   has no chance.
3. Confirmation. Before a candidate is accepted, it repeats the items that the current skill solves and that have no
   fresh samples yet. If the two skills now differ on an item, this item joins the repeats. So a loss is found even if
   the screen missed it by luck.

docs/gate.md has the simulations that led to this design.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean

from skillopt.record.step import ItemEvidence, Rule
from skillopt.skill import Applied, Skill
from skillopt.tasks.base import Item, Trajectory
from skillopt.training.context import Context
from skillopt.training.gates.base import Verdict, mean, remeasured, skipped_verdict
from skillopt.training.gates.paired_test import Ask, Outcome, PairedTest, Side
from skillopt.training.gates.strict import EarlyStop, early_verdict, run_until_decided, strict_gate
from skillopt.training.rollout import all_measured, require_few, roll_out_one

_LENIENCE = 1.5
"""The maximum number of standard deviations by which the candidate may be behind in the screen. Chance alone can cause
such a difference."""


async def paired_gate(
    skill: Skill,
    candidate: Applied,
    current: Mapping[str, float],
    ctx: Context,
    *,
    tag: str = "",
    rule: Rule = "strict",
) -> Verdict:
    """Decide between the candidate and the current skill (`skill`). `current` has an estimate of the current skill's
    score on each validation item.

    If neither the target nor the scores are noisy, this gate does the same as the strict gate.
    """
    if not ctx.noisy:
        return await strict_gate(skill, candidate, current, ctx, tag=tag, rule=rule)
    if not candidate.applied:
        return skipped_verdict(current, ctx, gate="paired", rule=rule)
    tag = tag or f"gate-{ctx.step:04d}"
    with ctx.timed("gate"):
        progress, items = await run_until_decided(Screen, candidate, current, rule, ctx, tag)
        if progress.beaten(progress.deciding_prefix()):  # clearly behind: reject it without repeats
            return early_verdict(progress, ctx, "paired")
        return await _Trial(candidate.skill, skill, items, progress, ctx, tag).decide()


class Screen(EarlyStop):
    """Stops early like the strict gate, but a candidate that is only a little behind may continue."""

    def slack(self, shown: Sequence[str]) -> float:
        counted = self.counted(shown)
        seen = {i for i in shown if i in self.scores}
        differences = [(self.scores[i] if i in seen else 1.0) - self.current[i] for i in counted]
        by_chance = math.sqrt(math.fsum(abs(difference) for difference in differences))
        slack = math.fsum(differences) + _LENIENCE * by_chance
        return slack - 1e-9 if self.rule == "strict" else slack + 1e-9

    def won(self, items: Mapping[str, Item]) -> bool:
        """Always False: only the repeats can make an acceptance certain."""
        return False


class _Trial:
    """Takes the samples for one decision of the paired gate, and builds the verdict with its evidence."""

    def __init__(
        self, candidate: Skill, skill: Skill, items: Mapping[str, Item], progress: Screen, ctx: Context, tag: str
    ) -> None:
        self.skills: dict[Side, Skill] = {"current": skill, "candidate": candidate}
        self.items = items
        self.progress = progress
        self.ctx = ctx
        self.tag = tag
        self.recorded = [progress.results[i] for i in progress.order if i in progress.results]
        self.refused: dict[str, str] = {}

    async def decide(self) -> Verdict:
        """Run the paired test and return the verdict. Only fresh samples count for the decision; `before` and `after`
        are means over all items."""
        progress, evaluation = self.progress, self.ctx.config.evaluation
        test = PairedTest(
            order=[i for i in progress.order if i in progress.scores],
            current=progress.current,
            screened=progress.scores,
            metric=evaluation.metric,
            rule=progress.rule,
            alpha=evaluation.alpha,
            max_repeats=evaluation.max_repeats,
        )
        samples = test.run()
        launched = rollouts = len(progress.results)
        try:
            asks = next(samples)
            while True:
                rollouts += len(asks)
                asks = samples.send(await self._sample(asks))
        except StopIteration as end:
            decision: Outcome = end.value
        rows = tuple(self._row(test, i) for i in test.order if i not in test.refused)
        after = mean([row.after for row in rows])
        known_scores = {row.item_id: row.after for row in rows} if decision == "accept" else _measured_again(test)
        return Verdict(
            decision=decision,
            gate="paired",
            rule=progress.rule,
            metric=evaluation.metric,
            before=mean([row.before for row in rows]),
            after=after,
            at_most=after,
            items=len(rows),
            measured=len(rows),
            paired_gain=test.gain / len(rows),
            remeasured=remeasured(progress.current, known_scores) if decision != "accept" else None,
            p=test.p if test.repeats else None,
            repeats=test.repeats,
            set_aside={**progress.refused, **self.refused},
            known_scores=known_scores,
            evidence=rows,
            trajectories=tuple(self.recorded),
            telemetry={"rollouts": rollouts, "saved": len(progress.order) - launched},
        )

    async def _sample(self, asks: Sequence[Ask]) -> list[float | None]:
        """Take fresh samples. The label of a sample names the purpose, the round and the side (`current` or
        `candidate`)."""
        work = [
            partial(
                roll_out_one,
                self.skills[ask.side],
                self.items[ask.item_id],
                self.ctx,
                tag=f"{self.tag}-{ask.name}-{ask.side}",
                number=self.progress.order.index(ask.item_id),
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
        before = len(self.ctx.env.items("val")) - len(self.items)
        require_few(self.progress.refused | self.refused, len(self.items), set_aside=before)
        return values

    def _row(self, test: PairedTest, item_id: str) -> ItemEvidence:
        """The evidence of one item. If the item has no fresh samples, the two skills are treated as equal on it."""
        candidate, old = self.skills["candidate"].hash, test.current[item_id]
        hard = [t.score.hard for t in self.recorded if t.item_id == item_id and t.skill_hash == candidate]
        fresh = test.samples.get(item_id)
        return ItemEvidence(
            item_id=item_id,
            before=old,
            after=_candidate_score(test, item_id),
            hard=float(fmean(hard) >= 0.5),
            repeats=len(fresh[1]) if fresh else 0,
            compared=(fmean(fresh[0]), fmean(fresh[1])) if fresh else (old, old),
        )


def _candidate_score(test: PairedTest, item_id: str) -> float:
    """The candidate's score on an item. If the item has fresh samples, the score is their mean; the screen's sample
    does not count, because it is biased: it selected the item. Else the score is the mean of the current skill's known
    score and the candidate's samples."""
    if item_id in test.samples:
        return fmean(test.samples[item_id][1])
    again = [test.second[item_id]] if item_id in test.second else []
    return fmean([test.current[item_id], test.screened[item_id], *again])


def _measured_again(test: PairedTest) -> dict[str, float]:
    """The current skill's scores on the items that it did again: means of the known score and the fresh samples."""
    return {item: fmean([test.current[item], *before]) for item, (before, _) in test.samples.items() if before}
