"""The commands train, replicate, plan and doctor."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skillopt.cli.app import (
    ConfigOption,
    OptimizerOption,
    Overrides,
    TargetOption,
    app,
    fetch_weights,
    load_config,
    measured,
    say,
    show,
)
from skillopt.errors import MissingKey, UserError

if TYPE_CHECKING:
    from skillopt.config import Config
    from skillopt.training.session import Mode


LOCAL_TARGET = "local:qwen2.5-coder-0.5b"
LOCAL_OPTIMIZER = ("--optimizer_model", "local:qwen2.5-coder-1.5b", "gradient.analysts=[brief]")


@app.command()
def train(
    config: ConfigOption,
    overrides: Overrides = None,
    package: Annotated[
        Path | None, typer.Option("--package", help="Start from this Agent Skills package (its folder).")
    ] = None,
    description: Annotated[
        bool,
        typer.Option("--description", help="Train the package's description, not its files; the tasks are requests."),
    ] = False,
    optimizer_model: OptimizerOption = "",
    target_model: TargetOption = "",
    resume: Annotated[bool, typer.Option("--resume", help="Only continue an unfinished run.")] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start a new run, even if an unfinished one could be continued.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print events as lines of JSON, as in events.jsonl.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Fetch a benchmark's data without asking.")] = False,
) -> None:
    """Train a skill. The same command continues an unfinished run."""
    from skillopt.api import Trainer

    if resume and fresh:
        raise typer.BadParameter("--resume and --fresh exclude each other")
    own = [] if package is None else [f"train.init_skill={_package_file(package)}"]
    loaded = load_config(config, [*own, *(overrides or [])], target_model, optimizer_model)
    if description:
        loaded = for_description(loaded)
    check_keys(loaded, config, overrides or [])
    loaded = prepare_data(loaded, yes=yes)
    fetch_weights(loaded)
    mode: Mode = "resume" if resume else "fresh" if fresh else "auto"
    result = Trainer(loaded, mode=mode, progress="json" if as_json else True).fit()
    if package is not None and not as_json:
        say(f"To get the package back: skillopt export {result.path} --to DIR/{package.resolve().name}")


def _package_file(package: Path) -> Path:
    from skillopt.record.package import checked_package
    from skillopt.skill import FILE

    checked_package(package)
    return package / FILE


def for_description(config: Config) -> Config:
    """Return the config that trains a package's description: it has the trigger metric, the prompts for descriptions,
    and a limit of 250 tokens."""
    from skillopt.record.package import checked_package
    from skillopt.training import prompts

    folder = Path(config.train.init_skill)
    folder = folder if folder.is_dir() else folder.parent
    name = checked_package(folder).name
    return config.with_values(
        {
            "env.name": "trigger",
            "env.options": {"package": str(folder), **config.env.options},
            "env.benchmark": config.env.benchmark or f"{name}-description",
            "optimizer.max_skill_tokens": min(config.optimizer.max_skill_tokens, 250),
            "optimizer.max_edit_tokens": 80,
            "optimizer.slow_update_gate": "strict",
            "gradient.prompts_dir": config.gradient.prompts_dir or str(Path(prompts.__file__).parent / "description"),
        }
    )


def check_keys(config: Config, path: Path, overrides: Sequence[str]) -> None:
    """Raise if the API key of a role's model is missing. The error shows the three ways to train, each as a command."""
    from skillopt.models import open_model
    from skillopt.provider_table import provider_of
    from skillopt.training.parts import roles_of, why_optimizer

    for role in roles_of(config):
        provider = provider_of(config.role(role).model)
        if provider.is_local or provider.is_function:
            continue
        try:
            open_model(role, config)
        except MissingKey as error:
            variable = config.role(role).key_name or provider.key_name
            why = [f"{sentence}."] if role == "optimizer" and (sentence := why_optimizer(config)) else []
            raise MissingKey("\n".join([str(error), *why, *_ways(config, path, overrides, variable)])) from None


def _ways(config: Config, path: Path, overrides: Sequence[str], variable: str) -> list[str]:
    from skillopt.provider_table import provider_of

    target = provider_of(config.models.target_model)
    keeps_target = target.is_local or target.is_function or target.runs_program or target.key_optional
    model = config.models.target_model if keeps_target else LOCAL_TARGET
    again = ["skillopt", "train", "--config", str(path), *overrides]
    on_cpu = [*again, "--target_model", model]
    return [
        "There are three ways to train:",
        f"  a key:          export {variable}=YOUR-KEY && {shlex.join(again)}",
        f"  a local model:  {shlex.join([*on_cpu, *LOCAL_OPTIMIZER])}",
        f"  a handoff:      {shlex.join([*on_cpu, '--optimizer_model', 'handoff'])}",
        "A handoff lets you or your coding agent answer the optimizer's requests (docs/handoff.md).",
    ]


def prepare_data(config: Config, *, yes: bool) -> Config:
    """If a config needs the data of a published benchmark and the data is missing, convert or fetch it. Return the
    config with the path of the data."""
    if not config.env.split_dir or (Path(config.env.split_dir) / "train").is_dir():
        return config
    from skillopt.cli.models import show_progress
    from skillopt_benchmarks.sources import missing, prepare

    lack = missing(config.env)
    if lack is None:
        return config
    if lack.download and not yes:
        _ask(f"env.split_dir: '{config.env.split_dir}' has no train/ folder", lack.download, lack.command, lack.name)
    with show_progress(lack.name) as progress:
        counts = prepare(lack.name, lack.published, lack.out, progress, lack.kind)
    print(f"{lack.out}: {', '.join(f'{count} {split}' for split, count in counts.items())}", file=sys.stderr)
    return config.with_values({"env.split_dir": str(lack.out)})


def _ask(problem: str, download: str, command: str, name: str) -> None:
    """Ask on a terminal whether to fetch the data. Elsewhere, or if the answer is no, raise an error with the command
    to run."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        print(f"{problem}. `{command}` fetches {download}.", file=sys.stderr)
        if typer.confirm("Fetch it now?", default=True, err=True):
            return
    raise UserError(
        f"{problem}; run `{command}` (fetches {download}), or repeat your own command with --yes, "
        f"or use configs/{name}/mini.yaml"
    )


@app.command()
def replicate(
    config: ConfigOption,
    overrides: Overrides = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many seeds; the first is train.seed.")] = 5,
    optimizer_model: OptimizerOption = "",
    target_model: TargetOption = "",
) -> None:
    """Train with several seeds and report the mean, its interval, and the share of runs that improved. The same command
    continues the runs."""
    from skillopt.api import train_config
    from skillopt.measure.replicate import replicate as run_seeds
    from skillopt.view.measured_tables import replicate_lines, replicate_table

    loaded = load_config(config, overrides, target_model, optimizer_model)
    numbers = range(loaded.train.seed, loaded.train.seed + seeds)
    result = measured(
        loaded,
        lambda heard: run_seeds(loaded, numbers, lambda own: train_config(own, listeners=[heard], mode="separate")),
        trains=True,
    )
    show(result.verdict, *replicate_table(result), *replicate_lines(result), f"Written: {result.path}")


@app.command()
def plan(
    config: ConfigOption,
    overrides: Overrides = None,
    optimizer_model: OptimizerOption = "",
    target_model: TargetOption = "",
) -> None:
    """Show what a training will cost, before anything is paid for."""
    from skillopt.preflight.doctor import check_sizes
    from skillopt.preflight.plan import plan_published, plan_run
    from skillopt.tasks import using_env
    from skillopt.tasks.base import check_splits
    from skillopt.training.initial import initial_of
    from skillopt.view.console import check_line
    from skillopt.view.plan_lines import plan_lines

    loaded = load_config(config, overrides, target_model, optimizer_model)
    if not Path(loaded.env.split_dir, "train").exists() and (made := plan_published(loaded, initial_of(loaded))):
        print(f"The data is not there yet: sizes and task lengths are those of the published {loaded.env.benchmark}")
        say(*plan_lines(made))
        return
    with using_env(loaded) as env:
        check_splits(env)
        say(*plan_lines(plan_run(loaded, env, initial_of(loaded))))
        say(check_line(check_sizes(loaded, env)))


@app.command()
def doctor(
    config: ConfigOption,
    overrides: Overrides = None,
    optimizer_model: OptimizerOption = "",
    target_model: TargetOption = "",
    offline: Annotated[bool, typer.Option("--offline", help="Send no request; nothing is paid for.")] = False,
) -> None:
    """Check everything that a training needs, and print `pass`, `warn` or `fail` for each check, with the fix. If a
    check fails, the exit code is 1."""
    import asyncio

    from skillopt.preflight.doctor import examine
    from skillopt.view.console import check_line

    checks = asyncio.run(examine(load_config(config, overrides, target_model, optimizer_model), offline=offline))
    for check in checks:
        say(check_line(check))
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(1)
