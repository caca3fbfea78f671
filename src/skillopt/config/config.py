"""Loads and checks the whole config. Errors name the key, and settings whose result cannot be trusted are refused."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import JsonValue, ValidationError

from skillopt.config.identity import chosen, relevant
from skillopt.config.roles import RoleSettings, overrule, role_settings
from skillopt.config.sections import (
    SCHEDULES,
    BudgetConfig,
    EnvConfig,
    EvaluationConfig,
    GradientConfig,
    HardwareConfig,
    ModelsConfig,
    NotesConfig,
    OptimizerConfig,
    PackageConfig,
    Section,
    TrackersConfig,
    TrainConfig,
)
from skillopt.config.shipped import shipped
from skillopt.config.tree import add_calibration, check_values, move_keys, name_command, override, read_tree
from skillopt.errors import UserError
from skillopt.keys import refuse_keys

_URL_WITH_PASSWORD = re.compile(r"://[^/\s]+@")


class Config(Section):
    """All settings of a run, in one section for each part of the training. `Config.load` reads and checks a file."""

    train: TrainConfig = TrainConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    gradient: GradientConfig = GradientConfig()
    package: PackageConfig = PackageConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    models: ModelsConfig = ModelsConfig()
    env: EnvConfig = EnvConfig()
    hardware: HardwareConfig = HardwareConfig()
    budget: BudgetConfig = BudgetConfig()
    trackers: TrackersConfig = TrackersConfig()
    notes: NotesConfig = NotesConfig()

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = ()) -> Config:
        """Read a YAML file. The file's values override those of its `_base_` files, and `overrides`
        (`section.key=value`) override all files."""
        path = Path(path)
        tree = read_tree(path, ())
        for text in overrides:
            override(tree, text)
        add_calibration(tree, shipped(path).parent)
        return cls.parse(tree, where=str(path))

    @classmethod
    def parse(cls, tree: Mapping[str, JsonValue], where: str = "config") -> Config:
        """Return the config that nested dicts describe. An error names the wrong key and the most similar known key."""
        try:
            check_values(tree)
        except ValueError as error:
            raise UserError(f"{where}: {error}") from None
        tree = name_command(move_keys(tree))
        refuse_keys(tree, where)
        _check_keys(tree, where)
        try:
            config = cls.model_validate(tree)
        except ValidationError as error:
            raise UserError("\n".join(_explain(where, e) for e in error.errors())) from None
        config.refuse_anti_patterns(where)
        return config

    def flat(self) -> dict[str, JsonValue]:
        """All settings by dotted key: `{"train.num_epochs": 4, …}`. Options and prices are not flattened: the value of
        their key is the whole dict."""
        tree = self.model_dump(mode="json")
        return {f"{section}.{key}": value for section, keys in tree.items() for key, value in keys.items()}

    def role(self, role: str) -> RoleSettings:
        """The settings of the model in a role (target, optimizer or judge)."""
        return role_settings(self, role)

    def identity(self) -> dict[str, JsonValue]:
        """The settings that can change results, except those with their default value. A run is resumed only by a
        config with the same identity. Settings that cannot change results (budget, workers, URLs, folders, notes) may
        differ."""
        return chosen(self.flat(), defaults())

    def with_values(self, values: Mapping[str, JsonValue]) -> Config:
        """A copy of this config with other values, such as `{"evaluation.gate": "strict"}`."""
        tree = self.model_dump(mode="json")
        for dotted, value in values.items():
            section, _, key = dotted.partition(".")
            tree[section][key] = value
            overrule(tree, dotted)
        return Config.parse(tree)

    def refuse_anti_patterns(self, where: str = "config") -> None:
        """Raise UserError for settings whose result cannot be trusted, before anything is paid for."""
        for wrong, why in self._anti_patterns():
            if wrong:
                raise UserError(f"{where}: {why}")

    def _anti_patterns(self) -> Iterator[tuple[bool, str]]:
        optimizer = self.optimizer
        yield (
            not self.evaluation.use_gate,
            "evaluation.use_gate: a run without a gate accepts edits that make the skill worse; set it to true",
        )
        yield (
            self.train.num_epochs > 1 and not optimizer.use_slow_update,
            "optimizer.use_slow_update: a run of more than one epoch needs the slow update, because later epochs may "
            "undo the gains of earlier epochs; set it to true, or set train.num_epochs to 1",
        )
        static = optimizer.static_rate(SCHEDULES.get(optimizer.lr_scheduler))
        yield bool(static), static
        noisy = self.env.scoring == "judge" or bool(self.env.scoring_options.get("noisy"))
        yield (
            noisy and self.evaluation.gate == "strict",
            f"env.scoring: {self.env.scoring} may give the same output different scores, and a strict gate "
            "mistakes luck for progress; set evaluation.gate to paired",
        )
        yield (
            any(_URL_WITH_PASSWORD.search(str(value)) for value in self.flat().values()),
            "a URL in the config contains a password; remove it, and put keys into the environment (see .env.example)",
        )


@cache
def defaults() -> dict[str, JsonValue]:
    """The default values, in this version, of the settings that change results."""
    return relevant(Config().flat())


def _check_keys(tree: Mapping[str, JsonValue], where: str) -> None:
    sections = Config.model_fields
    every = [f"{name}.{key}" for name in sections for key in getattr(Config(), name).__class__.model_fields]
    for name, keys in tree.items():
        if name not in sections:
            raise UserError(f"{where}: unknown section '{name}'{_nearest(str(name), list(sections))}")
        if not isinstance(keys, Mapping):
            raise UserError(f"{where}: {name}: is a section and needs keys, such as {name}: {{…}}")
        own = list(getattr(Config(), name).__class__.model_fields)
        for key in keys:
            if key not in own:
                elsewhere = [dotted for dotted in every if dotted.split(".")[1] == key]
                hint = f"; did you mean '{elsewhere[0]}'?" if elsewhere else _nearest(str(key), own)
                raise UserError(f"{where}: unknown key '{name}.{key}'{hint}")


def _nearest(word: str, choices: list[str]) -> str:
    near = difflib.get_close_matches(word, choices, n=1, cutoff=0.4)
    return f"; did you mean '{near[0]}'?" if near else f"; known are: {', '.join(choices)}"


def _explain(where: str, error: Any) -> str:
    dotted = ".".join(str(part) for part in error["loc"])
    return f"{where}: {dotted}: {error['msg'].removeprefix('Value error, ')} (got {error['input']!r})"
