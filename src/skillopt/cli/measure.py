"""The commands that measure skills (eval, compare, ablate, prune, route, probe) and judges (judge calibrate)."""

from __future__ import annotations

import sys
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
    print_json,
    show,
)

if TYPE_CHECKING:
    from skillopt.config import Config


judge_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Compare a judge with people's grades.")
app.add_typer(judge_app, name="judge", rich_help_panel="Measure skills")


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
    """Measure a skill on a split, and write eval_summary.json."""
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
        str,
        typer.Argument(
            metavar="A", help="A skill file, the folder of a package or run, RUN@3 (version 3), `initial` or `best`."
        ),
    ],
    b: Annotated[
        str,
        typer.Argument(
            metavar="B", help="The second skill. If it is the same as A, the comparison shows the target's noise."
        ),
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
        typer.Option("--repeats", min=1, help="Samples of each item. Default: 1, or 3 if the target is noisy."),
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
    """Return a run's config with overrides, for a command that measures the run's best skill. Overrides may change only
    the budget, the hardware and paths."""
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
    if provider_of(own.models.target_model).is_function:  # a program passed a function; name its file
        own = own.with_values({"env.agent": config.env.agent})
    if own.env.scoring.startswith(PASSED_IN):
        own = own.with_values({"env.scoring": config.env.scoring})
    if config.identity() != own.identity():
        raise UserError(f"{command}: overrides may change only the budget, the hardware and paths of the run's config")
    return config


@app.command()
def prune(
    run: RunArgument,
    overrides: Overrides = None,
    margin: Annotated[float, typer.Option("--margin", min=0, max=1, help="The maximum drop of the score.")] = 0.05,
    repeats: Annotated[
        int | None,
        typer.Option("--repeats", min=1, help="Samples of each item in the ablation. Default: 1, or 3 if noisy."),
    ] = None,
    trials: Annotated[
        int, typer.Option("--trials", min=1, max=12, help="The maximum number of shorter skills to try.")
    ] = 5,
    max_calls: Annotated[int | None, typer.Option("--max-calls", min=1, help="Stop after this many calls.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
) -> None:
    """Write a copy of the best skill without the rules that are worth nothing, if the copy is no worse. best_skill.md
    does not change.

    Exit codes: 0 pruned, or nothing to prune; 1 the last shorter skill that was tried is worse; 4 cannot tell; 2 and 3
    as for every command.
    """
    from skillopt.measure.prune import plan
    from skillopt.measure.prune import prune as run_pruning
    from skillopt.preflight.plan import is_deterministic
    from skillopt.record.directory import RunDirectory
    from skillopt.view.measured_tables import pruning_lines

    config, directory = config_of(run, overrides, max_calls, "prune"), RunDirectory(run)
    if dry_run:
        noisy = not is_deterministic(config, "target")
        most = plan(directory, config, noisy_target=noisy, repeats=repeats, trials=trials)
        print(
            f"Ablation: {most.rules} rules on {most.items} validation items, at most {most.ablation:,} rollouts.\n"
            f"Then at most {trials} shorter skills are compared with the best one, in at most about {most.trials:,} "
            "rollouts.\n"
            "Replies in the journal cost nothing. No call was made."
        )
        return
    result = measured(
        config,
        lambda heard: run_pruning(directory, config, margin=margin, repeats=repeats, trials=trials, listeners=[heard]),
    )
    show(result.verdict, *pruning_lines(result), f"Written: {result.path}")
    raise typer.Exit(result.exit_code)


@app.command()
def route(
    library: Annotated[Path, typer.Argument(metavar="SKILLS", help="Folder of Agent Skills packages.")],
    config: ConfigOption,
    overrides: Overrides = None,
    split: Annotated[str, typer.Option("--split", help="train, val or test.")] = "val",
    target_model: TargetOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the confusion matrix as JSON.")] = False,
) -> None:
    """Show which skill of a library an agent loads for which request. The config's tasks are requests; the answer to a
    request is the name of a skill, or `none`."""
    from skillopt.measure.routing import route as run_routing
    from skillopt.view.measured_tables import routing_lines, routing_table

    loaded = load_config(config, overrides, target_model)
    result = measured(loaded, lambda heard: run_routing(loaded, library, split=split, listeners=[heard]), quiet=as_json)
    if as_json:
        return print_json(result.model_copy(update={"path": None}))
    return show(result.verdict, *routing_table(result.confusion), *routing_lines(result), f"Written: {result.path}")


@app.command(rich_help_panel="Begin")
def probe(
    config: ConfigOption,
    overrides: Overrides = None,
    target_model: TargetOption = "",
    items: Annotated[int, typer.Option("--items", min=1, help="How many training tasks to try.")] = 12,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Samples of each task.")] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Print probe.json.")] = False,
) -> None:
    """Try a dozen training tasks, to see whether there is anything to learn for this target."""
    from skillopt.measure.probe import plan_probe
    from skillopt.measure.probe import probe as run_probe
    from skillopt.tasks import using_env
    from skillopt.training.initial import initial_of
    from skillopt.view.measured_tables import probe_lines, probe_plan_line

    loaded = load_config(config, overrides, target_model)
    skill = initial_of(loaded)
    with using_env(loaded) as env:
        print(
            probe_plan_line(plan_probe(loaded, env, skill, items=items, samples=samples)), file=sys.stderr, flush=True
        )
    result = measured(
        loaded, lambda heard: run_probe(loaded, skill, items=items, samples=samples, listeners=[heard]), quiet=as_json
    )
    if as_json:
        return print_json(result)
    return show(*probe_lines(result), f"Written: {result.path}")


@judge_app.command()
def calibrate(
    config: ConfigOption,
    graded: Annotated[
        Path, typer.Option("--graded", help="Answers with grades: question, output, grade (.jsonl, .json, .csv).")
    ],
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Output file. Default: judge_calibration.json next to the config.")
    ] = None,
    top: Annotated[float, typer.Option("--top", min=0.01, help="The highest grade that a person can give.")] = 1.0,
    repeats: Annotated[
        int, typer.Option("--repeats", min=2, max=20, help="How often the judge grades each answer.")
    ] = 3,
) -> None:
    """Let the judge grade answers that people have graded, and report the judge's agreement, biases and noise. Later
    trainings read the file that this command writes."""
    import asyncio

    from skillopt.config.tree import CALIBRATION
    from skillopt.errors import UserError
    from skillopt.measure.calibrate import calibrate as run_calibration
    from skillopt.view.measured_tables import calibration_lines

    target = out or config.parent / CALIBRATION
    if not target.parent.is_dir():
        raise UserError(f"--out: {target.parent} is not a folder; create this folder, or choose another path")
    loaded = load_config(config, [*(overrides or []), "models.judge_calibration="])
    record = asyncio.run(run_calibration(loaded, graded, target, top=top, repeats=repeats))
    show(record.verdict, *calibration_lines(record), f"Written: {target}")
