"""An agent on the OpenAI Agents SDK: the skill is its instructions."""

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from shop import MODEL, price

from skillopt import Episode, Usage

set_tracing_disabled(True)  # traces would be sent to OpenAI


async def run(item, skill, model):
    chat = OpenAIChatCompletionsModel(model=MODEL, openai_client=AsyncOpenAI())
    agent = Agent(name="shop", instructions=skill.text, tools=[function_tool(price)], model=chat)
    done = await Runner.run(agent, item.question, max_turns=6)
    used = done.context_wrapper.usage
    return Episode(
        output=str(done.final_output),
        messages=[{"role": "system", "content": skill.text}, *done.to_input_list()],
        usage=Usage(prompt=used.input_tokens, completion=used.output_tokens),
    )
