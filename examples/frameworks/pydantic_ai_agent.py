"""An agent on pydantic-ai: the skill is its instructions."""

import json

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from shop import MODEL, price

from skillopt import Episode, Usage


async def run(item, skill, model):
    agent = Agent(OpenAIChatModel(MODEL), instructions=skill.text, tools=[price])
    done = await agent.run(item.question)
    used = done.usage
    turns = [
        {"role": turn["kind"], "content": json.dumps(turn["parts"])} for turn in json.loads(done.all_messages_json())
    ]
    return Episode(
        output=str(done.output),
        messages=[{"role": "system", "content": skill.text}, *turns],
        usage=Usage(prompt=used.input_tokens, completion=used.output_tokens),
    )
