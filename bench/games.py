"""Measure whether games run in parallel, with one call at once and with several: python bench/games.py

The player is simulated and takes a fixed time per call, like an endpoint. The games are real TextWorld games in worker
processes. Prints a Markdown table. The first run also makes the games.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

from skillopt.config import Config
from skillopt.models.base import ChatReply, ChatRequest, Message
from skillopt.sim.model import SimOptions
from skillopt.skill import Skill
from skillopt_benchmarks.games import TextWorldEnv

REPO = Path(__file__).parent.parent
sys.path.insert(0, str(REPO / "tests"))

from support.simulated_player import SimulatedPlayer  # noqa: E402 - it stands with the tests

RULES = "\n".join(
    f'- Use "{verb}" when the goal asks for it.'
    for verb in ["go", "take", "open", "unlock", "close", "lock", "put", "insert", "drop", "eat"]
)


class Limited:
    """Limits the player to `width` calls at once, and counts the calls."""

    def __init__(self, player: SimulatedPlayer, width: int) -> None:
        self._player = player
        self._slots = asyncio.Semaphore(width)
        self.calls = 0

    async def __call__(self, messages: list[Message], *, tools: object = ()) -> ChatReply:
        async with self._slots:
            self.calls += 1
            return await self._player.chat(ChatRequest(messages=tuple(messages)))


async def play(env: TextWorldEnv, items: list[object], latency: float, width: int) -> tuple[float, int, float]:
    chat = Limited(SimulatedPlayer("sim:player", SimOptions(latency=latency)), width)
    start = time.monotonic()
    episodes = await asyncio.gather(*(env.run(item, Skill(RULES), chat) for item in items))  # type: ignore[arg-type]
    won = sum(episode.score.hard for episode in episodes if episode.score) / len(episodes)
    return time.monotonic() - start, chat.calls, won


async def main(latency: float, games: int) -> None:
    env = TextWorldEnv(Config.load(REPO / "configs" / "textworld" / "mini.yaml").env)
    items = [item for split in ("train", "val", "test") for item in env.items(split)][:games]
    try:
        for item in items:
            await env.game_file(item)
        await play(env, list(items), 0, 8)  # starts the processes and fills the cache
        print(f"{len(items)} games, {latency:g} s a call, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
        print("| calls in flight | seconds | calls | won | speed-up |\n|---|---|---|---|---|")
        first = 0.0
        for width in (1, 2, 4, 8, 16):
            seconds, calls, won = await play(env, list(items), latency, width)
            first = first or seconds
            print(f"| {width} | {seconds:.1f} | {calls} | {won:.2f} | {first / seconds:.1f} |")
    finally:
        env.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency", type=float, default=0.3)
    parser.add_argument("--games", type=int, default=16)
    given = parser.parse_args()
    asyncio.run(main(given.latency, given.games))
