"""Config keys that no longer exist: keys of earlier versions and of the original tool."""

from __future__ import annotations

RETIRED = {
    "evaluation.gate_mixed_weight": "set evaluation.metric to mixed, which is the mean of hard and soft",
    "evaluation.sel_env_num": "set env.options.limit={val: N}",
    "evaluation.test_env_num": "set env.options.limit={test: N}",
    "env.data_path": "set env.data to the file or folder",
    "env.split_ratio": "set env.split={train: 0.5, val: 0.25, test: 0.25}, or other shares",
    "optimizer.lr_control_mode": "set optimizer.lr_scheduler",
    "optimizer.skill_update_mode": "remove the key; only edits change a skill",
    "optimizer.slow_update_gate_with_selection": "remove the key; the gate always decides on guidance, and "
    "optimizer.slow_update_gate sets its rule",
    "train.train_size": "set env.options.limit={train: N}",
    "budget.target": "set budget.max_usd or budget.max_calls for both roles",
    "budget.optimizer": "set budget.max_usd or budget.max_calls for both roles",
    "gradient.candidates": "remove the key; a step has a second candidate only if it has examples from the data",
    "gradient.failure_only": "set gradient.analysts to [brief], which reads only failures",
    "gradient.rank": "remove the key; edits are always ranked by the failures that they cover",
    "gradient.samples": "remove the key; there is one request per minibatch",
    "train.speculate": "remove the key; the next rollouts begin as soon as the gate's verdict is certain",
}
"""For each retired key: what to do instead. A config with such a key is refused, unless the key has its value in
FORMER_DEFAULTS."""
RETIRED_MODELS = {"sim:player": "the simulated player of games is no longer part of SkillOpt; choose another model"}
FORMER_DEFAULTS = {
    "evaluation.gate_mixed_weight": 0.5,
    "evaluation.sel_env_num": 0,
    "evaluation.test_env_num": 0,
    "env.data_path": "",
    "optimizer.lr_control_mode": "fixed",
    "optimizer.skill_update_mode": "patch",
    "optimizer.slow_update_gate_with_selection": True,
    "train.train_size": 0,
    "gradient.candidates": 2,
    "gradient.failure_only": False,
    "gradient.rank": "local",
    "gradient.samples": 1,
    "train.speculate": False,
}
"""For each retired key: the value that changes nothing. A config in which the key has this value can still be read."""
