"""What tokens cost: the user's own prices, then the list prices in prices.toml. An unknown price stays unknown."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources

from skillopt.cli_agents.presets import PRESETS
from skillopt.config import Price
from skillopt.models.base import Usage

FREE = ("sim:", "local:", "handoff")
"""Providers that run on this machine, and letters to whoever reads them."""
_VERSION = re.compile(r"(-\d{4}-\d{2}-\d{2}|-\d{8}|-latest)\Z")
"""A dated version of a model has the model's price."""


@cache
def list_prices() -> dict[str, Price]:
    text = (resources.files("skillopt.models") / "prices.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)["prices"]
    return {
        f"{provider}:{model}": Price(input=row[0], output=row[1], cached=row[2] if len(row) > 2 else None)
        for provider, models in tables.items()
        for model, row in models.items()
    }


def price_of(model: str, own: Mapping[str, Price]) -> Price | None:
    """The price of `provider:model`; `own` overrides the list."""
    if model in own:
        return own[model]
    if model.startswith(FREE):
        return Price(input=0, output=0)
    table = list_prices()
    return table.get(model) or table.get(_VERSION.sub("", model))


def is_priced(model: str, own: Mapping[str, Price]) -> bool:
    """Will the cost be known? A price is, or it is a command line that says what it cost."""
    provider, _, name = model.partition(":")
    preset = PRESETS.get(name if provider == "command" else provider)
    return (preset is not None and preset.reports_cost) or price_of(model, own) is not None


def cost_of(usage: Usage, price: Price | None) -> float | None:
    """Dollars; None where the price is unknown. Prompt tokens from the endpoint's cache have a separate price."""
    if price is None:
        return None
    cached = price.input if price.cached is None else price.cached
    fresh = usage.prompt - usage.cached
    return (fresh * price.input + usage.cached * cached + usage.completion * price.output) / 1e6
