"""Each change of docs/extending.md is taken from the page, made in a copy of src, counted and used."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from skillopt.record.run import Run
from support import REPO, SMALL, sim_server

pytestmark = pytest.mark.docs
PAGE = (REPO / "docs" / "extending.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| \[(?P<name>[\w ]+)\]\(#(?P<anchor>[\w-]+)\) \| (?P<count>\d)(?P<folder> folder)? \| ", re.MULTILINE
)
PROMISES = {row["name"]: row for row in ROW.finditer(PAGE)}


@dataclass
class Tree:
    """A copy of src that Python prefers to the installed one."""

    root: Path
    variables: dict[str, str] = field(default_factory=dict)

    def apply(self, name: str) -> None:
        """Make a change as the page writes it; every text that it replaces is there exactly once."""
        section = PAGE.partition(f"\n### A {name}\n")[2].partition("\n### ")[0]
        block = re.search(r"```diff\n(.*?)```", section, re.DOTALL)
        assert block, name
        for part in re.split(r"^--- ", block[1], flags=re.MULTILINE)[1:]:
            path, _, body = part.partition("\n")
            file = self.root / path
            text = file.read_text(encoding="utf-8") if file.exists() else ""
            for hunk in body.split("@@\n"):
                lines = hunk.splitlines()
                before = "\n".join(line[1:] for line in lines if line[:1] in {" ", "-"})
                after = "\n".join(line[1:] for line in lines if line[:1] in {" ", "+"})
                if file.exists():
                    assert text.count(before) == 1, (path, before)
                text = text.replace(before, after) if before else after + "\n"
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")

    def changed(self) -> set[str]:
        """Files of src that are new or have another text."""
        files = [path.relative_to(self.root) for path in (self.root / "src").rglob("*") if path.is_file()]
        return {
            str(path)
            for path in files
            if not (REPO / path).exists() or (REPO / path).read_bytes() != (self.root / path).read_bytes()
        }

    def python(self, *arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(self.root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env={**environment, **self.variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def train(self, *overrides: str, config: str = "configs/sim/default.yaml") -> Run:
        out = self.root / "out"
        self.python("-m", "skillopt.cli", "train", "--config", config, *overrides, f"env.output_root={out}")
        (run,) = out.glob("*/*")
        return Run.open(run)


@pytest.fixture
def tree(tmp_path: Path, request: pytest.FixtureRequest) -> Tree:
    """With the change that the test is about; it touches as many files as the page says."""
    shutil.copytree(REPO / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("configs", "data"):
        (tmp_path / name).symlink_to(REPO / name)
    copy = Tree(tmp_path)
    copy.apply(request.param)
    files = copy.changed()
    promise = PROMISES[request.param]
    touched = {str(Path(file).parent) for file in files} if promise["folder"] else files
    assert len(touched) == int(promise["count"]), files
    assert copy.python("-c", "import skillopt; print(skillopt.__file__)").startswith(str(tmp_path))
    return copy


def about(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("tree", [name], indirect=True)


def test_the_page_keeps_to_these_numbers() -> None:
    assert {name: int(row["count"]) for name, row in PROMISES.items()} == {
        "scorer": 1,
        "schedule": 1,
        "gate": 2,
        "provider": 1,
        "benchmark": 1,
        "column of the report": 2,
        "config key": 1,
        "command": 1,
    }
    assert PROMISES["benchmark"]["folder"]


def test_the_files_of_the_other_changes_exist() -> None:
    paths = set(re.findall(r"`([\w./-]+(?:/|\.(?:py|md|js)|/[\w-]+))`", PAGE.partition("### Other changes")[2]))
    assert len(paths) > 12
    roots = (REPO / "src" / "skillopt", REPO)
    assert not {path for path in paths if not any((root / path).exists() for root in roots)}


@about("scorer")
def test_a_scorer(tree: Tree) -> None:
    run = tree.train(*SMALL, "env.scoring=prefix")
    assert run.summary is not None
    assert run.summary.best.val > run.summary.initial.val
    assert "begins with" in tree.python(
        "-c", "from skillopt.tasks.scoring import DESCRIPTIONS; print(DESCRIPTIONS['prefix'])"
    )


@about("schedule")
def test_a_schedule(tree: Tree) -> None:
    run = tree.train("train.num_epochs=1", "optimizer.lr_scheduler=halves")
    rates = [record.learning_rate.scheduled for record in run.history]
    assert rates[0] == 4
    assert rates[-1] == 2.5  # half of the way to the lowest rate, 1


@about("gate")
def test_a_gate(tree: Tree) -> None:
    run = tree.train(*SMALL, "evaluation.gate=margin")
    assert {gate.gate for record in run.history if (gate := run.gate(record.step))} == {"margin"}


@about("provider")
def test_a_provider(tree: Tree) -> None:
    with sim_server() as (_, url):
        tree.variables = {"ACME_API_KEY": "x", "ACME_BASE_URL": url}
        run = tree.train(*SMALL, "models.target_model=acme:world")
    assert run.history
    assert run.config.models.target_model == "acme:world"


@about("benchmark")
def test_a_benchmark(tree: Tree) -> None:
    (tree.root / "adder.py").write_text(
        "def add(item, skill, model):\n"
        "    a, b = (int(word) for word in item.question.strip('?').split() if word.isdigit())\n"
        "    return str(a + b if a % 2 else a)\n"
    )
    run = tree.train(
        "env.agent=adder.py:add",
        "models.target_model=sim:world",
        "models.optimizer_model=sim:world",
        config="src/skillopt_benchmarks/sums/default.yaml",
    )
    assert run.summary is not None
    assert (run.summary.benchmark, run.summary.initial.val) == ("sums", 0.5)


@about("column of the report")
def test_a_column_of_the_report(tree: Tree) -> None:
    page = tree.train(*SMALL).files.report.read_text(encoding="utf-8")
    steps = page.partition("All steps</h2>")[2]
    assert "kept</th>" in steps
    assert re.search(r"\d+%</td>", steps)


@about("config key")
def test_a_config_key(tree: Tree) -> None:
    program = """
from skillopt.config import Config
from skillopt.errors import UserError
from skillopt_webui.forms import KINDS
config = Config.load("configs/sim/default.yaml", ["train.warmup_steps=2"])
assert config.train.warmup_steps == 2 and config.identity()["train.warmup_steps"] == 2
assert "train.warmup_steps" not in Config.load("configs/sim/default.yaml").identity()
assert KINDS["train.warmup_steps"]["doc"].startswith("Steps at the lowest") and KINDS["train.warmup_steps"]["min"] == 0
try:
    Config.load("configs/sim/default.yaml", ["train.warmup_steps=-1"])
except UserError as error:
    print(error)
"""
    assert "train.warmup_steps: Input should be greater than or equal to 0" in tree.python("-c", program)
    reference = "import runpy; print(runpy.run_path(r'{}')['config_page']())".format(
        REPO / "scripts" / "make_reference.py"
    )
    assert "`train.warmup_steps`" in tree.python("-c", reference)


@about("command")
def test_a_command(tree: Tree) -> None:
    run = tree.train(*SMALL)
    assert tree.python("-m", "skillopt.cli", "count", str(run.files.root)).strip() == str(len(run.history))
    group = tree.python("-m", "skillopt.cli", "--help").partition("Look at runs:")[2].partition("Page, agents")[0]
    assert "Count the finished steps of a run." in group
