"""Test a training with faults of a loopback server: rate limits, caps, resets, hangs and errors.

    python bench/weather.py            all tests, about two minutes
    python bench/weather.py cap        one test: every_fifth, refusals, storm, cap, budget

Each test prints its figures and their bounds. The exit code is 1 if a figure is out of its bounds.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from skillopt.config import BudgetConfig, Config, HardwareConfig
from skillopt.errors import SkillOptError, Stopped
from skillopt.models.base import Message
from skillopt.models.call import Budget, Caller, Endpoint, Limiter, Switch, gather_all
from skillopt.models.openai_chat import OpenAIChat
from skillopt.record.journal import Journal
from skillopt.training.trainer import Result, TrainingLoop

TASKS = "env.options={rules: 12, train: 24, val: 12, test: 12}"
PACE = ("latency=0.3", "optimizer_latency=1.0", "duds=0.2")


@contextmanager
def served(*options: str, api_key: str = "") -> Iterator[str]:
    """Run `skillopt sim serve` in a separate process during the block; yields its URL."""
    command = [sys.executable, "-m", "skillopt.cli", "sim", "serve", "--port", "0", "--api-key", api_key, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            yield server.stdout.readline().split()[3]
        finally:
            server.terminate()


def stats(url: str) -> dict[str, int]:
    with urllib.request.urlopen(url.removesuffix("/v1") + "/stats") as answer:
        return dict(json.load(answer))


@dataclass
class Measured:
    result: Result | None
    error: SkillOptError | None
    seconds: float
    requests: int
    turned_away: int


def train(url: str, out: Path, *overrides: str) -> Measured:
    both = ["models.target_model=vllm:sim", "models.optimizer_model=vllm:sim", f"hardware.vllm_url={url}"]
    basics = [TASKS, f"env.output_root={out}", "train.num_epochs=2", "train.batch_size=12", "hardware.workers=8"]
    config = Config.load("configs/sim/default.yaml", [*basics, *both, *overrides])
    started = time.monotonic()
    result, error = None, None
    try:
        result = asyncio.run(TrainingLoop(config).fit())
    except SkillOptError as stopped:
        error = stopped
    seconds = time.monotonic() - started
    count = stats(url)
    return Measured(result, error, seconds, count["requests"], count["turned_away"])


def every_fifth(out: Path) -> bool:
    """Test 429 with Retry-After 1 on every fifth request of a training that takes 6 s without faults."""
    pace = ("latency=0.1", "optimizer_latency=0.1", "duds=0.35")
    size = ("env.options={rules: 20, train: 48, val: 40, test: 60}", "train.num_epochs=1")
    strict = ("models.target_deterministic=true", "models.optimizer_deterministic=true")
    with served(*pace) as url:
        clean = train(url, out / "clean", *size, *strict)
    with served(*pace, "rate_limit_every=5", "retry_after=1") as url:
        rough = train(url, out / "rough", *size, *strict)
    assert clean.result
    assert rough.result
    ratio, most, allowed = rough.seconds / clean.seconds, (6 + 14) / 6, 1.3 * clean.requests
    print(f"every fifth 429: {clean.seconds:.1f} s and {clean.requests} requests without")
    print(f"  {rough.seconds:.1f} s, {ratio:.2f} times as long (at most {most:.2f})")
    print(f"  {rough.requests} requests (at most {allowed:.0f}), {rough.turned_away} of them turned away")
    same = clean.result.best_skill == rough.result.best_skill
    return same and ratio <= most and rough.requests <= allowed


def refusals(out: Path) -> bool:
    """Test that a wrong key ends a training at once."""
    with served(*PACE, api_key="right") as url:
        told = train(url, out / "key")
    print(f"401: ended after {told.seconds:.2f} s: {told.error}")
    return told.seconds < 2 and "401" in str(told.error)


def storm(out: Path) -> bool:
    """Test a training with 5 % hangs, 5 % resets and 5 % answers 500."""
    with served(*PACE) as url:
        clean = train(url, out / "clean")
    with served(*PACE, "hang=0.05", "reset=0.05", "server_error=0.05") as url:
        rough = train(url, out / "storm", "hardware.call_timeout=2")
    assert clean.result
    assert rough.result
    same = clean.result.best_skill == rough.result.best_skill
    print(f"storm: {clean.seconds:.1f} s clean, {rough.seconds:.1f} s in the storm (the timeout is 2 s)")
    print(f"  {rough.requests - clean.requests} requests more, same skill: {same}")
    return same and rough.result.summary["best"] == clean.result.summary["best"]


async def _many(url: str, calls: int, width: int) -> tuple[float, Endpoint]:
    """Do this many calls, at most `width` at once. Return the calls per second, and the endpoint's state."""
    with tempfile.TemporaryDirectory() as folder, Journal(Path(folder) / "journal.sqlite") as journal:
        model = OpenAIChat("vllm:sim", "sim", url=url, key_name="VLLM_API_KEY", key_needed=False)
        endpoint = Endpoint(width)
        caller = Caller(
            model=model,
            role="target",
            journal=journal,
            limiter=Limiter(width, endpoint),
            budget=Budget(BudgetConfig(), journal),
            switch=Switch(),
            hardware=HardwareConfig(max_retries=20),
            deterministic=True,
        )
        messages: list[list[Message]] = [[{"role": "user", "content": f"call {n}"}] for n in range(calls)]
        started = time.monotonic()
        await gather_all(caller(message, stage="rollout", label=str(n)) for n, message in enumerate(messages))
        await model.close()
        return calls / (time.monotonic() - started), endpoint


def cap(out: Path) -> bool:
    """Test a server that accepts 8 calls at once and answers 429 to more, with a client that may send 32 at once."""
    options = ("latency=0.2", "jitter=0.5", "most_in_flight=8")
    with served(*options) as url:
        fixed, _ = asyncio.run(_many(url, 400, 8))
    with served(*options) as url:
        adaptive, endpoint = asyncio.run(_many(url, 400, 32))
        away = stats(url)["turned_away"]
    print(f"cap of 8: {fixed:.1f} calls a second with a fixed 8, {adaptive:.1f} adaptive ({adaptive / fixed:.0%})")
    print(f"  settled at {endpoint.limit}, {away} of 400 turned away")
    return adaptive >= 0.85 * fixed and abs(endpoint.limit - 8) <= 1


def budget(out: Path) -> bool:
    """Test a training that stops at max_calls=150, and then continues with a higher limit."""
    with served("duds=0.2") as url:
        train(url, out / "whole")
        before = stats(url)["requests"]
        limited = train(url, out / "limited", "budget.max_calls=150")
        seen = stats(url)["requests"] - before
        rest = train(url, out / "limited", "budget.max_calls=5000")
        whole = train(url, out / "whole")
    assert rest.result
    assert whole.result
    same = rest.result.best_skill == whole.result.best_skill
    print(f"max_calls 150: the server saw {seen}, then {rest.requests - before - seen} more; same skill: {same}")
    return isinstance(limited.error, Stopped) and seen <= 150 and same


DRILLS: dict[str, Callable[[Path], bool]] = {d.__name__: d for d in (every_fifth, refusals, storm, cap, budget)}


def main(names: list[str]) -> int:
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names or list(DRILLS):
            out = Path(folder) / name
            if not DRILLS[name](out):
                failed.append(name)
    print(f"Failed: {', '.join(failed)}" if failed else "All bounds kept.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
