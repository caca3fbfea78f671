"""Run every bench and show its results: python bench/run.py [name …], or `make bench`.

The speed benches (startup, loopback, throughput, growth, rival, cluster) write bench/results/<name>.json and a plot,
and their results are shown in one table. Other benches print their own tables, which are stored in
bench/results/<name>.txt. Times are ratios within one run; the docs name the machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results"
SPEED = ("startup", "loopback", "throughput", "growth", "rival", "cluster")
TALK = {"rulebook": [], "similarity": [], "weather": [], "soak": [], "gate": ["--trials", "100"], "local": []}


def run(name: str) -> bool:
    """Run one bench in a separate process, show its output, and store the output of benches that print tables."""
    print(f"== {name}", flush=True)
    started = time.monotonic()
    script = [str(HERE / "speed.py"), name] if name in SPEED else [str(HERE / f"{name}.py"), *TALK[name]]
    with subprocess.Popen(
        [sys.executable, *script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    if name in TALK:
        (RESULTS / f"{name}.txt").write_text("".join(lines))
    print(f"== {name}: {'failed' if process.returncode else 'done'} after {time.monotonic() - started:.0f} s\n")
    return process.returncode == 0


def table() -> str:
    """Return the table of all speed benches that have been run."""
    lines = ["| bench | figure | found | bound | kept |", "|---|---|---|---|---|"]
    for name in SPEED:
        path = RESULTS / f"{name}.json"
        for row in json.loads(path.read_text())["rows"] if path.exists() else []:
            kept = {True: "yes", False: "NO", None: ""}[row["kept"]]
            lines.append(f"| {name} | {row['figure']} | {row['found']} | {row['bound']} | {kept} |")
    return "\n".join(lines)


def main(names: list[str]) -> int:
    known = [*SPEED, *TALK]
    for name in names:
        if name not in known:
            print(f"unknown bench '{name}'; known are: {', '.join(known)}", file=sys.stderr)
            return 2
    RESULTS.mkdir(exist_ok=True)
    failed = [name for name in names or known if not run(name)]
    print(table())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
