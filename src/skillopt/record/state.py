"""The state of a run after its last finished step. A step is finished when the state is written."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from skillopt.errors import Damaged
from skillopt.record.base import Record
from skillopt.record.files import digest, plain, read_json, write_json
from skillopt.record.findings import TaskFinding
from skillopt.record.trajectory import FailureKind
from skillopt.skill import Edit

WAY_OUT = (
    "delete runtime_state.json (and journal.sqlite, if that is the damaged file), and run the same command again with "
    "the same version of SkillOpt: it repeats the run, and pays only for replies that are not in the journal"
)


class Best(BaseModel):
    """The best version so far, by validation score."""

    version: int = 0
    step: int = 0
    val: float | None = 0.0
    """The validation score; None if the version was accepted without a measurement."""


class Rejected(BaseModel):
    """A rejected edit, which must not be proposed again."""

    step: int
    edit: Edit


class TriedEdit(BaseModel):
    """An edit of an earlier step, and what became of it."""

    op: str
    file: str = ""
    """The package's file that the edit changes; empty for SKILL.md."""
    section: str = ""
    anchor: str = ""
    text: str = ""
    fate: str
    """What became of the edit: applied, not selected, in conflict or dropped, with the reason."""


class Tried(BaseModel):
    """An earlier step, as requests to the optimizer show it."""

    step: int
    epoch: int = 0
    verdict: str
    before: float | None = None
    after: float | None = None
    at_most: float = 1.0
    paired_gain: float | None = None
    """The candidate's gain over the current skill, from fresh samples of both."""
    remeasured: float | None = None
    """The current skill's score with the fresh samples of the step's gate."""
    measured: int = 0
    """The number of validation tasks on which the gate based its decision."""
    failed_before: int = 0
    """The number of tasks among `measured` that the skill before the candidate failed."""
    gained: int = 0
    """Of the tasks counted in `measured`, the number that only the candidate solved."""
    lost: int = 0
    """Of the tasks counted in `measured`, the number that only the current skill solved."""
    lost_kinds: dict[FailureKind, int] = {}
    """How the candidate failed the `lost` tasks: the number of tasks for each kind of failure."""
    edits: tuple[TriedEdit, ...] = ()
    helped: tuple[str, ...] = ()
    """Task types whose validation score rose."""
    broke: tuple[str, ...] = ()
    """Task types whose validation score fell."""
    causes: tuple[str, ...] = ()
    """The reasons that the analysts gave for failed tasks of the batch."""
    outputs: tuple[dict[str, str], ...] = ()
    """For a rejected step: the target's outputs with the candidate on some tasks of the batch."""


class ShortForm(BaseModel):
    """The newest minimal remedy with its validation score, and the score of all edits of the same step together."""

    step: int
    text: str
    accepted: bool
    """True if the minimal remedy beat all edits together."""
    score: float | None
    """The minimal remedy's validation score; None if the gate rejected the remedy before all tasks were done."""
    at_most: float
    """The highest score that the minimal remedy could still reach when the gate ended."""
    complete: float | None
    """The validation score of all edits together; None if the gate rejected them."""


class Counts(Record):
    model_config = ConfigDict(frozen=False)

    run: int = 0
    accepted: int = 0
    rejected: int = 0
    indecisive: int = 0
    """The number of steps in which the candidate looked better, but the evidence was too weak."""
    skipped: int = 0
    """The number of steps in which no edit could be applied."""


class Phase(Record):
    """A part of a run with its own schedule of the learning rate: the first training, or an extension."""

    first_epoch: int
    epochs: int
    """The number of epochs of the whole run when the phase ends."""
    after: int
    """The last step before the phase."""
    scheduler: str
    """The schedule's name."""
    reason: str = ""
    """The reason why `auto` chose the schedule; empty if the config names the schedule."""

    @property
    def shown(self) -> str:
        """The epochs of the phase in words, such as `epochs 5–6`."""
        first = self.first_epoch
        return f"epochs {first}–{self.epochs}" if first < self.epochs else f"epoch {first}"


class Telemetry(BaseModel):
    """Times and call counts; they are left out when two runs are compared."""

    seconds: float = 0.0
    """Seconds over all sessions."""
    from_journal: int = 0
    """The number of replies from the journal, over all sessions."""
    stages: dict[str, float] = {}
    """Seconds by stage, over the finished steps of all sessions."""
    gate_calls_saved: int = 0
    rollouts_to_best: int = 0
    """The number of target rollouts that were paid for until the best score was reached."""


class Seal(BaseModel):
    """The size and the checksum of a file that a finished step wrote."""

    model_config = ConfigDict(frozen=True)

    size: int
    sha256: str


class State(BaseModel):
    """Everything that the next step needs, except the files of earlier steps."""

    model_config = ConfigDict(validate_assignment=True)

    pins: dict[str, str] = {}
    """What the run began with: the versions of SkillOpt and of the method, and a hash of the prompts. A run never
    continues with a different method."""
    step: int = 0
    """The last finished step."""
    epoch: int = 0
    """The last epoch whose end (slow update, meta skill) is finished."""
    version: int = 0
    """The newest skill version."""
    current: int = 0
    """The version that training continues from."""
    val: dict[str, float] = {}
    """The current version's validation scores by item."""
    changed: dict[str, int] = {}
    """By validation item: the number of candidates that changed its score. Gates try items with high numbers early."""
    score: float | None = None
    """The current version's validation score when it was accepted. None if this version was not measured; then `val`
    has the scores of an earlier version."""
    initial_val: float = 0.0
    set_aside: dict[str, str] = {}
    """Items that the endpoint refuses because of their content, with the reason; they are left out for every skill."""
    best: Best = Best()
    decay: float = 1.0
    """The factor that lowers the learning rate. Rejected and indecisive steps make it smaller, accepted ones larger."""
    stale_steps: int = 0
    """The number of steps since the last accepted step, for `train.patience`."""
    rejected: list[Rejected] = []
    tried: list[Tried] = []
    """The last steps and what became of their edits, for requests to the optimizer."""
    pending: list[Edit] = []
    """Edits that broke nothing, although their candidate was rejected; the next steps try them again together with new
    edits."""
    short_form: ShortForm | None = None
    """The newest minimal remedy that was tried."""
    reviewed: dict[str, int] = {}
    """Conflicts that a person decided, each with the step that used the decision."""
    memory: str = ""
    """The notes of the meta skill."""
    findings: list[TaskFinding] = []
    """The optimizer's findings. They stay, whatever the gates decide."""
    guidance_won: list[str] = []
    """Validation items that failed at first, and passed after guidance was accepted."""
    phases: list[Phase] = []
    """The first training and each extension; empty in runs of earlier SkillOpt versions."""
    epoch_versions: list[int] = [0]
    """The current version at the start of the run and at each epoch's end."""
    counts: Counts = Field(default_factory=Counts)  # pydantic would share a hashable default among all runs
    edits_proposed: int = 0
    edits_accepted: int = 0
    patch_log_size: int = 0
    status: str = "running"
    stop_reason: str = ""
    sealed: dict[str, Seal] = {}
    """The size and checksum of every file that a finished step wrote, by its path in the run's folder."""
    replies: int = 0
    """The number of replies in the journal when the state was written."""
    telemetry: Telemetry = Telemetry()

    @classmethod
    def read(cls, path: Path) -> State:
        """Read the state. Raise Damaged if the file was changed after it was written."""
        try:
            body = read_json(path)
            intact = body.pop("check", "") == digest(body)
            state = cls.model_validate(body)
        except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
            raise Damaged(f"{path}: cannot be read; {WAY_OUT}") from None
        if not intact:
            raise Damaged(f"{path}: does not match its checksum; {WAY_OUT}")
        return state

    def write(self, path: Path) -> None:
        body = plain(self)
        write_json(path, {**body, "check": digest(body)})
