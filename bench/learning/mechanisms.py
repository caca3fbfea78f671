"""The mechanisms of the training that can be switched off one at a time, in the simulated world (ablations.py) and in
cells with real models (the methods `no-…` of results.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from skillopt.config import Config
from skillopt.record.edits import Pooled, Relevance
from skillopt.record.step import Rule
from skillopt.skill import Applied, Skill
from skillopt.training.context import Context
from skillopt.training.gates.base import Verdict
from skillopt.training.parts import Parts, resolve
from skillopt.training.requests.shared import SharedText


@dataclass(frozen=True, kw_only=True)
class Off:
    """Switches one mechanism of a training off, by one of `settings`, `change`, `patch` (or `patches`) and `gate`."""

    said: str
    """The name of the mechanism in tables."""
    settings: tuple[str, ...] = ()
    change: Callable[[Config], Config] | None = None
    """Changes the config, for values that a config file cannot have."""
    patch: tuple[str, Any] | None = None
    """For a mechanism that no setting switches off: a name in the package, and its replacement."""
    patches: tuple[tuple[str, Any], ...] = ()
    """Several values like `patch`, for a mechanism in several places of the code."""
    gate: Any = None
    noisy_only: bool = False
    """True if the mechanism makes no difference for a deterministic target with one analyst."""

    def parts(self, config: Config) -> Parts | None:
        return resolve(config, gate=self.gate) if self.gate else None

    @contextmanager
    def applied(self, config: Config) -> Iterator[Config]:
        with ExitStack() as stack:
            for patch in (*self.patches, *([self.patch] if self.patch else [])):
                stack.enter_context(mock.patch(*patch))
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
    """Accept every candidate without measuring it, as a training without a gate."""
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
    """Give every edit the same relevance, so edits are selected in the order of their ids."""
    return Relevance(new_failures=0, support=pooled.support, new_cause=True), 0.0


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
    "no-fit": Off(
        said="advice that fits the batch (always that for a small model)",
        patch=(
            "skillopt.training.analysts.llm.advice_for",
            lambda skill, knowledge, trajectories: ("reflect_imitator", "reflect_steps"),
        ),
    ),
    "no-kinds": Off(
        said="kinds of failures in the requests", patch=("skillopt.training.requests.compose._kinds", lambda *rest: "")
    ),
    "no-shared": Off(
        said="what all tasks have shown once",
        patch=("skillopt.training.requests.compose.shared_text", lambda tasks: SharedText()),
    ),
    "no-findings": Off(said="findings", patch=("skillopt.training.analysts.llm.ASK_FOR_FINDINGS", False)),
    "no-pairs": Off(
        said="tasks with two outcomes", patch=("skillopt.training.optimizer_context.earlier_outcomes", lambda *rest: {})
    ),
    "no-own-words": Off(
        said="replies that passed as ready examples",
        patch=("skillopt.training.requests.compose.ready_examples", lambda passes, how: []),
    ),
    "constant": Off(said="schedule auto (constant)", settings=("optimizer.lr_scheduler=constant",)),
    "cosine": Off(said="schedule auto (cosine)", settings=("optimizer.lr_scheduler=cosine",)),
    "no-carry": Off(
        said="neutral edits carried",
        patches=(
            ("skillopt.training.step_files.carried", lambda *rest: ()),
            ("skillopt.training.gates.strict.PROOF", 0),
        ),
    ),
    "no-groups": Off(said="groups of edits", patch=("skillopt.training.edits.groups.unit", lambda edit: edit.id)),
    "no-leave-out": Off(
        said="examples left out of their own rollouts",
        patch=("skillopt.training.rollout.without_example", lambda text, task: text),
    ),
    "no-changed-first": Off(
        said="changed validation items first", patch=("skillopt.training.step_files.count_changes", lambda *rest: None)
    ),
    "no-decay": Off(
        said="decay after a rejection",
        patch=("skillopt.training.trainer.decayed_rate", lambda scheduled, decay, config: scheduled),
    ),
    "no-minimal": Off(
        said="minimal remedy", patch=("skillopt.training.analysts.llm.wants_minimal", lambda *rest: False)
    ),
}
