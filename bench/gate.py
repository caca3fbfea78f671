"""Measure how often the gates accept useless and better candidates, and how many rollouts they need.

    python bench/gate.py            # the tables of bench/gate_tables.md; about half an hour
    python bench/gate.py --trials 100
    python bench/gate.py --tables 3,5 --seeds 5 --first-seed 5

Tables 1 and 2 run the gates' decisions (training/gates/strict.py, training/gates/paired_test.py) on a target in memory,
thousands of times. Tables 3 to 5 are whole trainings in the simulated world.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from skillopt.config import Config
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json
from skillopt.sim.model import TOPICS, code_for, rules_in
from skillopt.statistics import smallest_detectable
from skillopt.tasks import open_env
from skillopt.tasks.base import Env
from skillopt.training.gates.paired import Screen
from skillopt.training.gates.paired_test import PairedTest
from skillopt.training.gates.strict import EarlyStop
from skillopt.training.trainer import TrainingLoop

ROOT = Path(__file__).parent.parent
SOLVED = 0.6
"""The share of items that the current skill truly solves."""


@dataclass
class World:
    """Items with a true outcome under each skill. Each rollout flips a share of the outcomes."""

    before: list[float]
    after: list[float]
    flips: float
    draw: random.Random
    metric: str = "hard"

    def sample(self, side: str, item: int) -> float:
        truth = (self.before if side == "current" else self.after)[item]
        if self.metric == "soft":
            return min(1.0, max(0.0, self.draw.gauss(truth, self.flips)))
        return float(1 - truth if self.draw.random() < self.flips else truth)


def make_world(items: int, better: int, flips: float, draw: random.Random) -> World:
    before = [1.0] * round(SOLVED * items)
    before += [0.0] * (items - len(before))
    draw.shuffle(before)
    after = list(before)
    for item in draw.sample([i for i, solved in enumerate(before) if not solved], better):
        after[item] = 1.0
    return World(before, after, flips, draw)


def make_soft_world(items: int, points: int, spread: float, draw: random.Random) -> World:
    """Make a world with scores from 0 to 1. Each rollout adds a normal error; half of the items gain by the change."""
    before = [draw.uniform(0.2, 0.7) for _ in range(items)]
    gaining = set(draw.sample(range(items), items // 2))
    after = [score + 2 * points / 100 * (item in gaining) for item, score in enumerate(before)]
    return World(before, after, spread, draw, "soft")


def play(world: World, gate: str) -> tuple[str, int]:
    """Return a gate's decision, and the rollouts that it needed."""
    order_by = [world.sample("current", item) for item in range(len(world.before))]
    current = {f"{item:03d}": value for item, value in enumerate(order_by)}
    order = sorted(current, key=lambda item: (current[item], item))
    progress = (EarlyStop if gate == "strict" else Screen)(order, current, "strict")
    progress.scores = {item: world.sample("candidate", int(item)) for item in order}
    if progress.beaten(order):
        return "reject", len(progress.deciding_prefix())
    if gate == "strict":
        return "accept", len(order)
    test = PairedTest(order, current, progress.scores, world.metric, "strict", alpha=0.05, max_repeats=5)
    asked = 0
    steps = test.run()
    try:
        asks = next(steps)
        while True:
            asked += len(asks)
            asks = steps.send([world.sample(ask.side, int(ask.item_id)) for ask in asks])
    except StopIteration as end:
        return str(end.value), len(order) + asked


def cell(items: int, better: int, flips: float, gate: str, trials: int) -> tuple[float, float]:
    """Return the share of accepted candidates, and the mean number of rollouts as a share of a full pass."""
    trials = min(trials, 50) if not flips else trials if items < 100 else max(50, trials // 3)
    draw = random.Random(f"{items}/{better}/{flips}")
    outcomes = [play(make_world(items, better, flips, draw), gate) for _ in range(trials)]
    return fmean(o[0] == "accept" for o in outcomes), fmean(o[1] for o in outcomes) / items


def decisions(trials: int) -> None:
    print(f"## 1. Decisions ({trials} trials a cell; 50 without flips, a third with 200 items)\n")
    print("strict → paired: share accepted. In brackets: rollouts of paired in full passes.\n")
    print("| items | flips | do-nothing | +5 points | +10 points | +20 points | smallest gain found (estimate) |")
    print("|---|---|---|---|---|---|---|")
    for items in (17, 24, 40, 53, 200):
        for flips in (0.0, 0.02, 0.05, 0.1, 0.2):
            shown = []
            for points in (0, 5, 10, 20):
                better = round(points / 100 * items)
                strict, _ = cell(items, better, flips, "strict", trials)
                paired, calls = cell(items, better, flips, "paired", trials)
                shown.append(f"{strict:.0%} → {paired:.1%} ({calls:.1f})")
            least = f"{100 * smallest_detectable(items, flips):.0f} points"
            print(f"| {items} | {flips:.0%} | {' | '.join(shown)} | {least} |", flush=True)


def soft_decisions(trials: int) -> None:
    print(f"\n## 2. Decisions on soft scores ({trials} trials a cell)\n")
    print("The spread is the standard deviation of one rollout's score; half of the items gain twice the points.\n")
    print("| items | spread | do-nothing | +5 points | +10 points |")
    print("|---|---|---|---|---|")
    for items in (24, 40):
        for spread in (0.05, 0.2):
            shown = []
            for points in (0, 5, 10):
                outcomes: dict[str, list[tuple[str, int]]] = {}
                for gate in ("strict", "paired"):
                    draw = random.Random(f"soft/{items}/{points}/{spread}")
                    worlds = (make_soft_world(items, points, spread, draw) for _ in range(trials))
                    outcomes[gate] = [play(world, gate) for world in worlds]
                strict, paired = (fmean(o[0] == "accept" for o in rows) for rows in outcomes.values())
                calls = fmean(o[1] for o in outcomes["paired"]) / items
                shown.append(f"{strict:.0%} → {paired:.1%} ({calls:.1f})")
            print(f"| {items} | {spread} | {' | '.join(shown)} |", flush=True)


WORLD = "env.options={rules: 24, train: 48, val: 48, test: 48}"
STEPS = {
    "4 edits": ["train.num_epochs=4", "train.batch_size=12", "optimizer.learning_rate=4"],
    "10 edits": ["train.num_epochs=5", "train.batch_size=16", "optimizer.learning_rate=10"],
    "12 edits": ["train.num_epochs=6", "train.batch_size=24", "optimizer.learning_rate=12"],
}
"""Three sizes of steps. The larger a step, the larger its gain, and the less noise matters."""


def end_to_end(seeds: range) -> None:
    print("\n## 3. Whole trainings: 24 rules, 48 items a split, 10 % flips, half of the proposals duds\n")
    print("True scores are reckoned from the rules in the skill, without noise.\n")
    names = "true test | true val | reported val | measured again | accepted | no better | rollouts"
    print(f"| steps | gate | seed | {names} |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for size in STEPS:
        for gate in ("strict", "paired"):
            rows = [noisy_training(gate, seed, size) for seed in seeds]
            for row in rows:
                print(f"| {size} | {gate} | {' | '.join(_plain(value) for value in row)} |")
            means = [fmean(row[n] for row in rows) for n in range(1, 5)]
            accepted, worse = sum(row[5] for row in rows), sum(row[6] for row in rows)
            shown = [*means, accepted, f"{worse} ({worse / max(1, accepted):.0%})", fmean(row[7] for row in rows)]
            print(f"| {size} | {gate} | **mean** | {' | '.join(_plain(value) for value in shown)} |", flush=True)


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.2f}" if isinstance(value, float) and value < 10 else f"{value:.0f}"


def noisy_training(gate: str, seed: int, size: str) -> tuple[Any, ...]:
    models = [
        f"models.target_model=sim:world?noise=0.1&seed={seed}",
        f"models.optimizer_model=sim:world?duds=0.5&seed={seed}",
    ]
    with tempfile.TemporaryDirectory() as out:
        config = _config(out, seed, f"evaluation.gate={gate}", *models, WORLD, *STEPS[size])
        env = open_env(config)
        result = asyncio.run(TrainingLoop(config).fit())
        run = RunDirectory(result.path)
        history = read_json(run.history)
        accepted = [record for record in history if record["verdict"] == "accept"]
        versions = [run.read_skill(record["version"]).text for record in accepted]
        parents = [run.read_skill(record["version"] - 1).text for record in accepted]
        pairs = zip(parents, versions, strict=True)
        worse = sum(true_score(env, child, "val") <= true_score(env, parent, "val") for parent, child in pairs)
        best, summary = result.best_skill.text, result.summary
    scores = [true_score(env, best, "test"), true_score(env, best, "val")]
    reported = [summary["best"]["val"], summary["best"]["val_remeasured"]]
    return (seed, *scores, *reported, len(accepted), worse, summary["calls"]["target"])


def true_score(env: Env, skill: str, split: str) -> float:
    """Return the score that the skill would have if the simulated target had no noise."""
    rules = rules_in(skill)
    solved = 0
    for item in env.items(split):
        asked = re.search(r"codes? for: ([a-z, ]+)\.", item.question)
        assert asked
        solved += " ".join(rules.get(topic.strip(), "unknown") for topic in asked[1].split(",")) == item.answers[0]
    return solved / len(env.items(split))


def rejected_steps(seeds: range) -> None:
    print("\n## 4. What a rejected step costs in the deterministic world (strict, half of the proposals duds)\n")
    print("An edit that changes nothing has lost when as many items have failed as the current skill fails: the")
    print("share of those is the floor. That the decision is a full pass's is a property test")
    print("(tests/training/test_gate.py).\n")
    print("| rules known at the start | validation at the start | rejected steps | rollouts, of a full pass |")
    print("|---|---|---|---|")
    every: list[float] = []
    for known in (3, 10, 14):
        costs: list[float] = []
        for seed in seeds:
            with tempfile.TemporaryDirectory() as out:
                skill = Path(out) / "skill.md"
                lines = [f"- For {topic}, answer {code_for(topic, 0)}.\n" for topic in TOPICS[:known]]
                skill.write_text("# Skill\n\n## Rules\n\n" + "".join(lines))
                optimizer = f"models.optimizer_model=sim:world?duds=0.5&seed={seed}"
                result = asyncio.run(TrainingLoop(_config(out, seed, optimizer, f"train.init_skill={skill}")).fit())
                gates = [read_json(path) for path in sorted(RunDirectory(result.path).steps.glob("*/gate.json"))]
            costs += [g["telemetry"]["rollouts"] / g["items"] for g in gates if g["decision"] == "reject"]
        print(
            f"| {known} of 20 | {result.summary['initial']['val']:.2f} | {len(costs)} | {fmean(costs):.0%} |",
            flush=True,
        )
        every += costs
    print(f"| all | | {len(every)} | {fmean(every):.0%} |")


def credit(seeds: range) -> None:
    print("\n## 5. A rejected step taken apart (`evaluation.credit_gates`), in short trainings of 8 steps of 4 edits\n")
    print("| flips | useless edits | credit gates | true test | steps rejected | rollouts |")
    print("|---|---|---|---|---|---|")
    for flips, duds in ((0.0, 0.35), (0.0, 0.6), (0.0, 0.8), (0.1, 0.5), (0.1, 0.8)):
        for gates in (0, 1, 2):
            rows = [short_training(flips, duds, gates, seed) for seed in seeds]
            test, rejected, paid = (fmean(row[n] for row in rows) for n in range(3))
            print(f"| {flips:.0%} | {duds:.0%} | {gates} | {test:.2f} | {rejected:.1f} | {paid:.0f} |", flush=True)


def short_training(flips: float, duds: float, gates: int, seed: int) -> tuple[float, int, int]:
    overrides = [
        f"models.target_model=sim:world?noise={flips}&seed={seed}",
        f"models.optimizer_model=sim:world?duds={duds}&seed={seed}",
        f"evaluation.credit_gates={gates}",
        "train.num_epochs=2",
    ]
    with tempfile.TemporaryDirectory() as out:
        config = _config(out, seed, *overrides)
        env = open_env(config)
        result = asyncio.run(TrainingLoop(config).fit())
    summary = result.summary
    true = true_score(env, result.best_skill.text, "test")
    return true, summary["steps"]["rejected"], summary["calls"]["target"]


def _config(out: str, seed: int, *overrides: str) -> Config:
    own = [f"env.output_root={out}", f"train.seed={seed}"]
    return Config.load(ROOT / "configs" / "sim" / "default.yaml", [*own, *overrides])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--tables", default="1,2,3,4,5")
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    tables = {
        "1": lambda: decisions(arguments.trials),
        "2": lambda: soft_decisions(max(1, arguments.trials // 10)),
        "3": lambda: end_to_end(seeds),
        "4": lambda: rejected_steps(seeds),
        "5": lambda: credit(seeds),
    }
    for table in arguments.tables.split(","):
        tables[table]()
