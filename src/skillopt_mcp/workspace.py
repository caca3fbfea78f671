"""What the server may see and start: one folder, and nothing that costs money without a budget."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from skillopt.config import Config
from skillopt.config.tree import override
from skillopt.errors import UserError
from skillopt.models.prices import FREE
from skillopt.preflight.components import needs_optimizer
from skillopt.run.directory import RunDirectory
from skillopt_webui import forms
from skillopt_webui.allowed import check_allowed
from skillopt_webui.places import config_files, find_file, find_run, shown
from skillopt_webui.settings import Settings, make_settings

_LIMITS = ("max_usd", "max_calls", "max_tokens")


class Workspace:
    """A folder with configs (`configs/`, `*/config.yaml`), data and `outputs/`. Nothing outside of it is touched."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise UserError(f"{root}: is not a folder; start the server for the folder of your tasks and configs")
        self.root = root.resolve()

    @property
    def settings(self) -> Settings:
        """Anew for each question: a config's folder may have been written a moment ago."""
        near = [path.parent for path in sorted(self.root.glob("*/config.y*ml")) if not path.parent.name.startswith(".")]
        return make_settings(workspace=self.root, configs=[self.root / "configs", *near])

    def configs(self) -> list[str]:
        settings = self.settings
        return [shown(settings, path) for path in config_files(settings)]

    def run(self, name: str) -> RunDirectory:
        """`sim/seed42-1a2b3c4d`, below outputs/."""
        return find_run(self.settings, f"0/{name}")

    def load(self, path: str, changes: Sequence[str] = ()) -> tuple[Config, str]:
        """A config with `section.key=value` changes, checked; and its text."""
        settings = self.settings
        file = find_file(settings, path, what="config", folders=[self.root])
        tree = yaml.safe_load(forms.load(file, self.root)) or {}
        for change in changes:
            override(tree, change)
        config = Config.parse(tree, where=path)
        check_allowed(config, settings)
        return config, forms.dump(tree)


def require_budget(config: Config) -> None:
    """Whatever costs money, or may, needs a limit; models on this machine and letters do not."""
    models = config.models
    names = [models.target_model] + [models.optimizer_model] * needs_optimizer(config)
    costly = [name for name in names if not name.startswith(FREE)]
    if costly and not any(getattr(config.budget, limit) for limit in _LIMITS):
        listed = ", ".join(f"budget.{limit}" for limit in _LIMITS)
        raise UserError(f"{', '.join(costly)} may cost money, and there is no budget; set one of {listed}")
