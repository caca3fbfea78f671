"""The user's tasks: init, split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skillopt.cli.app import OptimizerOption, TargetOption, app
from skillopt.report.text import printable

if TYPE_CHECKING:
    from skillopt.starter import Wish


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="The folder to write, such as my-task.")],
    source: Annotated[Path | None, typer.Option("--from", help="Your tasks: .jsonl, .json, .csv or .tsv.")] = None,
    question: Annotated[str, typer.Option(help="With --from: the column of the question.")] = "",
    answer: Annotated[str, typer.Option(help="With --from: the column of the answer.")] = "",
    scoring: Annotated[str, typer.Option(help="How answers are scored; see docs/your_data.md.")] = "",
    scorer: Annotated[bool, typer.Option("--scorer", help="Write a scorer.py to edit, and use it.")] = False,
    env: Annotated[bool, typer.Option("--env", help="Write a custom env (several turns, tools), not a file.")] = False,
    target_model: TargetOption = "",
    optimizer_model: OptimizerOption = "",
    interactive: Annotated[bool, typer.Option("--interactive", "-i", help="Ask for the choices.")] = False,
) -> None:
    """Write a folder that is ready to train; without --from, a demo with a model on your CPU."""
    from skillopt.starter import Wish, write_folder

    wish = Wish(
        source=source,
        question=question,
        answer=answer,
        target=target_model,
        optimizer=optimizer_model,
        scoring=scoring,
        scorer=scorer,
        env=env,
    )
    if interactive:
        wish = _asked(wish)
    for line in write_folder(folder, wish):
        print(printable(line))


def _asked(wish: Wish) -> Wish:
    """The same request with a person's answers; what was given as an option is not asked."""
    from dataclasses import replace

    from skillopt.envs.scoring import SCORERS
    from skillopt.starter import LOCAL

    if wish.source is None:
        file = typer.prompt("File with your tasks (.jsonl, .json, .csv; empty for the demo's)", "", show_default=False)
        wish = replace(wish, source=Path(file) if file else None)
    if wish.source is not None:
        from skillopt.envs.columns import read_task_file

        read = read_task_file(wish.source, question=wish.question, answer=wish.answer, answers=False)
        for line in read.lines():
            print(printable(line))
        typer.confirm("Is that right?", default=True, abort=True)
    if not wish.target:
        wish = replace(wish, target=typer.prompt("Model that does the tasks (provider:model)", LOCAL))
    if not wish.optimizer and not wish.target.startswith(("local:", "sim:")):
        wish = replace(wish, optimizer=typer.prompt("Model that writes the edits (provider:model)", "openai:gpt-4o"))
    if not wish.scoring and not wish.scorer:
        known = ", ".join([*SCORERS, "judge", "own (a scorer.py)"])
        chosen = typer.prompt(f"Scoring: {known}; empty to choose by the answers", "", show_default=False)
        wish = replace(wish, scorer=True) if chosen.startswith("own") else replace(wish, scoring=chosen)
    return wish


@app.command()
def split(
    file: Annotated[Path, typer.Argument(help="A file with tasks: .jsonl, .json, .csv or .tsv.")],
    ratios: Annotated[str, typer.Option(help="Shares of train, val and test.")] = "2:1:1",
    seed: Annotated[int, typer.Option(help="Another seed gives another division.")] = 0,
    extend: Annotated[bool, typer.Option("--extend", help="Distribute new tasks; all others stay.")] = False,
    renew: Annotated[bool, typer.Option("--renew", help="Divide everything again.")] = False,
) -> None:
    """Divide a file into train, val and test, and save the split next to it; shows the split if there is one."""
    from skillopt.envs.splits import describe, load_split, parse_ratios, split_path
    from skillopt.errors import UserError

    if extend and renew:
        raise typer.BadParameter("--extend and --renew exclude each other")
    try:
        train, val, test = (float(part) for part in ratios.split(":"))
    except ValueError:
        raise UserError(f"--ratios: '{ratios}' must be three numbers, such as 2:1:1") from None
    found = load_split(
        file,
        ratios=parse_ratios({"train": train, "val": val, "test": test}),
        seed=seed,
        answers=False,
        change="renew" if renew else "extend" if extend else "refuse",
    )
    for line in [*describe(found), f"Written: {split_path(file)}"]:
        print(printable(line))
