"""`skillopt init`: a folder that is ready to train, from the demo's tasks or from the user's file."""

from __future__ import annotations

import json
import math
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from skillopt.envs.base import SPLITS, Item
from skillopt.envs.columns import read_task_file
from skillopt.envs.load import is_reference
from skillopt.envs.scoring import SCORERS
from skillopt.envs.splits import RATIOS, describe, load_split
from skillopt.errors import UserError

LOCAL = "local:qwen2.5-coder-0.5b"
OPTIMIZER = "openai:gpt-4o"
MOST_NAMED = 12
"""Possible answers that the initial skill names; more of them are no longer one line."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the folder is to hold."""

    source: Path | None = None
    """The user's file; None for the demo's tasks."""
    question: str = ""
    """The column of the question, where its name does not say so."""
    answer: str = ""
    target: str = ""
    optimizer: str = ""
    scoring: str = ""
    scorer: bool = False
    """Write a scorer.py, and use it."""
    env: bool = False
    """A custom env in place of tasks in a file."""


def write_folder(folder: Path, wish: Wish) -> list[str]:
    """Write it whole or not at all; gives the lines to print."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: exists already; choose another name, or remove it first")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as draft:
        inside = Path(draft) / "folder"
        inside.mkdir()
        told = _env_files(inside, folder, wish) if wish.env else _task_files(inside, folder, wish)
        shutil.copytree(inside, folder, dirs_exist_ok=True)
    return [*told, f"Now: skillopt train --config {folder / 'config.yaml'}"]


def _template(kind: str, name: str) -> str:
    return (files("skillopt.templates") / kind / name).read_text(encoding="utf-8")


def _task_files(inside: Path, folder: Path, wish: Wish) -> list[str]:
    items, told = _own_items(wish) if wish.source else (None, [])
    data = inside / "tasks.jsonl"
    if items is None:
        data.write_text(_template("demo", "tasks.jsonl"), encoding="utf-8")
    else:
        data.write_text("".join(_line(item) for item in items), encoding="utf-8")
    ratios = RATIOS if wish.source else dict.fromkeys(SPLITS, 1 / 3)
    split = load_split(data, ratios=ratios, answers=_needs_answers(wish))
    every = [item for name in SPLITS for item in split[name]]
    scoring = wish.scoring or ("scorer.py:score" if wish.scorer else _usual_scoring(every))
    _check_scoring(scoring)
    if scoring.startswith("scorer.py:"):
        (inside / "scorer.py").write_text(_template("demo", "scorer.py.txt"), encoding="utf-8")
    named = _answers_to_name(split["train"]) if wish.source else ()
    seed = _template("demo", "seed_skill.md") if wish.source is None else _seed(named)
    (inside / "seed_skill.md").write_text(seed, encoding="utf-8")
    _write_config(inside, folder, wish, split, scoring)
    _write_readme(inside, folder, wish, len(every), scoring)
    if named:
        told.append(f"{len(named)} possible answers, which the initial skill names: {', '.join(named)}")
    return [*told, f"{folder}: {len(every)} tasks, split as saved in tasks.split.json:"] + [
        f"  {line}" for line in describe(split)
    ]


def _seed(named: Sequence[str]) -> str:
    """What anybody would write before any training: a baseline without the answers would make every gain look large."""
    choice = f"Reply with exactly one of: {', '.join(named)}.\n" if named else ""
    return f"You do the task that you are given.\n{choice}"


def _answers_to_name(train: Sequence[Item]) -> tuple[str, ...]:
    """The closed set of answers, by the training tasks alone; empty where a line cannot name it."""
    counts = Counter(item.answers[0] for item in train if item.answers)
    single = all(len(item.answers) == 1 for item in train)
    plain = all(len(answer) <= 40 and not re.search(r"[,\n]", answer) for answer in counts)
    named = single and plain and 2 <= len(counts) <= MOST_NAMED and min(counts.values()) >= 2
    return tuple(sorted(counts)) if named else ()


def _write_config(inside: Path, folder: Path, wish: Wish, split: dict[str, list[Item]], scoring: str) -> None:
    target = wish.target or LOCAL
    local = target.startswith(("local:", "sim:"))
    llm = bool(wish.optimizer) or not local or scoring == "judge"
    optimizer = wish.optimizer or OPTIMIZER
    models = [f"  target_model: {json.dumps(target)}"]
    if target.startswith("local:"):  # a small model writes as much as it may
        longest = max(len(answer) for item in split["train"] for answer in item.answers or ("x" * 400,))
        most = 20 if longest <= 20 else min(512, 40 + longest // 2)
        models.append(f"  targets: {{local: {{max_tokens: {most}}}}} # another --target_model has its own limits")
    models += [f"  optimizer_model: {json.dumps(optimizer)}"] * llm
    free = "# The 0.5B model runs on your own CPU; the analyst (exemplar) needs no LLM."
    about = "# The analyst is an LLM; keys come from the environment or .env." if llm else free
    ratios = RATIOS if wish.source else dict.fromkeys(SPLITS, 1)
    text = _template("demo", "config.yaml").format(
        folder=folder,
        about=about,
        batch_size=max(4, min(40, math.ceil(len(split["train"]) / 2))),
        analysts="llm" if llm else "exemplar",
        baselines="true" if wish.source else "false",
        models="\n".join(models),
        name=json.dumps(_name(folder)),
        data="tasks.jsonl",
        stem="tasks",
        scoring=scoring,
        **ratios,
    )
    (inside / "config.yaml").write_text(text, encoding="utf-8")


def _write_readme(inside: Path, folder: Path, wish: Wish, items: int, scoring: str) -> None:
    own = scoring.startswith("scorer.py")
    scorer = "| `scorer.py` | how an answer becomes a score, with feedback |\n" if own else ""
    demo = "\nThe demo: tenants' messages go to one of four teams, each named after a tree; it learns which.\n"
    about = "" if wish.source else demo
    text = _template("demo", "README.md").format(
        name=_name(folder), folder=folder, data="tasks.jsonl", items=items, scorer_row=scorer, about_demo=about
    )
    (inside / "README.md").write_text(text, encoding="utf-8")


def _env_files(inside: Path, folder: Path, wish: Wish) -> list[str]:
    values = {
        "name": _name(folder),
        "folder": folder,
        "target": json.dumps(wish.target or "openai:gpt-4o-mini"),
        "optimizer": json.dumps(wish.optimizer or OPTIMIZER),
    }
    for name, source in (
        ("my_env.py", "my_env.py.txt"),
        ("config.yaml", "config.yaml"),
        ("README.md", "README.md"),
        ("seed_skill.md", "seed_skill.md"),
    ):
        (inside / name).write_text(_template("env", source).format(**values), encoding="utf-8")
    return [f"{folder}: a custom env in my_env.py"]


def _name(folder: Path) -> str:
    return re.sub(r"[^\w.-]+", "-", folder.resolve().name).strip("-.") or "tasks"


def _check_scoring(scoring: str) -> None:
    if scoring not in SCORERS and scoring != "judge" and not is_reference(scoring):
        known = ", ".join([*sorted(SCORERS), "judge", "scorer.py:score"])
        raise UserError(f"--scoring: unknown '{scoring}'; known are: {known}")


def _needs_answers(wish: Wish) -> bool:
    return not wish.scorer and wish.scoring != "judge" and not is_reference(wish.scoring)


def _usual_scoring(items: Sequence[Item]) -> str:
    """By what the answers look like."""
    answers = [answer.strip() for item in items for answer in item.answers]
    if answers and all(re.fullmatch(r"[-+$€£]?[\d,.\s]*\d\s*(%|[a-zA-Zµ°²³]{1,4})?", answer) for answer in answers):
        return "number"
    if answers and all(answer.startswith("{") and answer.endswith("}") for answer in answers):
        return "json"
    return "exact"


def _own_items(wish: Wish) -> tuple[list[Item], list[str]]:
    """The user's rows as items, and how they were read."""
    assert wish.source is not None
    read = read_task_file(wish.source, question=wish.question, answer=wish.answer, answers=_needs_answers(wish))
    return read.items, read.lines()


def _line(item: Item) -> str:
    fields: dict[str, Any] = item.model_dump(mode="json")
    kept = {key: value for key, value in fields.items() if value not in ("", [], ())}
    return json.dumps(kept, ensure_ascii=False) + "\n"
