"""Checks that a training has what it needs: keys of its models, and its data."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from skillopt.errors import MissingKey, UserError

if TYPE_CHECKING:
    from skillopt.config import Config

LOCAL_TARGET = "local:qwen2.5-coder-0.5b"
LOCAL_OPTIMIZER = ("--optimizer_model", "local:qwen2.5-coder-1.5b", "gradient.analysts=[brief]")


def check_keys(config: Config, path: Path, overrides: Sequence[str]) -> None:
    """Without a key: the three ways to train, each as a command."""
    from skillopt.models import open_model
    from skillopt.provider_table import provider_of
    from skillopt.training.parts import roles_of, why_optimizer

    for role in roles_of(config):
        provider = provider_of(config.role(role).model)
        if provider.is_local or provider.is_function:
            continue
        try:
            open_model(role, config)
        except MissingKey as error:
            variable = config.role(role).key_name or provider.key_name
            why = [f"{sentence}."] if role == "optimizer" and (sentence := why_optimizer(config)) else []
            raise MissingKey("\n".join([str(error), *why, *_ways(config, path, overrides, variable)])) from None


def _ways(config: Config, path: Path, overrides: Sequence[str], variable: str) -> list[str]:
    from skillopt.provider_table import provider_of

    target = provider_of(config.models.target_model)
    keeps_target = target.is_local or target.is_function or target.runs_program or target.key_optional
    model = config.models.target_model if keeps_target else LOCAL_TARGET
    again = ["skillopt", "train", "--config", str(path), *overrides]
    on_cpu = [*again, "--target_model", model]
    return [
        "There are three ways to train:",
        f"  a key:          export {variable}=YOUR-KEY && {shlex.join(again)}",
        f"  a local model:  {shlex.join([*on_cpu, *LOCAL_OPTIMIZER])}",
        f"  a handoff:      {shlex.join([*on_cpu, '--optimizer_model', 'handoff'])}",
        "A handoff lets you or your coding agent answer the optimizer's requests (docs/handoff.md).",
    ]


def prepare_data(config: Config, *, yes: bool) -> Config:
    """The config with its data in place: a published benchmark's is read or fetched if it is not there."""
    if not config.env.split_dir or (Path(config.env.split_dir) / "train").is_dir():
        return config
    from skillopt.cli.models import show_progress
    from skillopt_benchmarks.sources import missing, prepare

    lack = missing(config.env)
    if lack is None:
        return config
    if lack.download and not yes:
        _ask(f"env.split_dir: '{config.env.split_dir}' has no train/ folder", lack.download, lack.command, lack.name)
    with show_progress(lack.name) as progress:
        counts = prepare(lack.name, lack.published, lack.out, progress, lack.kind)
    print(f"{lack.out}: {', '.join(f'{count} {split}' for split, count in counts.items())}", file=sys.stderr)
    return config.with_values({"env.split_dir": str(lack.out)})


def _ask(problem: str, download: str, command: str, name: str) -> None:
    """Ask on a terminal. Elsewhere, or if the answer is no, raise an error with the command to run."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        print(f"{problem}. `{command}` fetches {download}.", file=sys.stderr)
        if typer.confirm("Fetch it now?", default=True, err=True):
            return
    raise UserError(
        f"{problem}; run `{command}` (fetches {download}), or add --yes to this command, "
        f"or take configs/{name}/mini.yaml"
    )
