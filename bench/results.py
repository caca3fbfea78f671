"""Measure how much each method learns, on which tasks and at what cost. Every number can be repeated.

    python bench/results.py                        # replay all recorded cells, check them, fill docs/results.md
    python bench/results.py run --set tickets --target 0.5b --optimizer none --seed 1
    python bench/results.py run --set cards --target 1.5b --optimizer handoff --method ours --seed 1 --box LETTERS
    python bench/results.py keep FOLDER            # commit a finished cell: its figures and its recording
    python bench/results.py fresh --set procedure --target 0.5b      # measure the cells' skills on 96 fresh items
    python bench/results.py table                  # only fill the page

A cell is a task set, a target, an optimizer, a method and a seed; bench/learning/README.md explains each. Cells run one
after another. To continue, run the same command again. If options are given several times, every combination is a
cell. Exit code 1: a cell failed, or a replay differs.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import sys
from pathlib import Path

from learning import make_tasks
from learning.cells import METHODS, OPTIMIZERS, TARGETS, Cell
from learning.fresh import measure_fresh, with_skills
from learning.keep import MEASURED, keep, replayed
from learning.plots import write_plots
from learning.recording import RECORDINGS, Recording
from learning.result import CellResult
from learning.run import Job, run_cell
from learning.sets import SETS
from learning.table import fill, tables

from skillopt.errors import SkillOptError

REPO = Path(__file__).resolve().parent.parent
PAGE = REPO / "docs" / "results.md"
IMAGES = REPO / "docs" / "images"
OUT = REPO / "outputs" / "bench"


def run(options: argparse.Namespace) -> int:
    axes = (options.set, options.target, options.optimizer, options.method, options.seed)
    cells = [Cell(set=a, target=b, optimizer=c, method=d, seed=e) for a, b, c, d, e in itertools.product(*axes)]
    if options.box and len(cells) > 1:
        raise SkillOptError("--box: is for one cell only; without --box, each cell has its letters in its folder")
    failed = 0
    for cell in cells:
        job = Job(cell=cell, out=options.out, data=options.data, box=options.box)
        result = run_cell(job)
        print(f"{cell.name}: {_said(result)}", flush=True)
        failed += bool(result.error)
    return min(1, failed)


def _said(result: CellResult) -> str:
    if result.error:
        return f"failed: {result.error}"
    scores = {which: sum(found.values()) / len(found) for which, found in result.test.items()}
    shown = ", ".join(f"{which.replace('_', ' ')} {score:.2f}" for which, score in scores.items())
    return f"test: {shown}; {result.rollouts} rollouts, {result.requests} requests, {result.minutes} minutes"


def replay(options: argparse.Namespace) -> int:
    """Run every recorded cell again, without models; then fill the page."""
    wrong = 0
    for path in sorted(RECORDINGS.glob("*.jsonl")):
        cell = Cell.of(path.stem)
        recording = Recording.read(path)
        job = Job(cell=cell, out=options.out, data=options.data, recording=recording)
        own = SETS[cell.set]
        if own.published and not options.data and not (options.out / "data" / cell.set).exists():
            print(f"{cell.name}: left out; name the folder of its items with --data FOLDER", flush=True)
            continue
        if own.extra and importlib.util.find_spec(own.extra) is None:
            print(f"{cell.name}: left out; first install its package: pip install '.[{own.extra}]'", flush=True)
            continue
        again = replayed(job, near=options.out)
        differs = again.differences(CellResult.read(MEASURED / f"{cell.name}.json")) if not again.error else []
        said = again.error or (f"differs in {', '.join(differs)}" if differs else "the same result again")
        changed = f" ({recording.changed} of its letters are others now)" if recording.changed else ""
        unnamed = len(recording.unnamed)
        changed += f" ({unnamed} edits leave lines out and do not name them)" if unnamed else ""
        print(f"{cell.name}: {said}{changed}", flush=True)
        wrong += bool(again.error or differs)
    table(options)
    return min(1, wrong)


def table(options: argparse.Namespace) -> int:
    """Fill the page from the committed cells and from the cells of this machine. A committed cell has priority."""
    here = [CellResult.read(path) for path in sorted(options.out.glob("*/result.json"), key=str)]
    found = {result.cell.name: result for result in here if result.cell.target != "sim"}
    found |= {path.stem: CellResult.read(path) for path in sorted(MEASURED.glob("*.json"))}
    blocks = tables(found.values())
    fill(PAGE, blocks)
    write_plots(found.values(), IMAGES)
    print(f"{PAGE}: {len(found)} cells")
    return 0


def fresh(options: argparse.Namespace) -> int:
    """Measure the skills of committed cells on fresh items."""
    results = [CellResult.read(path) for path in sorted(MEASURED.glob("*.json"))]
    for result in with_skills(results, options.set, options.target):
        outcomes = measure_fresh(result, options.items)
        print(f"{result.cell.name}: {sum(outcomes.values()) / len(outcomes):.2f}", flush=True)
    return 0


def keep_cell(options: argparse.Namespace) -> int:
    cell = Cell.of(options.name or options.folder.name)
    job = Job(cell=cell, out=options.out, data=options.data, box=options.box)
    kept = keep(job, options.folder.resolve())
    print(f"{cell.name}: {_said(kept.result)}")
    print(f"{kept.replies} replies recorded" if kept.replies else f"no recording: {kept.why_not}")
    return 0


def arguments() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)  # before or after the command
    shared.add_argument("--out", type=Path, help="folder of all cells; default: outputs/bench")
    shared.add_argument("--data", type=Path, help="folder of the published sets: bbh/ and formula/")
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw, parents=[shared])
    parser.set_defaults(do=replay)
    commands = parser.add_subparsers()
    own = commands.add_parser("run", parents=[shared], help="run cells")
    own.set_defaults(do=run)
    own.add_argument("--set", action="append", required=True, choices=SETS)
    own.add_argument("--target", action="append", required=True, choices=TARGETS)
    own.add_argument("--optimizer", action="append", required=True, choices=OPTIMIZERS)
    own.add_argument("--method", action="append", choices=METHODS, help="the method; default: ours")
    own.add_argument("--seed", action="append", type=int, help="the seed; default: 1, 2 and 3")
    own.add_argument("--box", type=Path, help="folder for the letters of a handoff")
    kept = commands.add_parser("keep", parents=[shared], help="commit a finished cell")
    kept.set_defaults(do=keep_cell)
    kept.add_argument("folder", type=Path, help="the cell's folder")
    kept.add_argument("--as", dest="name", default="", help="the cell's name, if it is not the folder's name")
    kept.add_argument("--box", type=Path, help="folder of the cell's letters, if it is not in the cell's folder")
    more = commands.add_parser("fresh", parents=[shared], help="measure the skills of committed cells on fresh items")
    more.set_defaults(do=fresh)
    more.add_argument("--set", required=True, choices=make_tasks.SETS)
    more.add_argument("--target", required=True, choices=TARGETS)
    more.add_argument("--items", type=int, default=96, help="the number of fresh items; default: 96")
    commands.add_parser("table", parents=[shared], help="fill docs/results.md").set_defaults(do=table)
    return parser


def main(given: list[str] | None = None) -> int:
    options = arguments().parse_args(given)
    options.out = getattr(options, "out", OUT).resolve()
    options.data = getattr(options, "data", None)
    if options.do is run:
        options.method, options.seed = options.method or ["ours"], options.seed or [1, 2, 3]
    for name in ("data", "box"):
        if getattr(options, name, None):
            setattr(options, name, getattr(options, name).resolve())
    try:
        return int(options.do(options))
    except SkillOptError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
