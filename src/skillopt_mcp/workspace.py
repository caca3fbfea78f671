"""Limits the server to one folder, and to runs that are free or have a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from skillopt.config import Config
from skillopt.config.tree import override
from skillopt.errors import UserError
from skillopt.record.run import Run
from skillopt_mcp.allowance import Allowances, Start
from skillopt_webui import forms
from skillopt_webui.allowed import check_allowed
from skillopt_webui.places import NotThereError, find_file, find_run, listed_configs, shown
from skillopt_webui.settings import PageSettings, make_settings


class Workspace:
    """A folder with configs, data and `outputs/`. Files outside of the folder are neither read nor changed."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise UserError(f"{root}: is not a folder; start the server for the folder of your tasks and configs")
        self.root = root.resolve()
        self.allowances = Allowances()

    @property
    def settings(self) -> PageSettings:
        """The folders and limits of this server. They are made again for each request, because the user may have added
        a folder with configs."""
        near = [path.parent for path in sorted(self.root.glob("*/config.y*ml")) if not path.parent.name.startswith(".")]
        made = make_settings(workspace=self.root, configs=[self.root / "configs", *near])
        return replace(made, searched=self.root, reach=f"{self.root}, the folder of this server")

    def configs(self) -> list[str]:
        settings = self.settings
        return [shown(settings, path) for path in listed_configs(settings)]

    def run(self, name: str) -> Run:
        """The run with this name, which is its path below outputs/, such as
        `sim/2026-11-17_22-40-05_seed42-1a2b3c4d`."""
        try:
            return find_run(self.settings, f"0/{name}")
        except NotThereError as error:
            if error.__cause__:  # the run exists, but contains links
                raise
            raise NotThereError(
                f"no run '{name}'; list_runs shows the names, such as sim/2026-11-17_22-40-05_seed42-1a2b3c4d"
            ) from None

    def load(self, path: str, changes: Sequence[str] = ()) -> tuple[Config, str]:
        """Read a config, apply `section.key=value` changes and check it. Return the config and its text."""
        settings = self.settings
        tree = yaml.safe_load(forms.load(self._file(path), settings)) or {}
        for change in changes:
            override(tree, change)
        config = Config.parse(tree, where=path)
        check_allowed(config, settings)
        return config, forms.dump(tree)

    def load_to_start(self, path: str, changes: Sequence[str] = (), *, fresh: bool = False) -> tuple[str, Start | None]:
        """Return the text of a config that may be started, and the reservation of its cost. Raise UserError if the
        config may cost money and has no budget, or if its budget is more than the user allows."""
        config, text = self.load(path, changes)
        return text, self.allowances.take(config, self._file(path), self.settings, fresh=fresh)

    def _file(self, path: str) -> Path:
        return find_file(self.settings, path, what="config", folders=[self.root])
