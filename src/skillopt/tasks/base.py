"""The interface of a set of tasks: items in three disjoint splits, and functions that do and score an item."""

from __future__ import annotations

import hashlib
import inspect
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel, ConfigDict

from skillopt.chat_protocol import JsonObject, StoredMessage
from skillopt.errors import SkillOptError, UserError
from skillopt.keys import refuse_secrets, secrets
from skillopt.models.base import ChatReply, FatalError, Message, Schema, ToolDefinition, Usage
from skillopt.models.structured import CheckedReply
from skillopt.record.trajectory import FileChange, RolloutError, Score, Trajectory
from skillopt.skill import Skill
from skillopt.tasks.as_score import as_score

__all__ = ["FileChange", "RolloutError", "Score", "ToolDefinition", "Trajectory"]
if TYPE_CHECKING:
    from skillopt.tasks.workspace import Workspaces

SPLITS = ("train", "val", "test")
_MOST_ANSWERS = 20
"""The maximum number of different answers in a small closed set (`closed_set`)."""


Json = JsonObject
"""A JSON object that is written to the journal or read from it."""


class Chat(Protocol):
    """The target model for one rollout. Its calls are journalled, limited, retried and counted."""

    async def __call__(self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()) -> ChatReply:
        """Send the messages and return the reply. `tools` defines functions in the form of the OpenAI chat protocol;
        tasks/tools.py runs these functions.

        The content of a message is text or a list of the protocol's parts (`{"type": "image_url", …}`).
        """
        ...

    async def opaque_rollout(self, identity: Sequence[Any], work: Callable[[], Awaitable[Json]]) -> Json:
        """Do a rollout with model calls that SkillOpt cannot see. The rollout is done once for each identity and
        sample; after that, its result is read from the journal.

        `work` does the rollout and returns JSON, or raises TransientError if one more try may help. The JSON may have
        the field `usage`, `{prompt, completion, cached, usd}`, which counts against the budget. Do not include the
        usage of calls that went through this chat.
        """
        ...


Judge = Callable[[list[Message], Schema, Callable[[Any], Any]], Awaitable[CheckedReply[Any]]]
"""A function that asks the judge (`models.judge_model`, else the optimizer model). It takes messages, the schema of
the reply and a function that checks the reply; it returns the checked reply."""


class ScorerError(SkillOptError):
    """The scorer hung, crashed or raised an error. The item is set aside; the answer is not scored as wrong."""


HIDDEN = ("answer", "answers", "expected", "check", "check_files", "rubric")
"""Fields of an item that an agent never sees. A skill learns nothing from tasks if the agent can read the answers."""


class TaskFields(BaseModel):
    """The fields of an item that both agents and scorers see. `item["field"]` is the same as `item.field`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: str
    question: str
    context: str = ""
    type: str = ""
    """The task's type, for reports by type."""

    def __getitem__(self, name: str) -> Any:
        fields = {**vars(self), **(self.model_extra or {})}
        if name in fields:
            return fields[name]
        if name in HIDDEN and hasattr(self, name):  # `answer`; an agent's item raises an error
            return getattr(self, name)
        raise KeyError(f"the item '{self.id}' has no field '{name}'; it has: {', '.join(fields)}")

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default


class Item(TaskFields):
    """One task. `item["field"]` is the same as `item.field`; `item.answer` is the first answer."""

    answers: tuple[str, ...] = ()

    @property
    def answer(self) -> str:
        """The first right answer; empty if there is none."""
        return self.answers[0] if self.answers else ""

    def content(self) -> str:
        """The question, the context and the images as one text. Two items with the same text are the same task, even if
        their ids differ."""
        text = " ".join(f"{self.question}\n{self.context}".casefold().split())
        return "\n".join([text, *image_names(self)])

    def for_agent(self) -> AgentItem:
        """The item without the fields that agents never see."""
        return AgentItem(**{name: value for name, value in self if name not in HIDDEN})


def image_names(item: TaskFields) -> tuple[str, ...]:
    """The names of an item's images, from its fields `image` and `images`."""
    fields = item.model_extra or {}
    values = [fields.get("image"), *(several if isinstance(several := fields.get("images"), list) else [several])]
    return tuple(value for value in values if isinstance(value, str) and value.strip())


class AgentItem(TaskFields):
    """An item as an agent sees it, without the fields of `HIDDEN`. Reading such a field ends the run with an error."""

    def __getattr__(self, name: str) -> Any:
        if name in HIDDEN:
            shown = ", ".join(name for name, _ in self)
            raise FatalError(
                f"the agent tries to read the hidden field '{name}' of the item '{self.id}': a skill learns "
                "nothing from tasks if the agent can read their answers. Only the scorer may use this field; the agent "
                f"may use: {shown}"
            )
        return super().__getattr__(name)  # type: ignore[misc]


def score_of(value: Any, pass_at: float = 1.0) -> Score:
    """Convert the result of a scorer, judge or check to a Score. The result must have one of the forms in
    tasks/as_score.py; any other form raises ValueError."""
    return Score(**as_score(value, pass_at))


class Episode(BaseModel):
    """The record of a rollout: every message, and the answer that is scored."""

    messages: list[StoredMessage] = []
    output: str
    score: Score | None = None
    """The score, if the env itself knows it, as a game knows who won. `Env.score` is then not called."""
    usage: Usage | None = None
    """Tokens, and dollars if known, of model calls that did not go through `chat`. They count against the budget."""
    changes: tuple[FileChange, ...] = ()
    """Changes to the files of the task's workspace."""
    opened: tuple[str, ...] = ()
    """Files of the skill's package that the agent opened or ran."""
    ran: tuple[str, ...] = ()
    """Scripts of the skill's package that the agent ran."""


class Agent(Protocol):
    """Does one task with a skill."""

    fingerprint: str
    turns: int
    """The maximum number of model calls that one task may take."""

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode: ...


class Scorer:
    """Scores an output or, if `needs_workspace` is true, the files that the rollout left (`score_files`). Some scorers
    set `needs_workspace` only when `check` is called."""

    needs_answers = noisy = needs_workspace = False
    fingerprint = description = ""
    """`description` tells the optimizer in a sentence how the scorer decides."""

    def __call__(self, item: Item, output: str) -> Score | Awaitable[Score]:
        raise ScorerError("this scorer works only in a rollout")

    async def score_files(self, item: Item, output: str, workspace: Path) -> Score:
        """Score the files that a rollout left. A scorer that does not look at files scores the output alone."""
        value = self(item, output)
        return value if isinstance(value, Score) else await value

    judge: Callable[[Item, str, Judge], Awaitable[Score]] | None = None
    """If a model scores the outputs: the function that is called instead of `__call__`. Otherwise None."""

    def is_judged(self, item: Item) -> bool:
        """Is this item scored by a model? A task set may have items with a judge and items without one."""
        return False

    def check(self, splits: Mapping[str, Sequence[Item]]) -> None:
        """Raise UserError if an item can never be scored."""

    def close(self) -> None:
        """End the processes that the scorer started."""


class Env(ABC):
    """A set of tasks: the base class of every env. docs/your_env.md is the guide to writing one.

    An env has `items`, `run`, and `score` or `judge`; everything else has a default.
    """

    name: str = ""
    task: str = ""
    """A description of the tasks in a sentence or two, for the optimizer."""
    scoring: str = ""
    """A description of the scoring in a sentence or two, for the optimizer."""
    patterns: Mapping[str, str] = {}
    """Names for causes of failure, each with its meaning, for the optimizer."""
    warnings: Sequence[str] = ()
    """Suspicious facts about the data, for `skillopt doctor`."""
    turns: int = 1
    """The maximum number of model calls that one task may take, for `skillopt plan`."""
    noisy: bool = False
    """True if the same output may get different scores. The strict gate refuses such an env."""
    problem: str = ""
    """Why the env cannot be used; empty if it can. A run does not start if there is a problem."""
    fingerprint: str = ""
    """A text that must change whenever results may change although items and config stay the same, for example if a
    scorer's file changes."""
    workspaces: Workspaces | None = None
    """The files that tasks start from; None if the tasks have no files."""
    scores_files: bool = False
    """True if `run` also scores the files that the rollout left. `score` then scores an untouched workspace."""
    judge: Callable[[Item, str, Judge], Awaitable[Score]] | None = None
    """An async function `judge(item, output, ask)` that is called instead of `score`. `ask` sends a request to the
    judge model; the journal stores the replies. An env with a judge is noisy."""

    @abstractmethod
    def items(self, split: str) -> Sequence[Item]:
        """The items of train, val or test. The sequence may read the items from disk one by one; training needs only
        one batch at a time."""

    @abstractmethod
    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        """Do one task with the skill. Every model call must go through `chat`."""

    def score(self, item: Item, output: str) -> Score | Awaitable[Score]:
        """Score an output. The score must depend only on the item and the output. The function must accept any text as
        the output. The function may be async. If it raises ScorerError, the item is set aside."""
        raise ScorerError(f"env '{self.name}' has no scorer: define its method 'score' or 'judge'")

    def baseline(self, item: Item) -> str:
        """The output of a target that does nothing."""
        return ""

    def close(self) -> None:  # noqa: B027 - most envs start nothing
        """End the processes that the env started. The code that opened the env calls this function."""

    def use(self, agent: Agent | None, scorer: Scorer | None) -> None:
        """Use functions that a program passes in: the agent replaces `run`; the scorer replaces `score` and `judge`."""
        if agent is not None:
            self.run = agent.run  # type: ignore[method-assign]
            self.problem = ""
            self.fingerprint = f"{self.fingerprint}{agent.fingerprint}"
        if scorer is not None:
            if scorer.needs_workspace and self.workspaces is None:
                raise UserError(
                    f"scorer: has a parameter 'workspace', but the tasks of env '{self.name}' have no files; remove "
                    "this parameter"
                )
            self.score = scorer.__call__  # type: ignore[method-assign]
            self.judge = None
            self.noisy, self.scoring = scorer.noisy, scorer.description
            self.fingerprint = f"{self.fingerprint}{scorer.fingerprint}"


_PACKAGES = {"skillopt", "skillopt_agents", "skillopt_benchmarks"}
ENV_MEMBERS = frozenset(name for name in dir(Env) if not name.startswith("_")) - {"use"}


def as_env(env: object) -> Env:
    """Return the object if it is an Env; else raise UserError."""
    if not isinstance(env, Env):
        raise UserError(
            f"env: {type(env).__name__} is not an Env; let its class inherit from skillopt.Env (docs/your_env.md)"
        )
    return env


def unknown_members(env: Env) -> dict[str, str]:
    """Public members of a user's class that SkillOpt never reads, each with the member of Env that the user may have
    meant. Attributes of the object are listed only if they look like a misspelt member."""
    classes = type(env).__mro__
    ours = next((cls for cls in classes if cls.__module__.split(".")[0] in _PACKAGES), object)
    defined = {name for cls in classes[: classes.index(ours)] for name in vars(cls)}
    nearest = {name: "".join(get_close_matches(name, ENV_MEMBERS, n=1)) for name in {*defined, *vars(env)}}
    members = {*ENV_MEMBERS, *dir(ours)}
    return {
        name: near
        for name, near in sorted(nearest.items())
        if not name.startswith("_") and name not in members and (near or name in defined)
    }


async def score_output(env: Env, item: Item, output: str, judge: Judge | None = None) -> Score:
    """Score an output with the env's `judge` or `score`; both may be async. `score_of` converts the result."""
    judged = env.judge is not None and judge is not None
    value: Any = env.judge(item, output, judge) if env.judge and judge else env.score(item, output)
    value = await value if inspect.isawaitable(value) else value
    try:
        return value if isinstance(value, Score) else score_of(value)
    except ValueError as error:
        raise ScorerError(f"env '{env.name}': {'judge' if judged else 'score'} of '{item.id}': {error}") from None


def is_judged(env: Env) -> bool:
    """Does a model score the outputs?"""
    return env.judge is not None


def is_noisy(env: Env) -> bool:
    """May the same output get different scores? True if the env says so or a model scores."""
    return env.noisy or is_judged(env)


def check_splits(env: Env) -> None:
    """Raise UserError if the env has a `problem`, a split is empty, an item is in two splits (by id or by content),
    or an item contains a secret."""
    if env.problem:
        raise UserError(f"env '{env.name}': {env.problem}")
    secret_values = secrets()
    seen_ids: dict[str, str] = {}
    seen_content: dict[bytes, tuple[str, str]] = {}
    for split in SPLITS:
        items = env.items(split)
        if not items:
            raise UserError(f"env '{env.name}': the {split} split is empty; each of train, val and test needs items")
        for item in items:
            if item.id in seen_ids:
                raise UserError(
                    f"env '{env.name}': id '{item.id}' is in {seen_ids[item.id]} and {split}; "
                    "the splits must be disjoint, or the score proves nothing: remove the item from one split"
                )
            where = f"env '{env.name}': item '{item.id}'"
            try:
                text = item.model_dump_json()
            except ValueError as error:  # the JSON library limits the depth
                raise UserError(f"{where}: cannot be stored, it may be nested too deeply ({error})") from None
            refuse_secrets(text, where, secret_values)
            content = hashlib.sha256(item.content().encode("utf-8", "replace")).digest()  # shorter than a long text
            same = seen_content.get(content)
            if same and same[0] != split:
                raise UserError(
                    f"env '{env.name}': '{same[1]}' ({same[0]}) and '{item.id}' ({split}) are the same task under two "
                    "ids; the splits must be disjoint: remove one of the two items"
                )
            seen_ids[item.id] = split
            seen_content[content] = (split, item.id)


def data_hash(env: Env) -> str:
    """A hash of all items and of the env's `fingerprint`. A run cannot be resumed if this hash has changed."""
    digest = hashlib.sha256()
    for split in SPLITS:
        for item in env.items(split):
            digest.update(json.dumps([split, item.model_dump(mode="json")], sort_keys=True).encode())
    digest.update(str(env.fingerprint).encode())
    return digest.hexdigest()


def closed_set(items: Sequence[Item]) -> tuple[str, ...]:
    """The possible answers if the items' first answers form a small closed set; else empty."""
    counts = Counter(item.answer for item in items)
    small = 2 <= len(counts) <= _MOST_ANSWERS and len(counts) * 3 <= len(items) and all(item.answers for item in items)
    return tuple(sorted(counts)) if small else ()
