"""Makes the files to commit from a finished cell: measured/<cell>.json (figures), recordings/<cell>.jsonl (replies).

A recording is kept only if the run, repeated from the recording, has the same result.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.models import open_model
from skillopt.models.base import ChatModel, ChatReply, ChatRequest
from skillopt.models.call import request_key
from skillopt.models.handoff import Box, HandoffModel
from skillopt.record.files import read_json
from skillopt.skill import Skill
from skillopt.tasks import open_env
from skillopt.tasks.agents import task_text
from skillopt.tasks.base import Item
from skillopt.tasks.tools import start
from skillopt.version import METHOD, __version__

from .cells import METHODS, Cell
from .mechanisms import MECHANISMS
from .recording import (
    RECORDINGS,
    Recording,
    Row,
    known_rows,
    letter_rows,
    put_in_order,
    reader_rows,
    recording_of,
    row,
    target_rows,
    write,
)
from .result import CellResult
from .run import Job, of_run, run_cell
from .sets import HERE, SETS, load

MEASURED = HERE / "measured"


@dataclass(frozen=True, kw_only=True)
class Kept:
    result: CellResult
    replies: int
    """The number of replies in the recording; 0 if there is no recording."""
    why_not: str = ""
    """The reason why the run cannot be repeated from its replies; empty if it can."""


def keep(job: Job, folder: Path, *, measured: Path = MEASURED, recordings: Path = RECORDINGS) -> Kept:
    """Write the figures and the recording of a finished cell. `folder` is the cell's folder; `job` names the cell."""
    result = found_in(job.cell, folder)
    recording = recordings / f"{job.cell.name}.jsonl"
    replies, why_not = 0, ""
    if SETS[job.cell.set].published:
        why_not = "replies and skills quote tasks of a published set, which stays out of the repository"
        result = replace(result, skill="")
    elif job.cell.method not in METHODS or job.cell.optimizer == "brief":
        why_not = "cells of this method or optimizer have no recording"
    else:
        config = load(job.cell, folder, data=job.data, box=job.letters)
        recording.parent.mkdir(parents=True, exist_ok=True)
        replies = write(recording, _head(job.cell, folder, config), _rows(job, folder, config))
        played = Recording.read(recording)
        again = replayed(replace(job, recording=played), near=folder.parent)
        differs = again.differences(result) if not again.error else [again.error]
        if again.curve and not result.curve:
            known = {"target": None, "optimizer": again.tokens["optimizer"]}
            result = replace(result, curve=again.curve, items=again.items, tokens=known)
        if differs == ["rollouts"]:  # a gate now stops earlier than then: the repeatable figures count
            result = replace(result, rollouts=again.rollouts, curve=again.curve, tokens=again.tokens)
        elif differs:
            why_not, replies = f"the replayed run differs: {', '.join(differs)}", 0
            recording.unlink()
        if replies:
            put_in_order(recording, played.asked)
    result.write(measured / f"{job.cell.name}.json")
    return Kept(result=result, replies=replies, why_not=why_not)


def replayed(job: Job, near: Path) -> CellResult:
    """Run a cell again from its recording, in a temporary folder. Random search needs the cell of `ours`: that cell is
    in the folder `near`, or is replayed first."""
    with tempfile.TemporaryDirectory() as made:
        out = Path(made)
        whole = replace(job.cell, method="ours")
        for name in ("data", whole.name):
            if (near / name).exists() and name != job.cell.name:
                (out / name).symlink_to((near / name).resolve())
        if job.cell.method == "random" and not (out / whole.name).exists() and recording_of(whole).exists():
            run_cell(replace(job, cell=whole, out=out, box=None, recording=Recording.read(recording_of(whole))))
        return run_cell(replace(job, out=out, box=None))


def found_in(cell: Cell, folder: Path) -> CellResult:
    """Return the figures of a finished cell."""
    if not (folder / "result.json").exists():
        raise UserError(f"{folder}: is not a finished cell; it has no result.json")
    value = read_json(folder / "result.json")
    if "cell" in value:
        result = CellResult.read(folder / "result.json")
        if result.error:
            raise UserError(f"{folder}: this cell failed, so there is nothing to keep: {result.error}")
        return replace(result, cell=cell)
    runs = list(folder.glob("runs/*/*/summary.json"))
    if runs:
        return of_run(cell, runs[0].parent)
    test = {which: {item: float(right) for item, right in found.items()} for which, found in value["test"].items()}
    names = ("val_initial", "val_best", "val", "rollouts", "requests", "minutes", "skill")
    own: dict[str, Any] = {name: value[name] for name in names}
    return CellResult(cell=cell, test=test, tokens={"target": None, "optimizer": None}, **own)


def _head(cell: Cell, folder: Path, config: Config) -> dict[str, Any]:
    states = list(folder.glob("runs/*/*/runtime_state.json"))
    pins = read_json(states[0])["pins"] if states else {}
    models = {"target": open_model("target", config)}
    models |= {"optimizer": HandoffModel(None)} if cell.optimizer == "handoff" else {}
    return {
        "cell": cell.name,
        "version": pins.get("skillopt", __version__),
        "method": pins.get("method", METHOD),
        **({"prompts": pins["prompts"]} if pins else {}),
        "models": {
            role: {"name": model.name, "endpoint": model.endpoint, "deterministic": model.deterministic}
            for role, model in models.items()
        },
        **({"first_form": True} if (folder / "letters.jsonl").exists() else {}),
    }


def _rows(job: Job, folder: Path, config: Config) -> Iterator[Row]:
    """Yield the rows of a recording: first the optimizer's replies, then the target's replies."""
    journals = sorted(folder.rglob("journal.sqlite"))
    if (folder / "letters.jsonl").exists():
        yield from _first_form(job.cell, folder, config)
    elif job.letters:
        box = job.box or _box_of(folder)
        own = {job.cell.name, *(path.parent.name for path in folder.glob("runs/*/*/summary.json"))}
        letters = [letter for letter in Box(box, "").letters() if letter.run in own]
        if not letters and job.cell.method not in MECHANISMS:
            raise UserError(f"{box}: no letters of this cell; name their folder with --box")
        yield from letter_rows(letters, HandoffModel(None), journals)
        if job.cell.method in MECHANISMS:
            yield from known_rows(recording_of(replace(job.cell, method="ours")), journals)
    yield from target_rows(journals)


def _box_of(folder: Path) -> Path:
    """Return the folder of the cell's letters, as its run recorded it."""
    rival = folder / "gepa" / "job.json"
    if rival.exists():
        return Path(read_json(rival)["letters"])
    [config] = folder.glob("runs/*/*/config.json")
    named = str(read_json(config)["models.optimizer_model"]).partition(":")[2]
    return Path(named) if named else folder / "letters"


def _first_form(cell: Cell, folder: Path, config: Config) -> Iterator[Row]:
    """Yield the replies of a gepa cell from the first version of this bench, which stored requests as text in two
    files."""
    for line in _lines(folder / "letters.jsonl"):
        messages = json.loads(line["asked"].partition(": ")[2])["messages"]
        yield from reader_rows(HandoffModel(None), messages, None, None, line["reply"])
    target = open_model("target", config)
    env = open_env(config)
    items = {item.question: item for split in ("train", "val", "test") for item in env.items(split)}
    starts = [folder.parent / f"{cell.set}-start" / "trajectories.jsonl", folder / "test_best" / "trajectories.jsonl"]
    for line in _lines(folder / "replies.jsonl"):
        asked = json.loads(line["asked"])
        yield _target_row(target, config, items[asked["question"]], asked["skill"], line["reply"])
    yield from target_rows(path.with_name("journal.sqlite") for path in starts if path.exists())
    env.close()


def _target_row(target: ChatModel, config: Config, item: Item, skill: str, text: str) -> Row:
    request = ChatRequest(
        messages=tuple(start(Skill(skill), task_text(item))),
        temperature=config.models.target_temperature,
        max_tokens=config.role("target").max_tokens,
    )
    return row("target", request_key(target, request, ""), ChatReply(text=text))


def _lines(path: Path) -> Iterable[Row]:
    return (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}"))
