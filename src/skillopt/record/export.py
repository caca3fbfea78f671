"""Exports a run's best skill as an Agent Skills package, which other agents can load."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from pydantic import JsonValue

from skillopt.errors import UserError
from skillopt.record.directory import RunDirectory
from skillopt.record.package import whole_package
from skillopt.record.run import Run, Settings
from skillopt.record.summary import Summary
from skillopt.skill import Skill
from skillopt.skill.package import Package, name_problem, one_line, plain_description, problems, quoted, suggested_name
from skillopt.version import __version__


def export(run: RunDirectory, to: Path, *, description: str = "", overwrite: bool = False) -> tuple[str, ...]:
    """Write the run's best skill as a package into the folder `to`, and return the paths of the written files. The
    folder's name becomes the package's name.

    If the run began with a package, only the trained part of that package changes. Else the new package gets front
    matter that says where the skill comes from.
    """
    if not run.best_skill.is_file() or not run.config_json.is_file():
        raise UserError(f"{run.root}: is not a run's folder (it has no best_skill.md)")
    to = Path(to).absolute()
    if to.resolve().is_relative_to(run.root.resolve()):
        raise UserError(f"{to}: is inside the run's folder, which export must not change; choose another folder")
    if to.exists() and not to.is_dir():
        raise UserError(f"{to}: is not a folder; choose another name")
    if to.exists() and any(to.iterdir()) and not overwrite:
        raise UserError(f"{to}: exists already; choose another folder, or add --overwrite")
    skill = Run(run).best_skill.shown
    base = whole_package(run.package) if run.package.is_dir() else Skill()
    package = _given_back(run, skill, base) if base.front else _fresh(run, skill, to.name, description)
    if base.front and description:
        raise UserError("--description: the run began with a package whose front matter is kept; leave out this option")
    if found := problems(package, to.name):
        raise UserError(f"{to}: {found[0]}")
    others = (skill if skill.is_package else base).others
    return _write(to, Skill(package.body, package.front, others, base.executable))


def _given_back(run: RunDirectory, skill: Skill, base: Skill) -> Package:
    package = Package(base.front, base.text)
    if Run(run).settings["env.name"] == "trigger":
        return package.with_description(plain_description(skill.text))
    return package.with_body(skill.text)


def _fresh(run: RunDirectory, skill: Skill, name: str, description: str) -> Package:
    if problem := name_problem(name):
        raise UserError(f"--to: {problem}; choose another name, such as '{suggested_name(name)}'")
    summary, settings = Run(run).summary, Run(run).settings
    if summary is None:
        raise UserError(f"{run.root}: has no summary.json yet; resume the run first")
    description = one_line(description) or _described(summary, skill)
    metadata = {"generator": f"skillopt {__version__}", **_provenance(run, summary, settings, skill)}
    lines = [f"name: {name}", f"description: {quoted(description)}", "metadata:"]
    lines += [f"  {key}: {quoted(str(value))}" for key, value in metadata.items()]
    body = skill.text.lstrip("\n")
    return Package("---\n" + "\n".join(lines) + "\n---\n", f"\n{body}" if body.startswith("#") else body)


def _described(summary: Summary, skill: Skill) -> str:
    """The default description: the task's name and the skill's first sentence."""
    words = re.sub(r"[-_.]+", " ", summary.benchmark).strip()
    first = next((line for line in skill.text.splitlines() if re.match(r"\s*[A-Za-z]", line)), "")
    return one_line(f"How to do {words} tasks. Use for {words} tasks and questions like them. {first}")[:1000]


def _provenance(run: RunDirectory, summary: Summary, settings: Settings, skill: Skill) -> dict[str, JsonValue]:
    best = {"val": summary.best.val, "test": summary.best.test}
    scores = {f"score-{split}": f"{score:.3f}" for split, score in best.items() if score is not None}
    return {
        "benchmark": summary.benchmark,
        "run": run.root.name,
        "status": summary.status,
        "target-model": settings["models.target_model"],
        "optimizer-model": settings["models.optimizer_model"],
        "metric": settings["evaluation.metric"],
        **scores,
        "sha256": skill.hash,
    }


def _write(to: Path, skill: Skill) -> tuple[str, ...]:
    """Write a skill's files. A new folder appears only when it is complete. In an existing folder, each file is
    replaced, and links are not followed."""
    place = to.resolve()
    for path in skill.files:
        _check_free(place, path)
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{place.name}.", suffix=".tmp", dir=place.parent) as draft:
        whole = skill.write_to(Path(draft) / place.name)
        if not place.exists() or not any(place.iterdir()):
            whole.replace(place)
        else:
            for path in skill.files:
                (place / path).parent.mkdir(parents=True, exist_ok=True)
                (whole / path).replace(place / path)
    return tuple(sorted(skill.files))


def _check_free(folder: Path, path: str) -> None:
    """Raise an error if the file at `path` cannot be written into the folder: because a folder on the way to the file
    exists as a link or file, or because the file exists as a folder."""
    above = [folder / part for part in Path(path).parents if part.name]
    if linked := next((part for part in above if part.is_symlink() or (part.exists() and not part.is_dir())), None):
        raise UserError(f"{linked}: is not a folder, but the package has a folder with this name; remove this file")
    if (folder / path).is_dir() and not (folder / path).is_symlink():
        raise UserError(f"{folder / path}: is a folder, but the package has a file with this name; remove this folder")
