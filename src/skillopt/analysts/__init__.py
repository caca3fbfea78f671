"""Who proposes edits. An analyst reads a minibatch of scored trajectories and returns a patch."""

from __future__ import annotations

from skillopt.analysts.base import Analyst
from skillopt.analysts.brief import BriefAnalyst
from skillopt.analysts.exemplar import ExemplarAnalyst
from skillopt.analysts.llm import LLMAnalyst
from skillopt.errors import UserError

ANALYSTS: dict[str, type[Analyst]] = {"brief": BriefAnalyst, "exemplar": ExemplarAnalyst, "llm": LLMAnalyst}


def open_analysts(names: tuple[str, ...]) -> list[Analyst]:
    for name in names:
        if name not in ANALYSTS:
            raise UserError(f"gradient.analysts: unknown '{name}'; known are: {', '.join(sorted(ANALYSTS))}")
    return [ANALYSTS[name]() for name in names]
