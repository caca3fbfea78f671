"""The optimizer model as analyst: failures and passes in one letter, and deep reflection on a single cause."""

from __future__ import annotations

from skillopt import prompts
from skillopt.analysts.base import Kind, Minibatch, Patch
from skillopt.config import Config
from skillopt.letters.case import CaseFile
from skillopt.letters.compose import in_letter, reflect_letter
from skillopt.letters.files import file_schema
from skillopt.letters.replies import reflection
from skillopt.letters.schemas import reflect_schema
from skillopt.models.call import Caller
from skillopt.models.structured import ask
from skillopt.skill import Skill


class LLMAnalyst:
    name = "llm"
    kinds: tuple[Kind, ...] = ("mixed", "deep")
    needs_optimizer = True

    async def propose(
        self, skill: Skill, minibatch: Minibatch, case: CaseFile, optimizer: Caller, config: Config
    ) -> Patch:
        stage = "deep_reflect" if minibatch.kind == "deep" else "reflect"
        gradient = config.gradient
        most = gradient.edits_per_minibatch
        if not gradient.minibatch_size:  # the only letter: nothing merges or selects its edits
            most = min(most, case.room.edits)
        ids = [trajectory.id for part in in_letter(minibatch.trajectories) for trajectory in part]
        letter = reflect_letter(
            prompts.load(stage, gradient.prompts_dir),
            skill,
            case,
            minibatch.trajectories,
            gradient.prompt_tokens,
            minibatch.pattern,
        )
        schema = reflect_schema(stage, ids, most, file_schema(skill, case.room.limits.train))
        source = f"llm/{minibatch.kind}"
        read = reflection(skill, case.room.limits, ids, source, most)
        answer = await ask(optimizer, letter, schema, read, label=f"{config.train.seed}/{stage}/{minibatch.id}")
        patch = Patch(id=minibatch.id, source=source, trajectory_ids=tuple(ids), unusable=answer.unusable)
        if (found := answer.value) is None:
            return patch.model_copy(update={"lost": answer.lost, "unreachable": answer.unreachable})
        return patch.model_copy(update={"patterns": found.patterns, "edits": found.edits, "dropped": found.dropped})
