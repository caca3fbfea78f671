"""What was paid: calls, tokens and dollars by role and stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from skillopt.provider_table import provider_of
from skillopt.record.base import ROLES, ByRole, Record, Role
from skillopt.record.journal import Total


class TokenCounts(Record):
    prompt: int
    completion: int
    cached: int
    """How many of the prompt's tokens the endpoint had in its cache."""

    @property
    def total(self) -> int:
        return self.prompt + self.completion


class Paid(Record):
    """What one role took."""

    calls: int
    rollouts: int
    """Tasks that were begun."""
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    estimated: bool
    """The tokens are counted from the texts."""
    usd: float | None
    """None if a price is unknown."""
    by_stage: dict[str, int]
    """Calls."""
    usd_by_stage: dict[str, float | None]
    tokens_by_stage: dict[str, TokenCounts]

    @property
    def tokens(self) -> TokenCounts:
        return TokenCounts(prompt=self.prompt_tokens, completion=self.completion_tokens, cached=self.cached_tokens)


class Calls(ByRole[int]):
    from_journal: int = 0
    """Replies that were paid for before."""


class Bill(Record):
    """What was paid, as the summary has it."""

    calls: Calls
    tokens: ByRole[TokenCounts]
    tokens_estimated: tuple[Role, ...]
    """Roles whose tokens are counted from the texts."""
    cost_usd: ByRole[float | None]
    calls_by_stage: ByRole[dict[str, int]]
    cost_usd_by_stage: ByRole[dict[str, float | None]]
    tokens_by_stage: ByRole[dict[str, TokenCounts]]


def usage(totals: list[Total], cost: Callable[[Total], float | None]) -> ByRole[Paid]:
    """Calls, tokens and dollars by role; dollars are None if a price is unknown."""
    target, optimizer = (_paid(role, [total for total in totals if total.role == role], cost) for role in ROLES)
    return ByRole[Paid](target=target, optimizer=optimizer)


def _paid(role: Role, totals: list[Total], cost: Callable[[Total], float | None]) -> Paid:
    costs = {total.stage: cost(total) for total in totals}
    every = [cost(total) for total in totals]
    return Paid(
        calls=sum(total.calls for total in totals),
        rollouts=sum(total.first_turns for total in totals),
        prompt_tokens=sum(total.prompt_tokens for total in totals),
        completion_tokens=sum(total.completion_tokens for total in totals),
        cached_tokens=sum(total.cached_tokens for total in totals),
        estimated=role == "optimizer" and any(provider_of(total.model).estimates_tokens for total in totals),
        usd=None if None in every else sum(usd for usd in every if usd is not None),
        by_stage={total.stage: total.calls for total in totals},
        usd_by_stage=costs,
        tokens_by_stage={
            total.stage: TokenCounts(
                prompt=total.prompt_tokens, completion=total.completion_tokens, cached=total.cached_tokens
            )
            for total in totals
        },
    )


def bill(paid: ByRole[Paid], from_journal: int = 0) -> Bill:
    a, b = paid.target, paid.optimizer
    return Bill(
        calls=Calls(target=a.calls, optimizer=b.calls, from_journal=from_journal),
        tokens=ByRole[TokenCounts](target=a.tokens, optimizer=b.tokens),
        tokens_estimated=tuple(role for role in ROLES if paid.of(role).estimated),
        cost_usd=ByRole[float | None](target=a.usd, optimizer=b.usd),
        calls_by_stage=ByRole[dict[str, int]](target=a.by_stage, optimizer=b.by_stage),
        cost_usd_by_stage=ByRole[dict[str, float | None]](target=a.usd_by_stage, optimizer=b.usd_by_stage),
        tokens_by_stage=ByRole[dict[str, TokenCounts]](target=a.tokens_by_stage, optimizer=b.tokens_by_stage),
    )


def rollouts_paid(totals: Iterable[Total]) -> int:
    return sum(total.first_turns for total in totals if total.role == "target")
