"""Count SkillOpt's functions between `fit` and the socket: python scripts/count_frames.py [--most N]

Trains in the simulated world against a server on loopback. At each HTTP request, the script walks from the request up
to `fit`: the functions on the stack and, if these run in a separate task, the coroutines that started the task. It
prints the longest chain of each stage, without `fit` itself. Exit code 1 if the chain of a step's rollout is longer
than `--most`.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import sys
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from types import FrameType
from typing import Any

import aiohttp

from skillopt.config import Config
from skillopt.sim.model import SimOptions
from skillopt.sim.server import SimServer
from skillopt.training.trainer import TrainingLoop

REPO = Path(__file__).resolve().parents[1]
SOURCES = str(REPO / "src" / "skillopt")


class Chains:
    """Records the longest chain of functions to a request, and the coroutines that started each task."""

    def __init__(self) -> None:
        self.started_by: dict[asyncio.Task[Any], list[str]] = {}
        self.longest: dict[str, list[str]] = {}

    def new_task(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any) -> Any:
        """A task factory that remembers which coroutines started the task."""
        above = self.chain(sys._getframe(), coroutines_only=True)
        task = asyncio.Task(work, loop=loop, **options)
        self.started_by[task] = above
        return task

    def chain(self, frame: FrameType | None, *, coroutines_only: bool = False) -> list[str]:
        """Return SkillOpt's functions from `fit` down to this frame."""
        names = []
        while frame is not None:
            code = frame.f_code
            if code.co_filename.startswith(SOURCES) and (not coroutines_only or code.co_flags & inspect.CO_COROUTINE):
                names.append(f"{Path(code.co_filename).relative_to(REPO / 'src')}: {code.co_qualname}")
            frame = frame.f_back
        task = asyncio.current_task()
        above = self.started_by.get(task, []) if task else []
        return [*above, *reversed(names)]

    def requested(self, frame: FrameType) -> None:
        chain = self.chain(frame)
        start = next((number for number, name in enumerate(chain) if name.endswith(": TrainingLoop.fit")), None)
        if start is None:  # the server's own work
            return
        chain = chain[start + 1 :]
        stage = chain[0]
        if len(chain) > len(self.longest.get(stage, ())):
            self.longest[stage] = chain


async def longest_chains() -> dict[str, list[str]]:
    """Return the longest chain to a request for each function that `fit` calls."""
    chains = Chains()
    runner, port = await SimServer(SimOptions()).start()
    asyncio.get_running_loop().set_task_factory(chains.new_task)
    send = aiohttp.ClientSession._request

    async def request(self: aiohttp.ClientSession, *args: Any, **options: Any) -> Any:
        chains.requested(sys._getframe())
        return await send(self, *args, **options)

    with tempfile.TemporaryDirectory() as folder:
        overrides = [f"env.output_root={folder}", f"hardware.vllm_url=http://127.0.0.1:{port}/v1"]
        overrides += [f"models.{role}_model=vllm:sim" for role in ("target", "optimizer")]
        config = Config.load(REPO / "configs" / "sim" / "default.yaml", overrides)
        aiohttp.ClientSession._request = request  # type: ignore[method-assign]
        try:
            await TrainingLoop(config).fit()
        finally:
            aiohttp.ClientSession._request = send  # type: ignore[method-assign]
            asyncio.get_running_loop().set_task_factory(None)
            await runner.cleanup()
    return chains.longest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, help="exit with 1 if the chain of a rollout has more functions")
    most = parser.parse_args().most
    chains = asyncio.run(longest_chains())
    for chain in sorted(chains.values(), key=len):
        print(f"{len(chain)} functions between fit and the socket")
        print("".join(f"  {name}\n" for name in chain))
    rollout = len(chains["skillopt/training/rollout.py: roll_out_one"])
    print(f"a rollout of a step: {rollout}; the longest: {max(map(len, chains.values()))}")
    return int(most is not None and rollout > most)


if __name__ == "__main__":
    raise SystemExit(main())
