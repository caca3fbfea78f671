"""The commands `check`, which measures a skill, and `lint`, which reads a skill and calls no model."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skillopt.cli.app import (
    PROJECT_FILE,
    BaseOption,
    GithubOption,
    HeadOption,
    ProjectOption,
    TargetOption,
    app,
    load_config,
    measured,
    print_json,
    say,
)
from skillopt.errors import Damaged, DiskError, SkillOptError, UserError
from skillopt.keys import redact
from skillopt.view.text import printable

if TYPE_CHECKING:  # a command imports other packages when it runs, so --help is quick
    from skillopt.cli.skills import Found
    from skillopt.config import Config
    from skillopt.config.project import Settings
    from skillopt.measure.batch import CheckOutcome, Measure
    from skillopt.preflight.lint import Finding
    from skillopt.record.matrix import Matrix
    from skillopt.record.results import CheckResult

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SKILL] [section.key=value]...",
        help="The skill: a Markdown file, or the folder of a package, of a run or of several packages. Without it, the "
        f"skills that {PROJECT_FILE} lists. Then config keys to override.",
    ),
]


@app.command()
def check(
    words: Words = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="YAML config with tasks and target.")] = None,
    base: BaseOption = "none",
    head: HeadOption = "",
    margin: Annotated[
        float | None, typer.Option("--margin", min=0, max=1, help="The maximum drop of the score; 0.05 unless set.")
    ] = None,
    budget: Annotated[float | None, typer.Option("--budget", help="The maximum number of dollars per skill.")] = None,
    max_items: Annotated[
        int | None, typer.Option("--max-items", min=1, help="Measure at most this many items.")
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="train, val or test; val unless set.")] = None,
    target_model: TargetOption = "",
    targets: Annotated[
        str,
        typer.Option("--targets", help="Several targets, separated by commas; gives a matrix of skills and targets."),
    ] = "",
    watch: Annotated[
        Path | None,
        typer.Option(
            "--watch",
            help="Print only the changes since the matrix in this file, and write the new matrix to the file.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the matrix as JSON; with --watch, the changes.")
    ] = False,
    project: ProjectOption = Path(PROJECT_FILE),
    out: Annotated[Path | None, typer.Option("--out", help="Folder for summary.md, junit.xml and check.json.")] = None,
    github: GithubOption = False,
    skip_without_key: Annotated[
        bool, typer.Option("--skip-without-key", help="If the environment has no key, only lint, and say so.")
    ] = False,
) -> None:
    """Say whether a skill is better, no worse or worse than a base (another skill or none), and stop as soon as this is
    sure.

    Exit codes: 0 better or no worse, 1 worse, 4 cannot tell with these items; 2 and 3 as for every command. With
    --watch: 0 no cell of the matrix got worse, 1 a cell got worse.
    """
    from skillopt.cli.skills import divide, find_skills
    from skillopt.config.project import parse_settings
    from skillopt.measure.batch import exit_code, run_job

    options = {"config": str(config or ""), "margin": margin, "budget": budget, "max_items": max_items, "split": split}
    given = parse_settings(options, "--")
    named, overrides = divide(words)
    models = list(dict.fromkeys(name.strip() for name in targets.split(",") if name.strip())) or [target_model]
    if targets and not targets.strip(", "):
        raise UserError(f"--targets {targets!r}: has no model name; write one or more names, such as openai:a,openai:b")
    if targets and target_model:
        raise UserError("--targets and --target_model: both set the target; use only one of these options")
    quiet = watch is not None or as_json
    if quiet and base != "none":
        raise UserError(f"--base {base}: --watch and --json always compare with the empty skill; leave out --base")
    recorded = read_matrix(watch) if watch is not None else None
    with _never_worse():
        found = find_skills(named, project, base, head)
        jobs = [_job(one, given, project, model, overrides, bool(named), quiet) for one in found for model in models]
        with _commands_off(github):
            outcomes = [run_job(*job, always=bool(named), skip_without_key=skip_without_key) for job in jobs]
            if not quiet:
                _show(outcomes, several=len(models) > 1)
            _complain(outcomes)
        _write(outcomes, out, github)
        if watch is not None:
            raise typer.Exit(watch_matrix(outcomes, recorded, watch, as_json=as_json))
        if as_json or (len(models) > 1 and base == "none"):
            show_matrix(outcomes, as_json=as_json)
    raise typer.Exit(exit_code(outcomes))


@contextmanager
def _never_worse() -> Iterator[None]:
    """Make an unexpected error end with exit code 2, because code 1 means that the skill is worse."""
    try:
        yield
    except (SkillOptError, typer.Exit, *DiskError):
        raise
    except Exception:
        print(redact(traceback.format_exc()), end="", file=sys.stderr)
        raise typer.Exit(2) from None


def _job(
    found: Found, given: Settings, project: Path, target: str, overrides: Sequence[str], named: bool, quiet: bool
) -> tuple[CheckOutcome, Measure]:
    """Read the config of a skill and prepare the skill's measurement, before anything is paid for. If the skill will
    not be measured, the config is not read."""
    from skillopt.measure.batch import CheckOutcome
    from skillopt.measure.check import check as run_check
    from skillopt.measure.check_result import MARGIN, Question, SkillVersion
    from skillopt.preflight.lint import NOTHING, lint

    chosen = given.model_dump(exclude_defaults=True)
    settings = found.settings.model_copy(update=chosen)
    wanted = named or found.skill.skill.hash != found.base.skill.hash
    loaded = _config(found, settings, given, project, target, overrides) if wanted and not found.removed else None

    def measure() -> CheckResult:
        assert loaded is not None
        question = Question(
            skill=SkillVersion.of(found.skill),
            base=SkillVersion.of(found.base),
            margin=MARGIN if settings.margin is None else settings.margin,
            split=settings.split or "val",
            max_items=settings.max_items,
        )
        if not quiet:
            say(f"Check: {found.name} on {loaded.models.target_model}")
        return measured(loaded, lambda heard: run_check(loaded, question, listeners=[heard]), quiet=quiet)

    job = CheckOutcome(
        name=found.name,
        target=loaded.models.target_model if loaded else target,
        skill=found.skill,
        base=found.base,
        linted=NOTHING if found.removed else lint(found.skill),
        output_root=loaded.env.output_root if loaded else "",
    )
    return job, measure


def _config(
    found: Found, settings: Settings, given: Settings, project: Path, target: str, overrides: Sequence[str]
) -> Config:
    if not settings.config:
        raise UserError(
            f"{found.name}: there is no config for this skill; give a config with --config, or add the skill to "
            f"{PROJECT_FILE}"
        )
    path = Path(settings.config) if given.config else project.parent / settings.config
    spend = [f"budget.max_usd={settings.budget}"] if settings.budget is not None else []
    loaded = load_config(path, [*spend, *overrides], target)
    if loaded.env.name == "trigger":
        raise UserError(
            f"{path}: env.name: 'trigger' measures only the skill's description; give a config with tasks that the "
            "skill helps with"
        )
    return loaded


def _show(outcomes: Sequence[CheckOutcome], *, several: bool) -> None:
    from skillopt.view import check_lines

    for outcome in outcomes:
        print()
        say(*check_lines.outcome_lines(outcome))
        if outcome.result and not outcome.result.same_text:
            say(*check_lines.outcome_table(outcome.result), *check_lines.changed_lines(outcome.result))
            print(f"Written: {outcome.result.path}")
        if counts := outcome.linted.counts:
            print(f"Lint: {counts}; skillopt lint shows them.")
    if several:
        print()
        print("\n".join(check_lines.target_lines(outcomes)))


def _complain(outcomes: Sequence[CheckOutcome]) -> None:
    for outcome in outcomes:
        if outcome.status in {"error", "stopped"}:
            rest = "\nEverything paid for is kept; run the same command again to continue." * (outcome.code == 3)
            print(printable(redact(f"{outcome.status}: {outcome.name}: {outcome.sentence}{rest}")), file=sys.stderr)


def _write(outcomes: Sequence[CheckOutcome], out: Path | None, github: bool) -> None:
    from skillopt.record.files import write_atomic, write_json
    from skillopt.view.check_files import junit, of_outcome
    from skillopt.view.check_lines import summary

    notes = [note for outcome in outcomes for note in of_outcome(outcome)]
    page = redact(summary(outcomes))
    if out is not None:
        write_atomic(out / "summary.md", page)
        write_atomic(out / "junit.xml", redact(junit(outcomes)))
        rows = [
            {"skill": o.name, "status": o.status, "code": o.code, "says": o.sentence, "result": o.result}
            for o in outcomes
        ]
        write_json(out / "check.json", rows)
    if github:
        _to_github(notes, page)


def _to_github(notes: Sequence[Finding], page: str) -> None:
    from skillopt.view.check_files import github as commands

    for line in commands(notes):
        print(redact(line))
    if page and (file := os.environ.get("GITHUB_STEP_SUMMARY")):
        with Path(file).open("a", encoding="utf-8") as summary:
            summary.write(page)


@contextmanager
def _commands_off(github: bool) -> Iterator[None]:
    """In this block, GitHub's runner does not execute printed lines as commands, because a model's text may look like a
    command."""
    if not github:
        yield
        return
    token = os.urandom(16).hex()
    print(f"::stop-commands::{token}", flush=True)
    try:
        yield
    finally:
        print(f"::{token}::", flush=True)


def show_matrix(outcomes: Sequence[CheckOutcome], *, as_json: bool) -> None:
    from skillopt.measure.matrix import matrix_of
    from skillopt.view.check_lines import matrix_lines

    matrix = matrix_of(outcomes)
    if as_json:
        print_json(matrix)
    else:
        print("", *matrix_lines(matrix), sep="\n")


def read_matrix(file: Path) -> Matrix | None:
    """The matrix in the file that --watch names; None if the file does not exist yet."""
    from skillopt.record.matrix import Matrix
    from skillopt.record.run import read_record

    if file.is_dir():
        raise UserError(f"--watch: {file} is a folder; choose a file")
    try:
        return read_record(Matrix, file) if file.is_file() else None
    except Damaged:
        raise UserError(
            f"--watch: {file} was not written by `skillopt check`; remove the file, or choose another"
        ) from None


def watch_matrix(outcomes: Sequence[CheckOutcome], recorded: Matrix | None, file: Path, *, as_json: bool) -> int:
    """Print the cells whose word (`keep`, `prune`, `retire`, …) changed, and write the new matrix to the file. Return
    the exit code: 1 if a cell got worse; else 2 or 3 if a skill could not be measured; else 0."""
    from skillopt.measure.matrix import changes, matrix_of, merged
    from skillopt.record.files import write_json
    from skillopt.view.check_lines import change_line

    now = matrix_of(outcomes, recorded)
    changed = changes(recorded, now)
    write_json(file, merged(recorded, now))
    if as_json:
        print_json(now.model_copy(update={"cells": tuple(change.after for change in changed)}))
    else:
        for change in changed:
            say(redact(change_line(change)))
    measured = [outcome.result for outcome in outcomes if outcome.result and not outcome.result.same_text]
    if recorded and measured and not any(result.telemetry.paid.calls for result in measured):
        fix = 'for fresh samples, add "env.output_root=outputs/$(date +%F)"'
        print(f"note: every reply came from the journal, so nothing could change; {fix}", file=sys.stderr)
    if any(change.worse for change in changed):
        return 1
    return next((code for code in (2, 3) if code in {outcome.code for outcome in outcomes}), 0)


@app.command()
def lint(
    words: Words = None,
    base: BaseOption = "none",
    head: HeadOption = "",
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings, too.")] = False,
    project: ProjectOption = Path(PROJECT_FILE),
    as_json: Annotated[bool, typer.Option("--json", help="Print findings and token counts as JSON.")] = False,
    github: GithubOption = False,
) -> None:
    """Check the form, links, scripts, lines, phrases and tokens of a skill without calling a model.

    Exit codes: 0 no error, 1 an error (with --strict also a warning), 2 bad input.
    """
    from skillopt.cli.skills import divide, find_skills
    from skillopt.preflight.lint import lint as run_lint
    from skillopt.preflight.overlap import with_overlaps
    from skillopt.view.check_lines import finding_line, token_line

    named, _ = divide(words)
    found = [one for one in find_skills(named, project, base, head) if not one.removed]
    sources = {one.name: one.skill for one in found}
    found = found if named or base == "none" else [one for one in found if one.changed]
    linted = with_overlaps(sources, {one.name: run_lint(one.skill) for one in found})
    findings = [finding for own in linted.values() for finding in own.findings]
    with _commands_off(github):
        if as_json:
            print(json.dumps({name: asdict(own) for name, own in linted.items()}, indent=2))
        for name, own in {} if as_json else linted.items():
            say(f"{name}: {own.counts or 'nothing found'}")
            for finding in own.findings:
                say(redact(f"  {finding_line(finding)}"))
            print(f"  {token_line(own)}")
        if not linted and not as_json:
            print(f"No skill of {project} differs from {base}.")
    if github:
        _to_github(findings, "")
    levels = {"error", "warning"} if strict else {"error"}
    raise typer.Exit(int(any(finding.level in levels for finding in findings)))
