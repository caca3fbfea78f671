"""Who decides whether a candidate is kept. A gate is an async function; config/sections.py has the table of names."""

from __future__ import annotations

from skillopt import plugins
from skillopt.config import sections
from skillopt.record.step import ItemEvidence, Rule
from skillopt.tasks.load import load_object
from skillopt.training.gates.base import Gate, Verdict
from skillopt.training.gates.custom import Veto, custom_gate, with_vetoes
from skillopt.training.gates.paired import paired_gate
from skillopt.training.gates.strict import strict_gate

__all__ = [
    "GATES",
    "Gate",
    "ItemEvidence",
    "Rule",
    "Verdict",
    "Veto",
    "custom_gate",
    "open_gate",
    "paired_gate",
    "strict_gate",
    "with_vetoes",
]

GATES: dict[str, Gate] = {name: load_object(reference, "evaluation.gate") for name, reference in sections.GATES.items()}


def open_gate(name: str) -> Gate:
    """The gate of this name: one of ours, or what an installed package registers as `skillopt.gates`."""
    if name in GATES:
        return GATES[name]
    return custom_gate(plugins.load("gates", name, key="evaluation.gate", known=GATES))
