"""Measure how often `skillopt check` is wrong, how often it finds a real difference, and what it costs.

    python bench/check.py               # the tables of bench/check_tables.md; a few minutes
    python bench/check.py --trials 100

Runs the decisions of the check (measure/sequential.py) on a target in memory. A full pass is every item once under
both skills.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from dataclasses import dataclass
from statistics import fmean

from skillopt.measure.sequential import Trial
from skillopt.training.gates.paired_test import Ask

SOLVED = 0.6
"""The share of items that the base skill truly solves."""


@dataclass
class World:
    """For each item, the chance that it is solved: under the base skill and under the other skill."""

    base: list[float]
    skill: list[float]
    noisy: bool
    draw: random.Random

    def sample(self, ask: Ask) -> float:
        chance = (self.base if ask.side == "current" else self.skill)[int(ask.item_id)]
        return float(self.draw.random() < chance)


def flipping(items: int, points: float, flips: float, draw: random.Random) -> World:
    """Make a world in which items are solved or not, some outcomes flip at random, and a change moves whole items."""
    before = [float(n < round(SOLVED * items)) for n in range(items)]
    draw.shuffle(before)
    after = list(before)
    able = [n for n, solved in enumerate(before) if solved == (points < 0)]
    for item in draw.sample(able, round(abs(points) / 100 * items)):
        after[item] = 1 - after[item]
    base, skill = ([truth * (1 - flips) + (1 - truth) * flips for truth in side] for side in (before, after))
    return World(base, skill, flips > 0, draw)


def spread_out(items: int, points: float, draw: random.Random) -> World:
    """Make a world in which a change moves every item's chance a little. Such a change is the hardest to detect."""
    base = [draw.uniform(0.25, 0.95) for _ in range(items)]
    return World(base, [chance + points / 100 for chance in base], True, draw)


def shuffled(items: int, churn: float, draw: random.Random) -> World:
    """Make a world with a deterministic target, in which a change of words gives some items a new random outcome."""
    base = [float(n < round(SOLVED * items)) for n in range(items)]
    skill = [float(draw.random() < SOLVED) if draw.random() < churn else solved for solved in base]
    draw.shuffle(order := list(range(items)))
    return World([base[n] for n in order], [skill[n] for n in order], False, draw)


def play(world: World, margin: float) -> tuple[str, float]:
    """Return the verdict, and its cost in full passes of both skills."""
    order = [str(n) for n in range(len(world.base))]
    trial = Trial(order=order, noisy=world.noisy, margin=margin)
    steps, asked = trial.play(), 0
    try:
        asks = next(steps)
        while True:
            asked += len(asks)
            asks = steps.send([world.sample(ask) for ask in asks])
    except StopIteration as end:
        return str(end.value), asked / (2 * len(order))


def cell(worlds: list[World], margin: float = 0.05) -> tuple[Counter[str], float]:
    """Return the share of each verdict, and the mean cost."""
    outcomes = [play(world, margin) for world in worlds]
    counts = Counter({word: count / len(outcomes) for word, count in Counter(word for word, _ in outcomes).items()})
    return counts, fmean(cost for _, cost in outcomes)


def flips_table(trials: int) -> None:
    print(f"## 1. Whole items change ({trials} trials a cell; 50 without flips; margin 0.05)\n")
    print("In brackets: mean cost in full passes of both skills.\n")
    unchanged, changed = "nothing changed: better or worse | no worse", "-10 points: worse | -20: worse"
    print(f"| items | flips | {unchanged} | {changed} | +10: better | +20: better |")
    print("|---|---|---|---|---|---|---|---|")
    for items in (24, 40, 100):
        for flips in (0.0, 0.02, 0.05, 0.1, 0.2):
            count = trials if flips else 50
            shown = []
            for points, word in ((0, ""), (-10, "worse"), (-20, "worse"), (10, "better"), (20, "better")):
                draw = random.Random(f"check/{items}/{points}/{flips}")
                counts, cost = cell([flipping(items, points, flips, draw) for _ in range(count)])
                if word:
                    shown.append(f"{counts[word]:.0%} ({cost:.1f})")
                else:
                    shown += [f"{counts['better'] + counts['worse']:.1%}", f"{counts['no worse']:.0%} ({cost:.1f})"]
            print(f"| {items} | {flips:.0%} | {' | '.join(shown)} |", flush=True)


def spread_table(trials: int) -> None:
    print(f"\n## 2. All items change a little ({trials} trials a cell; margin 0.05)\n")
    print("Chances to solve an item lie between 0.25 and 0.95 under the base.\n")
    unchanged = "nothing changed: better or worse | no worse"
    print(f"| items | {unchanged} | -5 points: worse | no worse | -10 points: worse | no worse | cost at -10 |")
    print("|---|---|---|---|---|---|---|---|")
    for items in (40, 100, 200):
        shown = []
        for points in (0, -5, -10):
            draw = random.Random(f"spread/{items}/{points}")
            counts, cost = cell([spread_out(items, points, draw) for _ in range(trials)])
            wrong = f"{counts['better'] + counts['worse']:.1%}" if not points else f"{counts['worse']:.0%}"
            shown += [wrong, f"{counts['no worse']:.0%}"]
        print(f"| {items} | {' | '.join(shown)} | {cost:.1f} |", flush=True)


def margin_table(trials: int) -> None:
    print(f"\n## 3. A drop of exactly the margin ({trials} trials a cell)\n")
    print("It is called no worse by mistake in this share of the cases; 5 % are allowed.\n")
    print("| items | flips | drop in truth | no worse | worse | cannot tell |")
    print("|---|---|---|---|---|---|")
    for items, flips, points in ((40, 0.02, -10), (40, 0.1, -10), (40, 0.2, -10), (100, 0.05, -5), (100, 0.1, -5)):
        margin = -points / 100 * (1 - 2 * flips)
        draw = random.Random(f"margin/{items}/{flips}")
        counts, _ = cell([flipping(items, points, flips, draw) for _ in range(trials)], margin)
        print(
            f"| {items} | {flips:.0%} | {margin:.3f} | {counts['no worse']:.1%} | {counts['worse']:.0%} | "
            f"{counts['cannot tell']:.0%} |",
            flush=True,
        )


def churn_table(trials: int) -> None:
    print(f"\n## 4. Other words, a deterministic target ({trials} trials a cell; margin 0.05)\n")
    print("The share of items whose outcome is drawn anew; the skill is neither better nor worse in truth.\n")
    print("| items | drawn anew | better | no worse | worse | cannot tell |")
    print("|---|---|---|---|---|---|")
    for items in (40, 100):
        for churn in (0.1, 0.2, 0.4):
            draw = random.Random(f"churn/{items}/{churn}")
            counts, _ = cell([shuffled(items, churn, draw) for _ in range(trials)])
            shown = (f"{counts[word]:.1%}" for word in ("better", "no worse", "worse", "cannot tell"))
            print(f"| {items} | {churn:.0%} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=400)
    arguments = parser.parse_args()
    flips_table(arguments.trials)
    spread_table(max(1, arguments.trials // 2))
    margin_table(arguments.trials)
    churn_table(arguments.trials)
