"""Proposals: how a run's best skill differs from the installed skill, what the training measured, and the sessions
behind each learned line."""

from __future__ import annotations

import difflib
import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from skillopt.errors import UserError
from skillopt.record.directory import RunDirectory
from skillopt.record.export import export
from skillopt.record.files import read_text
from skillopt.record.package import package_file
from skillopt.record.run import Run
from skillopt.record.summary import Summary
from skillopt.skill import FILE
from skillopt.skill.folder import read_folder
from skillopt.view.blame import blame_run
from skillopt.view.blame_lines import tasks_of
from skillopt.view.figures import total_usd
from skillopt_harvest.adopt import (
    LearnedLine,
    Proposal,
    ProposedFile,
    checksum,
    is_instructions,
    with_section,
    write_proposal,
)


def propose(run: RunDirectory, folder: Path, to: Path | None = None) -> Proposal:
    """Write the proposal of a finished run into `folder`. `to` is the installed skill; by default, it is the skill with
    which the run began."""
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder}: exists already; choose another folder")
    opened = Run(run)
    summary = opened.summary
    if summary is None or not run.best_skill.is_file():
        raise UserError(f"{run.root}: has no summary.json; let the training finish first")
    installed = to or _began_with(opened)
    target, texts = _proposed(run, installed)
    before = {path: _text(target / path) for path in texts}
    changed = {path: text for path, text in texts.items() if text != before[path]}
    if not changed:
        raise UserError(f"{installed}: is already the best skill of this run; there is nothing to propose")
    outcomes = opened.evaluations
    initial, best = (outcomes.get(f"test_{name}") for name in ("initial", "best"))
    scores = [{item: s.hard for item, s in each.items.items()} if each else {} for each in (initial, best)]
    fixed = tuple(item for item, score in scores[1].items() if score == 1 and scores[0].get(item, 1) < 1)
    broken = tuple(item for item, score in scores[1].items() if score < 1 and scores[0].get(item, 0) == 1)
    proposal = Proposal(
        run=run.root.name,
        target=_short(target),
        files=tuple(
            ProposedFile(path=path, before=checksum(target / path), after=hashlib.sha256(text.encode()).hexdigest())
            for path, text in sorted(changed.items())
        ),
        verdict=summary.verdict,
        outcome=summary.outcome,
        evidence=_evidence(summary),
        cost_usd=total_usd(summary),
        fixed=fixed,
        broken=broken,
        lines=tuple(_learned(opened)),
        unreviewed=opened.unreviewed,
    )
    diff = "".join(
        line
        for path, text in sorted(changed.items())
        for line in difflib.unified_diff(
            before[path].splitlines(keepends=True),
            text.splitlines(keepends=True),
            f"installed/{path}",
            f"proposed/{path}",
        )
    )
    write_proposal(folder, proposal, changed, _page(proposal, diff), diff)
    return proposal


def _began_with(run: Run) -> Path:
    path = Path(str(run.settings.get("train.init_skill") or ""))
    if not path.name or not path.exists() or path.name == "seed_skill.md":
        raise UserError(
            f"{run.root}: the run did not begin with an installed skill; use --to PATH to give the folder or file of "
            "the skill to change"
        )
    return path


def _proposed(run: RunDirectory, installed: Path) -> tuple[Path, dict[str, str]]:
    """Return the folder to change, and the new texts of its files."""
    installed = installed.expanduser().resolve()
    best = Run(run).best_skill.shown
    if installed.suffix == ".md" and installed.name != FILE and run.best_package.is_dir():
        more = sorted(str(path.relative_to(run.best_package)) for path in run.best_package.rglob("*") if path.is_file())
        more.remove(FILE)
        if more:
            others = ", ".join(more[:3])
            raise UserError(
                f"--to {installed}: is one file, but the run's skill has more files ({others}); give a skill's folder"
            )
    if is_instructions(installed):
        return installed.parent, {installed.name: with_section(_text(installed), best.text)}
    if installed.suffix == ".md" and installed.name != FILE:
        return installed.parent, {installed.name: best.text}
    target = installed.parent if installed.name == FILE else installed
    if not run.package.is_dir():
        file = package_file(target) if target.is_dir() else None
        front = read_folder(target).front if file else ""
        return target, {FILE: f"{front}{best.text}"}
    with tempfile.TemporaryDirectory() as draft:
        whole = Path(draft) / target.name
        try:
            paths = export(run, whole)
        except UserError as error:
            raise UserError(str(error).replace(str(whole), f"--to {target}")) from None
        return target, {
            path: read_text(whole / path)
            for path in paths
            if (whole / path).suffix in {".md", ".py", ".sh", ".txt", ".json", ".yaml"}
        }


def _text(path: Path) -> str:
    return read_text(path) if path.is_file() else ""


def _short(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _evidence(summary: Summary) -> str:
    gain = summary.gain.test or summary.gain.val
    if gain is None:
        return "no paired measurement"
    low, high = gain.interval or (0.0, 0.0)
    return (
        f"{gain.split}: {gain.before:.2f} → {gain.after:.2f} on {gain.tasks} tasks, paired "
        f"(95 % interval of the gain {low:+.2f} to {high:+.2f})"
    )


def _learned(run: Run) -> list[LearnedLine]:
    """Return the lines that training wrote, each with the tasks that led to it."""
    learned = [line for line in blame_run(run.files) if line.entry and line.text.strip()]
    entries = [line.entry for line in learned if line.entry]
    names = tasks_of(run, [trace for entry in entries for trace in entry.edit.trajectory_ids])
    return [
        LearnedLine(
            file=line.file,
            number=line.number,
            text=line.text,
            step=line.step,
            trajectories=tuple(line.entry.edit.trajectory_ids),
            tasks=tuple(dict.fromkeys(names[each] for each in line.entry.edit.trajectory_ids if each in names)),
        )
        for line in learned
        if line.entry
    ]


def _page(proposal: Proposal, diff: str) -> str:
    """Return the proposal as Markdown. Texts of tasks and skills are indented, so their Markdown is not rendered."""
    paid = "unknown" if proposal.cost_usd is None else f"{proposal.cost_usd:.2f} USD"
    lines = [f"# Proposal for {proposal.target}", "", f"Run {proposal.run}: {proposal.verdict}", ""]
    lines += [f"Evidence: {proposal.evidence}. Cost of the training: {paid}.", ""]
    lines += ["Some of the tasks were not reviewed by anybody.", ""] if proposal.unreviewed else []
    lines += _listed("Tasks that pass now", proposal.fixed) + _listed("Tasks that fail now", proposal.broken)
    lines += ["## Learned lines and the sessions behind them", ""]
    for line in proposal.lines:
        lines += [f"    {line.file}:{line.number}: {line.text}", *(f"        from {task}" for task in line.tasks[:8])]
    lines += ["", "## Difference", "", *(f"    {line}" for line in diff.splitlines())]
    return "\n".join(lines) + "\n"


def _listed(title: str, names: Sequence[str]) -> list[str]:
    return [f"## {title} ({len(names)})", "", *(f"    {name}" for name in names), ""] if names else []
