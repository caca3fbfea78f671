"""The task sets, each with its config and its items.

Published sets are read from the folder that --data names (README.md says where to get them). A fixed random selection
of each set becomes a split folder below the folder of the results. Nothing of it is stored in the repository.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.tasks.base import Item
from skillopt_benchmarks import bbh, formula
from skillopt_benchmarks.reasoning_gym import generate
from skillopt_benchmarks.rows import write_splits

from .cells import OPTIMIZERS, TARGETS, VARIANTS, Cell

HERE = Path(__file__).resolve().parent
CONFIGS = HERE.parents[1] / "configs"
TASKS = HERE / "tasks"
SIZES = {"train": 24, "val": 16, "test": 32}
MINIBATCH = 8
"""The size of gepa's minibatches."""
REPEATABLE = ("hardware.workers=1", "hardware.call_timeout=1800", "hardware.max_retry_seconds=7200")
"""Settings that make a run repeatable. With one rollout at a time, a gate that stops early has always paid for the same
rollouts. With long time limits, no rollout is given up on a busy machine, which would change the run."""


@dataclass(frozen=True, kw_only=True)
class TaskSet:
    config: Path
    overrides: tuple[str, ...] = ()
    published: str = ""
    """The path of the set's items in the folder that --data names; empty for sets in the repository."""
    family: str = ""
    """The family of reasoning-gym that makes the items; empty for other sets."""
    extra: str = ""
    """The extra of the package that is needed to do or replay the tasks; empty if no extra is needed."""


def _bbh(kind: str, *overrides: str) -> TaskSet:
    own = f"env.benchmark=bbh_{kind}"
    return TaskSet(config=TASKS / "bbh.yaml", overrides=(own, *overrides), published=f"bbh/{kind}.json")


FAMILIES = {"family": "family_relationships", "reversal": "word_sequence_reversal", "format": "number_format"}
"""Families of reasoning-gym on which the 1.5B model is sometimes right without a skill. Left out are `gcd`,
`letter_counting`, `aiw` (0 of 32 tasks right in each), `syllogism` (0 of 12) and `products` (3 of 12)."""
SETS: dict[str, TaskSet] = {
    **{name: TaskSet(config=TASKS / name / "config.yaml") for name in ("expenses", "cards", "procedure", "tickets")},
    **{
        name: TaskSet(config=CONFIGS / name / "mini.yaml")
        for name in ("searchqa", "docvqa", "livemathematicianbench", "officeqa")
    },
    "reasoning_gym": TaskSet(config=CONFIGS / "reasoning_gym" / "mini.yaml", extra="reasoning_gym"),
    "textworld": TaskSet(
        config=CONFIGS / "textworld" / "mini.yaml", overrides=("models.target_max_tokens=24",), extra="textworld"
    ),
    "alfworld": TaskSet(
        config=CONFIGS / "alfworld" / "mini.yaml", overrides=("env.options={steps: 10, history: 4}",), extra="alfworld"
    ),
    "bbh_boolean": _bbh("boolean_expressions"),
    "bbh_date": _bbh("date_understanding"),
    "bbh_navigate": _bbh("navigate"),
    "bbh_counting": _bbh("object_counting", "env.scoring=number"),
    "bbh_sports": _bbh("sports_understanding"),
    "bbh_sorting": _bbh("word_sorting"),
    "bbh_adjectives": _bbh("hyperbaton"),
    "formula": TaskSet(config=TASKS / "formula.yaml", published="formula"),
    **{name: TaskSet(config=TASKS / f"{name}.yaml", published=name) for name in ("symptoms", "banking77", "scan")},
    **{
        f"rg_{name}": TaskSet(
            config=TASKS / "rg.yaml", overrides=(f"env.benchmark=rg_{name}",), family=family, extra="reasoning_gym"
        )
        for name, family in FAMILIES.items()
    },
    "rulebook": TaskSet(
        config=CONFIGS / "sim" / "rulebook.yaml",
        overrides=("env.options={rules: 6, train: 12, val: 12, test: 12}", "train.num_epochs=2", "train.batch_size=6"),
    ),
}
"""All task sets, by name. `rulebook` is the simulated world, for tests of this command."""


def load(cell: Cell, folder: Path, *, data: Path | None = None, box: Path | None = None) -> Config:
    """Return the config of a cell. Its run is below `folder`; its letters go to the folder `box`."""
    if cell.set not in SETS:
        raise UserError(f"set '{cell.set}' is not one of: {', '.join(SETS)}")
    own = SETS[cell.set]
    overrides = [*own.overrides, f"train.seed={cell.seed}", f"env.output_root={folder / 'runs'}"]
    overrides += [*OPTIMIZERS[cell.optimizer], *(VARIANTS[cell.method].settings if cell.method in VARIANTS else ())]
    overrides += [*REPEATABLE, *TARGETS[cell.target]]
    if box is not None:
        overrides.append(f"models.optimizer_model=handoff:{box}")
    if own.published or own.family:
        overrides.append(f"env.split_dir={prepared(cell.set, folder.parent / 'data', data)}")
    return Config.load(own.config, overrides)


def most_rollouts(config: Config, sizes: dict[str, int]) -> int:
    """Return the most rollouts of SkillOpt's training without credit and race. The rivals get the same number."""
    train, val = config.train, sizes["val"]
    steps = train.num_epochs * -(-sizes["train"] // train.batch_size)
    slow = 2 * min(config.optimizer.slow_update_samples, sizes["train"]) + val
    return val + steps * (min(train.batch_size, sizes["train"]) + val) + (train.num_epochs - 1) * slow


def prepared(name: str, out: Path, data: Path | None) -> Path:
    """Return the split folder of a set that is not in the repository. The folder is made on first use."""
    folder = out / name
    if any((folder / "test").glob("items.json*")):
        return folder
    if family := SETS[name].family:
        write_splits(folder, generate((family,), 1, SIZES))
        return folder
    source = data / SETS[name].published if data else None
    if source is None or not source.exists():
        where = "--data FOLDER is missing" if data is None else f"there is no {source}"
        raise UserError(f"set '{name}': {where}; bench/learning/README.md says where to get the published sets")
    read = {"formula": _formula, "symptoms": _symptoms, "banking77": _banking, "scan": _scan}.get(name)
    for split, rows in (read(source) if read else _one_kind(name, source)).items():
        texts = [{"question": row["question"], "answer": row["answer"]} for row in rows]
        lines = [{"id": f"{name}-{split}-{n:02}", **row} for n, row in enumerate(texts, 1)]
        (folder / split).mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (folder / split / "items.jsonl").write_text(text, encoding="utf-8")
    if source.is_file():
        (folder / "canary.txt").write_text(bbh.canary(source), encoding="utf-8")
    return folder


def _one_kind(name: str, source: Path) -> dict[str, list[Item]]:
    """Read a kind of BIG-Bench Hard, and divide its items at random into three splits."""
    rows = _unique(bbh.published(source))
    random.Random(f"results: {name}").shuffle(rows)
    ends = {"train": (0, 24), "val": (24, 40), "test": (40, 72)}
    return {split: rows[low:high] for split, (low, high) in ends.items()}


def _formula(source: Path) -> dict[str, list[Item]]:
    """Read ACE's Formula set. Each split has its own file."""
    found: dict[str, list[Item]] = {}
    seen: set[str] = set()
    for split, size in SIZES.items():
        [path] = (path for path in sorted(source.glob("formula_*.jsonl")) if formula.split_of(path) == split)
        rows = [row for row in _unique(formula.published(path)) if row["question"] not in seen]
        random.Random(f"results: formula {split}").shuffle(rows)
        found[split] = rows[:size]
        seen |= {row["question"] for row in found[split]}
    return found


INTENTS = (
    "balance_not_updated_after_bank_transfer", "card_payment_fee_charged", "card_payment_not_recognised",
    "declined_card_payment", "failed_transfer", "pending_card_payment", "pending_top_up", "pending_transfer",
    "reverted_card_payment?", "top_up_failed", "top_up_reverted", "transfer_not_received_by_recipient",
)  # fmt: skip
"""Twelve of BANKING77's 77 intents that are easily confused with each other."""


def _symptoms(source: Path) -> dict[str, list[Item]]:
    """Read the set of symptoms. Each task names the diseases, so a method does not only learn the answer's form."""
    splits = {split: [json.loads(line) for line in (source / f"{split}.jsonl").open()] for split in SIZES}
    names = ", ".join(sorted({row["answer"] for row in splits["train"]}))
    ask = f"Which of these is it: {names}? Reply with the name alone."
    return {
        split: _drawn(f"symptoms {split}", [(f"{row['question']}\n\n{ask}", row["answer"]) for row in rows], size)
        for (split, rows), size in zip(splits.items(), SIZES.values(), strict=True)
    }


def _banking(source: Path) -> dict[str, list[Item]]:
    ask = f"The intent is one of: {', '.join(INTENTS)}. Reply with its name alone."
    pairs: dict[str, list[tuple[str, str]]] = {}
    for part in ("train", "test"):
        with (source / f"{part}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        pairs[part] = [(f"{row['text']}\n\n{ask}", row["category"]) for row in rows if row["category"] in INTENTS]
    both = _drawn("banking77 train", pairs["train"], SIZES["train"] + SIZES["val"])
    test = _drawn("banking77 test", pairs["test"], SIZES["test"])
    return {"train": both[: SIZES["train"]], "val": both[SIZES["train"] :], "test": test}


def _scan(source: Path) -> dict[str, list[Item]]:
    """Read SCAN: up to 20 actions in training and validation, 21 to 32 in the test split. Only a skill with the rules
    can do the test tasks."""
    ask = (
        "Translate the command into actions: I_WALK, I_RUN, I_JUMP, I_LOOK, I_TURN_LEFT, I_TURN_RIGHT. Reply with the "
        "actions in their order, separated by spaces, and nothing else."
    )
    pairs: dict[str, list[tuple[str, str]]] = {}
    for part in ("train", "test"):
        lines = (source / f"tasks_{part}_length.txt").read_text().splitlines()
        rows = (line.removeprefix("IN: ").split(" OUT: ") for line in lines)
        most = 20 if part == "train" else 32
        kept = ((command, actions) for command, actions in rows if len(actions.split()) <= most)
        pairs[part] = [(f"{ask}\n\nCommand: {command}", actions) for command, actions in kept]
    both = _drawn("scan train", pairs["train"], SIZES["train"] + SIZES["val"])
    test = _drawn("scan test", pairs["test"], SIZES["test"])
    return {"train": both[: SIZES["train"]], "val": both[SIZES["train"] :], "test": test}


def _drawn(label: str, pairs: list[tuple[str, str]], size: int) -> list[Item]:
    rows = _unique(Item(id="new", question=question, answers=(answer,)) for question, answer in pairs)
    random.Random(f"results: {label}").shuffle(rows)
    return rows[:size]


def _unique(rows: Iterable[Item]) -> list[Item]:
    return list({row["question"]: row for row in rows}.values())
