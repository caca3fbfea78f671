"""Serves rollouts and reflections to a method in another process, over HTTP on the loopback address.

    POST /rollout            {split, id, skill} → {input, output, score, feedback}
    POST /chat/completions   OpenAI's protocol; the optimizer may be any model, or a reader of letters

So a rival has the same target, the same scorer with the same feedback, and the same optimizer as SkillOpt's training.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from skillopt.models.base import ChatModel, ChatRequest, ModelError
from skillopt.skill import Skill
from skillopt.tasks.base import RolloutError
from skillopt.training.context import Context
from skillopt.training.rollout import roll_out_one

WRONG = re.compile(r"the number .*got (\S+)(?: [^;]*)?; (expected .*)", re.DOTALL)


@dataclass
class Served:
    ctx: Context
    optimizer: ChatModel
    plain_numbers: bool = False
    """True for recordings of this bench's first version, whose feedback on a wrong number had no unit and no kind of
    error."""
    requests: int = 0
    optimizer_tokens: int = 0
    trouble: str = ""
    """The last error, which may explain why the rival ended."""

    async def rollout(self, request: web.Request) -> web.Response:
        asked = await request.json()
        [item] = [item for item in self.ctx.env.items(asked["split"]) if item.id == asked["id"]]
        try:
            found = await roll_out_one(Skill(asked["skill"]), item, self.ctx, tag="rival", number=0, stage="evaluate")
        except ModelError as error:
            return self._failed(str(error))
        if isinstance(found, RolloutError):
            return self._failed(found.error)
        feedback = found.score.feedback if found.score.hard < 1 else ""
        if self.plain_numbers and (number := WRONG.fullmatch(feedback)):
            feedback = f"the number is wrong: got {float(number[1]):g}; {number[2]}"
        row = {"input": found.input, "output": found.output, "score": float(found.score.hard), "feedback": feedback}
        return web.json_response(row)

    async def chat(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.requests += 1
        try:
            reply = await self.optimizer.chat(ChatRequest(messages=tuple(asked["messages"]), seed=asked["seed"]))
        except ModelError as error:
            return self._failed(str(error))
        self.optimizer_tokens += reply.usage.prompt + reply.usage.completion
        return web.json_response({"choices": [{"message": {"role": "assistant", "content": reply.text}}]})

    def _failed(self, why: str) -> web.Response:
        self.trouble = why
        return web.Response(status=500, text=why)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Serve during the block; yields the server's URL."""
        app = web.Application(client_max_size=64 << 20)
        app.add_routes([web.post("/rollout", self.rollout), web.post("/chat/completions", self.chat)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


async def finished(command: list[str], env: dict[str, str], *, quiet: bool) -> int:
    """Run a process and return its exit code. If this call is cancelled, the process is ended."""
    shown = asyncio.subprocess.DEVNULL if quiet else None
    process = await asyncio.create_subprocess_exec(*command, env=env, stdout=shown, stderr=shown)
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
