"""What tokens cost: the user's own prices, then the list prices of genai-prices. An unknown price stays unknown."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache

from skillopt.config import Price
from skillopt.models.base import Usage
from skillopt.provider_table import program_of, provider_of, split_name


@cache
def list_price(model: str) -> Price | None:
    """Today's price in the list that comes with genai-prices: that of short prompts, at the hour when it is highest."""
    price_list = provider_of(model).price_list
    if not price_list:
        return None
    import genai_prices  # takes 0.2 s; it fetches nothing unless it is asked to

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
    return Price(input=prompt, output=reply, cached=highest("cache_read_mtok"))


def price_of(model: str, own: Mapping[str, Price]) -> Price | None:
    """The price of `provider:model`; `own` overrides the list."""
    if model in own:
        return own[model]
    if provider_of(model).is_free:
        return Price(input=0, output=0)
    return list_price(model)


def is_priced(model: str, own: Mapping[str, Price]) -> bool:
    """Will the cost be known? A price is, or it is a command line that says what it cost."""
    return program_of(model).reports_cost or price_of(model, own) is not None


def cost_of(usage: Usage, price: Price | None) -> float | None:
    """Dollars; None where the price is unknown. Prompt tokens from the endpoint's cache have a separate price."""
    if price is None:
        return None
    cached = price.input if price.cached is None else price.cached
    fresh = usage.prompt - usage.cached
    return (fresh * price.input + usage.cached * cached + usage.completion * price.output) / 1e6
