"""Runs in a table, and the differences between two of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from skillopt.errors import UserError
from skillopt.measure.compare import skill_named
from skillopt.record.directory import RunDirectory, resolve_run
from skillopt.record.run import Run
from skillopt.skill import Skill
from skillopt.view.columns import table_lines
from skillopt.view.run_rows import RunRow, run_row
from skillopt.view.skill_diff import diff_skills
from skillopt.view.text import dollars, duration, score


def runs_table(rows: Sequence[RunRow], root: Path) -> list[str]:
    head = ("status", "steps", "accepted", "validation", "test", "calls", "cost", "time", "run")
    shown = []
    for row in rows:
        path = row.path.relative_to(root) if row.path.is_relative_to(root) and row.path != root else row.path
        steps = f"{row.steps}/{row.planned_steps}" if row.planned_steps else str(row.steps)
        scores = _change(row.initial_val, row.best_val), _change(row.initial_test, row.best_test)
        figures = (f"{row.calls:,}", dollars(row.usd), duration(row.seconds))
        shown.append((row.status, steps, str(row.accepted), *scores, *figures, str(path)))
    return table_lines(head, shown, left=(0, 8))


def _change(initial: float | None, best: float | None) -> str:
    return f"{score(initial)} → {score(best)}"


@dataclass(frozen=True)
class _Side:
    name: str
    skill: Skill
    run: RunDirectory | None
    """The run, if the user named a whole run; None if the user named one version of a run, a file or a package."""


def diff_report(a: str, b: str) -> list[str]:
    """The differences between two skills, line by line. For two runs, also the differences of their scores and
    configs."""
    if not b:
        newer = side_of(a)
        if newer.run is None:
            raise UserError(f"diff: '{a}' alone cannot be compared; give a second skill, or a run")
        older = side_of(f"{a}@0")
        return list(_skills(older, newer))
    older, newer = side_of(a), side_of(b)
    lines = list(_runs(older.run, newer.run)) if older.run and newer.run else []
    return [*lines, *_skills(older, newer)]


def side_of(name: str) -> _Side:
    """The skill that a person names: RUN, RUN@3, a file or a package's folder."""
    skill, path = skill_named(name)
    is_run = path != Path(name) and "@" not in name
    return _Side(name, skill, RunDirectory(resolve_run(Path(name))) if is_run else None)


def _skills(older: _Side, newer: _Side) -> Iterator[str]:
    yield f"--- {older.name} ({older.skill.tokens} tokens)"
    yield f"+++ {newer.name} ({newer.skill.tokens} tokens)"
    lines = diff_skills(older.skill, newer.skill)
    for line in lines:
        yield f"{line.mark} {line.text}".rstrip()
    if not lines:
        equal = older.skill.shown.hash == newer.skill.shown.hash
        yield "The skills are equal." if equal else "Only line ends or front matter differ."


def _runs(a: RunDirectory, b: RunDirectory) -> Iterator[str]:
    one, other = run_row(a), run_row(b)
    yield f"validation: {_change(one.initial_val, one.best_val)} | {_change(other.initial_val, other.best_val)}"
    yield f"test: {_change(one.initial_test, one.best_test)} | {_change(other.initial_test, other.best_test)}"
    configs = []
    for run in (a, b):
        with run.as_written():
            configs.append(Run(run).settings)
    for key in sorted(configs[0].keys() | configs[1].keys()):
        before, after = (config.get(key) for config in configs)
        if before != after:
            yield f"{key}: {before} | {after}"
