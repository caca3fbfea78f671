"""An agent on LangChain and LangGraph: the skill is its system prompt."""

from langchain.agents import create_agent
from langchain_core.messages import convert_to_openai_messages
from langchain_openai import ChatOpenAI
from shop import MODEL, price

from skillopt import Episode, Usage


async def run(item, skill, model):
    agent = create_agent(ChatOpenAI(model=MODEL), tools=[price], system_prompt=skill.text)
    state = await agent.ainvoke({"messages": [{"role": "user", "content": item.question}]})
    used = [message.usage_metadata for message in state["messages"] if getattr(message, "usage_metadata", None)]
    return Episode(
        output=str(state["messages"][-1].content),
        messages=[{"role": "system", "content": skill.text}, *convert_to_openai_messages(state["messages"])],
        usage=Usage(
            prompt=sum(one["input_tokens"] for one in used), completion=sum(one["output_tokens"] for one in used)
        ),
    )
