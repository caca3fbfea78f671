"""A cell of the results: a task set, a target, an optimizer, a method and a seed. Its folder has the cell's name."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass

from skillopt.errors import UserError

from .mechanisms import MECHANISMS, NOTHING, Off

TARGETS = {
    "0.5b": ("models.target_model=local:qwen2.5-coder-0.5b",),
    "1.5b": ("models.target_model=local:qwen2.5-coder-1.5b",),
    "sim": ("models.target_model=sim:world",),
    "mail": (
        "models.target_model=vllm:mail",
        f"models.target_url={os.environ.get('SKILLOPT_MAIL_URL', 'http://127.0.0.1:18300/v1')}",
        "models.target_deterministic=true",
        "hardware.workers=64",
    ),
}
"""The targets, each with its settings. mail: a model or person that answers the requests at that address, each task
and skill once."""
OPTIMIZERS = {
    "none": ("gradient.analysts=[exemplar]", "optimizer.use_meta_skill=false", "train.num_epochs=1"),
    "brief": (
        "gradient.analysts=[brief,exemplar]",
        "gradient.prompt_tokens=800",
        "gradient.minibatch_size=4",
        "models.optimizer_model=local:qwen2.5-coder-1.5b",
        "models.optimizer_temperature=0.7",
        "models.optimizer_max_tokens=300",
    ),
    "handoff": ("models.optimizer_model=handoff",),
    "sim": ("gradient.analysts=[llm]", "models.optimizer_model=sim:world"),
}
"""The optimizers, each with its settings. none: examples from the data, without an LLM; one epoch, since only an LLM
writes guidance. brief: the local 1.5B model. handoff: a person or agent who answers the letters."""
VARIANTS = {
    "ours": NOTHING,
    "examples": Off(said="examples from the data", settings=("gradient.analysts=[llm,exemplar]",)),
    **MECHANISMS,
}
"""The variants of SkillOpt's training: defaults, with examples from the data as well, or with one mechanism off."""
WITHOUT = {name: off.said for name, off in MECHANISMS.items()} | {"random": "the loop (random sets of the same edits)"}
"""The methods that show what a part of SkillOpt's training gains. They have a separate table."""
METHODS = (*VARIANTS, "gepa", "random", "baseline")
"""All methods. random: random sets of the edits proposed to `ours`; the best set on validation wins. baseline: no
training."""


@dataclass(frozen=True, kw_only=True, order=True)
class Cell:
    set: str
    target: str
    optimizer: str
    method: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.set}-{self.target}-{self.optimizer}-{self.method}-{self.seed}"

    @classmethod
    def of(cls, name: str) -> Cell:
        """Return the cell with that name. Only a method's name may have a hyphen."""
        parts = name.split("-")
        if len(parts) < 5 or not parts[-1].isdecimal():
            raise UserError(
                f"'{name}' is not a cell's name; the form is SET-TARGET-OPTIMIZER-METHOD-SEED, as in {EXAMPLE.name}"
            )
        return cls(set=parts[0], target=parts[1], optimizer=parts[2], method="-".join(parts[3:-1]), seed=int(parts[-1]))

    def check(self) -> Cell:
        """Raise UserError if the cell cannot be run; otherwise return it."""
        for kind, known in (("target", TARGETS), ("optimizer", OPTIMIZERS), ("method", METHODS)):
            if getattr(self, kind) not in known:
                raise UserError(f"{kind} '{getattr(self, kind)}' is not one of: {', '.join(known)}")
        if self.method == "gepa" and self.optimizer == "none":
            raise UserError("gepa needs an optimizer; choose handoff or brief")
        return self

    def row(self) -> dict[str, str | int]:
        return asdict(self)


EXAMPLE = Cell(set="cards", target="1.5b", optimizer="handoff", method="ours", seed=1)


def baseline_of(cell: Cell) -> Cell:
    """Return the cell that measures a set and a target without training: with no skill, and with the initial skill."""
    return Cell(set=cell.set, target=cell.target, optimizer="none", method="baseline", seed=0)
