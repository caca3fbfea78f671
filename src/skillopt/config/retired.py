"""Config keys of earlier versions that no longer exist."""

from __future__ import annotations

RETIRED = {
    "budget.target": "set budget.max_usd or budget.max_calls for both roles",
    "budget.optimizer": "set budget.max_usd or budget.max_calls for both roles",
    "gradient.candidates": "remove it; a step has a second candidate only if it has examples read off the data",
    "gradient.rank": "remove it; edits are always ranked by the failures that they cover",
    "gradient.samples": "remove it; each minibatch is asked about once",
    "train.speculate": "remove it; the next rollouts begin as soon as the gate's verdict is certain",
}
"""What to do instead. Using the key is an error."""
RETIRED_MODELS = {"sim:player": "the simulated player of games is no longer part of SkillOpt; name a model"}
FORMER_DEFAULTS = {"gradient.candidates": 2, "gradient.rank": "local", "gradient.samples": 1, "train.speculate": False}
"""Values that changed nothing. The config of an earlier run names them, and can still be read."""
