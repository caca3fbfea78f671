"""A typed program that trains a skill, with a scorer and an event: python examples/typed_project/train.py

Every line passes `mypy --strict`. The models are simulated. For other models, set the variables TARGET and OPTIMIZER.
"""

from __future__ import annotations

import os

import skillopt

CODES = {"amber": "NX-42", "basalt": "KD-33", "cedar": "YY-41", "cobalt": "TO-98", "dahlia": "MV-26", "maple": "ZM-73"}
TASKS = [
    {"question": f"Case {n}. Give the codes for: {name}.", "answer": code}
    for n in range(8)
    for name, code in CODES.items()
]


def contains(item: skillopt.Item, output: str) -> tuple[float, str]:
    """Score an answer: return a number from 0 to 1, and a sentence on what was wrong."""
    return (1.0, "") if item.answer in output else (0.0, f"expected {item.answer}")


def main() -> skillopt.Result:
    trainer = skillopt.Trainer(
        tasks=TASKS,
        scorer=contains,
        target_model=os.environ.get("TARGET", "sim:world"),
        optimizer_model=os.environ.get("OPTIMIZER", "sim:world"),
        num_epochs=1,
        batch_size=12,
        budget={"max_calls": 2000},
    )

    @trainer.on(skillopt.events.GateDecided)
    def show(event: skillopt.events.GateDecided) -> None:
        print(f"step {event.step}: {event.decision}")

    result = trainer.fit()
    print(result)
    return result


if __name__ == "__main__":
    main()
