"""The command line. Each command is a short function that calls another package. The modules of this folder register
the commands when they are imported."""

import importlib
import pkgutil

from skillopt.cli.app import main

_FIRST = ("train", "measure", "check", "look", "letters", "tasks", "harvest", "packages", "serve", "models", "data")
"""The modules that add commands, in the order of docs/reference/cli.md."""
for _name in (*_FIRST, *(module.name for module in pkgutil.iter_modules(__path__))):
    if _name not in {"__main__", "skills"}:  # skills.py has no command, and importing it is slow
        importlib.import_module(f"{__name__}.{_name}")

__all__ = ["main"]
