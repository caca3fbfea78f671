"""Run a speed bench and print its rows: python bench/speed.py startup|loopback|throughput|growth|rival|cluster.

Writes bench/results/<name>.json ({rows, raw}) and, for some benches, the plot <name>.png.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
Rows = list[dict[str, Any]]


def row(figure: str, found: str, bound: str = "", kept: bool | None = None) -> dict[str, Any]:
    return {"figure": figure, "found": found, "bound": bound, "kept": kept}


def startup() -> tuple[Rows, Any]:
    from startup import BOUNDS, ITEMS, MOST_GROWTH, MOST_SECONDS, main, many_items

    found, grown = main(), many_items()
    rows = [
        row(
            f"{name}: times python -c pass",
            f"{each['ratio']:.0f} ({each['seconds']:.2f} s)",
            f"≤ {BOUNDS[name]}",
            each["ratio"] <= BOUNDS[name],
        )
        for name, each in found.items()
    ]
    rows.append(
        row(
            f"first model call with {ITEMS[1]:,} items: times that with {ITEMS[0]:,}",
            f"{grown['ratio']:.2f} ({grown['seconds']:.1f} s)",
            f"≤ {MOST_GROWTH}, ≤ {MOST_SECONDS:.0f} s",
            grown["ratio"] <= MOST_GROWTH and grown["seconds"] <= MOST_SECONDS,
        )
    )
    return rows, {**found, "many items": grown}


def loopback() -> tuple[Rows, Any]:
    """(a) Measure whole trainings of two sizes, `small` and `large`."""
    from loopback import SHAPES, run

    rows, raw = [], {}
    for name in ("small", "large"):
        shape = SHAPES[name]
        found = raw[name] = run(shape)
        seconds, calls = shape.rival
        items = "/".join(map(str, shape.items))
        rows += [
            row(
                f"{items}: seconds",
                f"{found['seconds']:.1f} (rival {seconds})",
                f"< {shape.seconds}",
                found["seconds"] < shape.seconds,
            ),
            row(
                f"{items}: over the critical path",
                f"{found['ratio']:.2f} × {found['critical_path']:.1f} s",
                "≤ 1.15",
                found["ratio"] <= 1.15,
            ),
            row(
                f"{items}: calls",
                f"{found['calls']} (rival {calls})",
                f"≤ {0.9 * calls:.0f}",
                found["calls"] <= 0.9 * calls,
            ),
            row(f"{items}: calls in flight, mean", f"{found['concurrency']:.1f} of {found['workers']}"),
            row(f"{items}: validation", f"{found['val'][0]:.2f} → {found['val'][1]:.2f}"),
        ]
    plot("loopback", lambda axes: timeline(axes, raw["small"]), "Calls in flight, 24/12/12 items, 8 workers")
    return rows, {name: {k: v for k, v in found.items() if k != "timeline"} for name, found in raw.items()}


def throughput() -> tuple[Rows, Any]:
    from throughput import main

    found = main()
    text = f"{found['share']:.0%} ({found['ours']:.0f} of {found['bare']:.0f} calls a second)"
    return [row("share of a bare aiohttp loop", text, "≥ 40 %", found["share"] >= 0.4)], found


def growth() -> tuple[Rows, Any]:
    from growth import main

    found = main()
    rows = [row(f"at {m['rollouts']:,} rollouts", f"{m['cpu_ms']:.2f} ms, {m['mb']:.0f} MB") for m in found["marks"]]
    cpu, memory = found["cpu_ratio"], found["memory_ratio"]
    rows.append(row("CPU a rollout, 50,000 : 1,000, in turns", f"{cpu:.2f}", "≤ 1.1", cpu <= 1.1))
    rows.append(row("memory, 50,000 : 5,000", f"{memory:.2f}", "≤ 1.2", memory <= 1.2))

    def draw(axes: Any) -> None:
        points = found["points"]
        pairs = itertools.pairwise(points)
        axes.plot([p[0] for p in points[1:]], [1000 * (b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs])
        axes.set_xlabel("rollouts")
        axes.set_ylabel("ms of CPU a rollout")
        axes.set_ylim(bottom=0)

    plot("growth", draw, "What a rollout costs as a run grows")
    return rows, found


def rival() -> tuple[Rows, Any]:
    from rival import main

    try:
        found = main()
    except (OSError, subprocess.SubprocessError) as error:
        return [row("gepa", f"not measured: {str(error)[:80]}")], {"error": str(error)}
    rows = []
    for mine, other in zip(found["ours"], found["gepa"], strict=True):
        text = (
            f"{mine['rollouts']} rollouts, {mine['seconds']:.1f} s (gepa {other['rollouts']}, {other['seconds']:.1f} s)"
        )
        ahead = mine["rollouts"] < other["rollouts"] and mine["seconds"] < other["seconds"] and mine["val"] >= 1
        rows.append(row(f"seed {mine['seed']}: to validation 1.0", text, "ahead in both", ahead))
    return rows, found


def cluster() -> tuple[Rows, Any]:
    if missing := [name for name in ("ray", "textworld") if importlib.util.find_spec(name) is None]:
        return [row("Ray", f"not measured: pip install 'skillopt[{','.join(missing)}]'")], {}
    from cluster import main

    found = main()
    rows = []
    for name, run in found.items():
        text = f"{run['gain']:.2f} × ({run['seconds'][0]:.1f} s and {run['seconds'][1]:.1f} s)"
        rows.append(row(f"{name}: two Ray workers against one", text, "≥ 1.7", run["gain"] >= 1.7))
        rows.append(row(f"{name}: the same with 1, 2 workers and locally", str(run["same"]), "True", run["same"]))
    return rows, found


def timeline(axes: Any, found: dict[str, Any]) -> None:
    for role, colour in (("target", "tab:blue"), ("optimizer", "tab:orange")):
        marks = sorted(
            [(c[0], 1) for c in found["timeline"] if c[2] == role]
            + [(c[1], -1) for c in found["timeline"] if c[2] == role]
        )
        level, xs, ys = 0, [0.0], [0]
        for at, change in marks:
            level += change
            xs.append(at)
            ys.append(level)
        axes.step(xs, ys, where="post", label=role, color=colour)
    axes.set_xlabel("seconds")
    axes.set_ylabel("calls in flight")
    axes.legend()


def plot(name: str, draw: Callable[[Any], None], title: str) -> None:
    """Draw a PNG if matplotlib is installed. The figures are in the JSON file in any case."""
    if importlib.util.find_spec("matplotlib") is None:
        print(f"no plot; for bench/results/{name}.png install matplotlib: pip install matplotlib")
        return
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3.5))
    draw(axes)
    axes.set_title(title)
    figure.tight_layout()
    figure.savefig(RESULTS / f"{name}.png", dpi=120)
    plt.close(figure)


BENCHES: dict[str, Callable[[], tuple[Rows, Any]]] = {
    bench.__name__: bench for bench in (startup, loopback, throughput, growth, rival, cluster)
}


def main(name: str) -> int:
    RESULTS.mkdir(exist_ok=True)
    rows, raw = BENCHES[name]()
    (RESULTS / f"{name}.json").write_text(json.dumps({"rows": rows, "raw": raw}, indent=1) + "\n")
    for found in rows:
        print(f"{found['figure']}: {found['found']}" + (f" (bound: {found['bound']})" if found["bound"] else ""))
    return 1 if any(found["kept"] is False for found in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
