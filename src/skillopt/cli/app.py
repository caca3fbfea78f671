"""What all commands share: the app, common options, and the handling of errors."""

from __future__ import annotations

import itertools
import json
import sys
import traceback
import warnings
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from skillopt.dotenv import load_dotenv
from skillopt.errors import DiskError, SkillOptError, Stopped, UserError, disk_trouble, is_disk_trouble
from skillopt.keys import guard_terminal, redact
from skillopt.version import __version__
from skillopt.view.text import printable

if TYPE_CHECKING:  # a command imports other packages when it runs, so --help is quick
    from skillopt.config import Config
    from skillopt.record.base import Record
    from skillopt.record.events import Listener

T = TypeVar("T")
GROUPS = {
    "Begin": ("init", "harvest", "split", "doctor", "probe", "plan"),
    "Train": ("train", "import", "replicate", "sweep", "transfer", "review", "letters", "answer"),
    "Measure skills": ("eval", "compare", "check", "ablate", "prune", "route", "lint"),
    "Look at runs": ("runs", "report", "blame", "diff", "verify", "export", "propose", "adopt"),
    "Page, agents, models and data": ("ui", "mcp", "models", "data", "sim"),
}
"""The commands in the order of `--help`. A command that is not listed here comes last in the group that its
`rich_help_panel` names."""
RETIRED = {
    ("report", "--prices"): "set budget.prices before a training (summary.json has each role's tokens)",
    ("verify", "--repair"): "`skillopt verify RUN` names the files to delete; training then writes them again",
    ("lint", "--out"): "SARIF is no longer written; use --json > FILE, or --github for notes on lines",
    ("lint", "-c"): "lint reads no tasks; remove this option",
    ("lint", "--config"): "lint reads no tasks; remove this option",
    **{
        ("plan", option): "the time is an estimate from usual durations; remove this option"
        for option in ("--target-seconds", "--optimizer-seconds")
    },
    ("sweep", "--random"): "list the values, such as key=2,4,8",
    ("ablate", "--by"): "ablate leaves out one rule at a time; `skillopt blame RUN` shows which step wrote a line",
    ("eval", "--split all"): "one split is measured at a time: --split train, --split val, --split test",
    ("export", "--references"): "train the exported package; its edits may move text to references/",
    ("init", "--interactive"): "give --from, --target_model, --optimizer_model and --scoring",
    ("models", "path"): "`skillopt models list` shows where the file is",
    ("models", "verify"): "every training checks the SHA-256 of the file before its first use",
    **{
        ("import", option): "`skillopt train --package FOLDER --config FILE` trains a package"
        for option in ("--config", "-c", "--train")
    },
}
"""Options that no longer exist (earlier versions or the original tool had them). For each option: what to do
instead."""
RENAMED = {
    **{(command, "--cfg-options"): "" for command in ("train", "eval")},
    ("train", "--out_root"): "env.output_root=",
    ("eval", "--out_root"): "--out=",
    ("check", "--all-targets"): "--targets=",
    ("eval", "--split valid_seen"): "--split=val",
    ("eval", "--split valid_unseen"): "--split=test",
}
"""Options that have a new name now (earlier versions or the original tool had the old name). The old name still works,
and a note shows the new name."""


class Grouped(TyperGroup):
    """Shows the commands by group, each with the whole first sentence of its help."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        for word, following in itertools.pairwise([*map(str, args), ""][1:]):
            option = word.partition("=")[0]
            for name in (option, f"{word} {following}", word.replace("=", " ")):
                if instead := RETIRED.get((args[0], name)):
                    raise UserError(f"{args[0]} {name}: no longer exists; {instead}")
        return super().resolve_command(ctx, [args[0], *_renamed(args[0], args[1:])])

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for names in self._groups().values() for name in names]

    def _groups(self) -> dict[str, list[str]]:
        groups = {title: list(names) for title, names in GROUPS.items()}
        for name in sorted(self.commands.keys() - set(itertools.chain(*groups.values()))):
            panel = getattr(self.commands[name], "rich_help_panel", None)
            groups[panel if panel in groups else list(groups)[-1]].append(name)
        return groups

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, names in self._groups().items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(limit=500)) for name in names])


def _renamed(command: str, words: Sequence[str]) -> Iterator[str]:
    """Yield a command's words, with the new names of renamed options. Both forms are read: `--option value` and
    `--option=value`."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        option, equals, value = str(word).partition("=")
        if option not in {name.split()[0] for _, name in RENAMED}:
            yield word
            continue
        value = value if equals else rest.pop(0) if rest else ""
        name = f"{option} {value}"
        ours = RENAMED.get((command, name)) or RENAMED.get((command, option))
        if ours is None:
            yield word
            if not equals and value:
                yield value
            continue
        print(f"note: {option} is now {ours or 'section.key=value alone'}", file=sys.stderr)
        yield ours if (command, name) in RENAMED else f"{ours}{value}"


app = typer.Typer(
    help="Train skill documents for frozen LLM agents.",
    cls=Grouped,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # without rich, --help starts in half the time
    context_settings={"max_content_width": 140},
)

PROJECT_FILE = "skillopt.toml"
ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="YAML config file.")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[section.key=value]...", help="Override config keys.")]
TargetOption = Annotated[
    str, typer.Option("--target_model", "--target-model", help="The model that does the tasks, as provider:model.")
]
OptimizerOption = Annotated[
    str,
    typer.Option("--optimizer_model", "--optimizer-model", help="The model that proposes edits, as provider:model."),
]


def _meant_run(path: Path | None) -> Path | None:
    from skillopt.record.directory import resolve_run

    return path and resolve_run(path)


RunArgument = Annotated[
    Path, typer.Argument(help="A run's folder, or a folder of runs (then its newest run).", callback=_meant_run)
]
RunOption = Annotated[
    Path | None,
    typer.Option("--run", help="A run's folder, or a folder of runs. Default: the config's run.", callback=_meant_run),
]
BaseOption = Annotated[
    str,
    typer.Option(
        "--base", help="What to compare with: none (no skill), a file or folder, or a git ref such as origin/main."
    ),
]
HeadOption = Annotated[
    str,
    typer.Option(
        "--head", help="Take the skill from this git ref; config and tasks are still those of the working folder."
    ),
]
ProjectOption = Annotated[Path, typer.Option("--project", help="The file that lists the repository's skills.")]
GithubOption = Annotated[
    bool, typer.Option("--github", help="Also write annotations and the summary of GitHub Actions.")
]


def load_config(path: Path, overrides: Sequence[str] | None, target: str = "", optimizer: str = "") -> Config:
    from skillopt.config import Config

    named = [f"models.target_model={target}"] * bool(target) + [f"models.optimizer_model={optimizer}"] * bool(optimizer)
    return Config.load(path, [*(overrides or []), *named])


def fetch_weights(config: Config, *, optimizer: bool | None = None) -> None:
    """Fetch the weights of local models and print the progress. If the weights are on this machine, print nothing."""
    from skillopt.cli.models import fetch
    from skillopt.provider_table import provider_of, split_name
    from skillopt.training.parts import needs_optimizer

    judge = [config.models.judge_model] if config.models.judge_model else []
    both = needs_optimizer(config) if optimizer is None else optimizer and not judge
    for name in [config.models.target_model, *[config.models.optimizer_model] * both, *judge]:
        if provider_of(name).has_weights:
            fetch(split_name(name)[1])


def measured(
    config: Config, work: Callable[[Listener], Coroutine[Any, Any, T]], *, trains: bool = False, quiet: bool = False
) -> T:
    """Return the result of `work`; show its events as they happen, unless `quiet`. If `trains` is false, the weights of
    a local optimizer are fetched only if the optimizer is also the judge."""
    import asyncio

    from skillopt.view.console import open_console, watching

    fetch_weights(config, optimizer=None if trains else config.env.scoring == "judge")
    if quiet:
        return asyncio.run(work(lambda event: None))
    with watching(open_console()) as listener:
        return asyncio.run(work(listener))


def say(*lines: str) -> None:
    for line in lines:
        print(printable(line))


def print_json(record: Record) -> None:
    print(redact(json.dumps(record.model_dump(mode="json"), indent=2)))


def show(*lines: str) -> None:
    """Print a command's result after an empty line."""
    print()
    say(*lines)


def _version(value: bool) -> None:
    if value:
        print(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    load_dotenv(Path(".env"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. Exit codes: 0 done; 1 worse, or a failed verification; 2 bad input, or the endpoint refuses;
    3 stopped, can continue; 4 cannot tell; 130 Ctrl-C."""
    guard_terminal()
    warnings.formatwarning = lambda message, *_, **__: f"note: {message}\n"
    try:
        code = _guarded(lambda: app(arguments, standalone_mode=True))
    except Exception:  # a bug in SkillOpt or in a user's code: show all of it, except keys
        print(redact(traceback.format_exc()), end="", file=sys.stderr)
        code = 1
    sys.exit(code)


def _guarded(command: Callable[[], Any]) -> int:
    try:
        command()
    except Stopped as stopped:
        _complain(f"stopped: {stopped}\nEverything paid for is kept; run the same command again to continue.")
        return 130 if stopped.by_hand else 3
    except SkillOptError as error:
        _complain(f"error: {error}")
        return 2
    except DiskError as error:
        where, what = getattr(error, "filename", None) or "the journal", getattr(error, "strerror", None) or error
        _complain(f"error: {disk_trouble(error) if is_disk_trouble(error) else f'{where}: {what}'}")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _complain(text: str) -> None:
    print(printable(redact(text)), file=sys.stderr)
