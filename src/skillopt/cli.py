"""The command line: one command is a few lines that call a room below."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from skillopt.config import Config
from skillopt.dotenv import load_dotenv
from skillopt.errors import SkillOptError, Stopped
from skillopt.models_cli import fetch, models_app
from skillopt.report.console import open_console
from skillopt.report.text import printable, ranged, score
from skillopt.version import __version__

app = typer.Typer(
    help="Train skill documents for frozen LLM agents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
sim_app = typer.Typer(help="The simulated world: tasks, target and optimizer without a key.", no_args_is_help=True)
app.add_typer(sim_app, name="sim")
app.add_typer(models_app, name="models")

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


def fetch_weights(config: Config) -> None:
    """Local models' weights before anything else, with a progress bar; silent where they are here."""
    from skillopt.loop.session import needs_optimizer

    names = [config.models.target_model] + [config.models.optimizer_model] * needs_optimizer(config)
    for name in names:
        if name.startswith("local:"):
            fetch(name.removeprefix("local:"))


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
    console = open_console()
    loaded = load_config(config, overrides, target_model, optimizer_model)
    fetch_weights(loaded)
    with watching(console) as listener:
        result = run_training(loaded, listeners=[listener], mode="resume" if resume else "fresh" if fresh else "auto")
    console.print()
    console.print(result_table(result.summary))
    for line in result_lines(result.summary):
        console.print(printable(line))
    console.print(f"Best skill: {result.path / 'best_skill.md'}")
    console.print(f"Report: {result.path / 'report.html'}")


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

    console = open_console()
    loaded = load_config(config, overrides, target_model)
    fetch_weights(loaded)
    with watching(console) as listener:
        work = run_evaluation(
            loaded, read_initial(str(skill)), split=split, skill_path=skill, listeners=[listener], out=out
        )
        summary = asyncio.run(work)
    console.print(f"hard {score(summary['hard'])}, soft {score(summary['soft'])} on {summary['items']} {split} items")
    console.print(f"{summary['metric']} with its 95 % interval: {ranged(summary['score'], summary['interval'])}")
    if always := summary["majority"]:
        line = f"Always answering {always['answer']!r}: {ranged(always['score'], always['interval'])}"
        console.print(printable(line))
    if "test_reads" in summary:
        console.print(f"The test split has been read {summary['test_reads']} times for this skill's run.")
    console.print(f"Written: {summary['path']}")


@app.command()
def plan(
    config: ConfigOption,
    overrides: Overrides = None,
    optimizer_model: OptimizerOption = "",
    target_model: TargetOption = "",
    target_seconds: Annotated[float | None, typer.Option(help="Seconds that a target call takes.")] = None,
    optimizer_seconds: Annotated[float | None, typer.Option(help="Seconds that an optimizer call takes.")] = None,
) -> None:
    """Say what a training will take, before anything is spent."""
    from skillopt.envs import open_env
    from skillopt.envs.base import check_splits
    from skillopt.loop.plan import plan_run
    from skillopt.loop.session import read_initial
    from skillopt.report.planned import plan_lines

    loaded = load_config(config, overrides, target_model, optimizer_model)
    env = open_env(loaded)
    check_splits(env)
    given = {"target": target_seconds, "optimizer": optimizer_seconds}
    seconds = {role: (value, value) for role, value in given.items() if value is not None}
    for line in plan_lines(plan_run(loaded, env, read_initial(loaded.train.init_skill), call_seconds=seconds)):
        print(printable(line))


@app.command()
def doctor(
    config: ConfigOption,
    overrides: Overrides = None,
    optimizer_model: OptimizerOption = "",
    target_model: TargetOption = "",
    offline: Annotated[bool, typer.Option("--offline", help="Ask no endpoint; nothing is paid.")] = False,
) -> None:
    """Go through the checklist of a training: pass, warn or fail, and the fix. Exit code 1 where a check fails."""
    from dataclasses import asdict

    from skillopt.loop.doctor import examine
    from skillopt.report.console import check_line

    checks = asyncio.run(examine(load_config(config, overrides, target_model, optimizer_model), offline=offline))
    for check in checks:
        print(printable(check_line(asdict(check))))
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(1)


@app.command()
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="Skill file, or `initial` or `best` of a run.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The same; twice the same skill shows the target's noise.")],
    config: ConfigOption,
    overrides: Overrides = None,
    split: Annotated[str, typer.Option("--split", help="train, val or test.")] = "val",
    run: Annotated[Path | None, typer.Option("--run", help="Folder of the run; the config's own unless set.")] = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Samples of each item under each skill.")] = 1,
    target_model: TargetOption = "",
) -> None:
    """Two skills on the same items: a paired test, and the items that improved or regressed."""
    from skillopt.loop.compare import compare as run_comparison
    from skillopt.loop.compare import find_skill
    from skillopt.report.compared import comparison_lines, comparison_table
    from skillopt.report.console import watching

    console = open_console()
    loaded = load_config(config, overrides, target_model)
    fetch_weights(loaded)
    sides = [find_skill(name, loaded, run) for name in (a, b)]
    with watching(console) as listener:
        result = asyncio.run(run_comparison(loaded, *sides, split=split, repeats=repeats, listeners=[listener]))
    console.print(comparison_table(result))
    for line in [*comparison_lines(result), f"Written: {result['path']}"]:
        console.print(printable(line))


@app.command()
def replicate(
    config: ConfigOption,
    overrides: Overrides = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many seeds, from train.seed on.")] = 5,
    optimizer_model: OptimizerOption = "",
    target_model: TargetOption = "",
) -> None:
    """Train under several seeds and report mean, interval and share improved. The same command again goes on."""
    from skillopt.api import train_async
    from skillopt.loop.replicate import replicate as run_seeds
    from skillopt.report.compared import replicate_lines, replicate_table
    from skillopt.report.console import watching

    console = open_console()
    loaded = load_config(config, overrides, target_model, optimizer_model)
    fetch_weights(loaded)
    numbers = range(loaded.train.seed, loaded.train.seed + seeds)
    with watching(console) as listener:
        work = run_seeds(loaded, numbers, lambda own: train_async(own, listeners=[listener]))
        result = asyncio.run(work)
    console.print()
    console.print(replicate_table(result))
    for line in [*replicate_lines(result), f"Written: {result['path']}"]:
        console.print(printable(line))


@app.command()
def review(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    choose: Annotated[
        list[str] | None, typer.Option("--choose", metavar="ID=CHOICE", help="a, b, both or neither, such as 3-1=a.")
    ] = None,
    write: Annotated[
        list[str] | None, typer.Option("--write", metavar="ID=TEXT", help="An edit of your own, such as 3-1='…'.")
    ] = None,
) -> None:
    """Decide between opposite edits; the next step tries the choice. Asks on a terminal, lists elsewhere."""
    from skillopt.report.review import review_run
    from skillopt.run.directory import RunDirectory

    ask = input if sys.stdin.isatty() and sys.stdout.isatty() else None
    review_run(RunDirectory(run), choose or [], write or [], lambda text: print(printable(text)), ask)


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
