"""Measure how fast the web page shows a large run: python bench/webui.py [--work FOLDER]

Trains a simulated run of 500 steps with batches of 40 (20,000 training trajectories), and adds 3,000 runs to the table
and a run with 2,000 items and 40 versions. Opens every view in headless Chromium three times. Prints the seconds until
a view's content is visible (the first time, then the better of the other two), and the server's memory at the end. If
the folder already has these runs, they are used again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from skillopt.config import Config
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json, read_jsonl, write_json, write_jsonl
from skillopt.skill import Skill
from skillopt.training.trainer import TrainingLoop

REPO = Path(__file__).parent.parent
LARGE = [
    "env.benchmark=large",
    "train.num_epochs=50",
    "train.batch_size=40",
    "env.options={rules: 50, train: 400, val: 60, test: 60, topics_per_item: 4}",
    "optimizer.learning_rate=1.6",
    "models.optimizer_model=sim:world?duds=0.8",
]
VIEWS = {
    "runs": ("#/runs", ".runs .line.run"),
    "overview": ("#/run/{run}/overview", ".chart path"),
    "steps": ("#/run/{run}/steps?n=2", "text=Gate, item by item"),
    "skill, blame": ("#/run/{run}/skill", ".ln"),
    "skill, diff": ("#/run/{run}/skill?v=9&mode=diff&a=0", ".sidebyside .add"),
    "items": ("#/run/{run}/items", ".items .virtual .line"),
    "costs": ("#/run/{run}/costs", "text=Time by stage"),
    "2,000 items": ("#/run/0/wide/run/items", ".items .virtual .line"),
    "its overview": ("#/run/0/wide/run/overview", ".chart path"),
}
ITEMS, VERSIONS = 2000, 40


def widen(source: Path, target: Path) -> None:
    """Make a run with 2,000 validation items and 40 versions from a small run. Each version's gate has a trajectory for
    every item."""
    shutil.copytree(source, target)
    run = RunDirectory(target)
    step, record = run.step(1), read_json(run.history)[0]
    gate, rows = read_json(step / "gate.json"), read_jsonl(step / "gate_trajectories.jsonl")
    shutil.rmtree(target / "slow_update", ignore_errors=True)
    history, initial = [], run.read_skill(0)
    for version in range(1, VERSIONS + 1):
        skill = Skill(f"{initial.text}\n- Rule {version}.\n")
        run.write_skill(version, skill)
        folder = run.step(version)
        if not folder.exists():
            shutil.copytree(step, folder)
        evidence = [
            {"item_id": f"val-{n:04}", "before": 0.0, "after": float(n % VERSIONS < version), "repeats": 0}
            for n in range(ITEMS)
        ]
        evidence = [row | {"hard": row["after"]} for row in evidence]
        write_json(
            folder / "gate.json", gate | {"evidence": evidence, "candidate_hash": skill.hash, "decision": "accept"}
        )
        write_jsonl(
            folder / "gate_trajectories.jsonl",
            [rows[n % len(rows)] | {"item_id": f"val-{n:04}", "skill_hash": skill.hash} for n in range(ITEMS)],
        )
        history.append(record | {"step": version, "version": version, "verdict": "accept"})
    write_json(run.history, history)
    summary = read_json(run.summary)
    write_json(run.summary, summary | {"best": summary["best"] | {"version": VERSIONS}})


def prepare(work: Path) -> str:
    """Make the large run and many small runs; return the id of the large run."""
    large = work / "outputs" / "large"
    if not large.exists():
        config = Config.load(REPO / "configs" / "sim" / "default.yaml", [*LARGE, f"env.output_root={work / 'outputs'}"])
        result = asyncio.run(TrainingLoop(config).fit())
        for number in range(3000):
            folder = work / "outputs" / f"many{number % 9}" / f"seed{number}-00000000"
            folder.mkdir(parents=True)
            for name in ("summary.json", "config.json", "history.json", "run.lock"):
                os.link(result.path / name, folder / name)
    if not (work / "outputs" / "wide").exists():
        small = ["train.num_epochs=1", f"env.output_root={work / 'small'}"]
        result = asyncio.run(TrainingLoop(Config.load(REPO / "configs" / "sim" / "default.yaml", small)).fit())
        widen(result.path, work / "outputs" / "wide" / "run")
    return f"0/large/{next(large.iterdir()).name}"


def measure(url: str, run: str) -> None:
    from playwright.sync_api import sync_playwright

    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(url)
        for name, (path, content) in VIEWS.items():
            seconds = []
            for _ in range(3):
                page.goto("about:blank")
                started = time.monotonic()
                page.goto(url + path.format(run=run))
                page.locator(content).first.wait_for(state="attached")
                seconds.append(time.monotonic() - started)
            print(f"{name:14} {seconds[0]:6.2f} s first, {min(seconds[1:]):.2f} s again")
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("outputs/bench_webui"))
    work: Path = parser.parse_args().work.resolve()
    run = prepare(work)
    command = [sys.executable, "-m", "skillopt_webui.app", "--port", "0"]
    server = subprocess.Popen(command, cwd=work, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        found = re.search(r"http://\S+/", server.stdout.readline())
        assert found
        measure(found[0], run)
        status = Path(f"/proc/{server.pid}/status").read_text()
        memory = dict(re.findall(r"(VmRSS|VmHWM):\s+(\d+)", status))
        print(f"server memory  {int(memory['VmRSS']) / 1024:.0f} MB now, {int(memory['VmHWM']) / 1024:.0f} MB at most")
        print(f"load average   {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    finally:
        server.terminate()
        server.wait(10)


if __name__ == "__main__":
    main()
