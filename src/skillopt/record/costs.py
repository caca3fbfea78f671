"""Records of costs: calls, tokens and dollars by role and stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from skillopt.provider_table import provider_of
from skillopt.record.base import ROLES, ByRole, Record, Role
from skillopt.record.journal import Total


class TokenCounts(Record):
    prompt: int
    completion: int
    cached: int
    """Prompt tokens that the endpoint read from its cache."""
    written: int = 0
    """Prompt tokens that the endpoint wrote into its cache."""

    @property
    def total(self) -> int:
        return self.prompt + self.completion


class Paid(Record):
    """The usage and cost of one role."""

    calls: int
    rollouts: int
    """The number of rollouts that were started."""
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    written_tokens: int = 0
    estimated: bool
    """True if the tokens are estimated from the texts."""
    usd: float | None
    """The cost in dollars; None if a price is unknown."""
    by_stage: dict[str, int]
    """The number of calls by stage."""
    usd_by_stage: dict[str, float | None]
    tokens_by_stage: dict[str, TokenCounts]

    @property
    def tokens(self) -> TokenCounts:
        return TokenCounts(
            prompt=self.prompt_tokens,
            completion=self.completion_tokens,
            cached=self.cached_tokens,
            written=self.written_tokens,
        )


class Calls(ByRole[int]):
    from_journal: int = 0
    """The number of replies that were taken from the journal, so they were not paid for again."""


class Bill(Record):
    """The costs of a run, as in its summary."""

    calls: Calls
    tokens: ByRole[TokenCounts]
    tokens_estimated: tuple[Role, ...]
    """Roles whose tokens are estimated from the texts."""
    cost_usd: ByRole[float | None]
    calls_by_stage: ByRole[dict[str, int]]
    cost_usd_by_stage: ByRole[dict[str, float | None]]
    tokens_by_stage: ByRole[dict[str, TokenCounts]]


def usage(totals: list[Total], cost: Callable[[Total], float | None]) -> ByRole[Paid]:
    """Calls, tokens and dollars by role. Dollars are None if a price is unknown."""
    roles = (*ROLES, "judge") if any(total.role == "judge" for total in totals) else ROLES
    return ByRole[Paid](**{role: _paid(role, [t for t in totals if t.role == role], cost) for role in roles})


def _paid(role: str, totals: list[Total], cost: Callable[[Total], float | None]) -> Paid:
    costs = {total.stage: cost(total) for total in totals}
    every = [cost(total) for total in totals]
    return Paid(
        calls=sum(total.calls for total in totals),
        rollouts=sum(total.first_turns for total in totals),
        prompt_tokens=sum(total.prompt_tokens for total in totals),
        completion_tokens=sum(total.completion_tokens for total in totals),
        cached_tokens=sum(total.cached_tokens for total in totals),
        written_tokens=sum(total.written_tokens for total in totals),
        estimated=role == "optimizer" and any(provider_of(total.model).estimates_tokens for total in totals),
        usd=None if None in every else sum(usd for usd in every if usd is not None),
        by_stage={total.stage: total.calls for total in totals},
        usd_by_stage=costs,
        tokens_by_stage={
            total.stage: TokenCounts(
                prompt=total.prompt_tokens,
                completion=total.completion_tokens,
                cached=total.cached_tokens,
                written=total.written_tokens,
            )
            for total in totals
        },
    )


def bill(paid: ByRole[Paid], from_journal: int = 0) -> Bill:
    roles = {role: paid.of(role) for role in paid.roles}
    return Bill(
        calls=Calls(**{role: each.calls for role, each in roles.items()}, from_journal=from_journal),
        tokens=ByRole[TokenCounts](**{role: each.tokens for role, each in roles.items()}),
        tokens_estimated=tuple(role for role, each in roles.items() if each.estimated),
        cost_usd=ByRole[float | None](**{role: each.usd for role, each in roles.items()}),
        calls_by_stage=ByRole[dict[str, int]](**{role: each.by_stage for role, each in roles.items()}),
        cost_usd_by_stage=ByRole[dict[str, float | None]](**{role: each.usd_by_stage for role, each in roles.items()}),
        tokens_by_stage=ByRole[dict[str, TokenCounts]](**{role: each.tokens_by_stage for role, each in roles.items()}),
    )


def rollouts_paid(totals: Iterable[Total]) -> int:
    return sum(total.first_turns for total in totals if total.role == "target")
