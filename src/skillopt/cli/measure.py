"""Measuring skills: eval, compare, ablate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skillopt.cli.app import (
    ConfigOption,
    Overrides,
    RunArgument,
    RunOption,
    TargetOption,
    app,
    load_config,
    measured,
    show,
)

if TYPE_CHECKING:
    from skillopt.config import Config


@app.command("eval")
def evaluate(
    config: ConfigOption,
    skill: Annotated[
        str, typer.Option("--skill", help="Skill file, package's folder, or `initial` or `best` of the config's run.")
    ],
    overrides: Overrides = None,
    split: Annotated[str, typer.Option("--split", help="train, val or test.")] = "test",
    target_model: TargetOption = "",
    out: Annotated[Path | None, typer.Option("--out", help="Folder for eval_summary.json.")] = None,
) -> None:
    """Measure any skill on any split; writes eval_summary.json."""
    from skillopt.measure.compare import WORDS, find_skill
    from skillopt.measure.evaluate import evaluate as run_evaluation
    from skillopt.training.initial import read_initial
    from skillopt.view.measured_tables import evaluation_lines

    loaded = load_config(config, overrides, target_model)
    found, path = find_skill(skill, loaded, None) if skill in WORDS else (read_initial(skill, "--skill"), Path(skill))
    summary = measured(
        loaded, lambda heard: run_evaluation(loaded, found, split=split, skill_path=path, listeners=[heard], out=out)
    )
    show(summary.verdict, *evaluation_lines(summary), f"Written: {summary.path}")


@app.command()
def compare(
    a: Annotated[
        str, typer.Argument(metavar="A", help="Skill file, folder of a package or run, RUN@3; or `initial` or `best`.")
    ],
    b: Annotated[
        str, typer.Argument(metavar="B", help="The second skill; the same skill twice shows the target's noise.")
    ],
    config: ConfigOption,
    overrides: Overrides = None,
    split: Annotated[str, typer.Option("--split", help="train, val or test.")] = "val",
    run: RunOption = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Samples of each item under each skill.")] = 1,
    items: Annotated[str, typer.Option("--items", help="Only these items: ids, separated by commas.")] = "",
    target_model: TargetOption = "",
) -> None:
    """Compare two skills on the same items: a paired test, and the items that improved or regressed."""
    from skillopt.measure.compare import compare as run_comparison
    from skillopt.measure.compare import find_skill
    from skillopt.view.measured_tables import comparison_lines, comparison_table

    loaded = load_config(config, overrides, target_model)
    sides = [find_skill(name, loaded, run) for name in (a, b)]
    only = [each.strip() for each in items.split(",") if each.strip()]
    result = measured(
        loaded,
        lambda heard: run_comparison(loaded, *sides, split=split, repeats=repeats, items=only, listeners=[heard]),
    )
    show(result.verdict, *comparison_table(result), *comparison_lines(result), f"Written: {result.path}")


@app.command()
def ablate(
    run: RunArgument,
    overrides: Overrides = None,
    repeats: Annotated[
        int | None,
        typer.Option("--repeats", min=1, help="Samples of each item: 1 unless set, or 3 if the target is noisy."),
    ] = None,
    max_calls: Annotated[int | None, typer.Option("--max-calls", min=1, help="Stop after this many calls.")] = None,
) -> None:
    """Measure what each rule of the best skill is worth on the validation split. The skill does not change."""
    from skillopt.measure.ablate import ablate as run_ablation
    from skillopt.record.directory import RunDirectory
    from skillopt.view.measured_tables import ablation_lines, ablation_table

    config = config_of(run, overrides, max_calls, "ablate")
    result = measured(config, lambda heard: run_ablation(RunDirectory(run), config, repeats=repeats, listeners=[heard]))
    show(*ablation_table(result), *ablation_lines(result), f"Written: {result.path}")


def config_of(run: Path, overrides: list[str] | None, max_calls: int | None, command: str) -> Config:
    """The run's own config, to measure its best skill. Only budget, hardware and folders may differ."""
    from skillopt.config import Config
    from skillopt.config.identity import PASSED_IN
    from skillopt.errors import UserError
    from skillopt.provider_table import provider_of
    from skillopt.record.directory import RunDirectory

    directory = RunDirectory(run)
    if not directory.config_yaml.is_file() or not directory.best_skill.is_file():
        raise UserError(f"{run}: is not a run's folder (it has no config.yaml and best_skill.md)")
    limit = [f"budget.max_calls={max_calls}"] * (max_calls is not None)
    config = Config.load(directory.config_yaml, [*(overrides or []), *limit])
    own = Config.load(directory.config_yaml)
    if provider_of(own.models.target_model).is_function:  # a function was passed in; a command finds it by its file
        own = own.with_values({"env.agent": config.env.agent})
    if own.env.scoring.startswith(PASSED_IN):
        own = own.with_values({"env.scoring": config.env.scoring})
    if config.identity() != own.identity():
        raise UserError(f"{command}: only the budget, the hardware and paths may differ from the run's own config")
    return config
