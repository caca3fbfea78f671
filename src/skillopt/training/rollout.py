"""Rollout, the forward pass: the target does tasks with the skill as its system prompt.

In measurements and gates, an item that has no result because the endpoint failed is tried again. If the item still has
no result, the run stops without a decision.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import BaseModel

from skillopt.errors import Stopped
from skillopt.models.base import Message, RefusedError, Schema, TransientError, UnansweredError
from skillopt.models.bound import BoundChat
from skillopt.models.call import gather_all
from skillopt.models.structured import CheckedReply, ask
from skillopt.record.events import Progress, Retrying, SetAside, Unmeasured
from skillopt.skill import FILE, Skill
from skillopt.skill.examples import without_example
from skillopt.tasks.agents import task_text
from skillopt.tasks.base import Episode, FileChange, Item, RolloutError, Score, ScorerError, Trajectory
from skillopt.training.context import Context

PAUSES = (1.0, 5.0)
"""The seconds to wait before items whose calls failed are tried again: before the second round, and before the third.
Besides, every call has its own retries."""

LEARNING = {"rollout", "wording", "second_look"}
"""Stages that hide a part of the skill: the target does not see a worked example of the task that it does, because
copying the example would teach nothing."""

Work = Callable[[], Awaitable[Trajectory | RolloutError]]


async def rollout(
    skill: Skill, items: Sequence[Item], ctx: Context, *, tag: str = "", stage: str = "rollout"
) -> list[Trajectory | RolloutError]:
    """Do every item once, several at a time; the results are in the order of `items`.

    `tag` (default: the step's number) labels fresh samples, and is the prefix of the trajectories' ids.
    """
    with ctx.timed(stage):
        return await begin(skill, items, ctx, tag=tag, stage=stage).all()


def begin(skill: Skill, items: Sequence[Item], ctx: Context, *, tag: str = "", stage: str = "rollout") -> Rollouts:
    """Start the rollouts of these items. If `begin_ahead` has started them already, return those rollouts."""
    ahead = ctx.background.ahead.pop(tag or f"{ctx.step:04d}", None)
    if ahead and ahead.is_of(skill, items):
        ahead.wanted = True
        return ahead
    return Rollouts(skill, items, ctx, tag=tag, stage=stage)


def begin_ahead(skill: Skill, items: Sequence[Item], ctx: Context, *, tag: str = "", stage: str = "rollout") -> None:
    """Start rollouts that the loop will probably need next; they use only free slots. They report no progress until the
    loop asks for them with `begin`."""
    tag = tag or f"{ctx.step:04d}"
    begun = ctx.background.ahead.get(tag)
    if not (begun and begun.is_of(skill, items)):
        low = replace(ctx, low_priority=True)
        ctx.background.ahead[tag] = Rollouts(skill, items, low, tag=tag, stage=stage, wanted=False)


class Rollouts:
    """The running rollouts of a batch. The results can be read one by one in the order of their ids, or all at once."""

    def __init__(
        self,
        skill: Skill,
        items: Sequence[Item],
        ctx: Context,
        *,
        tag: str = "",
        stage: str = "rollout",
        wanted: bool = True,
    ) -> None:
        self._skill = skill
        self.items = items
        self.tag = tag or f"{ctx.step:04d}"
        self.wanted = wanted
        """True if the loop has reached this batch; until then, the batch reports no progress."""
        self._stage = stage
        self._done = 0
        self._ctx = ctx
        self._tasks = [
            ctx.background.start(
                roll_out_one(skill, item, ctx, tag=self.tag, number=number, stage=stage, on_result=self._count)
            )
            for number, item in enumerate(items)
        ]

    def is_of(self, skill: Skill, items: Sequence[Item]) -> bool:
        return self._skill.hash == skill.hash and [item.id for item in self.items] == [item.id for item in items]

    def _count(self, result: Trajectory | RolloutError) -> None:
        self._done += 1
        if self.wanted:
            self._ctx.emit(Progress(stage=self._stage, done=self._done, total=len(self.items)))

    async def all(self) -> list[Trajectory | RolloutError]:
        """The results in the order of the items."""
        return await gather_all(self._tasks)

    async def __aiter__(self) -> AsyncIterator[Trajectory | RolloutError]:
        for number in sorted(range(len(self._tasks)), key=lambda number: trajectory_id(self.tag, number)):
            yield await asyncio.shield(self._tasks[number])


def trajectory_id(tag: str, number: int) -> str:
    return f"{tag}-{number:03d}"


async def roll_out_one(
    skill: Skill,
    item: Item,
    ctx: Context,
    *,
    tag: str,
    number: int,
    stage: str,
    on_result: Callable[[Trajectory | RolloutError], None] = lambda result: None,
) -> Trajectory | RolloutError:
    """Do one item and score it. Return the trajectory, or an error if the endpoint or the scorer failed.

    `on_result` is called with the result as soon as it is known.
    """
    label = f"{ctx.config.train.seed}/{tag}/{item.id}"

    chats: list[BoundChat] = []
    asked: Counter[str] = Counter()

    def new_chat() -> BoundChat:
        chats.append(BoundChat(ctx.target, label=label, stage=stage, low_priority=ctx.low_priority))
        return chats[-1]

    async def judge(messages: list[Message], schema: Schema, check: Callable[[Any], Any]) -> CheckedReply[Any]:
        asked[key := json.dumps(messages, default=str)] += 1  # each further sample of a request has its own label
        again = f"-{asked[key]}" if asked[key] > 1 else ""
        return await ask(ctx.grader, messages, schema, check, label=f"{label}/judge{again}")

    name = trajectory_id(tag, number)
    text = without_example(skill.text, task_text(item)) if stage in LEARNING else skill.text
    given = skill if text == skill.text else skill.with_file(FILE, text)
    result: Trajectory | RolloutError
    try:
        episode, score = await ctx.executor.run(ctx.env, item, given.shown, new_chat, judge)
        result = _trajectory(name, skill, item, episode, score, chats[-1] if chats else None, ctx)
    except (RefusedError, ScorerError, TransientError) as error:
        alone = isinstance(error, UnansweredError)
        result = RolloutError(
            id=name,
            item_id=item.id,
            skill_hash=skill.hash,
            alone=alone,
            refused=not alone and not isinstance(error, TransientError),
            error=ctx.target.clean(str(error)),
        )
    on_result(result)
    return result


def _trajectory(
    name: str, skill: Skill, item: Item, episode: Episode, score: Score, chat: BoundChat | None, ctx: Context
) -> Trajectory:
    feedback = ctx.target.clean(score.feedback)
    return Trajectory(
        id=name,
        item_id=item.id,
        skill_hash=skill.hash,
        type=item.type,
        input=f"{item.context}\n\n{item.question}".strip(),
        answers=item.answers,
        messages=[_by_reference(message, skill) for message in ctx.target.clean(episode.messages)],
        output=ctx.target.clean(episode.output),
        score=score if feedback == score.feedback else score.model_copy(update={"feedback": feedback}),
        changes=tuple(FileChange(**ctx.target.clean(change.model_dump())) for change in episode.changes),
        opened=ctx.target.clean(episode.opened),
        ran=ctx.target.clean(episode.ran),
        telemetry={"calls": chat.calls if chat else []},
        tools=tuple(ctx.target.clean(chat.tools)) if chat else (),
    )


def _by_reference(message: Message, skill: Skill) -> Message:
    """The message; if it is a system message with the skill's text, the skill's hash replaces this text."""
    if message.get("role") == "system" and message.get("content") == skill.shown.text:
        return {"role": "system", "skill": skill.hash}
    return message


async def another_round(
    rounds: int, unmeasured: Sequence[RolloutError], alone: Collection[str], total: int, ctx: Context, stage: str
) -> bool:
    """Decide whether the items that still have no result after `rounds` rounds are tried again.

    - If a round is left, wait and return True.
    - If no round is left, but each of these items is in `alone` (it failed while others were answered), return False.
      The caller then sets the items aside.
    - Else raise Stopped, because the endpoint is at fault.

    If hardware.max_retries is 0, there is only one round.
    """
    pauses = PAUSES if ctx.config.hardware.max_retries else ()
    if rounds > len(pauses):
        if all(error.item_id in alone for error in unmeasured):
            return False
        ctx.emit(Unmeasured(stage=stage, unmeasured=len(unmeasured), items=total, error=unmeasured[-1].error))
        raise Stopped(
            f"{stage}: {len(unmeasured)} of {total} items could not be measured, so nothing was decided; "
            f"the last error: {unmeasured[-1].error}"
        )
    ctx.emit(Retrying(stage=stage, unmeasured=len(unmeasured), items=total, error=unmeasured[-1].error))
    await ctx.target.switch.sleep(pauses[rounds - 1])
    return True


async def all_measured(work: Sequence[Work], ctx: Context, stage: str) -> list[Trajectory | RolloutError]:
    """Run the work until every item has a result, and return the results in order. If a result is an error, its item
    cannot be measured."""
    settled: dict[int, Trajectory | RolloutError] = {}
    unmeasured: dict[int, RolloutError] = {}
    alone: set[str] = set()

    async def one(number: int) -> None:
        result = await work[number]()
        if isinstance(result, RolloutError) and not result.refused:
            unmeasured[number] = result
            alone.update([result.item_id] * result.alone)
            return
        settled[number] = result
        ctx.emit(Progress(stage=stage, done=len(settled), total=len(work)))

    rounds = 0
    while len(settled) < len(work):
        unmeasured.clear()
        await gather_all(one(number) for number in range(len(work)) if number not in settled)
        rounds += 1
        if unmeasured and not await another_round(rounds, [*unmeasured.values()], alone, len(work), ctx, stage):
            settled |= {number: error.model_copy(update={"refused": True}) for number, error in unmeasured.items()}
    return [settled[number] for number in range(len(work))]


def roll_out_all(
    skill: Skill, items: Sequence[Item], ctx: Context, *, tag: str, stage: str
) -> Awaitable[list[Trajectory | RolloutError]]:
    """Do every item once with the skill; items whose calls failed are tried again."""
    work = [
        partial(roll_out_one, skill, item, ctx, tag=tag, number=number, stage=stage)
        for number, item in enumerate(items)
    ]
    return all_measured(work, ctx, stage)


def scored(results: Sequence[Trajectory | RolloutError]) -> list[Trajectory]:
    return [result for result in results if isinstance(result, Trajectory)]


def failed(results: Sequence[Trajectory | RolloutError]) -> list[RolloutError]:
    return [result for result in results if isinstance(result, RolloutError)]


def require_most(results: Sequence[Trajectory | RolloutError], what: str) -> None:
    """Stop the run if more than half of these rollouts failed."""
    errors = failed(results)
    if len(errors) * 2 > len(results):
        raise Stopped(
            f"{what}: {len(errors)} of {len(results)} rollouts failed; the last error was: {errors[-1].error}"
        )


def require_few(refused: Mapping[str, str], total: int, *, set_aside: int = 0) -> None:
    """Stop the run if too many items of a split cannot be measured: all items, or at least two items and more than a
    tenth.

    `total` is the number of items that were tried now; `set_aside` is the number of items that were set aside earlier.
    """
    gone, whole = len(refused) + set_aside, total + set_aside
    if refused and (gone > max(1, whole // 10) or gone == whole):
        raise Stopped(f"{gone} of {whole} items cannot be measured; the last reason: {list(refused.values())[-1]}")


def mean_score(trajectories: Sequence[Trajectory], metric: str) -> float:
    values = [trajectory.score.value(metric) for trajectory in trajectories]
    return sum(values) / len(values) if values else 0.0


class Measured(BaseModel):
    """A skill's scores on a whole split, by item."""

    values: dict[str, float]
    set_aside: dict[str, str]
    trajectories: list[Trajectory]

    @property
    def score(self) -> float:
        return math.fsum(self.values.values()) / len(self.values) if self.values else 0.0


async def measure(
    skill: Skill, items: Sequence[Item], ctx: Context, *, tag: str, stage: str, set_aside: int = 0
) -> Measured:
    """Measure a skill on every item once. Endpoint failures stop the run, because a score needs all items of the split.

    `set_aside` is the number of items of the split that were set aside earlier in the run; `items` does not contain
    them.
    """
    with ctx.timed(stage):
        results = await roll_out_all(skill, items, ctx, tag=tag, stage=stage)
    refused = {error.item_id: error.error for error in failed(results)}
    require_few(refused, len(items), set_aside=set_aside)
    if refused:
        ctx.emit(SetAside(items=refused))
    metric = ctx.config.evaluation.metric
    trajectories = scored(results)
    values = {t.item_id: t.score.value(metric) for t in trajectories}
    return Measured(values=values, set_aside=refused, trajectories=trajectories)
