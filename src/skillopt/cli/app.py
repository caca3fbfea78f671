"""What the commands share: the app, options that several take, and how an error ends a command."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from skillopt.dotenv import load_dotenv
from skillopt.errors import DiskError, SkillOptError, Stopped, disk_trouble, is_disk_trouble
from skillopt.keys import guard_terminal, redact
from skillopt.report.text import printable
from skillopt.version import __version__

if TYPE_CHECKING:  # a command imports what it needs when it runs: --help stays quick
    from skillopt.config import Config
    from skillopt.run.events import Listener

T = TypeVar("T")
app = typer.Typer(
    help="Train skill documents for frozen LLM agents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,  # plain help starts in half the time
    context_settings={"max_content_width": 140},
)

PROJECT_FILE = "skillopt.toml"
ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="YAML config file.")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[section.key=value]...", help="Override config keys.")]
TargetOption = Annotated[
    str, typer.Option("--target_model", "--target-model", help="provider:model that does the tasks.")
]
OptimizerOption = Annotated[
    str, typer.Option("--optimizer_model", "--optimizer-model", help="provider:model that proposes edits.")
]


def _meant_run(path: Path | None) -> Path | None:
    from skillopt.run.directory import meant_run

    return path and meant_run(path)


RunArgument = Annotated[
    Path, typer.Argument(help="A run's folder, or a folder of runs (its newest).", callback=_meant_run)
]
RunOption = Annotated[
    Path | None,
    typer.Option("--run", help="A run's folder, or a folder of runs; else the config's own.", callback=_meant_run),
]
BaseOption = Annotated[
    str, typer.Option("--base", help="What to compare with: none, a file or folder, or a git ref such as origin/main.")
]
HeadOption = Annotated[
    str, typer.Option("--head", help="Take the skill from this git ref; config and tasks stay the working folder's.")
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
    """Local models' weights before anything else, with a progress bar; silent where they are here."""
    from skillopt.cli.models import fetch
    from skillopt.preflight.components import needs_optimizer

    both = needs_optimizer(config) if optimizer is None else optimizer
    for name in [config.models.target_model] + [config.models.optimizer_model] * both:
        if name.startswith("local:"):
            fetch(name.removeprefix("local:"))


def measured(config: Config, work: Callable[[Listener], Coroutine[Any, Any, T]]) -> T:
    """What `work` gives; its events are shown on the terminal as they happen."""
    import asyncio

    from skillopt.report.console import open_console, watching

    fetch_weights(config)
    with watching(open_console()) as listener:
        return asyncio.run(work(listener))


def show(*lines: str) -> None:
    """A command's result, below what was shown as it ran."""
    print()
    for line in lines:
        print(printable(line))


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
        return 130 if str(stopped) == "interrupted" else 3
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
