"""Measure what each mechanism of the training gains: the simulated world, ten seeds, one mechanism off at a time.

    python bench/ablations.py            # about 1,000 short trainings; a stopped run continues
    python bench/ablations.py --table    # only fill docs/results.md

There are four worlds (`WORLDS`), each with 24 hidden rules. Many edits of the optimizer are useless or harmful, and a
fifth of the tasks fail for a common cause. Scores are true scores: the share of the test tasks that the rules in a
skill solve, without noise. Differences are paired by seed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from learning.mechanisms import MECHANISMS, NOTHING, Off
from learning.table import fill

from skillopt.config import Config
from skillopt.record.directory import RunDirectory
from skillopt.record.files import write_atomic
from skillopt.sim.optimizer import ASKED, SEALED, SEALED_RULE, rules_in
from skillopt.statistics import seeds_interval
from skillopt.tasks import open_env
from skillopt.tasks.base import Env
from skillopt.training.trainer import TrainingLoop

REPO = Path(__file__).resolve().parent.parent
PAGE = REPO / "docs" / "results.md"
RESULTS = Path(__file__).resolve().parent / "learning" / "ablations.json"
SEEDS = range(1, 11)
ENOUGH = 0.9
"""The true test score at which the count of rollouts ends."""
SETTINGS = (
    "train.num_epochs=4",
    "train.batch_size=12",
    "optimizer.learning_rate=6",
    "optimizer.lr_scheduler=auto",
    "gradient.minibatch_size=4",
    "env.options={rules: 24, train: 48, val: 48, test: 96, systemic: 0.2}",
    "evaluation.baselines=false",
)


@dataclass(frozen=True, kw_only=True)
class World:
    said: str
    target: str = "sim:world"
    optimizer: str = "sim:world?duds=0.35"
    settings: tuple[str, ...] = ()


NOISY = "sim:world?noise=0.1"
WORLDS = {
    "quiet": World(said="the target always answers the same"),
    "noisy": World(said="the target flips every tenth outcome", target=NOISY),
    "short": World(
        said="the noisy target, four of five edits are duds, and only half of the steps",
        target=NOISY,
        optimizer="sim:world?duds=0.8",
        settings=("train.num_epochs=2",),
    ),
    "wordy": World(said="the optimizer says everything three times", optimizer="sim:world?duds=0.35&paraphrase=1"),
}


OFF = {off.said: off for off in (NOTHING, *MECHANISMS.values())}
Row = dict[str, Any]


def train(world: str, name: str, seed: int) -> Row:
    return {"world": world, "off": name, "seed": seed, **trained(WORLDS[world], OFF[name], seed)}


def trained(here: World, off: Off, seed: int) -> Row:
    """Run one training, and return its figures."""
    target = f"{here.target}&seed={seed}" if "?" in here.target else here.target
    models = [f"models.target_model={target}", f"models.optimizer_model={here.optimizer}&seed={seed}"]
    with tempfile.TemporaryDirectory() as out:
        overrides = [f"env.output_root={out}", f"train.seed={seed}", *models, *SETTINGS, *here.settings, *off.settings]
        with off.applied(Config.load(REPO / "configs" / "sim" / "default.yaml", overrides)) as config:
            result = asyncio.run(TrainingLoop(config, parts=off.parts(config)).fit())
        env, run = open_env(config), RunDirectory(result.path)
        history = result.history
        last = run.read_skill(history[-1]["version"]).text if off.gate else result.best_skill.text
        scores = {row["version"]: true_score(env, run.read_skill(row["version"]).text) for row in history}
        reached = [_paid(row) for row in history if scores[row["version"]] >= ENOUGH]
    total = _paid(history[-1])
    return {
        "test": true_score(env, last),
        "rollouts": reached[0] if reached else total,
        "reached": bool(reached) or true_score(env, last) >= ENOUGH,  # also by guidance after the last step
        "paid": total,
        "calls": result.summary["calls"]["optimizer"],
    }


def _paid(row: Row) -> int:
    return int(row["telemetry"]["paid_so_far"]["target"]["calls"])


def true_score(env: Env, skill: str) -> float:
    """Return the share of the test tasks that the rules in a skill solve."""
    rules, items = rules_in(skill), env.items("test")
    solved = 0
    for item in items:
        asked = ASKED.search(item.question)
        assert asked
        answer = [rules.get(topic.strip(), "unknown") for topic in asked[1].split(",")]
        answer += ["SEALED"] if SEALED in item.question and SEALED_RULE in skill else []
        solved += " ".join(answer) == item.answers[0]
    return solved / len(items)


def all_runs(worlds: list[str], seeds: range) -> Iterator[tuple[str, str, int]]:
    for seed in seeds:
        for world in worlds:
            for name, off in OFF.items():
                if "noise" in WORLDS[world].target or not off.noisy_only:
                    yield world, name, seed


def stored() -> list[Row]:
    rows: list[Row] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    return rows


def _store(rows: list[Row]) -> None:
    lines = ",\n".join(json.dumps(row) for row in sorted(rows, key=_order))
    write_atomic(RESULTS, f"[\n{lines}\n]\n")


def _order(row: Row) -> tuple[int, int, int]:
    return list(WORLDS).index(row["world"]), list(OFF).index(row["off"]), row["seed"]


SHOWN = {"nothing off", "schedule auto (constant)", "schedule auto (cosine)"}
"""Rows that are shown even if they do not differ from the whole training, since `auto` is constant or cosine."""
HEADING = "| without | true test score | difference | rollouts to 0.90 | difference | optimizer calls |"


def table(rows: list[Row]) -> str:
    parts = []
    for world, here in WORLDS.items():
        found = {name: {r["seed"]: r for r in rows if (r["world"], r["off"]) == (world, name)} for name in OFF}
        whole = found["nothing off"]
        if not whole:
            continue
        lines, same = [HEADING, "|---" * (HEADING.count("|") - 1) + "|"], []
        for name, own in found.items():
            seeds = sorted(whole.keys() & own.keys())
            if name not in SHOWN and all({**own[s], "off": ""} == {**whole[s], "off": ""} for s in seeds):
                same += [name] if seeds else []
            elif seeds:
                shown = name if len(seeds) == len(whole) else f"{name}, {len(seeds)} seeds"
                lines.append(_line(shown, [own[s] for s in seeds], [whole[s] for s in seeds]))
        lines += ["", f"The same in every run without: {'; '.join(same)}."] if same else []
        models = f"target `{here.target}`, optimizer `{here.optimizer}`"
        parts.append(f"**{world}**: {here.said} ({models}; {len(whole)} seeds)\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def _line(name: str, own: list[Row], whole: list[Row]) -> str:
    missed = sum(not row["reached"] for row in own)
    most = 2 * missed > len(own)
    paid = "never" if most else f"{fmean(row['rollouts'] for row in own):.0f}"
    paid += f" ({missed} of {len(own)} never)" if missed and not most else ""
    shown = [f"{fmean(row['test'] for row in own):.3f}", "", paid, "", f"{fmean(row['calls'] for row in own):.0f}"]
    if name != "nothing off":
        pairs = list(zip(own, whole, strict=True))
        shown[1] = difference([a["test"] - b["test"] for a, b in pairs], "+.3f")
        both = all(a["reached"] and b["reached"] for a, b in pairs)
        shown[3] = difference([a["rollouts"] - b["rollouts"] for a, b in pairs], "+.0f") if both else "–"
    return f"| {name} | {' | '.join(shown)} |"


def difference(values: list[float], form: str) -> str:
    """Return the mean of differences with its interval over seeds; bold if the interval does not include zero."""
    found = seeds_interval(values)
    text = f"{fmean(values):{form}}"
    if found is None:
        return text
    text = f"{text} [{found[0]:{form}} to {found[1]:{form}}]"
    return f"**{text}**" if found[0] > 0 or found[1] < 0 else text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="only fill docs/results.md")
    parser.add_argument("--world", action="append", choices=WORLDS, help="a world to run; default: all")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="the number of seeds, from 1 on")
    options = parser.parse_args()
    rows = stored()
    done = {(row["world"], row["off"], row["seed"]) for row in rows}
    every = all_runs(options.world or list(WORLDS), range(1, options.seeds + 1)) if not options.table else ()
    left = [one for one in every if one not in done]
    with ProcessPoolExecutor() as pool:
        for row in pool.map(train, *zip(*left, strict=True)) if left else ():
            rows.append(row)
            _store(rows)
            print(json.dumps(row), flush=True)
    fill(PAGE, {"ablations": table(rows)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
