"""Make the pictures of the web page in docs/images/, from runs in the simulated world: python scripts/screenshots.py

Needs playwright and Chromium (scripts/install_chromium.sh).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
IMAGES = REPO / "docs" / "images"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
ALONE = "gradient.analysts=[llm]"
PICTURES = (
    ("runs_light", "#/runs", ".spark path", {}),
    ("run_light", "#/run/{live}/overview", ".livebar", {}),
    ("overview_light", "#/run/{done}/overview", ".newlines li", {}),
    ("items_light", "#/run/{done}/items?mode=improved", ".items .virtual .line", {}),
    ("blame_dark", "#/run/{done}/skill", ".doc button.ln:not([data-seq='0'])", {"scheme": "dark"}),
    ("new_light", "#/new", "#launch", {}),
    ("run_phone_dark", "#/run/{done}/overview", ".verdict", {"scheme": "dark", "width": 390, "height": 844}),
)
"""For each picture: its name, the page's address, the element to wait for, and the browser's settings."""


def train(*overrides: str) -> list[str]:
    return [sys.executable, "-m", "skillopt.cli", "train", "--config", "configs/sim/default.yaml", *overrides]


def folder_of(work: Path, seed: int) -> str:
    (found,) = (work / "outputs" / "sim").glob(f"*_seed{seed}-*")
    return f"0/sim/{found.name}"


def take(url: str, runs: dict[str, str]) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name, address, content, look in PICTURES:
            size = {"width": look.get("width", 1280), "height": look.get("height", 860)}
            scheme: Any = look.get("scheme", "light")
            page = browser.new_page(viewport=size, color_scheme=scheme)
            page.goto(url + address.format(**runs))
            page.locator(content).first.wait_for()
            if name == "blame_dark":
                page.locator(content).first.click()
            if name == "new_light":
                page.get_by_text("steps in").first.wait_for()
            page.wait_for_timeout(600)
            page.screenshot(path=IMAGES / f"{name}.png")
            page.close()
        browser.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for name in ("configs/sim", "data/sim"):
            shutil.copytree(REPO / name, work / name)
        for seed in (1, 2, 3):
            subprocess.run(train(f"train.seed={seed}", ALONE), cwd=work, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        slow = train("train.seed=42", ALONE, "models.target_model=sim:world?latency=1", "hardware.workers=16")
        live = subprocess.Popen(slow, cwd=work, stdout=subprocess.DEVNULL)  # noqa: S603
        command = [sys.executable, "-m", "skillopt_webui.app", "--port", "0"]
        server = subprocess.Popen(command, cwd=work, stdout=subprocess.PIPE, text=True)  # noqa: S603
        try:
            assert server.stdout
            found = re.search(r"http://\S+/", server.stdout.readline())
            assert found
            url = found[0]
            while len(steps_of(url, work)) < 4 and live.poll() is None:
                time.sleep(1)
            take(url, {"live": folder_of(work, 42), "done": folder_of(work, 1)})
        finally:
            for process in (live, server):
                process.terminate()
                process.wait()
    print(f"Written: {', '.join(f'{name}.png' for name, *_ in PICTURES)} in {IMAGES}")


def steps_of(url: str, work: Path) -> list[Any]:
    if not list((work / "outputs" / "sim").glob("*_seed42-*/summary.json")):
        return []
    with urllib.request.urlopen(f"{url}api/runs/{folder_of(work, 42)}") as answer:  # noqa: S310
        steps: list[Any] = json.load(answer)["steps"]
        return steps


if __name__ == "__main__":
    main()
