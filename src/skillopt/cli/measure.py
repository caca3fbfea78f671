"""Measuring skills: eval, compare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skillopt.cli.app import ConfigOption, Overrides, RunOption, TargetOption, app, fetch_weights, load_config
from skillopt.report.text import printable, ranged, score


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
    import asyncio

    from skillopt.core.initial import read_initial
    from skillopt.measure.compare import WORDS, find_skill
    from skillopt.measure.evaluate import evaluate as run_evaluation
    from skillopt.report.console import open_console, watching

    console = open_console()
    loaded = load_config(config, overrides, target_model)
    fetch_weights(loaded)
    found, path = find_skill(skill, loaded, None) if skill in WORDS else (read_initial(skill, "--skill"), Path(skill))
    with watching(console) as listener:
        work = run_evaluation(loaded, found, split=split, skill_path=path, listeners=[listener], out=out)
        summary = asyncio.run(work)
    console.print()
    console.print(printable(summary["verdict"]))
    console.print(f"hard {score(summary['hard'])}, soft {score(summary['soft'])} on {summary['items']} {split} items")
    if always := summary["majority"]:
        line = f"Always answering {always['answer']!r}: {ranged(always['score'], always['interval'])}"
        console.print(printable(line))
    if "test_reads" in summary:
        console.print(f"The test split has been read {summary['test_reads']} times for this skill's run.")
    console.print(f"Written: {summary['path']}")


@app.command()
def compare(
    a: Annotated[
        str, typer.Argument(metavar="A", help="Skill file, package's folder, or `initial` or `best` of a run.")
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The same; twice the same skill shows the target's noise.")],
    config: ConfigOption,
    overrides: Overrides = None,
    split: Annotated[str, typer.Option("--split", help="train, val or test.")] = "val",
    run: RunOption = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Samples of each item under each skill.")] = 1,
    target_model: TargetOption = "",
) -> None:
    """Two skills on the same items: a paired test, and the items that improved or regressed."""
    import asyncio

    from skillopt.measure.compare import compare as run_comparison
    from skillopt.measure.compare import find_skill
    from skillopt.report.comparison_table import comparison_lines, comparison_table
    from skillopt.report.console import open_console, watching

    console = open_console()
    loaded = load_config(config, overrides, target_model)
    fetch_weights(loaded)
    sides = [find_skill(name, loaded, run) for name in (a, b)]
    with watching(console) as listener:
        result = asyncio.run(run_comparison(loaded, *sides, split=split, repeats=repeats, listeners=[listener]))
    console.print()
    console.print(printable(result["verdict"]))
    console.print("\n".join(comparison_table(result)))
    for line in [*comparison_lines(result), f"Written: {result['path']}"]:
        console.print(printable(line))
