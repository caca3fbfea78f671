"""The guide, command by command, in a copy of the tree in the simulated world: each line is compared by its form."""

from __future__ import annotations

import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from skillopt.models import weights
from support import REPO, skillopt
from support.searchqa import published_file

TRAIN = "scripts/train.py --config configs/searchqa/default.yaml"
SIMULATED = "--target_model sim:world --optimizer_model sim:world?duds=0.5"
SMALLER = "train.num_epochs=2 optimizer.learning_rate=8 'env.options={limit: {val: 60, test: 20}}' hardware.workers=8"
"""Eight steps, as in the guide's sample."""
SHOWN = """\
[Step 1/8] Rollout: 40 items, 8 workers...
[Step 1/8] Score: 0.35 → Reflect...
[Step 1/8] 12 edit patches generated
[Step 1/8] Selected 4 edits (lr=8, cosine → 7.7)
[Step 1/8] Gate: val score 0.42 > 0.38 ✓ ACCEPT
"""
"""The guide's own lines. Its scores and numbers of edits are a sample; all else is fixed."""
LEFT = """config.json history.json runtime_state.json best_skill.md skills/skill_v0000.md skills/skill_v0001.md
steps/step_0001/trajectories.jsonl steps/step_0001/patches.json steps/step_0001/candidate_skill.md steps/step_0008
slow_update/epoch_02 meta_skill/epoch_02"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a clone has, with the published file of SearchQA next to it: no test has a network."""
    root = tmp_path_factory.mktemp("clone")
    for name in ("configs", "data", "scripts", "src"):
        shutil.copytree(REPO / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "published"))
    (root / "data" / "searchqa" / "published").mkdir()
    (root / "data" / "searchqa" / "published" / "SearchQA.jsonl.gz").write_bytes(published_file(800, rules=50))
    return root


def python(clone: Path, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *shlex.split(line)],
        cwd=clone,
        env={**os.environ, "PYTHONPATH": str(clone / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def trained(clone: Path) -> tuple[str, Path]:
    """What the guide's first command printed, and the run's folder."""
    done = python(clone, f"{TRAIN} {SIMULATED} {SMALLER}")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "data/searchqa: 160 train, 80 val, 560 test" in done.stderr
    (run,) = (clone / "outputs" / "searchqa").iterdir()
    return done.stdout, run


def form(line: str) -> str:
    """A line with numbers that may differ; those of the rate and of the plan stay."""
    text = re.escape(line)
    text = re.sub(r"\d\\\.\d\d", r"\\d\\.\\d\\d", text)
    return re.sub(r"\d+\\ (?=edit)", r"\\d+\\ ", text)


@pytest.mark.slow
def test_the_first_step_prints_what_the_guide_shows(trained: tuple[str, Path]) -> None:
    lines = [line for line in trained[0].splitlines() if line.startswith("[Step 1/8]")]
    for shown, line in zip(SHOWN.splitlines(), lines, strict=True):
        assert re.fullmatch(form(shown), line), f"the guide shows {shown!r}, printed was {line!r}"


def test_the_run_leaves_the_files_that_the_guide_lists(trained: tuple[str, Path]) -> None:
    assert [name for name in LEFT.split() if not (trained[1] / name).exists()] == []


@pytest.mark.slow
def test_a_skill_is_measured_as_the_guide_says(clone: Path, trained: tuple[str, Path]) -> None:
    skill = trained[1] / "best_skill.md"
    evaluate = f"scripts/eval_only.py --config configs/searchqa/default.yaml --skill {skill}"
    done = python(clone, f"{evaluate} --target_model sim:world 'env.options={{limit: {{test: 20}}}}'")
    assert done.returncode == 0, done.stderr
    assert re.search(r"Written: \S+eval_summary\.json", done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("module", ["skillopt_webui.app", "skillopt_webui"])
def test_the_page_starts_as_the_guide_says(clone: Path, module: str, request: pytest.FixtureRequest) -> None:
    server = subprocess.Popen(
        [sys.executable, "-u", "-m", module, "--port", "0"],
        cwd=clone,
        env={**os.environ, "PYTHONPATH": str(clone / "src")},
        stdout=subprocess.PIPE,
        text=True,
    )
    request.addfinalizer(server.wait)
    request.addfinalizer(server.terminate)
    assert server.stdout
    assert select.select([server.stdout], [], [], 60)[0], "nothing was printed"
    address = re.search(r"http://127\.0\.0\.1:\d+/\S*", server.stdout.readline())
    assert address
    with urllib.request.urlopen(address[0], timeout=30) as page:
        assert "SkillOpt" in page.read().decode()


@pytest.mark.real_model
@pytest.mark.timeout(1800)
def test_the_screen_of_the_mini_set_is_what_the_real_model_gives(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="needs llama.cpp: pip install 'skillopt[local]'")
    if weights.find("qwen2.5-coder-0.5b") is None:
        pytest.skip("needs the weights: skillopt models pull qwen2.5-coder-0.5b")
    page = (REPO / "docs" / "first_experiment.md").read_text(encoding="utf-8")
    marked = re.search(r"^<!-- real output: (.*) -->\n((?: {4}.*\n)+)", page, re.MULTILINE)
    assert marked
    done = skillopt("train", "--config", "configs/searchqa/mini.yaml", f"env.output_root={tmp_path}")
    lines = [f"    {line}\n" for line in done.stdout.splitlines() if re.search(marked[1], line)]
    workers = re.compile(r"\d+ workers")  # one for each core
    assert workers.sub("", "".join(lines)) == workers.sub("", marked[2])
