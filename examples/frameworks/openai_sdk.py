"""An agent on the OpenAI SDK: a loop around chat completions, with one tool."""

import json

from openai import AsyncOpenAI
from shop import MODEL, PRICE_TOOL, price

from skillopt import Episode, Usage


async def run(item, skill, model):
    client = AsyncOpenAI()  # reads OPENAI_API_KEY and OPENAI_BASE_URL
    messages = [{"role": "system", "content": skill.text}, {"role": "user", "content": item.question}]
    prompt = completion = 0
    for _ in range(6):
        reply = await client.chat.completions.create(model=MODEL, messages=messages, tools=[PRICE_TOOL])
        prompt, completion = prompt + reply.usage.prompt_tokens, completion + reply.usage.completion_tokens
        said = reply.choices[0].message
        messages.append(said.model_dump(exclude_none=True))
        if not said.tool_calls:
            break
        for call in said.tool_calls:
            found = price(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(found)})
    return Episode(output=said.content or "", messages=messages, usage=Usage(prompt=prompt, completion=completion))
