"""The optimizer model as analyst: failures and passes in one request, and deep reflection on a single cause."""

from __future__ import annotations

from skillopt.config import Config
from skillopt.models.call import Caller
from skillopt.models.structured import ask
from skillopt.record.edits import Patch
from skillopt.skill import Skill
from skillopt.training import prompts
from skillopt.training.analysts.base import Kind, Minibatch, with_answer
from skillopt.training.requests.compose import reflect_request, shown_trajectories
from skillopt.training.requests.context import OptimizerContext
from skillopt.training.requests.files import file_schema
from skillopt.training.requests.replies import reflect_schema, reflection


class LLMAnalyst:
    name = "llm"
    kinds: tuple[Kind, ...] = ("mixed", "deep")
    needs_optimizer = True

    async def propose(
        self, skill: Skill, minibatch: Minibatch, knowledge: OptimizerContext, optimizer: Caller, config: Config
    ) -> Patch:
        stage = "deep_reflect" if minibatch.kind == "deep" else "reflect"
        gradient = config.gradient
        most = gradient.edits_per_minibatch
        if not gradient.minibatch_size:  # the only request: nothing merges or selects its edits
            most = min(most, knowledge.edit_limits.edits)
        ids = [trajectory.id for part in shown_trajectories(minibatch.trajectories) for trajectory in part]
        request = reflect_request(
            prompts.load(stage, gradient.prompts_dir),
            skill,
            knowledge,
            minibatch.trajectories,
            gradient.prompt_tokens,
            minibatch.pattern,
        )
        schema = reflect_schema(stage, ids, most, file_schema(skill, knowledge.edit_limits.sizes.train))
        patch = Patch(id=minibatch.id, source=f"llm/{minibatch.kind}", trajectory_ids=tuple(ids))
        read = reflection(skill, knowledge.edit_limits.sizes, patch, most)
        answer = await ask(optimizer, request, schema, read, label=f"{config.train.seed}/{stage}/{minibatch.id}")
        return with_answer(answer.value or patch, answer)
