"""Write docs/reference/ and src/skillopt/keywords.py from the code: python scripts/make_reference.py [--check]

With --check, nothing is written; the script lists the files that are out of date."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import re
import subprocess
import sys
import textwrap
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import skillopt
from skillopt.arguments import HEADING
from skillopt.cli.app import app
from skillopt.config import Config, Price
from skillopt.config.sections import ModelSettings, Section, attribute_docs
from skillopt.keywords import ConfigKeys
from skillopt.record.comments import Comment
from skillopt.record.edits import Decision, EditPool, FiledConflict, Patch, Selection
from skillopt.record.events import KINDS, Event, Live
from skillopt.record.findings import TaskFinding
from skillopt.record.matrix import Matrix
from skillopt.record.probe import Probe
from skillopt.record.pruning import Pruning
from skillopt.record.results import Ablation, CheckResult, Comparison, EvalSummary, Replication, Sweep, Transfer
from skillopt.record.routing import Routing
from skillopt.record.run import Labels
from skillopt.record.state import State
from skillopt.record.step import (
    BatchDigest,
    EpochComparison,
    EpochEnd,
    Evaluation,
    GateRecord,
    StepRecord,
    TestSplitRead,
)
from skillopt.record.summary import Summary
from skillopt.record.trajectory import RolloutError, Trajectory
from skillopt.skill import Entry
from skillopt.skill.folder import PackageChanges

ROOT = Path(__file__).parent.parent
OUT = ROOT / "docs" / "reference"
KEYWORDS = ROOT / "src" / "skillopt" / "keywords.py"
NOTE = "<!-- Written by scripts/make_reference.py from the code; `make docs` renews it. -->\n"


def config_page() -> str:
    """Return the page with every config key, its default and its meaning."""
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


CONFIG_INTRO = """A config is a YAML file of sections. `_base_: other.yaml` (or a list of files) is read first. Keys on
the command line (`section.key=value`) override the file. A path is looked up next to the config, then in the working
folder, then in the package (`configs/…`, `data/…`). An unknown key is an error; the message names the nearest known
key.
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
    """Return the page with every command, its arguments and its options."""
    root: Any = typer.main.get_command(app)
    parts = [NOTE, "# Command reference\n", CLI_INTRO]
    for name, command in root.commands.items():
        if hasattr(command, "commands"):
            parts += _command(name, command, "##")
            parts += [text for sub, own in command.commands.items() for text in _command(f"{name} {sub}", own, "###")]
        else:
            parts += _command(name, command, "##")
    return "\n".join(parts)


CLI_INTRO = """`skillopt --help` and `skillopt COMMAND --help` say the same. Exit codes: 0 done; 1 worse, or a failed
verification; 2 bad input, or an endpoint that refuses; 3 stopped, with all paid replies stored; 4 cannot tell; 130
Ctrl-C.
"""


def _command(name: str, command: Any, level: str) -> list[str]:
    parts = [f"{level} skillopt {name}\n", f"{_sentence(command.help)}\n"]
    rows = [row for parameter in command.params if (row := _parameter(parameter))]
    if rows:
        parts += ["| argument | meaning |\n|---|---|", *rows, ""]
    return parts


def _parameter(parameter: Any) -> str:
    if parameter.name == "help" or getattr(parameter, "hidden", False):
        return ""
    text = _sentence(getattr(parameter, "help", "")).replace("|", "\\|")
    names = ", ".join(f"`{name}`" for name in parameter.opts)
    if parameter.param_type_name == "argument":
        names = f"`{parameter.metavar or parameter.name.upper()}`"
    default = parameter.default
    shown = "" if default in (None, "", False, ()) or callable(default) else f" Default: `{default}`."
    return f"| {names} | {text}{' Required.' if parameter.required else ''}{shown} |"


def api_page() -> str:
    """Return the page with every public name, its signature and its docstring."""
    parts = [NOTE, "# API reference\n", "The public names are exactly those of `skillopt`; all else may change.\n"]
    for name in skillopt.__all__:
        value = getattr(skillopt, name)
        if name == "__version__":
            continue
        if inspect.ismodule(value):
            parts += [f"## skillopt.{name}\n", _doc(value)]
            own = [getattr(value, public) for public in value.__all__]
            parts += [text for cls in own for text in _class(f"{name}.{cls.__name__}", cls, "###")]
        elif inspect.isclass(value):
            parts += _class(name, value, "##")
        else:
            parts += [f"## {name}\n", _signature(name, value), _doc(value)]
    return "\n".join(parts)


def _class(name: str, cls: type, level: str) -> list[str]:
    parts = [f"{level} {name}\n", _doc(cls), *_parts_by_name(cls)]
    if fields := _fields(cls):
        parts += [*fields, ""]
    elif vars(cls).get("__annotations__"):
        parts += [f"`{name}.{member}`\n:   {_sentence(text)}\n" for member, text in _members(cls)]
    for method, value in vars(cls).items():
        public = not method.startswith("_") and (inspect.isfunction(value) or isinstance(value, classmethod))
        if public and inspect.getdoc(value):
            function = value.__func__ if isinstance(value, classmethod) else value
            parts += [_signature(f"{name}.{method}", function), _doc(value)]
        elif isinstance(value, property) and not method.startswith("_") and inspect.getdoc(value):
            parts += [f"`{name}.{method}`\n:   {_sentence(inspect.getdoc(value))}\n"]
    return parts


def _parts_by_name(cls: type) -> list[str]:
    """Return the keyword arguments of a class that are not config keys, each with its meaning."""
    _, _, listed = (inspect.getdoc(cls.__init__) or "").partition(HEADING)  # type: ignore[misc]
    rows = [line.strip().split(": ", 1) for line in listed.strip().splitlines()]
    lines = [f"- `{name}`: {text}" for name, text in rows if name not in ConfigKeys.__annotations__]
    return [*lines, ""] if lines else []


def _fields(cls: type) -> list[str]:
    names = list(getattr(cls, "model_fields", {})) or [f.name for f in _own_dataclass_fields(cls)]
    if cls is Config:
        return ["Its sections and keys: [config reference](config.md)."]
    return [f"- `{name}`: `{_annotation(cls, name)}`" for name in names]


def _members(cls: type) -> Iterator[tuple[str, str]]:
    """Yield the declared attributes of a base class, each with its docstring."""
    body = ast.parse(inspect.getsource(cls)).body[0].body  # type: ignore[attr-defined]
    for line, below in itertools.pairwise(body):
        if isinstance(line, ast.AnnAssign) and isinstance(below, ast.Expr):
            yield ast.unparse(line.target), inspect.cleandoc(ast.literal_eval(below.value))


def _own_dataclass_fields(cls: type) -> list[Any]:
    return list(dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else []


def _annotation(cls: type, name: str) -> str:
    for base in cls.__mro__:
        if name in vars(base).get("__annotations__", {}):
            return re.sub(r"[\w.]+\.(\w+)", r"\1", str(vars(base)["__annotations__"][name]))
    return "Any"


def _signature(name: str, function: Any) -> str:
    """Return a function's signature, with `**keys` in place of all config keys."""
    signature = inspect.signature(function)
    named = [each for each in signature.parameters.values() if each.name not in ConfigKeys.__annotations__]
    if len(named) < len(signature.parameters):
        named.append(inspect.Parameter("keys", inspect.Parameter.VAR_KEYWORD))
    text = re.sub(
        r"(?:skillopt|collections|pathlib|typing)\.[\w.]*?(\w+)(?=[^\w.]|$)",
        r"\1",
        str(signature.replace(parameters=named)),
    )
    text = text.replace("'", "").replace("(self, ", "(").replace("(self)", "()").replace("(cls, ", "(")
    return f"```python\n{name}{text}\n```\n"


def _doc(value: Any) -> str:
    """Return the docstring that an object defines itself, not one from a base class or from `dataclass`."""
    text = inspect.cleandoc(value.__doc__ or "") if inspect.isclass(value) else inspect.getdoc(value) or ""
    text = text.partition(HEADING)[0].rstrip()
    return ("" if inspect.isclass(value) and text.startswith(f"{value.__name__}(") else text) + "\n"


RUN_FILES: dict[str, tuple[type[BaseModel], ...]] = {
    "summary.json": (Summary,),
    "history.json": (StepRecord,),
    "runtime_state.json": (State,),
    "patch_log.jsonl": (Entry,),
    "events.jsonl": tuple(event for event in KINDS.values() if event.stored),
    "live.json": (Live,),
    "test_reads.jsonl": (TestSplitRead,),
    "comments.jsonl, feedback.jsonl": (Comment,),
    "labels.json": (Labels,),
    "skills/skill_vNNNN.files.json": (PackageChanges,),
    "evaluations/SPLIT_NAME.json": (Evaluation,),
    "evaluations/SPLIT_NAME.jsonl": (Trajectory,),
    "steps/step_NNNN/step_record.json": (StepRecord,),
    "steps/step_NNNN/trajectory_digest.json": (BatchDigest,),
    "steps/step_NNNN/trajectories.jsonl": (Trajectory, RolloutError),
    "steps/step_NNNN/patches.json": (Patch,),
    "steps/step_NNNN/aggregate.json": (EditPool,),
    "steps/step_NNNN/selected.json": (Selection,),
    "steps/step_NNNN/candidate_files.json": (PackageChanges,),
    "steps/step_NNNN/gate.json": (GateRecord,),
    "steps/step_NNNN/gate_trajectories.jsonl": (Trajectory,),
    "steps/step_NNNN/epoch_end.json": (EpochEnd,),
    "slow_update/epoch_NN/comparison.json": (EpochComparison,),
    "slow_update/epoch_NN/trajectories.jsonl": (Trajectory,),
    "slow_update/epoch_NN/gate.json": (GateRecord,),
    "slow_update/epoch_NN/gate_trajectories.jsonl": (Trajectory,),
    "meta_skill/epoch_NN/findings.json": (TaskFinding,),
    "review/conflicts.jsonl": (FiledConflict,),
    "review/decisions.jsonl": (Decision,),
    "ablation/BY_vN.json": (Ablation,),
    "pruned/prune.json": (Pruning,),
    "eval_summary.json": (EvalSummary,),
    "comparison.json": (Comparison,),
    "probe.json": (Probe,),
    "check.json": (CheckResult,),
    "matrix.json": (Matrix,),
    "routing.json": (Routing,),
    "sweep.json": (Sweep,),
    "replicate.json": (Replication,),
    "transfer.json": (Transfer,),
}
FILES_INTRO = """The files of a run or a measurement, each with its record. A `.jsonl` file has one record per line;
`history.json` and `patches.json` have a list of records. An optional field is left out if it has no value.
`config.json` has the config's values by dotted key ([config](config.md)); `journal.sqlite` has
every reply, and every request to the optimizer.
"""


def files_page() -> str:
    """Return the page with every file of a run and its record, and every record with its fields."""
    parts = [NOTE, "# Files of a run\n", FILES_INTRO, "| file | record |\n|---|---|"]
    for file, models in RUN_FILES.items():
        names = ", ".join(f"[{model.__name__}](#{model.__name__.lower()})" for model in models)
        parts.append(f"| {', '.join(f'`{name}`' for name in file.split(', '))} | {names} |")
    models = dict.fromkeys(part for models in RUN_FILES.values() for model in models for part in _parts(model))
    for model in models:
        kind = f"`kind`: `{model.kind}`\n" if issubclass(model, Event) else ""
        parts += [f"\n## {model.__name__}\n", _doc(model), kind, *_described_fields(model)]
    return "\n".join(parts)


def _parts(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield a model and the models of its fields."""
    if generic := model.__pydantic_generic_metadata__["origin"]:
        yield generic
        yield from (part for value in model.__pydantic_generic_metadata__["args"] for part in _models_in(value))
        return
    yield model
    for field in model.model_fields.values():
        yield from _models_in(field.annotation)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield from _parts(annotation)
    for inner in typing.get_args(annotation):
        yield from _models_in(inner)


def _described_fields(model: type[BaseModel]) -> list[str]:
    meanings: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base.__module__.startswith("skillopt.") and "[" not in base.__name__:
            meanings |= attribute_docs(base)
    optional = getattr(model, "optional", frozenset())
    rows = []
    for name, field in model.model_fields.items():
        left_out = " Optional." if name in optional else ""
        meaning = f": {_sentence(meanings[name])}" if name in meanings else ""
        key = "from" if name == "source" and model is Transfer else name
        rows.append(f"- `{key}` (`{_annotation(model, name)}`){meaning}{left_out}" if not field.exclude else "")
    return [row for row in rows if row]


KEYWORDS_INTRO = '''"""The keys of the config as keyword arguments, for editors.

Written by scripts/make_reference.py from the config; `make docs` renews it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from pydantic import JsonValue
'''
_PATHS = {"data", "feedback", "init_notes", "init_skill", "output_root", "prompts_dir", "split_dir"}
"""Config keys whose value may be a Path."""
_FUNCTIONS = {"agent", "scoring"}
"""Config keys whose value may be a function."""
_TABLES = {ModelSettings: "ModelSettingsKeys", Price: "PriceKeys"}


def keywords_module() -> str:
    """Return a module with a TypedDict for each section, and one with the keys of all sections. The latter leaves out
    keys that mean something else without their section (`package.train`) and keys that name an object."""
    taken = {*Config.model_fields, "agent", "analysts", "gate", "vetoes", "split"}
    parts = [KEYWORDS_INTRO]
    for table, name in _TABLES.items():
        parts += _typed(name, f"Keys of `{table.__name__}`.", dict(table.model_fields), attribute_docs(table))
    bases = []
    for section, field in Config.model_fields.items():
        model: Any = field.annotation
        name, fields, docs = f"{section.title()}Keys", dict(model.model_fields), model.meanings()
        apart = {key: fields.pop(key) for key in [*fields] if key in taken or section == "notes"}
        if fields:
            flat = f"Flat{name}" if apart else name
            parts += _typed(flat, f"Keys of the section `{section}`.", fields, docs)
            bases.append(flat)
        if apart:
            base = f"Flat{name}" if fields else "TypedDict"
            parts += _typed(name, f"The section `{section}`.", apart, docs, base)
    parts.append(f"class ConfigKeys({', '.join(bases)}, total=False):")
    parts.append('    """Every config key by its name alone, and every section."""\n')
    sections = [each for each in Config.model_fields if each not in {"env", "models", "trackers"}]
    parts += [f'    {each}: {each.title()}Keys\n    """Keys of this section, as a dict."""' for each in sections]
    text = "\n".join(parts) + "\n"
    ruff = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(KEYWORDS), "-"]
    return subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout  # noqa: S603 - our own command


def _typed(
    name: str, about: str, fields: dict[str, FieldInfo], docs: dict[str, str], base: str = "TypedDict"
) -> list[str]:
    lines = [f'class {name}({base}, total=False):\n    """{about}"""\n']
    for key, field in fields.items():
        lines.append(f"    {key}: {_keyword_type(key, field.annotation)}")
        if key in docs:
            lines += textwrap.wrap(
                f'"""{_sentence(docs[key])}"""', 116, initial_indent="    ", subsequent_indent="    "
            )
    return [*lines, "\n"]


def _keyword_type(key: str, annotation: Any) -> str:
    """Return the type that a program may pass for a key: any sequence for a tuple, a Path for a path, and so on."""
    inner = [_keyword_type("", each) for each in typing.get_args(annotation) if each is not Ellipsis]
    origin = typing.get_origin(annotation)
    if origin is tuple:
        return f"Sequence[{inner[0]}]"
    if origin is dict:
        return f"Mapping[{', '.join(inner)}]"
    if origin is types.UnionType:
        return " | ".join(inner)
    if annotation in _TABLES or annotation is type(None):
        return _TABLES.get(annotation, "None")
    if key in _FUNCTIONS:
        return "str | Callable[..., Any]"
    return (
        "str | Path"
        if key in _PATHS and annotation is str
        else inspect.formatannotation(annotation).replace("typing.", "")
    )


def pages() -> dict[Path, str]:
    made = {"config.md": config_page(), "cli.md": cli_page(), "api.md": api_page(), "run_files.md": files_page()}
    return {KEYWORDS: keywords_module()} | {OUT / name: text for name, text in made.items()}


def main() -> int:
    stale = []
    for file, made in pages().items():
        text = "\n".join(line.rstrip() for line in made.splitlines()).strip() + "\n"
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        stale.append(str(file.relative_to(ROOT)))
        if "--check" not in sys.argv:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(f"out of date: {', '.join(stale)}; run python scripts/make_reference.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
