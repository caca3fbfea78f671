"""The types of the events that a training sends to callbacks.

trainer = skillopt.Trainer("configs/sim/default.yaml")

    @trainer.on(skillopt.events.GateDecided)
    def show(event):
        print(event.step, event.decision, event.before, event.after)

The same events are in a run's `events.jsonl`. Later versions may add fields, but no field is removed.
"""

from skillopt.record.events import *  # noqa: F403
from skillopt.record.events import __all__  # noqa: F401
