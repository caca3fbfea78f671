"""The commands init and split, for the user's tasks."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from skillopt.cli.app import OptimizerOption, TargetOption, app, say

_FORMATS = ".jsonl, .json, .csv, .tsv, .parquet, .arrow, promptfoo's .yaml, or hf:org/name"


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="The folder to write, such as my-task.")],
    source: Annotated[Path | None, typer.Option("--from", help=f"Your tasks: {_FORMATS}.")] = None,
    question: Annotated[
        str, typer.Option(help="With --from: the column of the question, or a path such as inputs.question.")
    ] = "",
    answer: Annotated[str, typer.Option(help="With --from: the column of the answer.")] = "",
    id_column: Annotated[str, typer.Option("--id", help="With --from: the column with the id of each task.")] = "",
    type_column: Annotated[
        str, typer.Option("--type", help="With --from: the column with the type of each task.")
    ] = "",
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="With --from: leave out rows that cannot be tasks, and name them.")
    ] = False,
    scoring: Annotated[str, typer.Option(help="How answers are scored; see docs/your_data.md.")] = "",
    scorer: Annotated[bool, typer.Option("--scorer", help="Write a scorer.py to edit, and use it.")] = False,
    env: Annotated[bool, typer.Option("--env", help="Write a custom env (several turns, tools), not tasks.")] = False,
    target_model: TargetOption = "",
    optimizer_model: OptimizerOption = "",
) -> None:
    """Write a folder that is ready to train (without --from: a demo with a model on your CPU)."""
    from skillopt.preflight.starter import InitOptions, write_folder
    from skillopt.view.console import this_command

    wish = InitOptions(
        source=source,
        question=question,
        answer=answer,
        id=id_column,
        type=type_column,
        skip_bad=skip_bad,
        target=target_model,
        optimizer=optimizer_model,
        scoring=scoring,
        scorer=scorer,
        env=env,
    )
    config = shlex.quote(str(folder / "config.yaml"))
    say(*write_folder(folder, wish), f"Now: {this_command()} train --config {config}")


@app.command()
def split(
    file: Annotated[Path, typer.Argument(help=f"A file with tasks: {_FORMATS}.")],
    ratios: Annotated[
        str, typer.Option(help="Shares of train, val and test. Default: the saved shares, or 2:1:1.")
    ] = "",
    seed: Annotated[int | None, typer.Option(help="The seed of the division. Default: the saved seed, or 0.")] = None,
    extend: Annotated[
        bool, typer.Option("--extend", help="Distribute the new tasks; all others stay in their splits.")
    ] = False,
    renew: Annotated[bool, typer.Option("--renew", help="Divide all tasks again.")] = False,
    question: Annotated[str, typer.Option(help="The column of the question, or a path such as inputs.question.")] = "",
    answer: Annotated[str, typer.Option(help="The column of the answer.")] = "",
    id_column: Annotated[str, typer.Option("--id", help="The column with the id of each task.")] = "",
    type_column: Annotated[str, typer.Option("--type", help="The column with the type of each task.")] = "",
) -> None:
    """Divide the tasks of a file into train, val and test, and save the split next to the file. If a split is saved
    already, show it."""
    from skillopt.errors import UserError
    from skillopt.tasks.base import SPLITS
    from skillopt.tasks.splits import RATIOS, describe, load_split, parse_ratios, recorded_shares, split_path

    if extend and renew:
        raise typer.BadParameter("--extend and --renew exclude each other")
    saved = recorded_shares(file)
    if saved and (ratios or seed is not None) and not extend and not renew:
        raise UserError(
            f"{split_path(file)}: the tasks are divided already; add --extend to distribute only the new tasks, or "
            "--renew to divide all tasks again (after that, do not compare test scores with earlier ones)"
        )
    shares, drawn = saved or (RATIOS, 0)
    try:
        train, val, test = map(float, ratios.split(":")) if ratios else (shares[name] for name in SPLITS)
    except ValueError:
        raise UserError(f"--ratios: '{ratios}' must be three numbers, such as 2:1:1") from None
    columns = {"question": question, "answers": answer, "id": id_column, "type": type_column}
    before = split_path(file).read_bytes() if saved else b""
    found = load_split(
        file,
        ratios=parse_ratios({"train": train, "val": val, "test": test}),
        seed=drawn if seed is None else seed,
        answers=False,
        change="renew" if renew else "extend" if extend else "refuse",
        columns={name: column for name, column in columns.items() if column},
    )
    same = saved and split_path(file).read_bytes() == before
    say(*describe(found), f"{'Unchanged' if same else 'Written'}: {split_path(file)}")
