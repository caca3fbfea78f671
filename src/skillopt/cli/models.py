"""`skillopt models`: the weights of `local:` models on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skillopt.cli.app import app

if TYPE_CHECKING:
    from skillopt.models.weights import Progress, WeightsFile

models_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="List and fetch the weights of local models."
)
app.add_typer(models_app, name="models")

Name = Annotated[str, typer.Argument(help="A name that `skillopt models list` shows.", show_default=False)]


@models_app.command("list")
def list_models() -> None:
    """List the weights in the catalogue, and say which of them are on this machine."""
    from skillopt.models import weights

    width = max(map(len, weights.catalogue()))
    for item in weights.catalogue().values():
        typer.echo(f"{item.name.ljust(width)}  {_megabytes(item.bytes)}, {item.licence}. {item.title}")
        typer.echo(f"{' ' * width}  {_state(item)}")


@models_app.command()
def pull(name: Name) -> None:
    """Fetch weights into the cache; an interrupted fetch continues."""
    from skillopt.models import weights

    with show_progress(name) as progress:
        file = weights.pull(name, progress)
    typer.echo(str(file))


def fetch(name: str) -> Path:
    """Return the file of the weights. If this machine does not have it, fetch it and print the progress on standard
    error."""
    from skillopt.models import weights

    with show_progress(name) as progress:
        return weights.resolve(name, progress)


@contextmanager
def show_progress(name: str) -> Iterator[Progress]:
    """Yield a function that prints a line on standard error for each tenth of a download (if its size is unknown, for
    each 10 MB)."""
    started, shown = time.monotonic(), -1

    def progress(done: int, total: int, what: str) -> None:
        nonlocal shown
        if (part := 10 * done // total if total else done // 10_000_000) > shown:
            shown = part
            seconds = time.monotonic() - started
            size = f"{10 * part} %, {_megabytes(done)} of {_megabytes(total)}" if total else _megabytes(done)
            typer.echo(f"{name}: {size}, {seconds:.0f} s, {what}", err=True)

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
