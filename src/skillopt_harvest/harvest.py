"""One harvest: reads new sessions, finds corrections, groups similar corrections, and writes tasks for review."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.models.base import ChatModel
from skillopt.models.call import Caller
from skillopt.provider_table import provider_of
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json, read_jsonl, write_json, write_jsonl
from skillopt.record.journal import Journal
from skillopt.training.callers import make_callers, open_models
from skillopt_harvest.collect import SOURCES, Collection, selected_files
from skillopt_harvest.mine import find_corrections, group, without_copies
from skillopt_harvest.mine_llm import find_with_model, group_with_model
from skillopt_harvest.records import (
    AgentSession,
    Correction,
    HarvestState,
    HarvestTasks,
    LastHarvest,
    MinedTask,
    SourceSelection,
    TaskDecision,
)
from skillopt_harvest.redact import Redactor
from skillopt_harvest.sources.evals import EVALS, read_evals

_SPAN = re.compile(r"(\d{1,5})([hdw])")
_SECONDS = {"h": 3600, "d": 86400, "w": 604800}


@dataclass(frozen=True)
class HarvestFolder:
    """The paths of a harvest's files."""

    root: Path

    @property
    def state(self) -> Path:
        return self.root / "state.json"

    @property
    def corrections(self) -> Path:
        return self.root / "corrections.jsonl"

    @property
    def tasks(self) -> Path:
        return self.root / "tasks.json"

    @property
    def decisions(self) -> Path:
        return self.root / "decisions.jsonl"

    def read_state(self) -> HarvestState:
        with _whole(self.state):
            return HarvestState.model_validate(read_json(self.state)) if self.state.exists() else HarvestState()

    def read_tasks(self) -> HarvestTasks:
        if not self.tasks.exists():
            raise UserError(
                f"{self.root}: is not a harvest's folder (it has no tasks.json); run `skillopt harvest` first"
            )
        with _whole(self.tasks):
            return HarvestTasks.model_validate(read_json(self.tasks))

    def read_corrections(self) -> dict[str, Correction]:
        with _whole(self.corrections):
            return {each.key: each for each in map(Correction.model_validate, read_jsonl(self.corrections))}

    def read_decisions(self) -> list[TaskDecision]:
        with _whole(self.decisions):
            return list(map(TaskDecision.model_validate, read_jsonl(self.decisions)))


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{path}: is damaged ({reason}); restore the file from a copy, or remove the folder and harvest again"
        ) from None


@dataclass(frozen=True, kw_only=True)
class HarvestReport:
    """The results of a harvest, as a report for people."""

    files: int
    sessions: int
    corrections: int
    tasks: tuple[MinedTask, ...]
    left_out: Mapping[str, int]
    skipped: Mapping[str, int]
    removed: tuple[str, ...]
    lost: tuple[str, ...]

    def lines(self) -> list[str]:
        rules = sum(task.is_rule for task in self.tasks)
        lines = [
            f"Read {self.files} new or changed files, {self.sessions} sessions; {self.corrections} new corrections."
        ]
        lines += [f"Left out: {_listed(self.left_out)}."] if any(self.left_out.values()) else []
        lines += [f"Skipped: {_listed(self.skipped)}."] if any(self.skipped.values()) else []
        lines += [*self.removed, *(f"A reply could not be used: {reason}" for reason in self.lost)]
        return [
            *lines,
            f"{rules} tasks to review; {len(self.tasks) - rules} weak suggestions, each from one session only.",
        ]


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()) if count)


def harvest(
    root: Path, selection: SourceSelection, *, config: Config | None = None, models: dict[str, ChatModel] | None = None
) -> HarvestReport:
    """Read the selected sources into the folder `root`. If there is a config, its optimizer model finds the
    corrections."""
    folder, run = HarvestFolder(root), RunDirectory(root)
    selected_files(selection)
    with run.held(private=True):
        began, this = time.time(), selection.model_copy(update={"since": 0.0})
        state, redactor = folder.read_state(), Redactor()
        collection = Collection(selection, state, redactor)
        earlier = folder.read_tasks().tasks if folder.tasks.exists() else ()
        written = {task.id: task for task in earlier if task.written}
        corrections = folder.read_corrections()
        before = len(corrections)
        lost: list[str] = []
        tasks: list[MinedTask]
        if selection.source in EVALS:
            for path in selected_files(selection):
                collection.files += 1
                written |= {t.id: t for t in read_evals(path, selection.source, redactor, collection.skipped)}
            tasks = [task for task in earlier if not task.written]
        elif config is None:
            _add(corrections, (c for session in collection.read() for c in find_corrections(session)))
            tasks = group(list(corrections.values()))
        else:
            tasks, lost = asyncio.run(_with_model(collection.read(), corrections, config, models, run))
        tasks += sorted(written.values(), key=lambda task: task.id)
        miner = config.models.optimizer_model if config else "heuristic"
        removed = Counter(state.removed) + redactor.removed
        write_jsonl(folder.corrections, corrections.values())
        write_json(folder.tasks, HarvestTasks(miner=miner, tasks=tuple(tasks)))
        files = {**state.files, **collection.states}
        sources = (*(each for each in state.sources if each.of != this), LastHarvest(of=this, began=began))
        write_json(folder.state, HarvestState(sources=sources, files=files, removed=dict(removed)))
    return HarvestReport(
        files=collection.files,
        sessions=len(collection.sessions),
        corrections=len(corrections) - before,
        tasks=tuple(tasks),
        left_out=collection.left_out,
        skipped=collection.skipped,
        removed=tuple(redactor.lines()),
        lost=tuple(lost),
    )


def _add(corrections: dict[str, Correction], found: Iterable[Correction]) -> None:
    """Add corrections and remove copies. A correction that is read again replaces the stored one, because the session
    may be longer now."""
    corrections |= {each.key: each for each in found}
    kept = {each.key for each in without_copies(corrections.values())}
    for key in corrections.keys() - kept:
        del corrections[key]


async def _with_model(
    sessions: Iterable[AgentSession],
    corrections: dict[str, Correction],
    config: Config,
    models: dict[str, ChatModel] | None,
    run: RunDirectory,
) -> tuple[list[MinedTask], list[str]]:
    with Journal(run.journal) as journal:
        async with open_models(config, models, ("optimizer",), run) as opened:
            caller: Caller = make_callers(config, journal, opened)[0]["optimizer"]
            found, lost = await find_with_model(sessions, caller)
            _add(corrections, found)
            with_rules = [each for each in corrections.values() if each.rule]
            tasks, more = await group_with_model(with_rules, caller)
    return tasks, [*lost, *more]


def selections(folder: HarvestFolder, named: SourceSelection, since: str) -> list[SourceSelection]:
    """Return the sources to read. If the user named a source, only this source is read. If not, `--since last` means
    all sources of earlier harvests, each from the time of its last harvest on."""
    last = {each.of: each.began for each in folder.read_state().sources}
    if named.source:
        return [named.model_copy(update={"since": moment(since, last.get(named, 0.0))})]
    if since != "last" or not last:
        raise UserError(f"--source: is missing; choose one of {', '.join(SOURCES)}")
    return [of.model_copy(update={"since": began}) for of, began in last.items()]


def moment(text: str, last: float) -> float:
    """Convert `30d`, `12h`, `2w`, a day such as 2026-01-31, or `last` to seconds since 1970; 0 if the text is empty.
    For `last`, return the argument `last`."""
    if not text:
        return 0.0
    if text == "last":
        return last
    if span := _SPAN.fullmatch(text):
        return time.time() - int(span[1]) * _SECONDS[span[2]]
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError:
        raise UserError(f"--since: '{text}' must be a span ('30d'), a day ('2026-01-31') or 'last'") from None


def mining_config(model: str, overrides: Sequence[str], *, local: bool) -> Config | None:
    """Return a config for the model that finds corrections; None if no model is named. With `local`, a model that is
    not on this machine is refused."""
    from skillopt.config.tree import override

    if not model:
        return None
    if local and not provider_of(model).is_local:
        raise UserError(
            f"--local: '{model}' is not on this machine; choose a `local:` model, or leave --optimizer_model out"
        )
    tree: dict[str, object] = {"models": {"optimizer_model": model}}
    for text in overrides:
        override(tree, text)  # type: ignore[arg-type]
    return Config.parse(tree, where="harvest")  # type: ignore[arg-type]
