"""`skillopt init`: writes a folder that is ready for training, with the demo's tasks or with the user's own tasks."""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from skillopt.errors import UserError
from skillopt.provider_table import provider_of
from skillopt.skill.standard import STANDARD
from skillopt.tasks.base import SPLITS, Item
from skillopt.tasks.images import copy_images
from skillopt.tasks.load import is_reference
from skillopt.tasks.scorer_check import is_prose, words_of
from skillopt.tasks.scoring import SCORERS, token_f1
from skillopt.tasks.splits import RATIOS, describe, load_split
from skillopt.tasks.task_file import BadRowsError, TaskFile, read_task_file

LOCAL = "local:qwen2.5-coder-0.5b"
OPTIMIZER = "openai:gpt-4o"
STEPS = 8
"""The minimum number of steps of a training with an LLM as the optimizer. With fewer steps, there is little to learn
from."""
MOST_NAMED = 12
"""The maximum number of possible answers that the initial skill names. More answers do not fit on one line."""
SECTIONS = "\n\n".join(f"## {title}" for title in STANDARD)
"""Headings that edits can name. Empty sections are neither sent to the target nor written to `best_skill.md`."""
DEMO_TASK = "Each task is a message of a tenant; the reply names the team that it goes to."
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Thresholds for the f1 scorer: shares of words that a reply must have in common with the expected answer."""


@dataclass(frozen=True, kw_only=True)
class InitOptions:
    """The options of `skillopt init`."""

    source: Path | None = None
    """The user's file of tasks; None for the demo's tasks."""
    question: str = ""
    """The name of the column with the question, if SkillOpt does not recognise it."""
    answer: str = ""
    id: str = ""
    type: str = ""
    skip_bad: bool = False
    """Leave out rows of the file that cannot be tasks."""
    target: str = ""
    optimizer: str = ""
    scoring: str = ""
    scorer: bool = False
    """Write a scorer.py, and use it."""
    env: bool = False
    """Write a custom env instead of a file of tasks."""


def write_folder(folder: Path, options: InitOptions) -> list[str]:
    """Write the folder completely or not at all. Return the lines to print."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: exists already; choose another name, or remove the folder first")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as draft:
        inside = Path(draft) / "folder"
        inside.mkdir()
        told = _env_files(inside, folder, options) if options.env else _task_files(inside, folder, options)
        shutil.copytree(inside, folder, dirs_exist_ok=True)
    return told


def _template(kind: str, name: str) -> str:
    return (files("skillopt.preflight.templates") / kind / name).read_text(encoding="utf-8")


def _task_files(inside: Path, folder: Path, options: InitOptions) -> list[str]:
    read = own_file(options, options.source, answers=_needs_answers(options)) if options.source else None
    told = read.lines() if read else []
    data = inside / "tasks.jsonl"
    text = "".join(_line(item) for item in read.items) if read else _template("demo", "tasks.jsonl")
    data.write_text(text, encoding="utf-8")
    if read:
        copy_images(read.items, read.file.parent, inside)
    ratios = RATIOS if read else dict.fromkeys(SPLITS, 1 / 3)
    split = load_split(data, ratios=ratios, answers=_needs_answers(options))
    every = [item for name in SPLITS for item in split[name]]
    scoring = _scoring(options, every)
    _check_scoring(scoring.name)
    if scoring.name.startswith("scorer.py:"):
        (inside / "scorer.py").write_text(_template("demo", "scorer.py.txt"), encoding="utf-8")
    named = _answers_to_name(split["train"]) if read else ()
    seed = _seed(named) if read else _template("demo", "seed_skill.md").format(sections=SECTIONS)
    (inside / "seed_skill.md").write_text(seed, encoding="utf-8")
    _write_config(inside, folder, options, split, scoring, read)
    _write_readme(inside, folder, options, len(every), scoring.name)
    if named:
        told.append(f"The initial skill names the {len(named)} possible answers: {', '.join(named)}")
    if scoring.why:
        told.append(scoring.why)
    return [*told, f"Wrote {folder}: {len(every)} tasks; their split, saved in tasks.split.json:"] + [
        f"  {line}" for line in describe(split)
    ]


def _seed(named: Sequence[str]) -> str:
    """The initial skill. It names the possible answers: otherwise, the training would first learn these answers, and
    the gain would look larger than it is."""
    choice = f"Reply with exactly one of: {', '.join(named)}.\n" if named else ""
    return f"You do the task that you are given.\n{choice}\n{SECTIONS}\n"


def _answers_to_name(train: Sequence[Item]) -> tuple[str, ...]:
    """The possible answers, if they are a small closed set that fits on one line; else empty."""
    counts = Counter(item.answers[0] for item in train if item.answers)
    single = all(len(item.answers) == 1 for item in train)
    plain = all(len(answer) <= 40 and not re.search(r"[,\n]", answer) for answer in counts)
    named = single and plain and 2 <= len(counts) <= MOST_NAMED and min(counts.values()) >= 2
    return tuple(sorted(counts)) if named else ()


def _write_config(
    inside: Path,
    folder: Path,
    options: InitOptions,
    split: dict[str, list[Item]],
    scoring: Scoring,
    read: TaskFile | None,
) -> None:
    target = options.target or LOCAL
    local = provider_of(target).is_local
    llm = bool(options.optimizer) or not local or scoring.name == "judge"
    optimizer = options.optimizer or OPTIMIZER
    models = [f"  target_model: {json.dumps(target)}"]
    if provider_of(target).has_weights:  # a small model often writes until its limit
        longest = max(len(answer) for item in split["train"] for answer in item.answers or ("x" * 400,))
        most = 20 if longest <= 20 else min(512, 40 + longest // 2)
        models.append(f"  targets: {{local: {{max_tokens: {most}}}}} # another --target_model has its own limits")
    models += [f"  optimizer_model: {json.dumps(optimizer)}"] * llm
    free = "# The target runs on this machine; the analyst (exemplar) needs no LLM."
    about = "# The analyst is an LLM; keys come from the environment or .env." if llm else free
    ratios = RATIOS if read else dict.fromkeys(SPLITS, 1)
    batch_size = max(4, min(40, math.ceil(len(split["train"]) / 2)))
    in_epoch = math.ceil(len(split["train"]) / batch_size)
    epochs = math.ceil(STEPS / in_epoch) if llm else 1  # between epochs an LLM writes guidance
    text = _template("demo", "config.yaml").format(
        config=shlex.quote(str(folder / "config.yaml")),
        about=about,
        num_epochs=epochs,
        batch_size=batch_size,
        steps=epochs * in_epoch,
        analysts="llm" if llm else "exemplar",
        evaluation=f"baselines: {str(bool(read)).lower()}{', metric: soft' * scoring.soft}",
        models="\n".join(models),
        task=json.dumps(_task(read) if read else DEMO_TASK, ensure_ascii=False),
        name=json.dumps(_name(folder)),
        data="tasks.jsonl",
        stem="tasks",
        scoring=scoring.text(),
        **ratios,
    )
    (inside / "config.yaml").write_text(text, encoding="utf-8")


def _task(read: TaskFile) -> str:
    """A sentence about the tasks, made from the names of the file's columns."""
    asked, wanted = read.columns["question"], read.columns.get("answers", "")
    reply = f"the right reply is its “{wanted}”" if wanted else "the reply is its answer"
    return f"Each task is a “{asked}”; {reply}."


def _write_readme(inside: Path, folder: Path, options: InitOptions, items: int, scoring: str) -> None:
    own = scoring.startswith("scorer.py")
    scorer = "| `scorer.py` | how an answer becomes a score, with feedback |\n" if own else ""
    demo = "\nThe demo: tenants' messages go to four teams, named after trees; the skill learns which team gets what.\n"
    about = "" if options.source else demo
    text = _template("demo", "README.md").format(
        name=_name(folder),
        folder=shlex.quote(str(folder)),
        data="tasks.jsonl",
        items=items,
        scorer_row=scorer,
        about_demo=about,
    )
    (inside / "README.md").write_text(text, encoding="utf-8")


def _env_files(inside: Path, folder: Path, options: InitOptions) -> list[str]:
    values = {
        "name": _name(folder),
        "folder": shlex.quote(str(folder)),
        "target": json.dumps(options.target or "openai:gpt-4o-mini"),
        "optimizer": json.dumps(options.optimizer or OPTIMIZER),
        "sections": SECTIONS,
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
    if scoring not in SCORERS and scoring not in {"judge", "by_task"} and not is_reference(scoring):
        known = ", ".join([*sorted(SCORERS), "judge", "scorer.py:score"])
        raise UserError(f"--scoring: there is no '{scoring}'; choose one of: {known}")


def _needs_answers(options: InitOptions) -> bool:
    return not options.scorer and options.scoring != "judge" and not is_reference(options.scoring)


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """The scorer, and the reason for the choice if it is not obvious."""

    name: str
    options: str = ""
    soft: bool = False
    """True if partial credit is useful with this scorer."""
    why: str = ""

    def text(self) -> str:
        """The lines of the config for this scorer."""
        others = "exact, contains, choice, number, f1, anls, regex, json, judge, or scorer.py:score"
        prose = "compares words; for free text, judge is better: the optimizer model grades each reply in one call"
        lines = [f"  scoring: {self.name} # {prose if self.why else others}"]
        return "\n".join([*lines, f"  scoring_options: {self.options}"] if self.options else lines)


def _scoring(options: InitOptions, items: Sequence[Item]) -> Scoring:
    """The scorer that the user names; if none is named, a scorer that fits the answers."""
    if options.scoring or options.scorer:
        return Scoring(name=options.scoring or "scorer.py:score")
    if any(item.get("scoring") for item in items):
        return Scoring(name="by_task")
    answers = [answer.strip() for item in items for answer in item.answers]
    if answers and all(re.fullmatch(r"[-+$€£]?[\d,.\s]*\d\s*(%|[a-zA-Zµ°²³]{1,4})?", answer) for answer in answers):
        return Scoring(name="number")
    if answers and all(answer.startswith("{") and answer.endswith("}") for answer in answers):
        return Scoring(name="json")
    if not is_prose(items):
        return Scoring(name="exact")
    threshold = _threshold([item.answers[0] for item in items])
    return Scoring(
        name="f1",
        options=f"{{threshold: {threshold}}}",
        soft=True,
        why=f"the answers are free text ({words_of(items)} words on average): f1 scores a reply by the words that it "
        "shares with the answer; with `--scoring judge`, the optimizer model grades each reply in one call",
    )


def _threshold(answers: Sequence[str]) -> float:
    """Score each answer as if it were the reply to the next task. Return the lowest threshold with which at least half
    of these replies are wrong."""
    alike = [token_f1(one, other) for one, other in itertools.pairwise(answers)]
    fits = (limit for limit in THRESHOLDS if sum(score >= limit for score in alike) * 2 <= len(alike))
    return next(fits, THRESHOLDS[-1])


def own_file(options: InitOptions, source: Path, *, answers: bool) -> TaskFile:
    """Read the tasks of the user's file. If `answers` is true, each task must have an answer."""
    columns = {"question": options.question, "answers": options.answer, "id": options.id, "type": options.type}
    try:
        return read_task_file(source, columns=columns, answers=answers, skip_bad=options.skip_bad)
    except BadRowsError as error:
        raise UserError(f"{error}\ncorrect these rows, or add --skip-bad to leave them out") from None


def _line(item: Item) -> str:
    fields: dict[str, Any] = item.model_dump(mode="json")
    kept = {key: value for key, value in fields.items() if value not in ("", [], ())}
    return json.dumps(kept, ensure_ascii=False) + "\n"
