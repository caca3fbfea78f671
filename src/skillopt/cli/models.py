"""`skillopt models`: the weights of `local:` models on this machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skillopt.cli.app import app
from skillopt.errors import UserError

if TYPE_CHECKING:
    from skillopt.models.weights import Progress, WeightsFile

models_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="List, fetch and check the weights of local models."
)
app.add_typer(models_app, name="models")

Name = Annotated[str, typer.Argument(help="A name that `skillopt models list` shows.", show_default=False)]


@models_app.command("list")
def list_models() -> None:
    """Show the weights that are known, and which of them are here."""
    from skillopt.models import weights

    width = max(map(len, weights.catalogue()))
    for item in weights.catalogue().values():
        typer.echo(f"{item.name.ljust(width)}  {_megabytes(item.bytes)}, {item.licence}. {item.title}")
        typer.echo(f"{' ' * width}  {_state(item)}")


@models_app.command()
def pull(name: Name) -> None:
    """Fetch weights into the cache; a fetch that broke off is continued."""
    from skillopt.models import weights

    with _progress(name) as progress:
        file = weights.pull(name, progress)
    typer.echo(str(file))


@models_app.command()
def path(name: Name) -> None:
    """Print where the file is."""
    from skillopt.models import weights

    typer.echo(str(weights.path(name)))


@models_app.command()
def verify(name: Annotated[str | None, typer.Argument(help="One name; without it, all that are here.")] = None) -> None:
    """Read files again and compare their SHA-256 with the catalogue's."""
    from skillopt.models import weights

    names = [name] if name else [known for known in weights.catalogue() if weights.find(known)]
    if not names:
        typer.echo("No weights are here yet; `skillopt models list` shows what there is.")
    wrong = 0
    for each in names:
        try:
            typer.echo(f"{each}: right, {weights.verify(each)}")
        except UserError as error:
            wrong += 1
            typer.echo(f"{each}: {error}", err=True)
    if wrong:
        raise typer.Exit(2)


def fetch(name: str) -> Path:
    """`weights.resolve` with progress on standard error; says nothing when the file is here already."""
    from skillopt.models import weights

    with _progress(name) as progress:
        return weights.resolve(name, progress)


def _progress(name: str) -> AbstractContextManager[Progress]:
    """A bar on a terminal, a line for each tenth elsewhere."""
    return _bar(name) if sys.stderr.isatty() else _lines(name)


@contextmanager
def _bar(name: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bar(TextColumn(name), *columns, TextColumn("{task.description}"), console=Console(stderr=True)) as bar:

        def progress(done: int, total: int, what: str) -> None:
            if not bar.tasks:
                bar.add_task(what, total=total)
            bar.update(bar.task_ids[0], completed=done, description=what)

        yield progress


@contextmanager
def _lines(name: str) -> Iterator[Progress]:
    started, shown = time.monotonic(), -1

    def progress(done: int, total: int, what: str) -> None:
        nonlocal shown
        if (tenth := 10 * done // total) > shown:
            shown = tenth
            seconds = time.monotonic() - started
            size = f"{_megabytes(done)} of {_megabytes(total)}"
            typer.echo(f"{name}: {10 * tenth} %, {size}, {seconds:.0f} s, {what}", err=True)

    yield progress


def _state(item: WeightsFile) -> str:
    from skillopt.models import weights

    found = weights.find(item.name)
    if found is not None:
        return str(found)
    partial = weights.partial(item)
    if partial.exists():
        percent = 100 * partial.stat().st_size // item.bytes
        return f"{percent} % is here; `skillopt models pull {item.name}` fetches the rest"
    return "not here"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
