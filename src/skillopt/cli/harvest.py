"""The commands harvest, propose and adopt: collect tasks from sessions, and install the skill of a run."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from skillopt.cli.app import OptimizerOption, RunArgument, app, say

harvest_app = typer.Typer(rich_markup_mode=None)
app.add_typer(harvest_app, name="harvest")
Folder = Annotated[Path, typer.Option("--to", help="The harvest's folder.")]


@harvest_app.callback(invoke_without_command=True)
def harvest(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Option(
            "--source", help="What to read: claude-code, codex, opencode, gemini-cli, copilot-cli, cursor, plain, …"
        ),
    ] = "",
    path: Annotated[
        Path | None, typer.Option("--from", help="Read this file or folder, not the agent's usual folder.")
    ] = None,
    to: Folder = Path("harvest"),
    project: Annotated[Path | None, typer.Option("--project", help="Only sessions in this folder or below it.")] = None,
    since: Annotated[
        str,
        typer.Option(
            "--since", help="Only files that changed since 30d (30 days ago), 2026-01-31, or last (the last harvest)."
        ),
    ] = "",
    headless: Annotated[
        bool, typer.Option("--headless", help="Also read headless runs, which nobody watched.")
    ] = False,
    subagents: Annotated[bool, typer.Option("--subagents", help="Also read runs of sub-agents.")] = False,
    local: Annotated[bool, typer.Option("--local", help="Refuse a model that is not on this machine.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the files that would be read.")] = False,
    optimizer_model: OptimizerOption = "",
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="section.key=value", help="Set a config key of the model or the budget."),
    ] = None,
) -> None:
    """Find tasks in sessions with coding agents, in traces and in evals."""
    if context.invoked_subcommand:
        return
    from skillopt_harvest.collect import selected_files
    from skillopt_harvest.harvest import HarvestFolder, mining_config, selections
    from skillopt_harvest.harvest import harvest as collect
    from skillopt_harvest.records import SourceSelection

    folder = HarvestFolder(to)
    named = SourceSelection(source=source, path=path, project=project, headless=headless, subagents=subagents)
    chosen = selections(folder, named, since)
    if not source and not optimizer_model and folder.tasks.exists():
        optimizer_model = folder.read_tasks().miner.removeprefix("heuristic")
    config = mining_config(optimizer_model, overrides or [], local=local)
    if dry_run:
        files = [file for selection in chosen for file in selected_files(selection)]
        for file in files:
            say(str(file))
        size = sum(file.stat().st_size for file in files)
        print(f"{len(files)} files, {size / 1e6:.1f} MB; nothing was read.")
        return
    for selection in chosen:
        for line in collect(to, selection, config=config).lines():
            say(line if source else f"{selection.source}: {line}")
    weekly = shlex.join(["skillopt", "harvest", "--to", str(to.resolve()), "--since", "last"])
    say(f"Now: skillopt harvest review {shlex.quote(str(to))}")
    say(f"To add new tasks every Monday, put this into `crontab -e`: 0 8 * * 1 {weekly}")


@harvest_app.command("review")
def review_harvest(
    folder: Annotated[Path, typer.Argument(help="The harvest's folder.")] = Path("harvest"),
    keep: Annotated[
        list[str] | None, typer.Option("--keep", metavar="ID", help="Keep a task; the ID `rules` keeps all rules.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option("--drop", metavar="ID", help="Drop a task.")] = None,
    edit: Annotated[
        list[str] | None,
        typer.Option(
            "--edit",
            metavar="ID.FIELD=TEXT",
            help="Change a task: its rule, its instruction, or its check (by the check's kind).",
        ),
    ] = None,
    merge: Annotated[
        list[str] | None, typer.Option("--merge", metavar="ID=INTO", help="Merge the task ID into the task INTO.")
    ] = None,
    skill: Annotated[
        Path | None, typer.Option("--skill", help="The skill to train if the sessions loaded none.")
    ] = None,
    unreviewed: Annotated[bool, typer.Option("--unreviewed", help="Also use rules that nobody decided on.")] = False,
) -> None:
    """Keep, edit, drop and merge tasks; then write the tasks file. Without options, the command asks about each
    undecided task if it runs on a terminal; otherwise, it lists the tasks."""
    from skillopt_harvest.dialog import decisions_of, review_dialog
    from skillopt_harvest.review import decide, finish, list_tasks, review_lines

    for decision in decisions_of(folder, keep or [], drop or [], edit or [], merge or []):
        decide(folder, decision)
    scripted = bool(keep or drop or edit or merge or unreviewed)
    if not scripted and sys.stdin.isatty() and sys.stdout.isatty():
        review_dialog(folder, say, input)
    say(*review_lines(list_tasks(folder)))
    for file in finish(folder, skill=skill, unreviewed=unreviewed):
        say(f"{file.path}: {file.tasks} tasks; {'; '.join(file.split)}")
        say(f"Now: skillopt train --config {shlex.quote(str(file.config))} --target_model … --optimizer_model …")


@app.command()
def propose(
    run: RunArgument,
    out: Annotated[Path, typer.Option("--out", help="The proposal's folder.")] = Path("proposal"),
    to: Annotated[
        Path | None, typer.Option("--to", help="The installed skill: a package, a file, AGENTS.md or CLAUDE.md.")
    ] = None,
) -> None:
    """Write a proposal: a run's best skill, the installed skill, their difference, and the evidence and sessions behind
    each line."""
    from skillopt.record.directory import RunDirectory
    from skillopt_harvest.propose import propose as write

    proposal = write(RunDirectory(run), out, to)
    say(proposal.verdict)
    say(f"{proposal.target}: {len(proposal.files)} files change, {len(proposal.lines)} learned lines.")
    say(f"Read {out / 'proposal.md'}, then: skillopt adopt {shlex.quote(str(out))}")


@app.command()
def adopt(
    proposal: Annotated[Path, typer.Argument(help="The proposal's folder.")],
    undo: Annotated[bool, typer.Option("--undo", help="Put the old files back.")] = False,
) -> None:
    """Install a proposed skill, unless the installed skill has changed since the proposal."""
    from skillopt_harvest import adopt as adoption

    for path in adoption.undo(proposal) if undo else adoption.adopt(proposal):
        say(f"{'Restored' if undo else 'Written'}: {path}")
    if not undo:
        say(f"Take it back: skillopt adopt {shlex.quote(str(proposal))} --undo")
