"""The commands export, import, transfer and sweep."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skillopt.cli.app import (
    ConfigOption,
    OptimizerOption,
    Overrides,
    RunArgument,
    TargetOption,
    app,
    load_config,
    measured,
    say,
    show,
)

if TYPE_CHECKING:
    from skillopt.config import Config
    from skillopt.record.result import Result
    from skillopt.record.results import Sweep, Transfer


@app.command()
def export(
    run: RunArgument,
    to: Annotated[
        Path, typer.Option("--to", help="The package's folder; the folder's name is also the package's name.")
    ],
    description: Annotated[
        str, typer.Option("--description", help="What the skill does and when to use it, for the front matter.")
    ] = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write into a folder that exists already.")] = False,
) -> None:
    """Write a run's best skill as an Agent Skills package. If the run trained a package, the whole package is
    written."""
    from skillopt.record.directory import RunDirectory
    from skillopt.record.export import export as write_package

    files = write_package(RunDirectory(run), to, description=description, overwrite=overwrite)
    say(f"Package: {to.absolute()} ({', '.join(files)})")


@app.command("import")
def import_package(
    package: Annotated[Path, typer.Argument(help="Folder of an Agent Skills package (it contains SKILL.md).")],
    to: Annotated[Path, typer.Option("--to", help="The folder that the package is copied into.")],
) -> None:
    """Check an Agent Skills package and copy it to a folder, so you can train the copy (`skillopt train --package`)."""
    from skillopt.errors import UserError
    from skillopt.record.package import checked_package, whole_package

    copy = to / checked_package(package).name
    if copy.exists() or copy.is_symlink():
        raise UserError(f"{copy}: exists already; choose another folder, or remove this one first")
    skill = whole_package(package)
    skill.write_to(copy)
    say(f"Package: {copy} ({', '.join(sorted(skill.files))})")
    say(f"Now: skillopt train --package {copy} --config FILE")


@app.command()
def transfer(
    run: RunArgument,
    config: Annotated[Path, typer.Option("--to", help="Config of the other benchmark or target.")],
    overrides: Overrides = None,
    zero_shot: Annotated[bool, typer.Option("--zero-shot", help="Only measure; do not train further.")] = False,
    optimizer_model: OptimizerOption = "",
    target_model: TargetOption = "",
) -> None:
    """Try a run's skill on other tasks or another target: first as it is (zero-shot), then after further training."""
    from skillopt.api import train_config
    from skillopt.measure.transfer import transfer as run_transfer
    from skillopt.record.directory import RunDirectory
    from skillopt.record.events import Listener
    from skillopt.view.measured_tables import transfer_table

    loaded = load_config(config, overrides, target_model, optimizer_model)

    def work(heard: Listener) -> Coroutine[Any, Any, Transfer]:
        train = partial(train_config, listeners=[heard])
        return run_transfer(RunDirectory(run), loaded, train, tune=not zero_shot)

    result = measured(loaded, work, trains=True)
    show(result.verdict, *transfer_table(result), f"Written: {result.path}")


@app.command()
def sweep(
    config: ConfigOption,
    axes: Annotated[
        list[str],
        typer.Argument(
            metavar="section.key=V1,V2...", help="Keys with values to try; a key with one value is an override."
        ),
    ],
    optimizer_model: OptimizerOption = "",
    target_model: TargetOption = "",
) -> None:
    """Train with each of several values of config keys, and choose the values by the validation score. The same command
    continues the sweep."""
    from skillopt.api import train_config
    from skillopt.measure.sweep import sweep as run_sweep
    from skillopt.record.events import Listener
    from skillopt.view.measured_tables import sweep_lines, sweep_table

    def load(given: Sequence[str]) -> Config:
        return load_config(config, given, target_model, optimizer_model)

    def work(heard: Listener) -> Coroutine[Any, Any, Sweep]:
        async def train(own: Config, journal: Path) -> Result:
            return await train_config(own, listeners=[heard], shared_journal=journal, mode="separate")

        return run_sweep(load, axes, train)

    result = measured(load(()), work, trains=True)
    show(*sweep_table(result), *sweep_lines(result), f"Written: {result.path}")
