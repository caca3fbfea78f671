"""How quick the web page is on a large run: python bench/webui.py [--work FOLDER]

Trains a simulated run of 500 steps over batches of 40 (20,000 training trajectories), adds 3,000 runs to the table,
and opens every view in headless Chromium three times. Prints the seconds until a view's content is there (first, then
the best of the rest), and the server's memory afterwards. The same folder again keeps the run.
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
from skillopt.loop.trainer import TrainingLoop

REPO = Path(__file__).parent.parent
LARGE = [
    "env.benchmark=large",
    "train.num_epochs=50",
    "train.batch_size=40",
    "env.options={rules: 50, train: 400, val: 60, test: 60, topics_per_item: 4}",
    "optimizer.learning_rate=1",
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
}


def prepare(work: Path) -> str:
    """The large run and many small ones; returns the large one's id."""
    large = work / "outputs" / "large"
    if not large.exists():
        config = Config.load(REPO / "configs" / "sim" / "default.yaml", [*LARGE, f"env.output_root={work / 'outputs'}"])
        result = asyncio.run(TrainingLoop(config).fit())
        for number in range(3000):
            folder = work / "outputs" / f"many{number % 9}" / f"seed{number}-00000000"
            folder.mkdir(parents=True)
            for name in ("summary.json", "config.json", "history.json", "run.lock"):
                os.link(result.path / name, folder / name)
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
