"""The parts that all agents of this folder use: the model's name, and the tool that looks up a price."""

import json
import os
from pathlib import Path

MODEL = os.environ.get("SHOP_MODEL", "gpt-4o-mini")
PRICES = json.loads((Path(__file__).parents[1] / "tool_agent" / "prices.json").read_text())
PRICE_TOOL = {
    "type": "function",
    "function": {
        "name": "price",
        "description": "The list price in euros of one piece of a product, named in the singular.",
        "parameters": {"type": "object", "properties": {"product": {"type": "string"}}, "required": ["product"]},
    },
}


def price(product: str) -> int:
    """The list price in euros of one piece of a product, named in the singular."""
    return int(PRICES[product])
