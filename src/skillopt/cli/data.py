"""`skillopt data`: fetches or generates the data of benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skillopt.cli.app import app
from skillopt.errors import UserError

data_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Fetch, convert or make the data of benchmarks."
)
app.add_typer(data_app, name="data")

GENERATED = ["alfworld", "textworld", "reasoning_gym"]


@data_app.command()
def prepare(
    name: Annotated[
        str, typer.Argument(help="A benchmark, such as searchqa; docs/benchmarks.md has all.", show_default=False)
    ],
    source: Annotated[Path | None, typer.Option("--from", help="Folder of the published files.")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder for train/, val/ and test/.")] = None,
    kind: Annotated[str, typer.Option(help="For bbh: the kind of tasks, such as navigate.")] = "",
    manifest: Annotated[
        Path | None,
        typer.Option(help='Which item is in which split: {"train": [ids], …}, or a folder with one file per split.'),
    ] = None,
) -> None:
    """Convert a published benchmark to a folder with train/, val/ and test/. Without --from, fetch the published files
    if this needs no account."""
    from skillopt.cli.models import show_progress
    from skillopt_benchmarks.sources import default_folder, published_folder
    from skillopt_benchmarks.sources import prepare as run

    _known(name, "prepare")
    folder = out or default_folder(name, kind)
    with show_progress(name) as progress:
        counts = run(name, source or published_folder(name, folder, kind), folder, progress, kind, manifest)
    typer.echo(f"{folder}: {', '.join(f'{count} {split}' for split, count in counts.items())}")
    typer.echo(f"Next: skillopt train --config configs/{name}/default.yaml env.split_dir={folder}")


@data_app.command()
def generate(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(GENERATED)}.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The folder for train/, val/ and test/.", show_default=False)],
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same tasks.")] = 0,
    train: Annotated[int, typer.Option(min=1, help="Training items.")] = 40,
    val: Annotated[int, typer.Option(min=1, help="Validation items.")] = 20,
    test: Annotated[int, typer.Option(min=1, help="Test items.")] = 40,
    families: Annotated[str, typer.Option(help="For reasoning_gym: task families, separated by commas.")] = "chain_sum",
    recipes: Annotated[
        bool, typer.Option(help="For games: write recipes, not files; each game is then made when it is played.")
    ] = False,
) -> None:
    """Generate tasks from a seed: games, or items of reasoning-gym's task families as JSON."""
    _known(name, "generate")
    sizes = {"train": train, "val": val, "test": test}
    if (out / "train" / "items.json").exists():
        raise UserError(f"--out: {out} already contains items; choose another folder, or remove this one")
    if name == "reasoning_gym":
        from skillopt_benchmarks.reasoning_gym import generate as make
        from skillopt_benchmarks.rows import write_splits

        counts = write_splits(out, make([name.strip() for name in families.split(",") if name.strip()], seed, sizes))
    else:
        import asyncio

        from skillopt_benchmarks.games import AlfWorldEnv, TextWorldEnv
        from skillopt_benchmarks.games.generate import generate as make_games

        {"alfworld": AlfWorldEnv, "textworld": TextWorldEnv}[name].require()
        counts = asyncio.run(make_games(name, sizes, seed, out, files=not recipes))
    typer.echo(f"{out}: {', '.join(f'{count} {split}' for split, count in counts.items())}")
    typer.echo(f"Next: skillopt train --config configs/{name}/default.yaml env.split_dir={out}")


def _known(name: str, what: str) -> None:
    from skillopt_benchmarks.sources import prepared

    names = {"prepare": prepared(), "generate": GENERATED}
    if name not in names[what]:
        other = "generate" if what == "prepare" else "prepare"
        hint = f" (use `skillopt data {other} {name}`)" if name in names[other] else ""
        raise UserError(f"data {what}: unknown name '{name}'{hint}; the known names are: {', '.join(names[what])}")
