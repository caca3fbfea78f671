"""Compare schedules, batch sizes and numbers of epochs in the simulated world: the figures of docs/choosing.md.

    python bench/choosing.py            # about 300 short trainings and a sweep; a stopped run continues
    python bench/choosing.py --table    # only fill docs/choosing.md

The world is the hard world `short` of ablations.py: the target flips every tenth outcome, and four of five edits of the
optimizer are useless. The schedules are also compared in the other three worlds. Scores are without noise. Each row is
ten seeds; differences are paired by seed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from ablations import NOISY, REPO, SEEDS, WORLDS, Row, World, difference, trained
from learning.mechanisms import NOTHING
from learning.table import fill

from skillopt.config import Config
from skillopt.record.files import write_atomic
from skillopt.sim.optimizer import ASKED, rules_in
from skillopt.tasks import open_env
from skillopt.training.initial import initial_of

SIM = REPO / "configs" / "sim" / "default.yaml"
PAGE = REPO / "docs" / "choosing.md"
RESULTS = Path(__file__).resolve().parent / "learning" / "choosing.json"
EPOCHS, BATCHES = (1, 2, 3, 4, 6), (3, 6, 12, 24, 48)
STEPS_AN_EPOCH = 4
RATES, SHAPES = (2, 4, 8), ("cosine", "constant")
SHORT = {"auto": "epochs 2", "constant": "constant 2", "cosine": "cosine 2"}
"""For each schedule, the row with its trainings in the world `short`."""
SWEEP = (f"optimizer.learning_rate={','.join(map(str, RATES))}", f"optimizer.lr_scheduler={','.join(SHAPES)}")
Results = dict[str, Any]
"""The sweep's scores, and a row for each training."""
OPTIONS = "env.options={{rules: 24, train: {train}, val: 48, test: 96, systemic: 0.2}}"


def world(*settings: str) -> World:
    return World(said="", target=NOISY, optimizer="sim:world?duds=0.8", settings=settings)


def trials() -> dict[str, World]:
    """Return the world of each row of the tables, by the row's name."""
    rows = {f"epochs {n}": world(f"train.num_epochs={n}") for n in EPOCHS}
    for shape in SHAPES:
        settings = {n: (f"train.num_epochs={n}", f"optimizer.lr_scheduler={shape}") for n in EPOCHS[1:]}
        rows |= {f"{shape} {n}": world(*own) for n, own in settings.items()}
        rows |= {f"{shape} {n} trained": world(*own) for n, own in settings.items() if n == 4}
    for size in BATCHES:  # each with eight steps, so only the batch size differs
        options = OPTIONS.format(train=STEPS_AN_EPOCH * size)
        rows[f"batch {size}"] = world("train.num_epochs=2", f"train.batch_size={size}", options)
    for name, own in WORLDS.items():
        if name != "short":
            schedules = {f"{name} {shape}": f"optimizer.lr_scheduler={shape}" for shape in SHORT}
            rows |= {row: replace(own, settings=(*own.settings, setting)) for row, setting in schedules.items()}
    return rows


def run(trial: tuple[str, int]) -> Row:
    name, seed = trial
    here = trials()[name]
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder) / "skill.md"
        if name.endswith("trained"):
            start.write_text(nearly_trained(), encoding="utf-8")
            here = replace(here, settings=(*here.settings, f"train.init_skill={start}"))
        return {"name": name, "seed": seed, **trained(here, NOTHING, seed)}


def nearly_trained() -> str:
    """Return the initial skill with rules added, up to three quarters of the world's 24 rules."""
    config = Config.load(SIM, [OPTIONS.format(train=48)])
    rules: dict[str, str] = {}
    for item in open_env(config).items("train"):
        asked = ASKED.search(item.question)
        assert asked
        rules |= dict(zip((topic.strip() for topic in asked[1].split(",")), item.answers[0].split(), strict=False))
    text = initial_of(config).text
    missing = [topic for topic in sorted(rules) if topic not in rules_in(text)][: 18 - len(rules_in(text))]
    return text + "".join(f"- For {topic}, answer {rules[topic]}.\n" for topic in missing)


def sweep() -> dict[str, float]:
    """Run the sweep of docs/choosing.md, and return its validation scores by learning rate and schedule."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "skillopt.cli", "sweep", "--config", str(SIM), *SWEEP, "train.num_epochs=1"]
        subprocess.run([*command, f"env.output_root={out}"], check=True, capture_output=True)
        (path,) = Path(out).rglob("sweep.json")
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return {" ".join(map(str, row["values"].values())): row["best_val"] for row in rows}


def tables(results: Results) -> dict[str, str]:
    by_name: dict[str, dict[int, Row]] = {}
    for row in results["rows"]:
        by_name.setdefault(row["name"], {})[row["seed"]] = row
    return {
        "worlds": _worlds(by_name),
        "schedules": _schedules(by_name),
        "batches": _ladder(by_name, {f"batch {size}": str(size) for size in BATCHES}, "batch size"),
        "epochs": _ladder(by_name, {f"epochs {n}": f"{n} ({STEPS_AN_EPOCH * n} steps)" for n in EPOCHS}, "epochs"),
        "sweep": _table(
            ("learning rate", *SHAPES),
            [(str(rate), *(f"{results['sweep'][f'{rate} {shape}']:.3f}" for shape in SHAPES)) for rate in RATES],
        ),
    }


def _worlds(by_name: dict[str, dict[int, Row]]) -> str:
    """Compare `auto` with both schedules: scores, and rollouts to a true test score of 0.90 if all runs reach it."""
    rows = []
    for world in WORLDS:
        by_shape = {shape: by_name[SHORT[shape] if world == "short" else f"{world} {shape}"] for shape in SHORT}
        auto, constant, cosine = (list(found.values()) for found in by_shape.values())
        paid = [a["rollouts"] - b["rollouts"] for a, b in zip(auto, constant, strict=True)]
        reached = all(row["reached"] for row in (*auto, *constant))
        scores = (f"{_mean(each):.3f}" for each in (auto, constant, cosine))
        gains = _gains(constant, auto), _gains(cosine, auto), difference(paid, "+.0f") if reached else "–"
        rows.append((world, *scores, *gains))
    head = "world", *SHORT, "auto − constant", "auto − cosine", "rollouts to 0.90, auto − constant"
    return _table(head, rows)


def _schedules(by_name: dict[str, dict[int, Row]]) -> str:
    rows = []
    for n, start in [*((n, "") for n in EPOCHS[1:]), (4, " trained")]:
        cosine, constant = (list(by_name[f"{shape} {n}{start}"].values()) for shape in SHAPES)
        rules = "18 of 24 rules" if start else "3 of 24 rules"
        name = f"{STEPS_AN_EPOCH * n} steps from {rules}"
        rows.append((name, *(f"{_mean(own):.3f}" for own in (cosine, constant)), _gains(constant, cosine)))
    return _table(("run", *SHAPES, "cosine − constant"), rows)


def _ladder(by_name: dict[str, dict[int, Row]], names: dict[str, str], head: str) -> str:
    """Return a table in which each row has its gain over the row above."""
    rows: list[tuple[str, ...]] = []
    before: list[Row] = []
    for name, shown in names.items():
        own = list(by_name[name].values())
        paid = f"{fmean(row['paid'] for row in own):,.0f}"
        rows.append((shown, f"{_mean(own):.3f}", _gains(before, own) if before else "", paid))
        before = own
    return _table((head, "true test score", "over the row above", "rollouts"), rows)


def _mean(rows: list[Row]) -> float:
    return fmean(row["test"] for row in rows)


def _gains(before: list[Row], after: list[Row]) -> str:
    return difference([b["test"] - a["test"] for a, b in zip(before, after, strict=True)], "+.3f")


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="only fill docs/choosing.md")
    options = parser.parse_args()
    results: Results = (
        json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"sweep": {}, "rows": []}
    )
    if not options.table:
        results["sweep"] = sweep()
        done = {(row["name"], row["seed"]) for row in results["rows"]}
        left = [(name, seed) for seed in SEEDS for name in trials() if (name, seed) not in done]
        with ProcessPoolExecutor() as pool:
            for row in pool.map(run, left):
                results["rows"].append(row)
                _store(results)
    fill(PAGE, tables(results))
    return 0


def _store(results: Results) -> None:
    order = list(trials())
    results["rows"].sort(key=lambda row: (order.index(row["name"]), row["seed"]))
    lines = ",\n".join(json.dumps(row) for row in results["rows"])
    write_atomic(RESULTS, f'{{"sweep": {json.dumps(results["sweep"])},\n"rows": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    sys.exit(main())
