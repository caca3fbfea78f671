"""The mechanisms of the training that can be switched off, one at a time: in the simulated world (ablations.py) and in
cells with real models (the methods `no-…` of results.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from skillopt.config import Config
from skillopt.record.edits import Pooled, Ranked, Relevance
from skillopt.record.step import Rule
from skillopt.skill import Applied, Skill
from skillopt.training.context import Context
from skillopt.training.edits.update import Candidate, candidates
from skillopt.training.gates.base import Verdict
from skillopt.training.parts import Parts, resolve


@dataclass(frozen=True, kw_only=True)
class Off:
    """What makes a training one without the mechanism; only one of the four is given."""

    said: str
    """Which mechanism, in tables."""
    settings: tuple[str, ...] = ()
    change: Callable[[Config], Config] | None = None
    """For settings that a config file may not have."""
    patch: tuple[str, Any] | None = None
    """For what no setting switches off: a name in the package, and what stands for it."""
    gate: Any = None
    noisy_only: bool = False
    """With a target that always answers the same, and one analyst, it makes no difference."""

    def parts(self, config: Config) -> Parts | None:
        return resolve(config, gate=self.gate) if self.gate else None

    @contextmanager
    def applied(self, config: Config) -> Iterator[Config]:
        with ExitStack() as stack:
            if self.patch:
                stack.enter_context(mock.patch(*self.patch))
            yield self.change(config) if self.change else config


async def accept_all(
    skill: Skill,
    candidate: Applied,
    current: Mapping[str, float],
    ctx: Context,
    *,
    tag: str = "",
    rule: Rule = "strict",
) -> Verdict:
    """No gate: nothing is measured, everything is taken."""
    return Verdict(
        decision="accept",
        gate="none",
        rule=rule,
        metric=ctx.config.evaluation.metric,
        before=None,
        after=None,
        at_most=1.0,
        items=len(current),
        measured=0,
    )


def as_proposed(pooled: Pooled, *rest: object) -> tuple[Relevance, float]:
    """Every edit is worth the same, so that they are taken in the order of their ids."""
    return Relevance(new_failures=0, support=pooled.support, new_cause=True), 0.0


def first_candidate(skill: Skill, ranked: Sequence[Ranked], ctx: Context) -> list[Candidate]:
    return candidates(skill, ranked, ctx)[:1]


def _optimizer(**settings: Any) -> Callable[[Config], Config]:
    return lambda config: config.model_copy(update={"optimizer": config.optimizer.model_copy(update=settings)})


NOTHING = Off(said="nothing off")
MECHANISMS = {
    "no-gate": Off(said="gate (all is accepted)", gate=accept_all),
    "strict": Off(said="paired gate (strict)", settings=("evaluation.gate=strict",), noisy_only=True),
    "no-credit": Off(said="credit: rejected steps taken apart", settings=("evaluation.credit_gates=0",)),
    "no-slow": Off(said="slow update", change=_optimizer(use_slow_update=False)),
    "no-notes": Off(said="meta skill", settings=("optimizer.use_meta_skill=false",)),
    "no-merge": Off(said="merge by the optimizer", settings=("gradient.merge=local",)),
    "no-coverage": Off(
        said="selection by coverage (as proposed)", patch=("skillopt.training.edits.select.relevance", as_proposed)
    ),
    "no-deep": Off(said="deep reflection", settings=("gradient.deep_reflect_threshold=1.0",)),
    "no-passes": Off(
        said="passes in the letters", patch=("skillopt.training.requests.compose.contrast", lambda passes: [])
    ),
    "no-history": Off(said="history in the letters", patch=("skillopt.training.trainer.remember", lambda *rest: None)),
    "no-memory": Off(said="memory of rejected edits", settings=("optimizer.rejected_buffer=0",)),
    "cosine": Off(said="constant rate (cosine)", settings=("optimizer.lr_scheduler=cosine",)),
    "no-decay": Off(said="decay after a rejection", change=_optimizer(reject_decay=1.0)),
    "no-race": Off(
        said="race of candidates (one)",
        patch=("skillopt.training.trainer.candidates", first_candidate),
        noisy_only=True,
    ),
}
