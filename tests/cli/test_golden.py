"""What each command prints, in one file a command: tests/data/cli/<command>.txt.

`SKILLOPT_GOLDEN=write pytest tests/cli/test_golden.py` writes the files anew; read the difference before you commit it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

import skillopt as package
from skillopt.cli.app import GROUPS
from skillopt.errors import Stopped
from support import REPO, skillopt
from support.packages import write_package
from support.transcripts import plain

GOLDEN = REPO / "tests" / "data" / "cli"
CONFIG = """\
train: {num_epochs: 2, batch_size: 6, init_skill: seed.md}
optimizer: {learning_rate: 4, lr_scheduler: cosine}
gradient: {analysts: [llm]}
models: {target_model: 'sim:world', optimizer_model: 'sim:world?duds=0.35'}
env: {name: sim, benchmark: sim, options: {rules: 8, train: 12, val: 8, test: 6}}
hardware: {workers: 1}
"""
TASKS = "".join(f'{{"id": "q{n}", "question": "What is {n} plus {n}?", "answer": "{2 * n}"}}\n' for n in range(12))
NOISY = "models.target_model=sim:world?noise=0.1"
COMMANDS: dict[str, list[str]] = {
    "init": ["init made --from tasks.jsonl --target_model sim:world", "init made", "init other --from none.csv"],
    "harvest": [
        "harvest --source plain --from sessions.jsonl --dry-run",
        "harvest --source plain --from sessions.jsonl",
        "harvest review harvest",
        "harvest review harvest --keep rules --skill seed.md",
        "harvest --source claud",
        "harvest review none",
    ],
    "split": ["split more.jsonl --seed 3", "split more.jsonl", "split none.jsonl"],
    "doctor": ["doctor -c config.yaml --offline"],
    "probe": [
        "probe -c config.yaml",
        "probe -c config.yaml --items 2 --samples 1 --json",
        "probe -c config.yaml budget.max_calls=3 --samples 2",
    ],
    "plan": ["plan -c config.yaml", "plan -c config.yaml --target-seconds 2"],
    "train": [
        "train -c config.yaml env.output_root=trained",
        "train -c config.yaml env.output_root=trained",
        "train -c config.yaml env.output_root=trained train.num_epochs=1",
        "train -c config.yaml env.output_root=trained train.num_epochs=3",
        "train -c config.yaml env.output_root=trained optimizer.learning_rate=2 budget.max_calls=20",
        "train -c config.yaml env.output_root=more optimizer.learning_rate=2 train.num_epochs=1 evaluation.test=false",
        "train -c config.yaml env.output_root=more optimizer.learning_rate=2 train.num_epochs=1",
        "train -c config.yaml env.output_root=more optimizer.learning_rate=2 train.num_epochs=2",
        f"train -c config.yaml env.output_root=noisy {NOISY} evaluation.gate=paired train.num_epochs=1",
        "train -c config.yaml --resume --fresh",
    ],
    "import": ["import house-codes --to again", "import house-codes -c config.yaml"],
    "replicate": ["replicate -c config.yaml env.output_root=seeds --seeds 2 train.num_epochs=1"],
    "sweep": ["sweep -c config.yaml env.output_root=swept train.num_epochs=1 optimizer.learning_rate=2,4"],
    "transfer": ["transfer RUN --to config.yaml env.output_root=moved train.num_epochs=1"],
    "review": ["review CONFLICT", "review CONFLICT --choose 1-1=a", "review CONFLICT", "review CONFLICT --choose 9=a"],
    "letters": ["letters WAITING", "letters WAITING --json"],
    "answer": ["answer WAITING 1 seed.md", "answer WAITING 99 seed.md", "letters WAITING"],
    "eval": ["eval -c config.yaml --skill seed.md env.output_root=eval --out eval"],
    "compare": ["compare seed.md best.md -c config.yaml env.output_root=compared"],
    "check": [
        "check best.md -c config.yaml --base seed.md env.output_root=checked",
        "check seed.md -c config.yaml --base best.md env.output_root=checked",
        "check best.md -c config.yaml --targets sim:world,sim:world?noise=1 env.output_root=checked",
        "check best.md -c config.yaml --watch matrix.json env.output_root=checked",
        "check best.md -c config.yaml --watch matrix.json env.output_root=checked",
    ],
    "ablate": ["ablate COPY", "ablate COPY --by step"],
    "prune": ["prune COPY --dry-run", "prune COPY", "prune none"],
    "route": ["route routing/skills -c routing/config.yaml", "route none -c routing/config.yaml"],
    "lint": ["lint seed.md", "lint house-codes", "lint routing/skills", "lint none.md"],
    "runs": ["runs outputs", "runs none"],
    "report": ["report COPY"],
    "blame": [
        "blame RUN",
        "blame RUN --line 12",
        "blame RUN --version 1",
        "blame RUN --trace 0001-000",
        "blame RUN --line 999",
        "blame RUN --trace 9999-000",
        "blame RUN --version 99",
    ],
    "diff": [
        "diff RUN",
        "diff RUN@0 RUN@1",
        "diff RUN RUN",
        "diff RUN CONFLICT",
        "diff RUN@99 RUN",
        "diff seed.md best.md",
    ],
    "verify": ["verify RUN", "verify BROKEN"],
    "export": ["export RUN --to exported/codes", "export RUN --to exported/codes"],
    "propose": ["propose RUN", "propose RUN --out none/none --to none.md", "propose RUN"],
    "adopt": [
        "propose RUN --out staged --to AGENTS.md",
        "adopt staged",
        "adopt staged",
        "adopt staged --undo",
        "adopt none",
    ],
    "ui": ["ui --help", "ui --port 99999"],
    "mcp": ["mcp --help"],
    "models": ["models --help", "models pull none"],
    "data": ["data --help", "data prepare none", "data generate searchqa --out x"],
    "sim": ["sim --help"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Configs, tasks, skills and runs, under the names that the commands above use."""
    root = tmp_path_factory.mktemp("golden")
    (root / "config.yaml").write_text(CONFIG)
    for name in ("tasks.jsonl", "more.jsonl"):
        (root / name).write_text(TASKS)
    shutil.copy(REPO / "data" / "sim" / "seed_skill.md", root / "seed.md")
    wrong_then_right = [("npm install {}", "no, use pnpm"), ("pnpm add {}", "")]
    sessions = [
        (
            f"s{n}",
            [
                (role, text.format(n))
                for answer, said in wrong_then_right
                for role, text in (("assistant", answer), ("user", said))
                if text
            ],
        )
        for n in range(8)
    ]
    plain(root / "sessions.jsonl", [(name, [("user", f"add package {name}"), *turns]) for name, turns in sessions])
    write_package(root / "house-codes")
    shutil.copytree(REPO / "examples" / "routing", root / "routing")
    with contextlib.chdir(root):
        done = package.train("config.yaml")
        shutil.copy(done.path / "best_skill.md", "best.md")
        shutil.copytree(done.path, "copies/sim/seed42-copy")
        shutil.copytree(done.path, "copies/sim/seed42-broken")
        with Path("copies/sim/seed42-broken/skills/skill_v0001.md").open("a") as file:
            file.write("more\n")
        planted = {"train": 40, "rules": 20, "val": 20, "test": 4}
        with pytest.raises(Stopped):
            package.train(
                "config.yaml",
                optimizer_model="sim:world?opposites=1",
                env={"output_root": "conflict", "options": planted},
                batch_size=10,
                num_epochs=1,
                budget={"max_calls": 70},
            )
        waiting = package.Trainer("config.yaml", optimizer_model="handoff", env={"output_root": "waiting"})
        waiting.on(package.events.LettersOpened, lambda event: waiting.interrupt())
        with pytest.raises(Stopped):
            waiting.fit()
    return root


def path_of(word: str, folder: Path) -> str:
    """RUN, COPY and the like as the folder of that run."""
    roots = {"RUN": "outputs/sim", "CONFLICT": "conflict/sim", "WAITING": "waiting/sim"}
    roots |= {"COPY": "copies/sim/seed42-copy", "BROKEN": "copies/sim/seed42-broken"}
    name, at, version = word.partition("@")
    if name not in roots:
        return word
    root = folder / roots[name]
    run = root if root.name.startswith("seed") else next(path for path in root.iterdir() if path.is_dir())
    return f"{run.relative_to(folder)}{at}{version}"


def normal(text: str, folder: Path) -> str:
    """Without what differs between two machines or two days."""
    for pattern, name in (
        (re.escape(str(folder)), "FOLDER"),
        (r"(?<=[a-z0-9])-[0-9a-f]{8}\b", "-ID"),
        (r"\b[0-9a-f]{12,64}\b", "HASH"),
        (r"\b20\d\d-\d\d-\d\d(?:[T ][\d:.+\\]+|_\d\d-\d\d-\d\d)?", "DATE"),
        (r"\b\d+(?:\.\d+)?(?:e-\d+)? (?:s|min|h)\b", "TIME"),
        (r"(?<=Time by stage: ).*", "TIMES"),
        (r"[\d.]+ GB free", "SPACE free"),
        (re.escape(package.__version__), "VERSION"),
        (r"(?<=\S) {2,}", "  "),
    ):
        text = re.sub(pattern, name, text)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_prints_what_its_file_says(folder: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "argv", ["skillopt"])
    told = ""
    for line in COMMANDS[command]:
        words = [path_of(word, folder) for word in line.split()]
        done = skillopt(*words, cwd=folder, env={"SKILLOPT_CACHE": str(folder / "cache")})
        assert "Traceback" not in done.stderr, done.stderr
        told += f"$ skillopt {line}\n{normal(done.stdout + done.stderr, folder)}exit code {done.returncode}\n\n"
    if command == "report":
        told += normal((folder / path_of("COPY", folder) / "report.md").read_text(encoding="utf-8"), folder)
    path = GOLDEN / f"{command}.txt"
    if os.environ.get("SKILLOPT_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(told, encoding="utf-8")
    assert told == path.read_text(encoding="utf-8")


def test_every_command_has_a_file() -> None:
    assert set(COMMANDS) == {name for names in GROUPS.values() for name in names}
    assert {path.stem for path in GOLDEN.iterdir()} == set(COMMANDS)
