"""Measure how fast `local:` rollouts are on this machine, and how much memory they need.

    python bench/local.py > bench/local.md

Prints a page in Markdown. Takes some minutes. Other programs can only slow a round down, so the best round of each
setting counts. On a machine that does nothing else, the figures are the most exact.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from skillopt.models import weights
from skillopt.models.base import ChatReply, ChatRequest
from skillopt.models.local import LocalModel

NAME = "qwen2.5-coder-0.5b"
SKILL = """You triage support tickets of a web shop.

Answer in the form `team: <team>; urgency: <low or high>` and write nothing else.

The teams:
- billing: charges, refunds, invoices, vouchers, taxes.
- shipping: parcels, couriers, addresses, delays, customs.
- account: passwords, logins, e-mail addresses, deletion of data.
- technical: crashes, error messages, pages that do not load.

House rules:
- A refund for a parcel that never came goes to shipping, because shipping checks the courier first.
- A login that fails after a payment goes to billing, because the payment locks the account.
- A voucher that the page refuses goes to technical when it shows an error, else to billing.
- Urgency is high when money has left the customer's account or a parcel is lost, else low.
- Two complaints in one ticket: the one that costs the customer money decides.
"""
ROUNDS = 2
TICKETS = [
    "I was charged twice for order {n} this month, please send one of the payments back.",
    "The app shows error {n} whenever I open my basket on the phone.",
    "My parcel {n} should have come last week and the courier knows nothing.",
    "I cannot log in since yesterday, the code {n} in your mail is refused.",
    "Please put our VAT number on invoice {n}, the tax office wants it.",
    "The voucher {n} takes nothing off, although the page says it is valid.",
]


@dataclass
class Figures:
    rate: float
    cpu: float
    """Seconds of CPU per rollout. Other programs on the machine do not change this figure."""
    others: float
    """The share of the machine's CPU that other processes used during the measurement."""
    start: float
    memory: int
    each: int
    replies: list[ChatReply]


def request(number: int, skill: str) -> ChatRequest:
    ticket = TICKETS[number % len(TICKETS)].format(n=1000 + 37 * number)
    messages = ({"role": "system", "content": skill}, {"role": "user", "content": ticket})
    return ChatRequest(messages=messages, temperature=0.0, max_tokens=16)


async def measure(workers: int, prefix_cache: bool, rollouts: int) -> Figures:
    model = LocalModel(NAME, workers=workers, prefix_cache=prefix_cache)
    started = time.perf_counter()
    await asyncio.gather(*(model.chat(request(number, "Say ok.")) for number in range(workers)))
    loaded, used, busy = time.perf_counter(), sum(map(cpu_of, model.pids)), busy_cpu()
    replies = await asyncio.gather(*(model.chat(request(number, SKILL)) for number in range(rollouts)))
    ended = time.perf_counter()
    used, busy = sum(map(cpu_of, model.pids)) - used, busy_cpu() - busy
    memory = [memory_of(pid) for pid in model.pids]
    await model.close()
    return Figures(
        rate=rollouts / (ended - loaded), cpu=used / rollouts, start=loaded - started, replies=replies,
        others=max(0.0, busy - used) / (ended - loaded) / (os.cpu_count() or 1),
        memory=max(shared for shared, _ in memory) + sum(own for _, own in memory),
        each=max(own for _, own in memory),
    )  # fmt: skip


def busy_cpu() -> float:
    """Return the seconds of CPU that all cores together have used since the machine started."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system, _idle, _wait, irq, softirq = map(int, stat.read_text().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def cpu_of(pid: int) -> float:
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return 0.0
    ticks = stat.read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> tuple[int, int]:
    """Return a process's resident bytes: those of the weights, which all workers share, and its own."""
    rollup = Path(f"/proc/{pid}/smaps_rollup")
    if not rollup.exists():
        return 0, 0
    rows = dict(line.split(":", 1) for line in rollup.read_text().splitlines()[1:])
    resident, own = (int(rows[name].split()[0]) * 1024 for name in ("Rss", "Anonymous"))
    return resident - own, own


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


async def main() -> None:
    weights.resolve(NAME)
    settings = [(cache, workers) for cache in (True, False) for workers in (1, 2, 4)]
    best: dict[tuple[bool, int], Figures] = {}
    texts: dict[bool, set[tuple[str, ...]]] = {True: set(), False: set()}
    for number in range(1, ROUNDS + 1):
        for cache, workers in settings:
            figures = await measure(workers, cache, 36 if cache else 8)
            note = f"round {number}, prefix cache {'on' if cache else 'off'}, {workers} workers"
            print(f"{note}: {figures.rate:.2f} rollouts a second", file=sys.stderr)
            texts[cache].add(tuple(reply.text for reply in figures.replies))
            if (cache, workers) not in best or figures.rate > best[cache, workers].rate:
                best[cache, workers] = figures
    print(page(best, all(len(seen) == 1 for seen in texts.values())))


def page(best: dict[tuple[bool, int], Figures], same: bool) -> str:
    replies = best[True, 1].replies
    prompt, completion, cached = (
        sum(getattr(reply.usage, field) for reply in replies) / len(replies)
        for field in ("prompt", "completion", "cached")
    )
    lines = [
        "# `local:` models: speed and memory",
        "",
        "Made by `python bench/local.py > bench/local.md`. Measured, not estimated; on another machine the figures",
        "are others.",
        "",
        f"- {NAME}, {processor()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"xllamacpp {version('xllamacpp')}",
        f"- support tickets: {prompt:.0f} prompt tokens, of which {cached:.0f} are the skill's, and "
        f"{completion:.1f} reply tokens on average",
        "- one thread for each worker; all requests in flight at once; the evaluation of a new skill is included",
        f"- the best of {ROUNDS} rounds for each setting; what other processes used of the CPU stands beside it:",
        "  the less that is, the truer the rate",
        "",
        "| prefix cache | workers | rollouts | rollouts a second | CPU seconds a rollout | used by others "
        "| seconds to start | memory, all workers | of it beside the weights, each |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (cache, workers), figures in best.items():
        lines.append(
            f"| {'on' if cache else 'off'} | {workers} | {len(figures.replies)} | {figures.rate:.2f} "
            f"| {figures.cpu:.2f} | {figures.others:.0%} | {figures.start:.1f} "
            f"| {figures.memory / 1e6:,.0f} MB | {figures.each / 1e6:,.0f} MB |"
        )
    verdict = "the same" if same else "NOT the same"
    lines += [
        "",
        "Memory counts the weights, which all workers share, once.",
        f"The replies were {verdict} in every round and at every number of workers.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    asyncio.run(main())
