"""Modules that other people's code imports by an earlier name: they still work, and say where they are now."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType

MOVED = {
    "skillopt.analysts": "skillopt.training.analysts",
    "skillopt.envs": "skillopt.tasks",
    "skillopt.gates": "skillopt.training.gates",
    "skillopt.run": "skillopt.record",
}
"""Packages of earlier versions that the docs named."""


class _Moved(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if _now(fullname) else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        new = _now(spec.name)
        warnings.warn(f"{spec.name} is now {new}", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(new)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


def _now(name: str) -> str:
    old = next((old for old in MOVED if name == old or name.startswith(f"{old}.")), "")
    return MOVED[old] + name.removeprefix(old) if old else ""


def install() -> None:
    sys.meta_path.insert(0, _Moved())  # before the finder of files, which would load a moved module a second time
