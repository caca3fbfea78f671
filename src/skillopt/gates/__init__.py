"""Who decides whether a candidate is kept. A gate is an async function, found by its name in one table."""

from __future__ import annotations

from skillopt import plugins
from skillopt.gates.base import Gate, ItemEvidence, Rule, Verdict
from skillopt.gates.custom import Veto, custom_gate, with_vetoes
from skillopt.gates.paired import paired_gate
from skillopt.gates.strict import strict_gate

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

GATES: dict[str, Gate] = {"paired": paired_gate, "strict": strict_gate}


def open_gate(name: str) -> Gate:
    """The gate of this name: one of ours, or what an installed package registers as `skillopt.gates`."""
    if name in GATES:
        return GATES[name]
    return custom_gate(plugins.load("gates", name, key="evaluation.gate", known=GATES))
