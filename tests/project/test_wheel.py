"""The wheel in a clean venv elsewhere: what a user has who never saw the repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

from support import REPO

pytestmark = pytest.mark.wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the repository as it stands."""
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    done = subprocess.run(build, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (file,) = out.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def place(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A venv with nothing but the wheel; its dependencies are those of this interpreter, so that nothing is fetched."""
    home = tmp_path_factory.mktemp("elsewhere")
    venv.create(home / "venv", with_pip=False)
    python = home / "venv" / "bin" / "python"
    paths = {"base": str(home / "venv"), "platbase": str(home / "venv")}
    site = Path(sysconfig.get_path("purelib", vars=paths))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install"]
    install = [*pip, "--no-deps", "--no-index", str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (home / "work").mkdir()
    return home


def run(place: Path, *arguments: str) -> str:
    """A command of the venv, in a folder that has nothing to do with the repository."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [str(place / "venv" / "bin" / arguments[0]), *arguments[1:]]
    done = subprocess.run(command, cwd=place / "work", capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_is_used_and_not_the_repository(place: Path) -> None:
    where = run(place, "python", "-c", "import skillopt; print(skillopt.__file__, skillopt.__version__)")
    assert where.startswith(str(place / "venv"))
    assert run(place, "skillopt", "--version").strip() == where.split()[1]


def test_the_simulated_quickstart_runs_anywhere(place: Path) -> None:
    small = ["train.num_epochs=1", "env.options={rules: 8, train: 16, val: 8, test: 8}"]
    told = run(place, "skillopt", "train", "--config", "configs/sim/default.yaml", *small)
    assert "Best skill: outputs/sim/" in told
    assert next((place / "work" / "outputs" / "sim").glob("*/report.html")).stat().st_size > 2000


def test_the_mini_data_and_seed_skills_are_inside(place: Path) -> None:
    told = run(place, "skillopt", "plan", "--config", "configs/quickstart/default.yaml")
    assert "48 train" in told
    overrides = ["env.name=qa", "env.options={}", "env.split_dir=data/quickstart", "env.benchmark=tickets"]
    skill = ["--skill", "data/quickstart/seed_skill.md", "--split", "val"]
    told = run(place, "skillopt", "eval", "--config", "configs/sim/default.yaml", *skill, *overrides)
    assert "on 60 val items" in told


def test_init_writes_a_folder_that_trains(place: Path) -> None:
    run(place, "skillopt", "init", "my-task", "--target_model", "sim:world")
    told = run(place, "skillopt", "train", "--config", "my-task/config.yaml", "env.options={limit: {train: 8, val: 4}}")
    assert "Best skill: " in told


def test_the_web_page_starts_and_answers(place: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [str(place / "venv" / "bin" / "skillopt"), "ui", "--port", "0"]
    page = subprocess.Popen(command, cwd=place / "work", stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert page.stdout
        line = next(line for line in page.stdout if "http://" in line)
        (url,) = re.findall(r"http://\S+", line)
        with urllib.request.urlopen(url) as answer:
            assert answer.status == 200
            assert "SkillOpt" in answer.read().decode()
    finally:
        page.terminate()
        page.wait()


def test_every_shipped_config_loads(place: Path) -> None:
    names = [str(path.relative_to(REPO)) for path in sorted((REPO / "configs").rglob("*.yaml"))]
    program = f"import skillopt\nfor name in {names}: skillopt.Config.load(name)\nprint('all')"
    assert run(place, "python", "-c", program).strip() == "all"


def test_a_file_of_the_users_own_stands_before_the_packages(place: Path) -> None:
    own = place / "work" / "configs" / "sim"
    own.mkdir(parents=True)
    (own / "rulebook.yaml").write_text("train: {seed: 7}\n")
    program = "import skillopt; print(skillopt.Config.load('configs/sim/rulebook.yaml').train.seed)"
    assert run(place, "python", "-c", program).strip() == "7"


def test_the_wheel_holds_prompts_types_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"skillopt/py.typed", "skillopt/training/prompts/reflect.md", "skillopt/models/weights.toml"} <= names
    assert "skillopt/_shipped/data/sim/seed_skill.md" in names
    assert not [name for name in names if "test" in name.split("/")[0] or name.endswith(".pyc")]
