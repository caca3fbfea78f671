"""The analyst that asks the optimizer model: about failures and passes in one request, or about a single cause (deep
reflection)."""

from __future__ import annotations

from collections.abc import Sequence

from skillopt.config import Config
from skillopt.models.call import Caller
from skillopt.models.structured import ask
from skillopt.record.edits import Patch
from skillopt.skill import Skill
from skillopt.tasks.base import Trajectory
from skillopt.tasks.failure_kinds import FORM, failure_kind
from skillopt.training import prompts
from skillopt.training.analysts.base import Kind, Minibatch, with_answer
from skillopt.training.requests.compose import reflect_request, shown_trajectories
from skillopt.training.requests.context import OptimizerContext
from skillopt.training.requests.files import file_schema
from skillopt.training.requests.replies import reflect_schema, reflection
from skillopt.training.requests.situation import advice_for

ASK_FOR_FINDINGS = True
"""True if reflection asks for findings; only benchmarks of SkillOpt itself switch this off."""


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
        if not gradient.minibatch_size:  # the batch is one request: its edits need no merging
            most = min(most, knowledge.edit_limits.edits)
        ids = [trajectory.id for part in shown_trajectories(minibatch.trajectories) for trajectory in part]
        minimal = stage == "reflect" and wants_minimal(knowledge, minibatch.trajectories)
        parts = [*advice_for(skill, knowledge, minibatch.trajectories), *(["reflect_minimal"] if minimal else [])]
        request = reflect_request(
            prompts.with_advice(stage, parts, gradient.prompts_dir),
            skill,
            knowledge,
            minibatch.trajectories,
            gradient.prompt_tokens,
            minibatch.pattern,
        )
        schema = reflect_schema(
            stage,
            ids,
            most,
            file_schema(skill, knowledge.edit_limits.sizes.train),
            minimal=minimal,
            findings=stage == "reflect" and ASK_FOR_FINDINGS,
        )
        patch = Patch(id=minibatch.id, source=f"llm/{minibatch.kind}", trajectory_ids=tuple(ids))
        read = reflection(skill, knowledge.edit_limits.sizes, patch, most)
        answer = await ask(optimizer, request, schema, read, label=f"{config.train.seed}/{stage}/{minibatch.id}")
        return with_answer(answer.value or patch, answer)


def wants_minimal(knowledge: OptimizerContext, trajectories: Sequence[Trajectory]) -> bool:
    """True if a minimal remedy is worth a try. That is so in the first step, when it is not known whether the target
    can do the task already, and in each step in which most failures are failures of form."""
    failures = [t for t in trajectories if t.score.hard < 1]
    choices = knowledge.choices_in(trajectories)
    return knowledge.first_step or 2 * sum(failure_kind(t, choices) in FORM for t in failures) > len(failures)
