"""Measure how long commands take to start, as a ratio to `python -c pass`: python bench/startup.py [rounds]

The figures are the least of several rounds, in which the commands take turns. `first model call` is the time from the
start of `skillopt train` to its first request at a loopback endpoint. Compiled modules are kept between the rounds, as
in an installed package. The last figures are the time to the first model call with 200,000 items in batches of 4, and
its ratio to the time with 100,000 items, from one round each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

CLI = "from skillopt.cli import main; main()"
BOUNDS = {"--version": 23, "--help": 23, "import skillopt": 27, "first model call": 67}
"""The largest allowed ratios: 0.35, 0.35, 0.4 and 1 s on a machine on which `python -c pass` takes 15 ms."""
ITEMS = (100_000, 200_000)
MOST_GROWTH, MOST_SECONDS = 2.5, 30.0
"""The largest allowed growth of the time with twice the items, and the most seconds for 200,000 items (idle core)."""


def python(*words: str) -> float:
    """Run a Python process, and return the seconds from its start to its end."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def first_call(items: int = 0) -> float:
    """Return the seconds until a training's first request. The endpoint refuses the request, which ends the run.

    The tasks are those of the simulated world or, if `items` is given, that many tasks in a file.
    """
    arrived: list[float] = []

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            arrived.append(time.perf_counter())
            self.send_error(401)

        def log_message(self, *words: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Endpoint) as server, tempfile.TemporaryDirectory() as out:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        config = Path(__file__).parent.parent / "configs" / "sim" / "default.yaml"
        models = ["--target_model", "vllm:m", "--optimizer_model", "vllm:m"]
        where = [f"models.target_url={url}", f"models.optimizer_url={url}", f"env.output_root={out}"]
        if items:
            rows = ({"id": str(n), "question": f"What is {n} plus 1?", "answer": str(n + 1)} for n in range(items))
            file = Path(out) / "items.jsonl"
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            where += ["env.name=qa", "env.options={}", f"env.data={file}", "env.scoring=exact", "train.batch_size=4"]
        command = [sys.executable, "-c", CLI, "train", "--config", str(config), *models, *where]
        started = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        server.shutdown()
    return arrived[0] - started


def main(rounds: int = 7) -> dict[str, dict[str, float]]:
    """Return for each command the seconds until it starts, and the ratio to `python -c pass`."""
    starts = {
        "python -c pass": lambda: python("-c", "pass"),
        "--version": lambda: python("-c", CLI, "--version"),
        "--help": lambda: python("-c", CLI, "--help"),
        "import skillopt": lambda: python("-c", "import skillopt"),
        "first model call": first_call,
    }
    least = dict.fromkeys(starts, float("inf"))
    with tempfile.TemporaryDirectory() as compiled:
        os.environ["PYTHONPYCACHEPREFIX"] = compiled
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(rounds):
            for name, start in starts.items():
                least[name] = min(least[name], start())
    base = least.pop("python -c pass")
    return {name: {"seconds": seconds, "ratio": seconds / base} for name, seconds in least.items()}


def many_items() -> dict[str, float]:
    """Return the seconds until the first model call with 200,000 items, and the ratio to 100,000 items."""
    half, all_items = (first_call(items) for items in ITEMS)
    return {"seconds": all_items, "ratio": all_items / half}


if __name__ == "__main__":
    for name, found in main(*map(int, sys.argv[1:])).items():
        print(f"{name}: {found['ratio']:.0f} × python -c pass ({found['seconds']:.2f} s; bound {BOUNDS[name]} ×)")
    grown = many_items()
    print(f"{ITEMS[1]:,} items: {grown['ratio']:.2f} × {ITEMS[0]:,} ({grown['seconds']:.1f} s; bound {MOST_GROWTH} ×)")
