"""An agent whose model may look up a price before it answers. Calls of `model` are journalled, limited and counted."""

import json
from pathlib import Path

from skillopt import Tool, run_tools, start

PRICES = json.loads((Path(__file__).parent / "prices.json").read_text())


def price(product: str) -> int:
    """The list price in euros of one piece of a product, named in the singular."""
    return int(PRICES[product])


async def answer(item, skill, model):
    """Do one task from beginning to end. The returned answer is scored."""
    return await run_tools(start(skill, item.question), [Tool.of(price)], model, max_turns=6)
