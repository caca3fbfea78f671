"""Measures the skills of finished cells on fresh items, which make_tasks.py draws with another seed.

With 32 test items, only differences of about 0.2 are beyond chance. make_tasks.py can draw any number of items of its
sets. `fresh/<cell>.json` has the outcomes of a cell's skill.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.measure.session import measuring_session
from skillopt.record.files import read_json, write_json
from skillopt.skill import Skill

from . import make_tasks
from .cells import TARGETS, Cell
from .result import CellResult, Outcomes
from .run import tested
from .sets import REPEATABLE, SETS

FRESH = Path(__file__).resolve().parent / "fresh"


def measure_fresh(result: CellResult, items: int) -> Outcomes:
    """Measure the skill of a cell on `items` fresh items, and store the outcomes."""
    cell = result.cell
    if cell.set not in make_tasks.SETS:
        raise UserError(f"set '{cell.set}' has no fresh items; choose one of: {', '.join(make_tasks.SETS)}")
    with tempfile.TemporaryDirectory() as folder:
        split = Path(folder) / "split"
        for name in ("train", "val", "test"):  # a run needs three different splits; only `test` is measured
            own = make_tasks.fresh(cell.set, items) if name == "test" else make_tasks.make(cell.set)[name]
            make_tasks.write(own, split / name / "items.jsonl")
        settings = (f"env.split_dir={split}", f"env.output_root={folder}", *REPEATABLE, *TARGETS[cell.target])
        outcomes = asyncio.run(_tested(Skill(result.skill), Config.load(SETS[cell.set].config, settings), Path(folder)))
    FRESH.mkdir(exist_ok=True)
    write_json(FRESH / f"{cell.name}.json", outcomes)
    return outcomes


async def _tested(skill: Skill, config: Config, folder: Path) -> Outcomes:
    async with measuring_session(config, folder / "measured") as session:
        return await tested(skill, "test", session.ctx)


def read_fresh() -> dict[tuple[str, str, str], dict[int, Outcomes]]:
    """Return the outcomes on fresh items by set, target and method, and then by seed."""
    found: dict[tuple[str, str, str], dict[int, Outcomes]] = defaultdict(dict)
    for path in sorted(FRESH.glob("*.json")):
        cell = Cell.of(path.stem)
        found[cell.set, cell.target, cell.method][cell.seed] = read_json(path)
    return dict(found)


def with_skills(results: Iterable[CellResult], wanted: str, target: str) -> list[CellResult]:
    """Return the finished cells of a set and target, of SkillOpt and of gepa."""
    return [r for r in results if (r.cell.set, r.cell.target) == (wanted, target) and r.cell.method in {"ours", "gepa"}]
