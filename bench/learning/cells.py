"""A cell of the results: a task set, a target, an optimizer, a method and a seed. Its name is its folder's."""

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
"""mail: whoever answers the requests at that address; asked once for each task and skill."""
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
"""none: examples read off the data, no LLM; one epoch, since guidance is written by an LLM. brief: the local
1.5B. handoff: whoever answers the letters."""
VARIANTS = {
    "ours": NOTHING,
    "examples": Off(said="examples from the data, raced", settings=("gradient.analysts=[llm,exemplar]",)),
    **MECHANISMS,
}
"""Our training: at its defaults, with examples read off the data beside the optimizer, and with one mechanism off."""
WITHOUT = {name: off.said for name, off in MECHANISMS.items()} | {"random": "the loop (random sets of the same edits)"}
"""The methods that say what a part of our training earns; they have a table of their own."""
METHODS = (*VARIANTS, "gepa", "random", "baseline")
"""random: random sets of the edits that `ours` was offered, the best on validation. baseline: nothing is learned."""


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
        """From its name; only a method's name may have a hyphen."""
        parts = name.split("-")
        if len(parts) < 5 or not parts[-1].isdecimal():
            raise UserError(
                f"'{name}' is no cell: it would be SET-TARGET-OPTIMIZER-METHOD-SEED, such as {EXAMPLE.name}"
            )
        return cls(set=parts[0], target=parts[1], optimizer=parts[2], method="-".join(parts[3:-1]), seed=int(parts[-1]))

    def check(self) -> Cell:
        """Raises UserError where it cannot be run."""
        for kind, known in (("target", TARGETS), ("optimizer", OPTIMIZERS), ("method", METHODS)):
            if getattr(self, kind) not in known:
                raise UserError(f"{kind} '{getattr(self, kind)}' is not one of: {', '.join(known)}")
        if self.method == "gepa" and self.optimizer == "none":
            raise UserError("gepa needs an optimizer; take handoff or brief")
        return self

    def row(self) -> dict[str, str | int]:
        return asdict(self)


EXAMPLE = Cell(set="cards", target="1.5b", optimizer="handoff", method="ours", seed=1)


def baseline_of(cell: Cell) -> Cell:
    """What is measured once for a set and a target: no skill, and the initial one."""
    return Cell(set=cell.set, target=cell.target, optimizer="none", method="baseline", seed=0)
