"""Compare learning methods on three small task sets with the 1.5B on this machine as the target.

    python bench/learning/run.py --out FOLDER --set cards --method ours --seed 1 \\
        --optimizer-model vllm:mail --optimizer-url http://127.0.0.1:18300/v1
    python bench/learning/run.py --out FOLDER --table

A cell is a task set, a method and a seed. It has a folder of its own below FOLDER and leaves a result.json there; a
finished cell is not run again, and an interrupted one continues. `ours` is trained by the command line of the source
tree that --source names, with any optimizer that its config knows; `gepa` is gepa 0.1.4 in a venv of its own and needs
an endpoint of the OpenAI form. README.md has the rules of the comparison.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
SETS = ("expenses", "cards", "procedure")
METHODS = ("ours", "gepa")
METRIC_CALLS = 160
"""Rollouts that ours takes at most in training: 16 val at the start, 4 steps of 12 train and 16 val, and for the slow
update 16 train and 16 val. gepa gets the same number."""
MINIBATCH = 8
CALL_TIMEOUT = 7200.0
Result = dict[str, Any]


def task_config(name: str) -> dict[str, Any]:
    """The set's config with its base below it, as far as this bench reads it."""
    own = yaml.safe_load((HERE / "tasks" / name / "config.yaml").read_text(encoding="utf-8"))
    base = yaml.safe_load((HERE / "base.yaml").read_text(encoding="utf-8"))
    return {section: {**base.get(section, {}), **own.get(section, {})} for section in ("env", "models")}


def read_items(name: str, split: str) -> list[dict[str, str]]:
    lines = (HERE / "tasks" / name / split / "items.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def environment(source: Path) -> dict[str, str]:
    """The source tree's package comes first, whatever else is installed; one thread for the model."""
    return {**os.environ, "PYTHONPATH": str(source / "src"), "OMP_NUM_THREADS": "1"}


def skillopt(source: Path, *arguments: str) -> str:
    """The command line of a source tree; its output goes to the cell's log and comes back."""
    command = [sys.executable, "-m", "skillopt.cli", *arguments]
    done = subprocess.run(command, env=environment(source), stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, flush=True)
    if done.returncode:
        raise RuntimeError(f"skillopt {arguments[0]} ended with exit code {done.returncode}")
    return done.stdout


def measure(name: str, skill: Path, out: Path, source: Path) -> dict[str, bool]:
    """Test outcomes by item, from `skillopt eval`: the same measurement for every method."""
    summary = out / "eval_summary.json"
    if not summary.exists():
        config = str(HERE / "tasks" / name / "config.yaml")
        skillopt(source, "eval", "--config", config, "--skill", str(skill), "--split", "test", "--out", str(out))
    failed = json.loads(summary.read_text(encoding="utf-8"))["failed"]
    return {item["id"]: item["id"] not in failed for item in read_items(name, "test")}


def outcomes(path: Path) -> dict[str, bool]:
    """Right or wrong by item, from a measurement in a run folder; empty where there is none."""
    items = json.loads(path.read_text(encoding="utf-8"))["items"] if path.exists() else {}
    return {item: scores["hard"] >= 1 for item, scores in items.items()}


def run_ours(cell: Path, name: str, seed: int, options: argparse.Namespace) -> Result:
    overrides = [f"train.seed={seed}", f"env.output_root={cell / 'runs'}", *options.override]
    if options.optimizer_url:
        overrides.append(f"models.optimizer_url={options.optimizer_url}")
    model = ["--optimizer_model", options.optimizer_model]
    config = str(HERE / "tasks" / name / "config.yaml")
    skillopt(options.source, "train", "--config", config, *model, *overrides)
    [run] = [path.parent for path in (cell / "runs").glob("*/*/summary.json")]
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    history = json.loads((run / "history.json").read_text(encoding="utf-8"))
    test = {which: outcomes(run / "evaluations" / f"test_{which}.json") for which in ("initial", "best")}
    if not test["initial"]:
        test["initial"] = measure(
            name, HERE / "tasks" / name / "start.md", options.out / f"{name}-start", options.source
        )
    if not test["best"] and summary["best"]["version"] == 0:
        test["best"] = test["initial"]
    if not test["best"]:
        test["best"] = measure(name, run / "best_skill.md", cell / "test_best", options.source)
    calls = summary["calls"]["target"]
    measured_tests = 1 if summary["best"]["version"] == 0 else 2
    return {
        "val_initial": summary["initial"]["val"],
        "val": [row["val_after"] for row in history if "val_after" in row],
        "verdicts": [row.get("verdict") for row in history if "val_after" in row],
        "val_best": summary["best"]["val"],
        "test": test,
        "rollouts": calls - measured_tests * len(test["initial"]),
        "requests": summary["calls"]["optimizer"],
        "tokens": summary["best"]["tokens"],
        "skill": (run / "best_skill.md").read_text(encoding="utf-8"),
    }


def run_gepa(cell: Path, name: str, seed: int, options: argparse.Namespace) -> Result:
    config = task_config(name)
    models = config["models"]
    weights = skillopt(options.source, "models", "path", models["target_model"].removeprefix("local:")).strip()
    start = HERE / "tasks" / name / "start.md"
    job = {
        "seed": seed,
        "start": start.read_text(encoding="utf-8"),
        "scoring": config["env"]["scoring"],
        "minibatch": MINIBATCH,
        "metric_calls": METRIC_CALLS,
        "target": [sys.executable, str(HERE / "target.py"), weights, str(models["target_max_tokens"])],
        "optimizer": {
            "url": options.optimizer_url,
            "model": options.optimizer_model.partition(":")[2],
            "timeout": CALL_TIMEOUT,
        },
        **{split: read_items(name, split) for split in ("train", "val", "test")},
    }
    (cell / "job.json").write_text(json.dumps(job, indent=1), encoding="utf-8")
    command = [str(gepa_python()), str(HERE / "gepa_cell.py"), str(cell / "job.json")]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found: Result = json.loads((cell / "found.json").read_text(encoding="utf-8"))
    (cell / "best_skill.md").write_text(found["skill"], encoding="utf-8")
    initial = measure(name, start, options.out / f"{name}-start", options.source)
    best = measure(name, cell / "best_skill.md", cell / "test_best", options.source)
    return {**found, "test": {"initial": initial, "best": best}}


def gepa_python() -> Path:
    """The interpreter of gepa's venv; made on first use. SKILLOPT_GEPA_VENV names another place."""
    venv = Path(os.environ.get("SKILLOPT_GEPA_VENV", HERE.parent / ".venv-gepa"))
    python = venv / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "gepa==0.1.4"], check=True, timeout=600)
    return python


RUNNERS = {"ours": run_ours, "gepa": run_gepa}


def run_cell(name: str, seed: int, options: argparse.Namespace) -> None:
    label = options.label or options.method
    cell = options.out / f"{name}-{label}-{seed}"
    if (cell / "result.json").exists():
        print(f"{cell.name}: done before")
        return
    cell.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    found = RUNNERS[options.method](cell, name, seed, options)
    minutes = round((time.monotonic() - started) / 60, 1)
    scores = {which: sum(items.values()) / len(items) for which, items in found["test"].items()}
    result = {"set": name, "method": label, "seed": seed, "minutes": minutes, "test_scores": scores, **found}
    draft = cell / "result.draft"
    draft.write_text(json.dumps(result, indent=1, ensure_ascii=False), encoding="utf-8")
    draft.rename(cell / "result.json")
    print(f"{cell.name}: test {scores['initial']:.2f} to {scores['best']:.2f}, {minutes} minutes", flush=True)


def wilson(right: int, total: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % interval of a share."""
    share = right / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return max(0.0, middle - half), min(1.0, middle + half)


def table(results: Iterable[Mapping[str, Any]]) -> str:
    """One row a cell, then one row a set and method with the test items of all seeds together."""
    rows = sorted(results, key=lambda row: (SETS.index(row["set"]), row["method"], row["seed"]))
    lines = [
        "| set | method | seed | val after each proposal | best val | test before | test after | "
        "rollouts | requests | minutes |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        steps = ", ".join("–" if value is None else f"{value:.2f}" for value in row["val"])
        test = [_share(row["test"][which].values()) for which in ("initial", "best")]
        figures = [steps, f"{row['val_best']:.2f}", *test, row["rollouts"], row["requests"], row["minutes"]]
        lines.append(f"| {row['set']} | {row['method']} | {row['seed']} | {' | '.join(map(str, figures))} |")
    lines += [
        "",
        "| set | method | seeds | best val | test after | requests | rollouts |",
        "|---|---|---|---|---|---|---|",
    ]
    for key in dict.fromkeys((row["set"], row["method"]) for row in rows):
        own = [row for row in rows if (row["set"], row["method"]) == key]
        after = [right for row in own for right in row["test"]["best"].values()]
        means = [f"{sum(row[name] for row in own) / len(own):{form}}" for name, form in MEANS]
        lines.append(f"| {key[0]} | {key[1]} | {len(own)} | {means[0]} | {_share(after)} | {means[1]} | {means[2]} |")
    return "\n".join(lines)


MEANS = (("val_best", ".2f"), ("requests", ".1f"), ("rollouts", ".0f"))


def _share(outcomes: Iterable[bool]) -> str:
    found = list(outcomes)
    low, high = wilson(sum(found), len(found))
    return f"{sum(found) / len(found):.2f} [{low:.2f}–{high:.2f}]"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of all cells")
    parser.add_argument("--table", action="store_true", help="only print what the finished cells found")
    parser.add_argument("--set", action="append", choices=SETS, help="may be given several times; all without it")
    parser.add_argument("--method", choices=METHODS, default="ours")
    parser.add_argument("--seed", action="append", type=int, help="may be given several times; 1, 2 and 3 without it")
    parser.add_argument("--label", default="", help="name of the method in folders and table, such as before or after")
    parser.add_argument("--source", type=Path, default=HERE.parents[1], help="source tree whose skillopt is used")
    parser.add_argument("--optimizer-model", default="vllm:mail", help="provider:model that proposes")
    parser.add_argument("--optimizer-url", default="", help="base URL of its endpoint, where it needs one")
    parser.add_argument("override", nargs="*", help="section.key=value for the training, method ours only")
    options = parser.parse_args()
    options.out, options.source = options.out.resolve(), options.source.resolve()
    if options.table:
        paths = sorted(options.out.glob("*/result.json"))
        print(table(json.loads(path.read_text(encoding="utf-8")) for path in paths))
        return 0
    failed = 0
    for seed in options.seed or (1, 2, 3):
        for name in options.set or SETS:
            try:
                run_cell(name, seed, options)
            except (RuntimeError, ValueError, OSError, subprocess.SubprocessError) as error:
                print(f"{name}-{options.label or options.method}-{seed}: failed: {error}", file=sys.stderr, flush=True)
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
