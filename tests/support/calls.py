"""Single calls to a model: directly, or through the caller with its limiter and journal."""

from __future__ import annotations

import asyncio
from typing import Any

from skillopt.config import BudgetConfig, HardwareConfig
from skillopt.models.base import ChatModel, ChatReply, ChatRequest
from skillopt.models.call import Budget, Caller, Limiter, Switch, gather_all
from skillopt.record.journal import Journal


def chat(model: Any, request: ChatRequest) -> ChatReply:
    async def once() -> ChatReply:
        try:
            return await model.chat(request)
        finally:
            await model.close()

    return asyncio.run(once())


def hello(**more: Any) -> ChatRequest:
    return ChatRequest(messages=({"role": "user", "content": "hello"},), **more)


def caller(
    model: ChatModel, limiter: Limiter | int, journal: Journal, hardware: HardwareConfig | None = None
) -> Caller:
    return Caller(
        model=model,
        role="target",
        journal=journal,
        limiter=limiter if isinstance(limiter, Limiter) else Limiter(limiter),
        budget=Budget(BudgetConfig(), journal),
        switch=Switch(),
        hardware=hardware or HardwareConfig(),
        deterministic=True,
    )


async def ask_all(call: Caller, count: int, start: int = 0) -> list[ChatReply]:
    return await gather_all(
        call([{"role": "user", "content": f"call {n}"}], stage="rollout", label="") for n in range(start, start + count)
    )
