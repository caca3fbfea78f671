"""Config keys of earlier versions and of the original tool that do not exist here."""

from __future__ import annotations

RETIRED = {
    "evaluation.gate_mixed_weight": "set evaluation.metric to mixed, which is the mean of hard and soft",
    "evaluation.sel_env_num": "set env.options.limit={val: N}",
    "evaluation.test_env_num": "set env.options.limit={test: N}",
    "budget.target": "set budget.max_usd or budget.max_calls for both roles",
    "budget.optimizer": "set budget.max_usd or budget.max_calls for both roles",
    "gradient.candidates": "remove it; a step has a second candidate only if it has examples read off the data",
    "gradient.failure_only": "set gradient.analysts to [brief], which reads failures alone",
    "gradient.rank": "remove it; edits are always ranked by the failures that they cover",
    "gradient.samples": "remove it; each minibatch is asked about once",
    "train.speculate": "remove it; the next rollouts begin as soon as the gate's verdict is certain",
}
"""What to do instead. Using the key is an error."""
RETIRED_MODELS = {"sim:player": "the simulated player of games is no longer part of SkillOpt; name a model"}
FORMER_DEFAULTS = {
    "evaluation.gate_mixed_weight": 0.5,
    "evaluation.sel_env_num": 0,
    "evaluation.test_env_num": 0,
    "gradient.candidates": 2,
    "gradient.failure_only": False,
    "gradient.rank": "local",
    "gradient.samples": 1,
    "train.speculate": False,
}
"""Values that change nothing. A config that names them can still be read."""
