"""Who proposes edits. An analyst reads a minibatch of scored trajectories and returns a patch."""

from __future__ import annotations

from collections.abc import Sequence

from skillopt import plugins
from skillopt.analysts.base import Analyst
from skillopt.analysts.brief import BriefAnalyst
from skillopt.analysts.custom import as_analyst
from skillopt.analysts.exemplar import ExemplarAnalyst
from skillopt.analysts.llm import LLMAnalyst

ANALYSTS: dict[str, type[Analyst]] = {"brief": BriefAnalyst, "exemplar": ExemplarAnalyst, "llm": LLMAnalyst}


def open_analysts(names: Sequence[str]) -> list[Analyst]:
    """The analysts of these names: our own, or those that installed packages register as `skillopt.analysts`."""
    return [ANALYSTS[name]() if name in ANALYSTS else _registered(name) for name in names]


def _registered(name: str) -> Analyst:
    return as_analyst(plugins.load("analysts", name, key="gradient.analysts", known=ANALYSTS))
