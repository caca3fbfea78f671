"""The command line: each command is a few lines that call a package below. The order here is the order in --help."""

from skillopt.cli import train, measure, check, look, letters, tasks, packages, serve  # noqa: F401, I001 - importing a module adds its commands
from skillopt.cli.app import app, main
from skillopt.cli.data import data_app
from skillopt.cli.models import models_app
from skillopt.cli.serve import sim_app

app.add_typer(sim_app, name="sim")
app.add_typer(models_app, name="models")
app.add_typer(data_app, name="data")

__all__ = ["main"]
