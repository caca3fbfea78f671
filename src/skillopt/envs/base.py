"""The contract of a set of tasks: items in three disjoint splits, a way to do one, a way to score what came out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from skillopt.errors import SkillOptError, UserError
from skillopt.keys import refuse_secrets, secrets
from skillopt.models.base import ChatReply, Message, Schema, Usage
from skillopt.models.structured import CheckedReply
from skillopt.skill import Skill

SPLITS = ("train", "val", "test")


class Chat(Protocol):
    """The target model, bound to one rollout: journalled, limited, retried and counted."""

    async def __call__(self, messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] = ()) -> ChatReply:
        """The reply. `tools` are function definitions of the OpenAI chat protocol; see envs/tools.py for the loop.

        Content may be text or parts of that protocol (`{"type": "image_url", …}`).
        """
        ...

    async def whole(self, identity: Sequence[Any], work: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """A rollout whose model calls we cannot see: done once for this identity and sample, then in the journal.

        `work` gives JSON; it raises TransientError where another try may help. `usage` in it, `{prompt, completion,
        cached, usd}`, is counted against the budget; tokens of calls that went through this chat are counted already.
        """
        ...


Judge = Callable[[list[Message], Schema, Callable[[Any], Any]], Awaitable[CheckedReply[Any]]]
"""The optimizer model as a judge, bound to one rollout: messages, the reply's schema and its check give a value."""


class ScorerError(SkillOptError):
    """The scorer failed (hung, crashed, raised): that is not the target's wrong answer. The item is set aside."""


class Item(BaseModel):
    """One task. `item["field"]` is `item.field`, for agents and scorers alike; `item.answer` is the first answer."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: str
    question: str
    context: str = ""
    answers: tuple[str, ...] = ()
    type: str = ""
    """The task's type, for reports by type."""

    def __getitem__(self, name: str) -> Any:
        if name == "answer":
            return self.answer
        fields = {**vars(self), **(self.model_extra or {})}
        if name not in fields:
            raise KeyError(f"the item '{self.id}' has no field '{name}'; it has: {', '.join(fields)}")
        return fields[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name == "answer" or name in vars(self) or name in (self.model_extra or {}) else default

    @property
    def answer(self) -> str:
        """The first right answer; empty where there is none."""
        return self.answers[0] if self.answers else ""

    def content(self) -> str:
        """What the task asks, for finding the same task under two ids."""
        return " ".join(f"{self.question}\n{self.context}".casefold().split())


class Score(BaseModel):
    """The loss of one rollout."""

    model_config = ConfigDict(frozen=True)

    hard: float = Field(ge=0, le=1)
    """1 when the task is solved, else 0."""
    soft: float = Field(ge=0, le=1)
    feedback: str = ""
    """What the scorer can say of the failure; analysts read it."""

    def value(self, metric: str) -> float:
        if metric == "mixed":
            return (self.hard + self.soft) / 2
        return self.hard if metric == "hard" else self.soft


class FileChange(BaseModel):
    """What became of one file of a workspace."""

    model_config = ConfigDict(frozen=True)

    path: str
    kind: Literal["added", "changed", "removed"]
    shown: str = ""
    """The difference as text, cut where it is long; of a file that is no text, its size."""


class Episode(BaseModel):
    """What the target did: every message, and the answer that is scored."""

    messages: list[dict[str, Any]] = []
    output: str
    score: Score | None = None
    """Where only the world knows how it went (a game that is won); `Env.score` is not asked then."""
    usage: Usage | None = None
    """Tokens, and dollars if known, of model calls that did not go through `chat`: they are counted and paid for."""
    changes: tuple[FileChange, ...] = ()
    """What it did to the files of its workspace."""
    opened: tuple[str, ...] = ()
    """Files of the skill's package that it opened or ran."""
    ran: tuple[str, ...] = ()
    """Scripts of the skill's package that it ran."""


class Trajectory(BaseModel):
    """One scored rollout."""

    model_config = ConfigDict(frozen=True)

    id: str
    item_id: str
    type: str = ""
    skill_hash: str
    input: str
    answers: tuple[str, ...] = ()
    """What would have been right, for analysts; only training trajectories reach them."""
    messages: list[dict[str, Any]]
    output: str
    score: Score
    telemetry: dict[str, Any] = {}
    """`calls`: tokens and seconds of each call of the target."""
    changes: tuple[FileChange, ...] = ()
    """What the target did to the files of its workspace."""
    opened: tuple[str, ...] = ()
    """Files of the skill's package that the target opened or ran."""
    ran: tuple[str, ...] = ()
    """Scripts of the skill's package that the target ran."""

    @model_serializer(mode="wrap")
    def _only_what_is_there(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A task without files is stored as it always was."""
        fields: dict[str, Any] = plain(self)
        return {key: value for key, value in fields.items() if value or key not in {"changes", "opened", "ran"}}


class RolloutError(BaseModel):
    """A rollout that gave no score for the endpoint's sake. It enters no mean."""

    model_config = ConfigDict(frozen=True)

    id: str
    item_id: str
    skill_hash: str
    refused: bool = False
    """The item cannot be measured for its own sake: the endpoint refuses it (content filter, too long), or its scorer
    fails."""
    error: str


class Env(Protocol):
    """A set of tasks. docs/your_env.md is the guide to writing one.

    `run` goes through `chat` for every model call. `score` depends on the item and the output alone, and returns for
    any text; it may be async, and may raise ScorerError, which sets the item aside. An env may also have

    - `task` and `scoring`, a sentence or two each: what the tasks are and how a reply is scored, for the optimizer;
    - `patterns`, {name: what it means}: its own names for causes of failure, for the optimizer;
    - `baseline(item) -> str`: the output of doing nothing, where that is not the empty text (a file left as it was);
    - `warnings`, texts: what it finds suspicious in its data, for `skillopt doctor`;
    - `turns`: the most model calls that one task may take, for `skillopt plan`;
    - `noisy = True`: the same output may get another score (a judge); the strict gate is refused then;
    - `judge(item, output, ask) -> Score` (async) in place of `score`: `ask` is the optimizer model, journalled;
    - `problem`, a text: why nothing could do its tasks as it is set up; nothing is begun then;
    - `fingerprint`: what besides items and config changes results (the text of a scorer's file);
    - `close()`: called at the end.
    """

    name: str

    def items(self, split: str) -> Sequence[Item]:
        """A split's items. The sequence may read them from disk one by one: the loop holds a batch at a time."""
        ...

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode: ...

    def score(self, item: Item, output: str) -> Score | Awaitable[Score]: ...


async def score_output(env: Env, item: Item, output: str, judge: Judge | None = None) -> Score:
    """The env's score of an output, however the env gives it."""
    judged = getattr(env, "judge", None)
    if judged is not None and judge is not None:
        score: Score = await judged(item, output, judge)
        return score
    found = env.score(item, output)
    return found if isinstance(found, Score) else await found


def is_judged(env: Env) -> bool:
    """Does a model score the outputs?"""
    return getattr(env, "judge", None) is not None


def is_noisy(env: Env) -> bool:
    """May the same output get another score?"""
    return bool(getattr(env, "noisy", False))


def nothing_done(env: Env, item: Item) -> str:
    """The output of a target that does nothing."""
    baseline: Callable[[Item], str] | None = getattr(env, "baseline", None)
    return baseline(item) if baseline else ""


def close_env(env: Env) -> None:
    close: Callable[[], None] | None = getattr(env, "close", None)
    if close:
        close()


def check_splits(env: Env) -> None:
    """Refuse empty splits, items that are in two splits (by id or by content), items that contain a secret, and tasks
    that nothing could do."""
    if problem := getattr(env, "problem", ""):
        raise UserError(f"env '{env.name}': {problem}")
    known = secrets()
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
                    "the splits must be disjoint, or the score proves nothing: remove it from one of them"
                )
            refuse_secrets(item.model_dump_json(), f"env '{env.name}': item '{item.id}'", known)
            content = hashlib.sha256(item.content().encode("utf-8", "replace")).digest()  # a long text is not kept
            same = seen_content.get(content)
            if same and same[0] != split:
                raise UserError(
                    f"env '{env.name}': '{same[1]}' ({same[0]}) and '{item.id}' ({split}) are the same task under two "
                    "ids; the splits must be disjoint: remove one"
                )
            seen_ids[item.id] = split
            seen_content[content] = (split, item.id)


def data_hash(env: Env, fingerprint: str | None = None) -> str:
    """Fingerprint of all items, and of what the env adds to them; a run does not continue with other data."""
    digest = hashlib.sha256()
    for split in SPLITS:
        for item in env.items(split):
            digest.update(json.dumps([split, item.model_dump(mode="json")], sort_keys=True).encode())
    digest.update(str(getattr(env, "fingerprint", "") if fingerprint is None else fingerprint).encode())
    return digest.hexdigest()


def closed_set(items: Sequence[Item], most: int = 20) -> tuple[str, ...]:
    """The possible answers, where the items' first answers form a small closed set; else empty."""
    counts: dict[str, int] = {}
    for item in items:
        if not item.answers:
            return ()
        counts[item.answers[0]] = counts.get(item.answers[0], 0) + 1
    small = 2 <= len(counts) <= most and len(counts) * 3 <= len(items)
    return tuple(sorted(counts)) if small else ()
