"""The guide, command by command, in a fresh clone in the simulated world: each line is compared with a pattern."""

from __future__ import annotations

import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path

import pytest
import yaml

from skillopt.models import weights
from support import REPO, skillopt
from support.searchqa import published_file

TRAIN = "scripts/train.py --config configs/searchqa/default.yaml"
EVALUATE = "scripts/eval_only.py --config configs/searchqa/default.yaml --skill {}/skills/best_skill.md"
SIMULATED = "--target_model sim:world --optimizer_model sim:world?duds=0.5"
SMALLER = "train.num_epochs=2 optimizer.learning_rate=8 'env.options={limit: {val: 60, test: 20}}' hardware.workers=8"
"""Eight steps, as in the guide's sample."""
CONFIG = {
    "train": {"num_epochs": 4, "batch_size": 40},
    "optimizer": {"learning_rate": 4, "lr_scheduler": "cosine", "use_slow_update": True, "use_meta_skill": True},
    "gradient": {"analyst_workers": 16},
    "evaluation": {"use_gate": True},
}
"""The settings that the guide shows of its config file."""
FIRST_STEP = (
    r"\[Step 1/8\] Rollout: 40 items, 8 workers\.\.\.",
    r"\[Step 1/8\] Score: [01]\.\d\d → Reflect\.\.\.",
    r"\[Step 1/8\] \d+ edit patches generated",
    r"\[Step 1/8\] Selected \d+ edits \(lr=8, cosine → 7\.7\)",
    r"\[Step 1/8\] Gate: val score [01]\.\d\d > [01]\.\d\d ✓ ACCEPT",
)
"""The guide's lines. Scores and numbers of edits are samples; all else is fixed."""
LATER_STEP = (
    r"Rollout: 40 items, 8 workers\.\.\.",
    r"Score: [01]\.\d\d → Reflect\.\.\.",
    r"\d+ edit patches generated",
    r"Selected \d+ edits \(lr=8, cosine → \d\.\d\)",
    r"Gate: (val score .* (✓ ACCEPT|✗ REJECT)|no edit to test · SKIP).*",
)
RUN_ID = r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_seed42-[0-9a-f]{8}"
LEFT = """steps/step_0001/candidate_skill.md steps/step_0001/step_record.json steps/step_0001/trajectory_digest.json
steps/step_0002 slow_update/epoch_02 meta_skill/epoch_02 skills/step_0001.md skills/best_skill.md best_skill.md
history.json config.yaml config.json runtime_state.json steps/step_0001/trajectories.jsonl steps/step_0001/patches.json
skills/skill_v0000.md skills/skill_v0001.md steps/step_0008 slow_update/epoch_02/comparison.json
meta_skill/epoch_02/memory.md"""


def tracked() -> list[str]:
    """What a fresh clone has of the folders that the guide uses."""
    folders = ("configs", "data", "scripts", "src")
    if not (REPO / ".git").exists():
        found = (path for folder in folders for path in (REPO / folder).rglob("*") if path.is_file())
        return [str(path.relative_to(REPO)) for path in found]
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *folders]
    names = subprocess.run(listed, cwd=REPO, capture_output=True, text=True, check=True).stdout.split("\0")
    return [name for name in names if name and (REPO / name).is_file()]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh clone, with the published file of SearchQA in it: no test has a network."""
    root = tmp_path_factory.mktemp("clone")
    for name in tracked():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, root / name)
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
    """What the guide's command to train printed, and the run's folder."""
    done = python(clone, f"{TRAIN} {SIMULATED} {SMALLER}")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "data/searchqa: 160 train, 80 val, 560 test" in done.stderr
    (run,) = (clone / "outputs" / "searchqa").iterdir()
    return done.stdout, run


def test_the_config_has_the_settings_that_the_guide_shows(clone: Path) -> None:
    settings = yaml.safe_load((clone / "configs" / "searchqa" / "default.yaml").read_text(encoding="utf-8"))
    for section, keys in CONFIG.items():
        assert {key: settings[section][key] for key in keys} == keys


@pytest.mark.slow
def test_the_first_step_prints_what_the_guide_shows(trained: tuple[str, Path]) -> None:
    lines = [line for line in trained[0].splitlines() if line.startswith("[Step 1/8]")]
    for pattern, line in zip(FIRST_STEP, lines, strict=True):
        assert re.fullmatch(pattern, line), f"the guide shows {pattern!r}, printed was {line!r}"


@pytest.mark.slow
def test_the_steps_after_it_print_lines_of_the_same_form(trained: tuple[str, Path]) -> None:
    for step in range(2, 9):
        start = f"[Step {step}/8] "
        lines = [line.removeprefix(start) for line in trained[0].splitlines() if line.startswith(start)]
        for pattern, line in zip(LATER_STEP, lines, strict=False):
            assert re.fullmatch(pattern, line), f"step {step}: expected {pattern!r}, printed was {line!r}"
        assert len(lines) >= len(LATER_STEP)


def test_the_run_leaves_the_files_that_the_guide_lists(trained: tuple[str, Path]) -> None:
    assert re.fullmatch(RUN_ID, trained[1].name)
    assert [name for name in LEFT.split() if not (trained[1] / name).exists()] == []


@pytest.mark.slow
def test_a_skill_is_measured_as_the_guide_says(clone: Path, trained: tuple[str, Path]) -> None:
    evaluate = EVALUATE.format(trained[1].relative_to(clone))
    done = python(clone, f"{evaluate} --target_model sim:world 'env.options={{limit: {{test: 20}}}}'")
    assert done.returncode == 0, done.stderr
    assert re.search(r"Written: \S+eval_summary\.json", done.stdout)


def test_the_page_needs_the_extra_that_the_guide_installs_and_has_its_port(clone: Path) -> None:
    extras = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "webui" in extras
    done = python(clone, "-m skillopt_webui.app --help")
    assert "7860" in done.stdout


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
