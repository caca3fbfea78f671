"""(b) Compare rollouts per second with a bare aiohttp loop that sends the same bodies to a server without delay.

    python bench/throughput.py

Everything is on: limiter, budget, the durable journal, trajectories, scores. The server runs in a separate process.
Rollouts and loop take turns, so other load on the machine slows both.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from skillopt.config import Config
from skillopt.models.openai_chat import OpenAIChat
from skillopt.record.directory import RunDirectory
from skillopt.record.events import Events
from skillopt.record.journal import Journal
from skillopt.sim.env import SimEnv
from skillopt.skill import Skill
from skillopt.training.callers import make_callers
from skillopt.training.context import Context
from skillopt.training.rollout import rollout

REPLY = {
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "KX-42"}}],
    "usage": {"prompt_tokens": 80, "completion_tokens": 5, "total_tokens": 85},
}
WORKERS = 32


async def _serve(pipe: Any) -> None:
    async def chat(request: web.Request) -> web.Response:
        await request.read()
        return web.json_response(REPLY)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    pipe.send(int(runner.addresses[0][1]))
    await asyncio.Event().wait()


def _served(pipe: Any) -> None:
    asyncio.run(_serve(pipe))


@contextmanager
def instant_server() -> Iterator[str]:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_served, args=(there,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}/v1"
    finally:
        process.terminate()
        process.join()


async def bare(url: str, bodies: list[dict[str, Any]]) -> float:
    """Return the calls per second of the shortest loop that does the same calls."""
    queue = iter(bodies)

    async def worker(session: aiohttp.ClientSession) -> None:
        for body in queue:
            async with session.post(f"{url}/chat/completions", json=body) as response:
                (await response.json())["choices"][0]["message"]["content"]

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        started = time.monotonic()
        await asyncio.gather(*(worker(session) for _ in range(WORKERS)))
        return len(bodies) / (time.monotonic() - started)


async def ours(url: str, items: int, folder: Path, skill_text: str = "") -> tuple[float, float]:
    """Return SkillOpt's rollouts per second, scored and journalled, and the milliseconds of CPU per rollout."""
    options = f"env.options={{rules: 20, train: {items}, val: 1, test: 1}}"
    config = Config.load("configs/sim/default.yaml", [options, f"hardware.workers={WORKERS}"])
    env, run = SimEnv(config.env), RunDirectory(folder)
    folder.mkdir(parents=True)
    model = OpenAIChat("vllm:sim", "sim", url=url, key_name="VLLM_API_KEY", key_needed=False)
    with Journal(run.journal) as journal, Events(run.events) as events:
        callers, _, _ = make_callers(config, journal, {"target": model})
        target = callers["target"]
        ctx = Context(config=config, env=env, target=target, optimizer=target, run=run, events=events)
        skill = Skill(skill_text or Path("data/sim/seed_skill.md").read_text())
        started, cpu = time.monotonic(), time.process_time()
        results = await rollout(skill, env.items("train"), ctx)
        seconds, cpu = time.monotonic() - started, time.process_time() - cpu
        assert len(results) == items
    await model.close()
    return items / seconds, 1000 * cpu / items


def by_skill_length(url: str, out: Path) -> list[tuple[int, float]]:
    """Return the CPU milliseconds per rollout for skills of several lengths in tokens."""
    rows = []
    for lines in (0, 80, 330, 660):
        text = "# Rules\n" + "".join(f"- For case {n}, answer with the code {n * 7919 % 9973}.\n" for n in range(lines))
        _, cpu = asyncio.run(ours(url, 1000, out / f"skill-{lines}", text))
        rows.append((Skill(text).tokens, cpu))
    return rows


def main(items: int = 2000, rounds: int = 7) -> dict[str, Any]:
    config = Config.load("configs/sim/default.yaml", [f"env.options={{rules: 20, train: {items}, val: 1, test: 1}}"])
    skill = Path("data/sim/seed_skill.md").read_text()
    bodies = [
        {
            "model": "sim",
            "messages": [{"role": "system", "content": skill}, {"role": "user", "content": item.question}],
            "temperature": 0.0,
            "max_tokens": 1024,
        }
        for item in SimEnv(config.env).items("train")
    ]
    rows = []
    with instant_server() as url, tempfile.TemporaryDirectory() as out:
        asyncio.run(bare(url, bodies[:200]))
        for number in range(rounds):
            rows.append((asyncio.run(bare(url, bodies)), *asyncio.run(ours(url, items, Path(out) / str(number)))))
        lengths = by_skill_length(url, Path(out))
    plain, full, cpu = (statistics.median(column) for column in zip(*rows, strict=True))
    share = statistics.median(row[1] / row[0] for row in rows)
    found = {"bare": plain, "ours": full, "share": share, "cpu_ms": cpu, "rounds": rows}
    return found | {"cpu_ms_by_skill_tokens": lengths}


if __name__ == "__main__":
    print(main())
