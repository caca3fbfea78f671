"""Rollout, the forward pass: the target does tasks with the skill as its system prompt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from skillopt.core.context import Context
from skillopt.envs.base import FileChange, Item, RolloutError, ScorerError, Trajectory
from skillopt.errors import Stopped
from skillopt.models.base import Message, RefusedError, Schema, TransientError
from skillopt.models.bound import BoundChat
from skillopt.models.call import gather_all
from skillopt.models.structured import CheckedReply, ask
from skillopt.skill import Skill


async def rollout(
    skill: Skill, items: Sequence[Item], ctx: Context, *, tag: str = "", stage: str = "rollout"
) -> list[Trajectory | RolloutError]:
    """Roll out every item, in any order of time; results are in the order of `items`.

    `tag` names the purpose: it labels fresh samples and begins the trajectories' ids. Without it, it is the step's.
    """
    with ctx.timed(stage):
        return await begin(skill, items, ctx, tag=tag, stage=stage).all()


def begin(skill: Skill, items: Sequence[Item], ctx: Context, *, tag: str = "", stage: str = "rollout") -> Rollouts:
    """The rollouts, under way: begun now, unless the very same were begun ahead."""
    ahead = ctx.underway.ahead.pop(tag or f"{ctx.step:04d}", None)
    if ahead and ahead.is_of(skill, items):
        ahead.wanted = True
        return ahead
    return Rollouts(skill, items, ctx, tag=tag, stage=stage)


def begin_ahead(skill: Skill, items: Sequence[Item], ctx: Context, *, tag: str = "", stage: str = "rollout") -> None:
    """Begin what the loop will most likely need next, in free places; it enters no record before the loop asks for it
    with `begin`."""
    tag = tag or f"{ctx.step:04d}"
    known = ctx.underway.ahead.get(tag)
    if not (known and known.is_of(skill, items)):
        later = replace(ctx, later=True)
        ctx.underway.ahead[tag] = Rollouts(skill, items, later, tag=tag, stage=stage, wanted=False)


class Rollouts:
    """A batch under way: its results one by one in the order of their ids as they come, or all of them at once."""

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
        self._items = items
        self.tag = tag or f"{ctx.step:04d}"
        self.wanted = wanted
        """Whether the loop has reached it; before that, it reports no progress."""
        self._stage = stage
        self._done = 0
        work = (self._one(number, item, ctx) for number, item in enumerate(items))
        self._tasks = [ctx.underway.start(one) for one in work]

    def is_of(self, skill: Skill, items: Sequence[Item]) -> bool:
        return self._skill.hash == skill.hash and [item.id for item in self._items] == [item.id for item in items]

    async def _one(self, number: int, item: Item, ctx: Context) -> Trajectory | RolloutError:
        result = await roll_out_one(self._skill, item, ctx, tag=self.tag, number=number, stage=self._stage)
        self._done += 1
        if self.wanted:
            stage = "rollout" if self._stage == "speculate" else self._stage
            ctx.emit("progress", stage=stage, done=self._done, total=len(self._items))
        return result

    async def all(self) -> list[Trajectory | RolloutError]:
        """In the order of the items."""
        return await gather_all(self._tasks)

    async def __aiter__(self) -> AsyncIterator[Trajectory | RolloutError]:
        for number in sorted(range(len(self._tasks)), key=lambda number: trajectory_id(self.tag, number)):
            yield await asyncio.shield(self._tasks[number])


def trajectory_id(tag: str, number: int) -> str:
    return f"{tag}-{number:03d}"


async def roll_out_one(
    skill: Skill, item: Item, ctx: Context, *, tag: str, number: int, stage: str
) -> Trajectory | RolloutError:
    """One episode and its score, or the endpoint's or the scorer's failure: that is no score."""
    label = f"{ctx.config.train.seed}/{tag}/{item.id}"

    chats: list[BoundChat] = []

    def new_chat() -> BoundChat:
        chats.append(BoundChat(ctx.target, label=label, stage=stage, later=ctx.later))
        return chats[-1]

    async def judge(messages: list[Message], schema: Schema, check: Callable[[Any], Any]) -> CheckedReply[Any]:
        return await ask(ctx.optimizer, messages, schema, check, label=f"{label}/judge")

    identity: dict[str, Any] = {"id": trajectory_id(tag, number), "item_id": item.id, "skill_hash": skill.hash}
    try:
        episode, score = await ctx.executor.run(ctx.env, item, skill, new_chat, judge)
    except (RefusedError, ScorerError) as error:
        return RolloutError(**identity, refused=True, error=ctx.target.clean(str(error)))
    except TransientError as error:
        return RolloutError(**identity, error=str(error))
    feedback = ctx.target.clean(score.feedback)
    return Trajectory(
        **identity,
        type=item.type,
        input=f"{item.context}\n\n{item.question}".strip(),
        answers=item.answers,
        messages=[_by_reference(message, skill) for message in ctx.target.clean(episode.messages)],
        output=ctx.target.clean(episode.output),
        score=score if feedback == score.feedback else score.model_copy(update={"feedback": feedback}),
        changes=tuple(FileChange(**ctx.target.clean(change.model_dump())) for change in episode.changes),
        opened=episode.opened,
        ran=episode.ran,
        telemetry={"calls": chats[-1].calls if chats else []},
    )


def _by_reference(message: dict[str, Any], skill: Skill) -> dict[str, Any]:
    """The skill is stored once, as a version, and not again with every trajectory."""
    if message.get("role") == "system" and message.get("content") == skill.text:
        return {"role": "system", "skill": skill.hash}
    return message


def scored(results: Sequence[Trajectory | RolloutError]) -> list[Trajectory]:
    return [result for result in results if isinstance(result, Trajectory)]


def failed(results: Sequence[Trajectory | RolloutError]) -> list[RolloutError]:
    return [result for result in results if isinstance(result, RolloutError)]


def require_most(results: Sequence[Trajectory | RolloutError], what: str) -> None:
    """Do not train on a batch if the endpoint failed on half of it."""
    errors = failed(results)
    if len(errors) * 2 > len(results):
        raise Stopped(
            f"{what}: {len(errors)} of {len(results)} rollouts failed; the last error was: {errors[-1].error}"
        )


def require_few(refused: Mapping[str, str], total: int, *, set_aside: int = 0) -> None:
    """Of a split, one item or a tenth may be refused over the whole run; where nothing is left, nothing is measured.

    `total` are the items that were asked now, and `set_aside` those of the split that were refused before.
    """
    gone, whole = len(refused) + set_aside, total + set_aside
    if refused and (gone > max(1, whole // 10) or gone == whole):
        raise Stopped(f"{gone} of {whole} items cannot be measured; the last reason: {list(refused.values())[-1]}")


def mean_score(trajectories: Sequence[Trajectory], metric: str) -> float:
    values = [trajectory.score.value(metric) for trajectory in trajectories]
    return sum(values) / len(values) if values else 0.0
