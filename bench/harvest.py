"""Measure how many planted corrections a harvest finds: `python bench/harvest.py`.

The heuristic miner and a simulated reader read ten histories with planted corrections. Nothing was tuned on these
histories. `python bench/harvest.py --write FOLDER` writes one history as sessions, for a model, or for a person through
a handoff. `--score HARVEST` then scores the harvest of these sessions.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from skillopt.config import Config
from skillopt_harvest.harvest import HarvestFolder, harvest
from skillopt_harvest.records import SourceSelection
from support import transcripts
from support.harvest_score import MiningScore, mining_score
from support.planted_history import RULES, planted_history
from support.planted_reader import PlantedReader

SEED = 7
SEEDS = range(101, 111)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="write the sessions of seed 7 into this folder")
    parser.add_argument("--score", type=Path, help="score a harvest of these sessions")
    options = parser.parse_args()
    if options.write:
        print(f"{write(options.write, SEED)} sessions: {options.write}")
    elif options.score:
        tasks = HarvestFolder(options.score).read_tasks()
        print(line(tasks.miner, mining_score(list(tasks.tasks), planted_history(seed=SEED))))
    else:
        config = Config.parse({"models": {"optimizer_model": "sim:world"}})
        for seed in SEEDS:
            history = planted_history(seed=seed)
            with tempfile.TemporaryDirectory() as folder:
                write(Path(folder) / "in", seed)
                sessions = SourceSelection(source="plain", path=Path(folder) / "in")
                words = harvest(Path(folder) / "words", sessions)
                read = harvest(Path(folder) / "read", sessions, config=config, models={"optimizer": PlantedReader()})
            print(line(f"heuristic, seed {seed}", mining_score(list(words.tasks), history)))
            print(line(f"simulated reader, seed {seed}", mining_score(list(read.tasks), history)))


def write(folder: Path, seed: int) -> int:
    history = planted_history(seed=seed)
    for session in history:
        transcripts.plain(folder / f"{session.id}.jsonl", [(session.id, session.turns)])
    return len(history)


def line(name: str, score: MiningScore) -> str:
    recall = f"{len(score.found)} of {len(RULES)} planted rules"
    precision = (score.proposed - score.invented) / (score.proposed or 1)
    missed = ", ".join(sorted({rule.name for rule in RULES} - score.found)) or "none"
    return (
        f"{name}: {recall} (missed: {missed}); {score.proposed} proposed, {score.invented} invented, "
        f"{score.repeated} stated twice; precision {precision:.2f}"
    )


if __name__ == "__main__":
    main()
