"""Prices of tokens. The user's price comes first, then the list price of the package genai-prices. If a model has
neither, its price is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache

from skillopt.config import Price
from skillopt.models.base import Usage
from skillopt.provider_table import program_of, provider_of, split_name


@cache
def list_price(model: str) -> Price | None:
    """Today's price in the list of genai-prices; None if the model is not listed. This is the price for short prompts
    at the most expensive hour of the day."""
    price_list = provider_of(model).price_list
    if not price_list:
        return None
    import genai_prices  # importing takes 0.2 s; nothing is fetched

    try:
        listed = genai_prices.calc_price(genai_prices.Usage(), split_name(model)[1], provider_id=price_list).model
    except LookupError:
        return None
    now = datetime.now(UTC)
    day = [listed.get_prices(now.replace(hour=hour)) for hour in range(24)]

    def highest(kind: str) -> float | None:
        values = [getattr(prices, kind, None) for prices in day]
        return max((float(getattr(value, "base", value)) for value in values if value is not None), default=None)

    prompt, reply = highest("input_mtok"), highest("output_mtok")
    if prompt is None or reply is None:
        return None
    return Price(input=prompt, output=reply, cached=highest("cache_read_mtok"), written=highest("cache_write_mtok"))


def price_of(model: str, overrides: Mapping[str, Price]) -> Price | None:
    """The price of `provider:model`: from `overrides`, else 0 for a free provider, else from the list."""
    if model in overrides:
        return overrides[model]
    if provider_of(model).is_free:
        return Price(input=0, output=0)
    return list_price(model)


def is_priced(model: str, overrides: Mapping[str, Price]) -> bool:
    """True if there is a price for the model, or the model is a command line that reports its cost."""
    return program_of(model).reports_cost or price_of(model, overrides) is not None


def cost_of(usage: Usage, price: Price | None) -> float | None:
    """The cost in dollars; None if the price is unknown. Tokens that the endpoint reads from its cache or writes into
    it have separate prices."""
    if price is None:
        return None
    cached = price.input if price.cached is None else price.cached
    written = price.input if price.written is None else price.written
    fresh = usage.prompt - usage.cached - usage.written
    prompt = fresh * price.input + usage.cached * cached + usage.written * written
    return (prompt + usage.completion * price.output) / 1e6
