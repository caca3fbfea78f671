"""The only reader of a run's files. It returns typed values, and never reads outside of the run's folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from skillopt.config import Config
from skillopt.errors import Damaged, UserError
from skillopt.record.base import Record
from skillopt.record.comments import Comment, read_comments
from skillopt.record.directory import RunDirectory
from skillopt.record.edits import Decision, EditPool, FiledConflict, Patch, Selection
from skillopt.record.events import EventRow, Live, event_page, events_after, last_events
from skillopt.record.files import digest, read_bytes
from skillopt.record.history import read_history
from skillopt.record.journal import OptimizerExchange, Total, read_exchanges, read_totals
from skillopt.record.results import Ablation
from skillopt.record.state import State
from skillopt.record.status import status_of
from skillopt.record.step import (
    BatchDigest,
    EpochComparison,
    EpochEnd,
    Evaluation,
    GateRecord,
    StepRecord,
    TestSplitRead,
)
from skillopt.record.summary import Summary
from skillopt.record.trajectory import ItemScore, RolloutError, Trajectory
from skillopt.skill import Entry, Skill
from skillopt.skill.folder import NotAFileError

Model = TypeVar("Model", bound=BaseModel)
Settings = dict[str, JsonValue]
"""The values of a config by dotted key, as in config.json."""
_SETTINGS: TypeAdapter[Settings] = TypeAdapter(Settings)
UNREVIEWED = "Tasks that nobody has reviewed are among them."
"""The sentence that skillopt_harvest adds to `env.task` if a task was not reviewed."""
_PATCHES = TypeAdapter(list[Patch])
_ROLLOUT: TypeAdapter[Trajectory | RolloutError] = TypeAdapter(Trajectory | RolloutError)


class Labels(Record):
    """labels.json: the name and notes that a person gives a run on the page."""

    name: str = ""
    tags: tuple[str, ...] = ()
    note: str = ""


Reading = tuple[float, float]
"""An item's hard score, and its score in the run's metric."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The scores of one skill on items of a split."""

    kind: str
    """What measured the skill: `evaluation`, `batch`, `gate` or `slow_update`."""
    split: str
    skill_hash: str
    items: dict[str, Reading]
    trajectories: Path
    """The file of the trajectories."""
    accepted: bool = False
    """True if a gate accepted the skill; False for other kinds of measurement."""


class Run:
    """A run's files. Many of them are read only once; to see later changes, call `Run.open` again.

    Some files exist only in some runs. If such a file is missing, its value is None or empty. If a file is damaged,
    reading it raises Damaged.
    """

    def __init__(self, files: RunDirectory) -> None:
        self.files = files

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open a run's folder. Raise UserError if it is not a run's folder."""
        files = RunDirectory(Path(path))
        if not files.config_json.is_file():
            raise UserError(f"{path}: is not a run's folder (it has no config.json)")
        return cls(files)

    @property
    def root(self) -> Path:
        return self.files.root

    # The whole run

    @cached_property
    def settings(self) -> Settings:
        """The config as it is stored, including keys of other SkillOpt versions and of packages."""
        return self._read_as(_SETTINGS, self.files.config_json)

    @property
    def unreviewed(self) -> bool:
        """Does the run use harvested tasks that nobody has reviewed?"""
        return UNREVIEWED in str(self.settings.get("env.task", ""))

    @cached_property
    def config(self) -> Config:
        """The run's config. A key that this version does not know is ignored. An invalid value is replaced by the key's
        default."""
        return stored_config(self.settings)

    @cached_property
    def summary(self) -> Summary | None:
        return self._optional(Summary, self.files.summary)

    @cached_property
    def history(self) -> list[StepRecord]:
        """The records of the steps, in order."""
        self._inside(self.files.history)
        try:
            return read_history(self.files.history)
        except (ValueError, RecursionError) as error:
            raise _damaged(self.files.history, error) from None

    @cached_property
    def state(self) -> State | None:
        return State.read(self._inside(self.files.state)) if self.files.state.exists() else None

    @cached_property
    def status(self) -> tuple[str, str]:
        """The status in a word (one of `status.WORDS`), and the reason why the run ended before its last step."""
        return status_of(self.summary, self._inside(self.files.events), busy=self.files.busy())

    @property
    def live(self) -> Live | None:
        """The run's current activity; None if no process works on the run."""
        return self._optional(Live, self.files.live)

    @cached_property
    def test_reads(self) -> list[TestSplitRead]:
        return list(self._lines(TestSplitRead, self.files.test_reads, growing=True))

    @cached_property
    def comments(self) -> list[Comment]:
        """People's comments on this run's items and lines."""
        return read_comments(self._inside(self.files.comments))

    @cached_property
    def feedback(self) -> list[Comment]:
        """The comments that this run uses; people wrote them on an earlier run."""
        return read_comments(self._inside(self.files.feedback))

    @cached_property
    def labels(self) -> Labels:
        return self._optional(Labels, self.files.labels) or Labels()

    def totals(self) -> list[Total]:
        """The journal's totals by role, model and stage."""
        return read_totals(self._inside(self.files.journal))

    def exchanges(self, step: int, epoch: int | None = None) -> list[OptimizerExchange]:
        """A step's requests to the optimizer, with the replies. If `epoch` is given, those of the epoch's end are
        added."""
        ends = {f"{stage}/{epoch}" for stage in ("slow_update", "meta_skill")}
        found = [(each.label.partition("/")[2], each) for each in read_exchanges(self._inside(self.files.journal))]
        own = [each for name, each in found if name.partition("/")[2].startswith(f"{step:04d}")]
        return [*own, *(each for name, each in found if name in ends)]

    def event_rows(self, most: int) -> list[EventRow]:
        """The events within the last `most` bytes of events.jsonl."""
        return last_events(self._inside(self.files.events), most)

    def events_after(self, offset: int) -> Iterator[tuple[int, EventRow]]:
        """The events after an offset of events.jsonl, each with the offset of its end."""
        return events_after(self._inside(self.files.events), offset)

    def event_page(self, skip: int, count: int, text: str) -> tuple[list[EventRow], int]:
        """Return one page of the events that contain `text`, and the number of all such events. The newest event is
        first. The page begins after `skip` events and has up to `count` events."""
        return event_page(self._inside(self.files.events), skip, count, text)

    # Skills

    @property
    def versions(self) -> list[int]:
        self._inside(self.files.snapshot(0))
        return self.files.versions()

    def skill(self, version: int) -> Skill:
        self._inside(self.files.snapshot(version))
        return self.files.read_skill(version)

    @property
    def best_skill(self) -> Skill:
        """The best skill as targets read it."""
        self._inside(self.files.changes(0))
        return self.files.read_best()

    @cached_property
    def versions_by_hash(self) -> dict[str, int]:
        """Version numbers by the hash of the skill. If several versions are equal, the number is that of the first."""
        return {self.skill(version).hash: version for version in reversed(self.versions)}

    def patch_log(self) -> list[Entry]:
        """Every accepted edit, in order."""
        self._inside(self.files.patch_log.path)
        return list(self.files.patch_log.entries())

    def finished_entries(self) -> list[Entry]:
        """The patch log's entries of finished steps; all entries if the run has no state."""
        entries: list[Entry] = []
        left = self.files.patch_log.size if self.state is None else self.state.patch_log_size
        self._inside(self.files.patch_log.path)
        for entry in self.files.patch_log.entries() if left else ():  # after them, the file may end in half an entry
            entries.append(entry)
            left -= len(entry.line())
            if left <= 0:
                break
        return entries

    # Measurements

    @cached_property
    def evaluations(self) -> dict[str, Evaluation]:
        """Evaluations by split and name, such as `val_initial` or `test_best`."""
        paths = sorted(self.files.evaluations.glob("*_*.json"))
        return {path.stem: self._read(Evaluation, path) for path in paths}

    def measurements(self) -> Iterator[Measurement]:
        """All measurements: evaluations, batches, gates (also of rejected candidates) and slow updates."""
        for name, evaluation in self.evaluations.items():
            yield Measurement(
                kind="evaluation",
                split=name.partition("_")[0],
                skill_hash=evaluation.skill_hash,
                items=self._readings(evaluation.items),
                trajectories=self.files.evaluations / f"{name}.jsonl",
            )
        for folder in sorted(self.files.steps.glob("step_*")):
            if not ((folder / "trajectory_digest.json").exists() and (folder / "gate.json").exists()):
                continue  # the step stopped because the disk was full; it will be repeated
            batch = self._read(BatchDigest, folder / "trajectory_digest.json")
            yield Measurement(
                kind="batch",
                split="train",
                skill_hash=batch.skill_hash,
                items=self._readings(batch.items),
                trajectories=folder / "trajectories.jsonl",
            )
            yield _gate_measurement(self._read(GateRecord, folder / "gate.json"), folder)
        for folder in sorted(self.root.glob("slow_update/epoch_*")):
            yield from self._compared(folder / "trajectories.jsonl")
            if gate := self._optional(GateRecord, folder / "gate.json"):
                yield _gate_measurement(gate, folder)

    def _readings(self, items: Mapping[str, ItemScore]) -> dict[str, Reading]:
        return {item: (score.hard, score.value(self.config.evaluation.metric)) for item, score in items.items()}

    def _compared(self, path: Path) -> Iterator[Measurement]:
        """The measurements of both skills of a slow update."""
        by_skill: dict[str, dict[str, ItemScore]] = {}
        for row in self._lines(Trajectory, path):
            by_skill.setdefault(row.skill_hash, {})[row.item_id] = row.score
        for skill_hash, scores in by_skill.items():
            items = self._readings(scores)
            yield Measurement(kind="slow_update", split="train", skill_hash=skill_hash, items=items, trajectories=path)

    @cached_property
    def outcomes(self) -> dict[str, dict[str, bool]]:
        """For each training and validation item: the hashes of the skills that were tried on the item, each with True
        if the skill solved the item at least once."""
        outcomes: dict[str, dict[str, bool]] = {}
        for measured in self.measurements():
            for item_id, (hard, _) in measured.items.items() if measured.split != "test" else ():
                skills = outcomes.setdefault(item_id, {})
                skills[measured.skill_hash] = skills.get(measured.skill_hash, False) or hard >= 1
        return outcomes

    @cached_property
    def persistent_failures(self) -> tuple[str, ...]:
        """Items that no skill has solved. An item counts only if at least three skills were tried on the item, or if a
        version since the last gain was tried. Other unsolved items may well be solved by the next skill."""
        since, versions = self._last_gain(), self.versions_by_hash
        failed = (
            item
            for item, skills in self.outcomes.items()
            if not any(skills.values())
            and (len(skills) >= 3 or any(versions.get(skill, -1) >= since for skill in skills))
        )
        return tuple(sorted(failed))

    def _last_gain(self) -> int:
        """The last version that raised the score. Accepted guidance counts only if it raised the score."""
        version = 0
        for record in self.history:
            version = record.version if record.evidence.accepted else version
            guided = record.epoch_end and record.epoch_end.slow_update
            version = guided.version if guided and guided.evidence.accepted and guided.evidence.gain > 0 else version
        return version

    def trajectories(self, path: Path, wanted: Callable[[bytes], bool] = bool) -> Iterator[Trajectory | RolloutError]:
        """The rollouts in a trajectories.jsonl of the run. The file of a batch also has rollout errors. Only the lines
        for which `wanted(line)` is true are parsed."""
        for line in filter(wanted, self._raw_lines(path)):
            try:
                yield _ROLLOUT.validate_json(line)
            except (ValueError, RecursionError) as error:
                raise _damaged(path, error) from None

    def scored(self, path: Path) -> Iterator[Trajectory]:
        """The rollouts with a score in a file; empty if the file is missing."""
        return (each for each in self.trajectories(path) if isinstance(each, Trajectory))

    @property
    def trace_files(self) -> list[Path]:
        """The files of trajectories: first the evaluations, then the batch and the gate of each step, and last the slow
        updates."""
        measured = sorted(self.files.evaluations.glob("*.jsonl"))
        folders = [*sorted(self.files.steps.glob("step_*")), *sorted(self.root.glob("slow_update/epoch_*"))]
        rest = [folder / name for folder in folders for name in ("trajectories.jsonl", "gate_trajectories.jsonl")]
        return [path for path in (*measured, *rest) if path.is_file()]

    def traces(self) -> Iterator[Trajectory]:
        """Every scored rollout of the run. They are read one at a time, because a long run has thousands."""
        for path in self.trace_files:
            yield from self.scored(path)

    # Steps

    def step_record(self, step: int) -> StepRecord:
        return self._read(StepRecord, self.files.step(step) / "step_record.json")

    def epoch_end(self, step: int) -> EpochEnd | None:
        """The record of the epoch's end; None if this is not the last step of an epoch."""
        return self._optional(EpochEnd, self.files.epoch_end(step))

    def gate(self, step: int) -> GateRecord | None:
        """The gate's record; None if the step stopped before its gate because the disk was full."""
        return self._optional(GateRecord, self.files.step(step) / "gate.json")

    def batch(self, step: int) -> BatchDigest:
        return self._read(BatchDigest, self.files.step(step) / "trajectory_digest.json")

    def batch_trajectories(self, step: int) -> Iterator[Trajectory | RolloutError]:
        return self.trajectories(self.files.step(step) / "trajectories.jsonl")

    def gate_trajectories(self, step: int) -> Iterator[Trajectory]:
        return self._lines(Trajectory, self.files.step(step) / "gate_trajectories.jsonl")

    def patches(self, step: int) -> list[Patch]:
        """The patches that the analysts proposed."""
        return self._read_as(_PATCHES, self.files.step(step) / "patches.json")

    def pool(self, step: int) -> EditPool:
        """The step's edits and conflicts. Edits that say the same are merged."""
        return self._read(EditPool, self.files.step(step) / "aggregate.json")

    def selection(self, step: int) -> Selection:
        return self._read(Selection, self.files.step(step) / "selected.json")

    def candidate(self, step: int) -> str:
        return self.text(self.files.step(step) / "candidate_skill.md")

    @cached_property
    def conflicts(self) -> list[FiledConflict]:
        """The conflicts that were put to a person, whether decided or not."""
        return list(self._lines(FiledConflict, self.files.conflicts))

    @cached_property
    def decisions(self) -> dict[str, Decision]:
        """A person's decisions, by the conflict's id. A line that is still being written is left out."""
        decisions: dict[str, Decision] = {}
        for number, line in enumerate(self._raw_lines(self.files.decisions, growing=True), 1):
            try:
                row = json.loads(line)
                if row.pop("check", "") != digest(row):
                    raise ValueError
                decision = Decision.model_validate(row)
            except (ValueError, AttributeError, TypeError, RecursionError):
                fix = "remove that line, and decide again with `skillopt review`"
                raise Damaged(f"{self.files.decisions}: line {number} is not a decision; {fix}") from None
            decisions[decision.conflict] = decision
        return decisions

    # Epochs

    def slow_update(self, epoch: int) -> EpochComparison | None:
        return self._optional(EpochComparison, self.files.slow_update(epoch) / "comparison.json")

    def slow_update_gate(self, epoch: int) -> GateRecord | None:
        return self._optional(GateRecord, self.files.slow_update(epoch) / "gate.json")

    def meta_skill(self, epoch: int) -> str | None:
        """The optimizer's notes after an epoch."""
        path = self.files.meta_skill(epoch) / "memory.md"
        return self.text(path) if path.exists() else None

    # Results of commands

    @cached_property
    def ablations(self) -> list[Ablation]:
        """The ablations of the run, the newest last."""
        paths = sorted(self.files.ablation.glob("*_v*.json"), key=lambda path: path.stat().st_mtime)
        return [self._read(Ablation, path).model_copy(update={"path": str(path)}) for path in paths]

    # Reading

    def text(self, path: Path) -> str:
        """The text of a file in the run's folder."""
        return read_bytes(self._inside(path)).decode("utf-8")

    def _inside(self, path: Path) -> Path:
        """Return the path. Raise NotAFileError if one of its folders in the run is a link, which could lead out of the
        run. The file itself is not checked here, because opening it does not follow links."""
        relative = path.relative_to(self.root)
        if path.parent.resolve() != (self.root.resolve() / relative).parent or ".." in relative.parts:
            raise NotAFileError(str(path))
        return path

    def _read(self, model: type[Model], path: Path) -> Model:
        return read_record(model, self._inside(path))

    def _read_as(self, adapter: TypeAdapter[_Any], path: Path) -> _Any:
        try:
            return adapter.validate_json(read_bytes(self._inside(path)))
        except (ValueError, RecursionError) as error:
            raise _damaged(path, error) from None

    def _optional(self, model: type[Model], path: Path) -> Model | None:
        return self._read(model, path) if path.exists() or path.is_symlink() else None

    def _lines(self, model: type[Model], path: Path, *, growing: bool = False) -> Iterator[Model]:
        for line in self._raw_lines(path, growing=growing):
            try:
                yield model.model_validate_json(line)
            except (ValueError, RecursionError) as error:
                raise _damaged(path, error) from None

    def _raw_lines(self, path: Path, *, growing: bool = False) -> Iterable[bytes]:
        """The lines of a file. The last line of a `growing` file is left out if it is not complete yet."""
        if not (path.exists() or path.is_symlink()):
            return ()
        *lines, last = read_bytes(self._inside(path)).split(b"\n")
        return filter(None, lines if growing else [*lines, last])


_Any = TypeVar("_Any")


def _gate_measurement(gate: GateRecord, folder: Path) -> Measurement:
    return Measurement(
        kind="gate",
        split="val",
        skill_hash=gate.candidate_hash,
        items={row.item_id: (row.hard, row.after) for row in gate.evidence},
        trajectories=folder / "gate_trajectories.jsonl",
        accepted=gate.accepted,
    )


def read_record(model: type[Model], path: Path) -> Model:
    """Read a record from its file; the file need not be in a run's folder. Raise Damaged if the file is damaged."""
    try:
        return model.model_validate_json(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error) from None


def stored_config(settings: Mapping[str, JsonValue]) -> Config:
    """Build a config from its values by dotted key. Keys of other SkillOpt versions and of packages that are not
    installed are left out, because no such key is needed to read a run."""
    tree: dict[str, dict[str, JsonValue]] = {}
    for dotted, value in settings.items():
        section, _, key = dotted.partition(".")
        known = Config.model_fields.get(section)
        if known and known.annotation and key in known.annotation.model_fields:
            tree.setdefault(section, {})[key] = value
    while True:
        try:
            return Config.model_validate(tree)
        except ValidationError as error:
            wrong = {each["loc"][:2] for each in error.errors() if len(each["loc"]) > 1}
            if not wrong:
                return Config()
            for name, option in wrong:
                tree[str(name)].pop(str(option), None)


def _damaged(path: Path, error: Exception) -> Damaged:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        words = ": ".join(filter(None, [".".join(map(str, first["loc"])), first["msg"]]))
    else:
        words = " ".join(f"{type(error).__name__}: {error}".split())
    return Damaged(f"{path}: is not as it was written ({words[:200]}); `skillopt verify` checks the run's files")
