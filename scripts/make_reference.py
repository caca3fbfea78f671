"""python scripts/make_reference.py [--check]: writes docs/reference/ from the code, or says what is out of date."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import typing
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import skillopt
from skillopt.cli.app import app
from skillopt.config import Config
from skillopt.config.sections import Section

OUT = Path(__file__).parent.parent / "docs" / "reference"
NOTE = "<!-- Written by scripts/make_reference.py from the code; `make docs` renews it. -->\n"


def config_page() -> str:
    """Every key with its default and its meaning."""
    parts = [NOTE, "# Config reference\n", CONFIG_INTRO]
    for name, field in Config.model_fields.items():
        section = field.annotation
        assert inspect.isclass(section)
        assert issubclass(section, Section)
        parts.append(f"## {name}\n")
        for key, own in section.model_fields.items():
            limits = _limits(own)
            parts.append(f"`{name}.{key}`{{ #{name}-{key} }}\n:   {_sentence(section.meanings()[key])}\n")
            parts.append(f"    {_type(own.annotation)}{limits}, default `{_default(own)}`.\n")
    return "\n".join(parts)


CONFIG_INTRO = """A config is a YAML file of sections. `_base_: other.yaml` (or a list) is read first; keys on the
command line (`section.key=value`) override the file. A path that exists next to the config means that file, else
the working folder's, else the package's own (`configs/…`, `data/…`). Unknown keys are refused with the nearest right
one.
"""


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split())


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "{}"
    if isinstance(value, tuple):
        value = list(value)
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value) or '""'


def _type(annotation: Any) -> str:
    if typing.get_origin(annotation) is typing.Literal:
        return "one of " + ", ".join(f"`{value or chr(34) * 2}`" for value in typing.get_args(annotation))
    text = inspect.formatannotation(annotation).replace("typing.", "").replace("skillopt.config.sections.", "")
    return f"`{text}`"


def _limits(field: FieldInfo) -> str:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    found = [f"{sign} {getattr(m, name):g}" for m in field.metadata for name, sign in signs.items() if hasattr(m, name)]
    return f" ({', '.join(found)})" if found else ""


def cli_page() -> str:
    """Every command with its arguments and options."""
    root: Any = typer.main.get_command(app)
    parts = [NOTE, "# Command reference\n", CLI_INTRO]
    for name, command in root.commands.items():
        if hasattr(command, "commands"):
            parts += [f"## skillopt {name}\n", f"{command.help}\n"]
            parts += [text for sub, own in command.commands.items() for text in _command(f"{name} {sub}", own, "###")]
        else:
            parts += _command(name, command, "##")
    return "\n".join(parts)


CLI_INTRO = """`skillopt --help` and `skillopt COMMAND --help` say the same. Exit codes: 0 done; 1 worse, or a failed
verification; 2 bad input, or an endpoint that refuses; 3 stopped with everything paid for kept; 4 cannot tell; 130
Ctrl-C.
"""


def _command(name: str, command: Any, level: str) -> list[str]:
    parts = [f"{level} skillopt {name}\n", f"{_sentence(command.help)}\n"]
    rows = [row for parameter in command.params if (row := _parameter(parameter))]
    if rows:
        parts += ["| argument | meaning |\n|---|---|", *rows, ""]
    return parts


def _parameter(parameter: Any) -> str:
    if parameter.name == "help":
        return ""
    text = _sentence(getattr(parameter, "help", "")).replace("|", "\\|")
    names = ", ".join(f"`{name}`" for name in parameter.opts)
    if parameter.param_type_name == "argument":
        names = f"`{parameter.metavar or parameter.name.upper()}`"
    default = parameter.default
    shown = "" if default in (None, "", False, ()) or callable(default) else f" Default: `{default}`."
    return f"| {names} | {text}{' Required.' if parameter.required else ''}{shown} |"


def api_page() -> str:
    """Every public name with its signature and docstring."""
    parts = [NOTE, "# API reference\n", "The public names are exactly those of `skillopt`; all else may change.\n"]
    for name in skillopt.__all__:
        value = getattr(skillopt, name)
        if name == "__version__":
            continue
        if inspect.ismodule(value):
            parts += [f"## skillopt.{name}\n", _doc(value)]
            own = [v for v in vars(value).values() if inspect.isclass(v) and v.__module__ == value.__name__]
            parts += [text for cls in own for text in _class(f"{name}.{cls.__name__}", cls, "###")]
        elif inspect.isclass(value):
            parts += _class(name, value, "##")
        else:
            parts += [f"## {name}\n", _signature(name, value), _doc(value)]
    return "\n".join(parts)


def _class(name: str, cls: type, level: str) -> list[str]:
    parts = [f"{level} {name}\n", _doc(cls)]
    if fields := _fields(cls):
        parts += [*fields, ""]
    for method, value in vars(cls).items():
        public = not method.startswith("_") and (inspect.isfunction(value) or isinstance(value, classmethod))
        if public and inspect.getdoc(value):
            function = value.__func__ if isinstance(value, classmethod) else value
            parts += [_signature(f"{name}.{method}", function), _doc(value)]
        elif isinstance(value, property) and not method.startswith("_") and inspect.getdoc(value):
            parts += [f"`{name}.{method}`\n:   {_sentence(inspect.getdoc(value))}\n"]
    return parts


def _fields(cls: type) -> list[str]:
    names = list(getattr(cls, "model_fields", {})) or [f.name for f in _own_dataclass_fields(cls)]
    if cls is Config:
        return ["Its sections and keys: [config reference](config.md)."]
    return [f"- `{name}`: `{_annotation(cls, name)}`" for name in names]


def _own_dataclass_fields(cls: type) -> list[Any]:
    return list(dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else []


def _annotation(cls: type, name: str) -> str:
    for base in cls.__mro__:
        if name in vars(base).get("__annotations__", {}):
            return re.sub(r"[\w.]+\.(\w+)", r"\1", str(vars(base)["__annotations__"][name]))
    return "Any"


def _signature(name: str, function: Any) -> str:
    text = re.sub(
        r"(?:skillopt|collections|pathlib|typing)\.[\w.]*?(\w+)(?=[^\w.]|$)", r"\1", str(inspect.signature(function))
    )
    text = text.replace("'", "").replace("(self, ", "(").replace("(self)", "()").replace("(cls, ", "(")
    return f"```python\n{name}{text}\n```\n"


def _doc(value: Any) -> str:
    """Its own docstring, not a base's and not what a dataclass makes up."""
    text = inspect.cleandoc(value.__doc__ or "") if inspect.isclass(value) else inspect.getdoc(value) or ""
    return ("" if inspect.isclass(value) and text.startswith(f"{value.__name__}(") else text) + "\n"


def pages() -> dict[str, str]:
    return {"config.md": config_page(), "cli.md": cli_page(), "api.md": api_page()}


def main() -> int:
    stale = []
    for name, made in pages().items():
        text = "\n".join(line.rstrip() for line in made.splitlines()).strip() + "\n"
        file = OUT / name
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(f"docs/reference: out of date: {', '.join(stale)}; run python scripts/make_reference.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
