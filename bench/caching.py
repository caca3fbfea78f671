"""Measure what an endpoint's prompt cache saves: the cost of recorded runs with and without the cache, as a ratio.

    python bench/caching.py                     # the runs of bench/learning/recordings with an LLM as optimizer
    python bench/caching.py --model openai:gpt-4o-mini RUN [RUN …]      # runs' folders, from the billed tokens

A recording has the prompt tokens of each reply, and how many of them (the skill) were in the target's cache. At the
model's list price (genai-prices), these tokens are read from the cache, and each version of the skill is written into
it once. A prefix too short for the provider's cache costs the full price. Only the target's calls are counted.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean

from skillopt.models.base import Usage
from skillopt.models.prices import cost_of, list_price
from skillopt.provider_table import provider_of
from skillopt.record.directory import RunDirectory
from skillopt.record.journal import read_totals

RECORDINGS = Path(__file__).parent / "learning" / "recordings"
MODELS = ("anthropic:claude-sonnet-4-5", "openai:gpt-4o-mini")


def recorded(path: Path, least: int) -> Usage:
    """Return the target's tokens in a recording, as if prefixes of at least `least` tokens were cached."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    tokens = [row["tokens"] for row in rows if row["role"] == "target"]
    cached = [shared for _, _, shared in tokens if shared >= least]
    written = sum(set(cached))
    return Usage(
        prompt=sum(each[0] for each in tokens),
        completion=sum(each[1] for each in tokens),
        cached=sum(cached) - written,
        written=written,
    )


def billed(run: Path) -> Usage:
    """Return the target's tokens as a run's endpoint reported them."""
    totals = [total for total in read_totals(RunDirectory(run).journal) if total.role == "target"]
    return Usage(
        prompt=sum(total.prompt_tokens for total in totals),
        completion=sum(total.completion_tokens for total in totals),
        cached=sum(total.cached_tokens for total in totals),
        written=sum(total.written_tokens for total in totals),
    )


def ratio(usage: Usage, model: str) -> tuple[float, float]:
    """Return the dollars without a cache, and the share of them that is paid with a cache."""
    price = list_price(model)
    plain, cached = cost_of(Usage(prompt=usage.prompt, completion=usage.completion), price), cost_of(usage, price)
    assert plain
    assert cached
    return plain, cached / plain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--model", action="append", help="the model whose list price counts")
    options = parser.parse_args()
    for model in options.model or MODELS:
        least = provider_of(model).cached_from
        print(f"{model}: prefixes of {least:,} tokens and more are cached")
        print(f"  {'run':<36}{'prompt':>10}{'read':>8}{'written':>9}{'without':>10}{'with':>8}")
        shares = []
        for path in options.runs or sorted(RECORDINGS.glob("*-handoff-ours-*.jsonl")):
            usage = billed(path) if options.runs else recorded(path, least)
            plain, share = ratio(usage, model)
            shares.append(share)
            read, written = usage.cached / usage.prompt, usage.written / usage.prompt
            row = f"  {path.stem:<36}{usage.prompt:>10,}{read:>8.0%}{written:>9.1%}{f'${plain:.4f}':>10}{share:>7.0%}"
            print(row)
        print(f"  mean of {len(shares)} runs: {mean(shares):.0%} of the cost without a cache\n")


if __name__ == "__main__":
    main()
