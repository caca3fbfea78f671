"""What may be spent, and what was. A call is counted before it is sent, and again by what it really took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from skillopt.config import BudgetConfig, Price
from skillopt.errors import Stopped
from skillopt.models.base import Usage
from skillopt.models.prices import cost_of, price_of
from skillopt.run.journal import Journal, Total


@dataclass(slots=True)
class Amount:
    """Calls, tokens and dollars; a model without a price adds no dollars."""

    calls: float = 0
    tokens: float = 0
    usd: float = 0.0

    def __iadd__(self, other: Amount) -> Amount:
        self.calls += other.calls
        self.tokens += other.tokens
        self.usd += other.usd
        return self

    def __isub__(self, other: Amount) -> Amount:
        self.calls -= other.calls
        self.tokens -= other.tokens
        self.usd -= other.usd
        return self


@dataclass(slots=True)
class Reserved:
    """One call that is in flight, by its estimate."""

    role: str
    model: str
    amount: Amount


@dataclass
class _Account:
    """One role's share. What is in flight counts like what is paid."""

    paid: Amount = field(default_factory=Amount)
    in_flight: Amount = field(default_factory=Amount)

    def used(self, what: str) -> float:
        """calls, tokens or usd."""
        total: float = getattr(self.paid, what) + getattr(self.in_flight, what)
        return total


class Budget:
    """The limits over all roles and by role, held against the journal's count, over all sessions of a run."""

    def __init__(self, config: BudgetConfig, journal: Journal) -> None:
        self._config = config
        self._started = time.monotonic()
        self._accounts: dict[str, _Account] = {}
        self._prices: dict[str, Price | None] = {}
        sections = ((None, config), ("target", config.target), ("optimizer", config.optimizer))
        self._set: list[tuple[str | None, str, float]] = [
            (role, what, getattr(section, f"max_{what}"))
            for what in ("calls", "tokens", "usd")
            for role, section in sections
            if getattr(section, f"max_{what}") is not None
        ]
        for total in journal.totals():
            tokens = total.prompt_tokens + total.completion_tokens
            account = self._account(total.role)
            account.paid += Amount(total.calls, tokens, self.cost(total) or 0.0)

    def cost(self, total: Total) -> float | None:
        """Dollars, or None where the model's price is unknown. What runs on this machine costs nothing."""
        if total.usd is not None:
            return total.usd
        usage = Usage(prompt=total.prompt_tokens, completion=total.completion_tokens, cached=total.cached_tokens)
        return cost_of(usage, price_of(total.model, self._config.prices))

    def reserve(self, role: str, model: str, estimate: Usage) -> Reserved:
        """Count a call before it is sent; raises Stopped where a limit is reached."""
        for name, used, limit in self._limits(role):
            if used >= limit:
                raise _reached(name, limit)
        reserved = Reserved(role, model, self._amount(model, estimate))
        self._account(role).in_flight += reserved.amount
        return reserved

    def time_left(self) -> float | None:
        """Seconds of this session that are left; None without a limit."""
        most = self._config.max_minutes
        return None if most is None else max(0.0, self._started + 60 * most - time.monotonic())

    def out_of_time(self) -> Stopped:
        return _reached("max_minutes", self._config.max_minutes or 0)

    def give_back(self, reserved: Reserved) -> None:
        """A call that got no reply was not paid for."""
        self._account(reserved.role).in_flight -= reserved.amount

    def settle(self, reserved: Reserved, usage: Usage) -> None:
        """A reply came: what it really took takes the estimate's place."""
        self.give_back(reserved)
        self._account(reserved.role).paid += self._amount(reserved.model, usage)

    def standing(self) -> dict[str, tuple[float, float | None]]:
        """What is used and in flight, with its limit: calls, tokens, usd and minutes over all roles."""
        used = {
            what: sum(account.used(what) for account in self._accounts.values()) for what in ("calls", "tokens", "usd")
        }
        used["minutes"] = (time.monotonic() - self._started) / 60
        return {what: (amount, getattr(self._config, f"max_{what}")) for what, amount in used.items()}

    def _limits(self, role: str) -> Iterator[tuple[str, float, float]]:
        """Each limit that is set and counts for this role, and what counts against it."""
        if self._config.max_minutes is not None:
            yield "max_minutes", (time.monotonic() - self._started) / 60, self._config.max_minutes
        for whose, what, limit in self._set:
            if whose is None:
                yield f"max_{what}", sum(account.used(what) for account in self._accounts.values()), limit
            elif whose == role:
                yield f"{role}.max_{what}", self._account(role).used(what), limit

    def _account(self, role: str) -> _Account:
        if role not in self._accounts:
            self._accounts[role] = _Account()
        return self._accounts[role]

    def _amount(self, model: str, usage: Usage) -> Amount:
        if model not in self._prices:
            self._prices[model] = price_of(model, self._config.prices)
        usd = (cost_of(usage, self._prices[model]) or 0.0) if usage.usd is None else usage.usd
        return Amount(1, usage.prompt + usage.completion, usd)


def _reached(name: str, limit: float) -> Stopped:
    return Stopped(f"budget.{name}: the limit of {limit:g} is reached; raise it to go on")
