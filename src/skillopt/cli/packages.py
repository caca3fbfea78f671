"""Skills outside their run: export, import, transfer; and sweep."""

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
    show,
)
from skillopt.view.text import printable

if TYPE_CHECKING:
    from skillopt.config import Config
    from skillopt.record.result import Result
    from skillopt.record.results import Sweep, Transfer


@app.command()
def export(
    run: RunArgument,
    to: Annotated[Path, typer.Option("--to", help="Folder of the package; its name is the package's name.")],
    description: Annotated[
        str, typer.Option("--description", help="What the skill does and when to use it, for the front matter.")
    ] = "",
    references: Annotated[str, typer.Option("--references", hidden=True)] = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write into a folder that is there already.")] = False,
) -> None:
    """Write a run's best skill as an Agent Skills package. A run that began with a package gives that one back."""
    from skillopt.errors import UserError

    if references:
        raise UserError("--references: is gone; train the exported package, and edits may move text to references/")
    _export(run, to, description=description, overwrite=overwrite)


def _export(run: Path, to: Path, *, description: str, overwrite: bool) -> None:
    from skillopt.record.directory import RunDirectory
    from skillopt.record.export import export as write_package

    files = write_package(RunDirectory(run), to, description=description, overwrite=overwrite)
    print(printable(f"Package: {to.absolute()} ({', '.join(files)})"))


@app.command("import")
def import_package(
    package: Annotated[Path, typer.Argument(help="Folder of an Agent Skills package (it holds SKILL.md).")],
    config: ConfigOption,
    overrides: Overrides = None,
    train: Annotated[
        str, typer.Option("--train", help="body,references,scripts or some of them, or description; the rest stays.")
    ] = "",
    to: Annotated[Path | None, typer.Option("--to", help="Then export the trained package to this folder.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write into a folder that is there already.")] = False,
    optimizer_model: OptimizerOption = "",
    target_model: TargetOption = "",
) -> None:
    """Train an existing skill package: its files on the config's tasks, or its description on requests."""
    from skillopt.cli.train import run_and_show
    from skillopt.record.package import checked_package
    from skillopt.skill import FILE

    name = checked_package(package).name
    own = [f"train.init_skill={package / FILE}", *_parts(train), *(overrides or [])]
    loaded = load_config(config, own, target_model, optimizer_model)
    result = run_and_show(for_description(loaded, package, name) if train == "description" else loaded)
    if to is not None:
        _export(result.path, to, description="", overwrite=overwrite)
    else:
        print(printable(f"To get the package back: skillopt export {result.path} --to DIR/{name}"))


def _parts(train: str) -> list[str]:
    """The override for the parts that are named; none for a description, and where the config decides."""
    from skillopt.errors import UserError
    from skillopt.skill.trained import PARTS

    named = [part.strip() for part in train.split(",") if part.strip()]
    if not named or named == ["description"]:
        return []
    if wrong := [part for part in named if part not in PARTS]:
        more = "; a description is trained alone" if "description" in wrong else ""
        raise UserError(f"--train: '{wrong[0]}' is not one of {', '.join(PARTS)}{more}")
    return [f"package.train=[{', '.join(named)}]"]


def for_description(config: Config, package: Path, name: str) -> Config:
    """The config with what training a description takes: the trigger metric, its prompts, one short paragraph."""
    from skillopt.training import prompts

    env, optimizer, gradient = config.env, config.optimizer, config.gradient
    options = {"package": str(package), **env.options}
    own = env.model_copy(
        update={"name": "trigger", "options": options, "benchmark": env.benchmark or f"{name}-description"}
    )
    short = {"max_skill_tokens": min(optimizer.max_skill_tokens, 250), "max_edit_tokens": 80}
    asked = gradient.prompts_dir or str(Path(prompts.__file__).parent / "description")
    return config.model_copy(
        update={
            "env": own,
            "optimizer": optimizer.model_copy(update={**short, "slow_update_gate": "strict"}),
            "gradient": gradient.model_copy(update={"prompts_dir": asked}),
        }
    )


@app.command()
def transfer(
    run: RunArgument,
    config: Annotated[Path, typer.Option("--to", help="Config of the other benchmark or target.")],
    overrides: Overrides = None,
    zero_shot: Annotated[bool, typer.Option("--zero-shot", help="Only measure; do not train further.")] = False,
    optimizer_model: OptimizerOption = "",
    target_model: TargetOption = "",
) -> None:
    """Try a run's skill on other tasks or another target: zero-shot, then fine-tuned from there."""
    from skillopt.api import train_config
    from skillopt.measure.transfer import transfer as run_transfer
    from skillopt.record.directory import RunDirectory
    from skillopt.record.events import Listener
    from skillopt.view.measured_tables import transfer_table

    loaded = load_config(config, overrides, target_model, optimizer_model)

    def work(heard: Listener) -> Coroutine[Any, Any, Transfer]:
        train = partial(train_config, listeners=[heard])
        return run_transfer(RunDirectory(run), loaded, train, tune=not zero_shot)

    result = measured(loaded, work)
    show(result.verdict, *transfer_table(result), f"Written: {result.path}")


@app.command()
def sweep(
    config: ConfigOption,
    axes: Annotated[
        list[str], typer.Argument(metavar="section.key=V1,V2...", help="Values to try; one value is an override.")
    ],
    draws: Annotated[int | None, typer.Option("--random", hidden=True)] = None,
    optimizer_model: OptimizerOption = "",
    target_model: TargetOption = "",
) -> None:
    """Train under several values of some keys and choose by validation. The same command again continues."""
    from skillopt.api import train_config
    from skillopt.errors import UserError
    from skillopt.measure.sweep import sweep as run_sweep
    from skillopt.record.events import Listener
    from skillopt.view.measured_tables import sweep_lines, sweep_table

    if draws is not None:
        raise UserError("sweep --random: draws are no longer made; list the values, such as key=2,4,8")

    def load(given: Sequence[str]) -> Config:
        return load_config(config, given, target_model, optimizer_model)

    def work(heard: Listener) -> Coroutine[Any, Any, Sweep]:
        async def train(own: Config, journal: Path, read_test: bool) -> Result:
            return await train_config(own, listeners=[heard], shared_journal=journal, read_test=read_test)

        return run_sweep(load, axes, train)

    result = measured(load(()), work)
    show(*sweep_table(result), *sweep_lines(result), f"Written: {result.path}")
