"""Loads the user's functions and classes by name: `module:name`, or `file.py:name`."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from skillopt.errors import UserError


def is_reference(text: str) -> bool:
    """Does the text have the form `module:name` or `file.py:name`?"""
    module_name, colon, name = text.rpartition(":")
    return bool(colon and module_name and name.isidentifier())


def load_object(reference: str, where: str) -> Any:
    """The function or class that a reference names. `where` is the config key, for errors."""
    module_name, _, name = reference.rpartition(":")
    if not is_reference(reference):
        raise UserError(f"{where}: '{reference}' must have the form module:name or file.py:name")
    if module_name.endswith(".py") and not Path(module_name).is_file():
        raise UserError(f"{where}: '{module_name}' does not exist; give an existing Python file, as in 'file.py:fn'")
    try:
        module = module_of(module_name)
    except Exception as error:  # any error of the user's module
        raise UserError(
            f"{where}: '{module_name}' cannot be imported: {type(error).__name__}: {error}; "
            "import it in Python to see the whole error"
        ) from error
    member = getattr(module, name, None)
    if member is None:
        callables = ", ".join(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
        raise UserError(f"{where}: '{module_name}' has no '{name}'; it has: {callables or 'nothing callable'}")
    if not callable(member):
        raise UserError(f"{where}: '{reference}' is not a function or class")
    return member


def source_hash(reference: str) -> str:
    """A hash of the file that a reference names; empty if there is no such file."""
    module_name = reference.rpartition(":")[0]
    file = Path(module_name)
    if not module_name.endswith(".py"):
        try:
            spec = importlib.util.find_spec(module_name)
        except (ImportError, ValueError):
            spec = None
        file = Path(spec.origin) if spec and spec.origin else file
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


class _TextLoader(SourceFileLoader):
    """Compiles the file each time. Python's cache would not notice an edit within the same second if the file's length
    stays the same."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def module_of(module_name: str) -> ModuleType:
    """Import a module by its name or by the path of its file."""
    if not module_name.endswith(".py"):
        return importlib.import_module(module_name)
    file = Path(module_name)
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # the module can import files next to it
    name = f"skillopt_own_{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]}_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file, loader=_TextLoader(name, str(file)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pydantic look modules up by name
    spec.loader.exec_module(module)
    return module
