"""A run's limits and spending. Each call counts with an estimate until its reply reports the real usage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from skillopt.config import BudgetConfig, Price
from skillopt.errors import Stopped
from skillopt.models.base import Usage
from skillopt.models.prices import cost_of, price_of
from skillopt.provider_table import provider_of
from skillopt.record.journal import Journal, Total


class Amount(NamedTuple):
    """Calls, tokens and dollars; a model without a price adds no dollars."""

    calls: float = 0
    tokens: float = 0
    usd: float = 0.0


class Budget:
    """A run's limits and spending, for all roles and sessions together. The spending starts with the journal's
    totals."""

    def __init__(self, config: BudgetConfig, journal: Journal) -> None:
        self._config = config
        self._started = time.monotonic()
        self._used = Amount()
        """The calls, tokens and dollars so far, with the estimates of calls in flight."""
        self._prices: dict[str, Price | None] = {}
        for total in journal.totals():
            self._count(Amount(total.calls, total.prompt_tokens + total.completion_tokens, self.cost(total) or 0.0))

    def cost(self, total: Total) -> float | None:
        """The cost in dollars; None if the model's price is unknown. A model on this machine costs nothing."""
        return total_cost(total, self._config.prices)

    @contextmanager
    def call(self, model: str, estimate: Usage) -> Iterator[Callable[[Usage], None]]:
        """Count a call by its estimate while it is in flight. Yields a function to which the caller reports the real
        usage; a call without a report costs nothing. Raises Stopped if a limit is reached."""
        for what, (spent, limit) in self.spent().items():
            if limit is not None and spent >= limit:
                raise _reached(f"max_{what}", limit)
        reserved = self._amount(model, estimate)
        self._count(reserved)
        used: list[Usage] = []
        try:
            yield used.append
        finally:
            self._count(reserved, -1)
            for usage in used:
                self.add(model, usage)

    def time_left(self) -> float | None:
        """Seconds left in this session; None if the config sets no time limit."""
        most = self._config.max_minutes
        return None if most is None else max(0.0, self._started + 60 * most - time.monotonic())

    def out_of_time(self) -> Stopped:
        return _reached("max_minutes", self._config.max_minutes or 0)

    def add(self, model: str, usage: Usage) -> None:
        """Count a call that was paid for."""
        self._count(self._amount(model, usage))

    def spent(self) -> dict[str, tuple[float, float | None]]:
        """For minutes, calls, tokens and dollars: the amount used so far, with calls in flight, and the limit (None: no
        limit)."""
        config, used = self._config, self._used
        return {
            "minutes": ((time.monotonic() - self._started) / 60, config.max_minutes),
            "calls": (used.calls, config.max_calls),
            "tokens": (used.tokens, config.max_tokens),
            "usd": (used.usd, config.max_usd),
        }

    def _count(self, amount: Amount, sign: int = 1) -> None:
        self._used = Amount(*(used + sign * more for used, more in zip(self._used, amount, strict=True)))

    def _amount(self, model: str, usage: Usage) -> Amount:
        if model not in self._prices:
            self._prices[model] = price_of(model, self._config.prices)
        usd = (cost_of(usage, self._prices[model]) or 0.0) if usage.usd is None else usage.usd
        return Amount(1, usage.prompt + usage.completion, usd)


def total_cost(total: Total, prices: Mapping[str, Price]) -> float | None:
    """The cost of a model's calls: by the user's price, else as the model reported it, else by the list price."""
    if total.usd is not None and total.model not in prices:
        return total.usd
    usage = Usage(prompt=total.prompt_tokens, completion=total.completion_tokens, cached=total.cached_tokens)
    usage = replace(usage, written=total.written_tokens)
    if provider_of(total.model).is_function and usage == Usage(prompt=0, completion=0):
        return 0.0  # a function that reported no usage may have called no model; the verdict mentions this
    return cost_of(usage, price_of(total.model, prices))


def _reached(name: str, limit: float) -> Stopped:
    return Stopped(f"budget.{name}: the limit of {limit:g} is reached; raise it to continue")
