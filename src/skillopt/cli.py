"""The command line: one command is a few lines that call a room below."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from skillopt.config import Config
from skillopt.dotenv import load_dotenv
from skillopt.errors import SkillOptError, Stopped
from skillopt.report.text import printable, score
from skillopt.version import __version__

app = typer.Typer(
    help="Train skill documents for frozen LLM agents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
sim_app = typer.Typer(help="The simulated world: tasks, target and optimizer without a key.", no_args_is_help=True)
app.add_typer(sim_app, name="sim")

ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="YAML config file.")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[section.key=value]...", help="Override config keys.")]
TargetOption = Annotated[
    str, typer.Option("--target_model", "--target-model", help="provider:model that does the tasks.")
]
OptimizerOption = Annotated[
    str, typer.Option("--optimizer_model", "--optimizer-model", help="provider:model that proposes edits.")
]


def load_config(path: Path, overrides: Sequence[str] | None, target: str = "", optimizer: str = "") -> Config:
    named = [f"models.target_model={target}"] * bool(target) + [f"models.optimizer_model={optimizer}"] * bool(optimizer)
    return Config.load(path, [*(overrides or []), *named])


@app.command()
def train(
    config: ConfigOption,
    overrides: Overrides = None,
    optimizer_model: OptimizerOption = "",
    target_model: TargetOption = "",
    resume: Annotated[bool, typer.Option("--resume", help="Only go on with an unfinished run.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin another run, whatever is there.")] = False,
) -> None:
    """Train a skill. The same command again goes on where the run stands."""
    from skillopt.api import train as run_training
    from skillopt.report.console import result_lines, result_table, watching

    if resume and fresh:
        raise typer.BadParameter("--resume and --fresh exclude each other")
    console = Console(soft_wrap=True)
    loaded = load_config(config, overrides, target_model, optimizer_model)
    with watching(console) as listener:
        result = run_training(loaded, listeners=[listener], mode="resume" if resume else "fresh" if fresh else "auto")
    console.print()
    console.print(result_table(result.summary))
    for line in result_lines(result.summary):
        console.print(printable(line), markup=False, highlight=False)
    console.print(f"Best skill: {result.path / 'best_skill.md'}", markup=False, highlight=False)
    console.print(f"Report: {result.path / 'report.html'}", markup=False, highlight=False)


@app.command("eval")
def evaluate(
    config: ConfigOption,
    skill: Annotated[Path, typer.Option("--skill", help="Markdown file to measure.")],
    overrides: Overrides = None,
    split: Annotated[str, typer.Option("--split", help="train, val or test.")] = "test",
    target_model: TargetOption = "",
    out: Annotated[Path | None, typer.Option("--out", help="Folder for eval_summary.json.")] = None,
) -> None:
    """Measure any skill on any split; writes eval_summary.json."""
    from skillopt.loop.evaluate import evaluate as run_evaluation
    from skillopt.loop.session import read_initial
    from skillopt.report.console import watching

    console = Console(soft_wrap=True)
    loaded = load_config(config, overrides, target_model)
    with watching(console) as listener:
        work = run_evaluation(
            loaded, read_initial(str(skill)), split=split, skill_path=skill, listeners=[listener], out=out
        )
        summary = asyncio.run(work)
    console.print(f"hard {score(summary['hard'])}, soft {score(summary['soft'])} on {summary['items']} {split} items")
    if "test_reads" in summary:
        console.print(f"The test split has been read {summary['test_reads']} times for this skill's run.")
    console.print(f"Written: {summary['path']}", markup=False, highlight=False)


@app.command()
def report(run: Annotated[Path, typer.Argument(help="A run's folder.")]) -> None:
    """Write a run's report anew, also for one that is not finished."""
    from skillopt.errors import UserError
    from skillopt.report.html import write_report
    from skillopt.run.directory import RunDirectory

    directory = RunDirectory(run)
    if not directory.summary.is_file():
        raise UserError(f"{run}: is not a run's folder (it has no summary.json)")
    write_report(directory)
    print(directory.report)


@sim_app.command("serve")
def sim_serve(
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.")] = 8077,
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[option=value]...", help="Weather, see docs/simulated_world.md.")
    ] = None,
    api_key: Annotated[str, typer.Option(help="Refuse requests without this key.")] = "",
) -> None:
    """Serve the simulated world as an OpenAI-compatible endpoint on this machine."""
    from skillopt.models.sim_server import serve
    from skillopt.models.simulated import parse_options

    try:
        asyncio.run(serve(parse_options("&".join(options or [])), port, api_key))
    except KeyboardInterrupt:
        return


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
    """Run a command. Exit codes: 0 done; 2 bad input or an endpoint that refuses; 3 stopped, can go on; 130 Ctrl-C."""
    sys.exit(_guarded(lambda: app(arguments, standalone_mode=True)))


def _guarded(command: Callable[[], Any]) -> int:
    try:
        command()
    except Stopped as stopped:
        _complain(f"stopped: {stopped}\nEverything paid for is kept; run the same command again to go on.")
        return 130 if str(stopped) == "interrupted" else 3
    except SkillOptError as error:
        _complain(f"error: {error}")
        return 2
    except OSError as error:
        _complain(f"error: {error.filename or ''}: {error.strerror or error}")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _complain(text: str) -> None:
    print(printable(text), file=sys.stderr)


if __name__ == "__main__":
    main()
