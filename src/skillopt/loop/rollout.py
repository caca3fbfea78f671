"""Rollout, the forward pass: the target does tasks with the skill as its system prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from skillopt.envs.base import Item, RolloutError, ScorerError, Trajectory, score_output
from skillopt.errors import Stopped
from skillopt.loop.context import Context
from skillopt.models.base import Message, RefusedError, Schema, TransientError
from skillopt.models.bound import BoundChat
from skillopt.models.call import gather_all
from skillopt.models.structured import Answer, ask
from skillopt.skill import Skill


async def rollout(
    skill: Skill, items: Sequence[Item], ctx: Context, *, tag: str = "", stage: str = "rollout"
) -> list[Trajectory | RolloutError]:
    """Roll out every item, in any order of time; results stand in the order of `items`.

    `tag` names the purpose: it labels fresh samples and begins the trajectories' ids. Without it, it is the step's.
    """
    tag = tag or f"{ctx.step:04d}"
    done = 0

    async def one(number: int, item: Item) -> Trajectory | RolloutError:
        nonlocal done
        result = await roll_out_one(skill, item, ctx, tag=tag, number=number, stage=stage)
        done += 1
        ctx.emit("progress", stage=stage, done=done, total=len(items))
        return result

    with ctx.timed(stage):
        return await gather_all(one(number, item) for number, item in enumerate(items))


async def roll_out_one(
    skill: Skill, item: Item, ctx: Context, *, tag: str, number: int, stage: str
) -> Trajectory | RolloutError:
    """One episode and its score, or the endpoint's or the scorer's failure: that is no score."""
    label = f"{ctx.config.train.seed}/{tag}/{item.id}"
    chat = BoundChat(ctx.target, label=label, stage=stage)

    async def judge(messages: list[Message], schema: Schema, check: Callable[[Any], Any]) -> Answer[Any]:
        return await ask(ctx.optimizer, messages, schema, check, label=f"{label}/judge")

    identity: dict[str, Any] = {"id": f"{tag}-{number:03d}", "item_id": item.id, "skill_hash": skill.hash}
    try:
        episode = await ctx.env.run(item, skill, chat)
        score = episode.score or await score_output(ctx.env, item, episode.output, judge)
    except (RefusedError, ScorerError) as error:
        return RolloutError(**identity, refused=True, error=str(error))
    except TransientError as error:
        return RolloutError(**identity, error=str(error))
    return Trajectory(
        **identity,
        type=item.type,
        input=f"{item.context}\n\n{item.question}".strip(),
        answers=item.answers,
        messages=[_by_reference(message, skill) for message in episode.messages],
        output=episode.output,
        score=score,
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
    """A batch of which the endpoint lost half is not trained on."""
    errors = failed(results)
    if len(errors) * 2 > len(results):
        raise Stopped(
            f"{what}: {len(errors)} of {len(results)} rollouts failed; the last error was: {errors[-1].error}"
        )


def mean_score(trajectories: Sequence[Trajectory], metric: str) -> float:
    values = [trajectory.score.value(metric) for trajectory in trajectories]
    return sum(values) / len(values) if values else 0.0
