"""Train the mini configs on the local 0.5B model and write what came out into docs/results.md.

    python bench/results.py                       # searchqa and reasoning_gym
    python bench/results.py officeqa docvqa       # others
    python bench/results.py --only-write          # from the runs that are there

A run that is there goes on or is read again; nothing is measured twice. About ten minutes each on two quiet cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

REPO = Path(__file__).parent.parent
PAGE = REPO / "docs" / "results.md"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
HEADING = (
    "| benchmark | target | train/val/test | nothing | no skill | initial, test | trained, test | steps accepted "
    "| calls | minutes |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def train(name: str, seed: int) -> None:
    command = [
        sys.executable,
        "-m",
        "skillopt.cli",
        "train",
        "--config",
        f"configs/{name}/mini.yaml",
        f"train.seed={seed}",
    ]
    subprocess.run(command, cwd=REPO, check=True)


def runs(name: str) -> list[Path]:
    return sorted((REPO / "outputs").glob(f"{name}_mini/*/summary.json"))


def row(path: Path, name: str) -> str | None:
    """A line of the table; None for a run that is not finished."""
    summary = json.loads(path.read_text())
    if summary["status"] != "finished":
        return None
    config = json.loads((path.parent / "config.json").read_text())
    sizes = "/".join(str(n) for n in _sizes(config))
    baselines = summary.get("baselines") or {}
    steps = summary["steps"]
    return (
        f"| {name}, seed {summary['seed']} | {config['models.target_model']} | {sizes} "
        f"| {_score(baselines.get('do_nothing'))} | {_score(baselines.get('no_skill'))} "
        f"| {_score(summary['initial'])} | **{_score(summary['best'])}** | {steps['accepted']} of {steps['run']} "
        f"| {sum(summary['calls'][role] for role in ('target', 'optimizer'))} | {summary['seconds'] / 60:.0f} |"
    )


def _sizes(config: dict[str, Any]) -> list[int]:
    limits = (config.get("env.options") or {}).get("limit", {})
    found = []
    for split in ("train", "val", "test"):
        items = json.loads((Path(config["env.split_dir"]) / split / "items.json").read_text())
        found.append(min(len(items), limits.get(split, len(items))))
    return found


def _score(part: dict[str, Any] | None) -> str:
    if not part or part.get("test") is None:
        return "–"
    low, high = part.get("test_interval") or (None, None)
    return f"{part['test']:.2f}" + (f" [{low:.2f}–{high:.2f}]" if low is not None else "")


def write(names: list[str]) -> None:
    """Replace the lines of these benchmarks; the others' stay."""
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN, 1)
    block, after = rest.split(END, 1)
    kept = [line for line in block.splitlines() if line.startswith("| ") and not line.startswith("| benchmark")]
    kept = [line for line in kept if line[2:].split(",")[0].split(" |")[0] not in names]
    made = [line for name in names for path in runs(name) if (line := row(path, name))]
    table = "\n".join([HEADING, *sorted([*kept, *made])])
    PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")
    print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["searchqa", "reasoning_gym"])
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--only-write", action="store_true")
    given = parser.parse_args()
    os.chdir(REPO)
    for each in given.names if not given.only_write else ():
        train(each, given.seed)
    write(given.names)
