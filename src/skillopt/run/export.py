"""From a run to an Agent Skills package that other agents can load."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skillopt.errors import UserError
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_json
from skillopt.run.package import whole_package
from skillopt.skill import Skill
from skillopt.skill.package import (
    Package,
    Reference,
    name_problem,
    one_line,
    plain_description,
    problems,
    quoted,
    split_body,
    suggested_name,
    without_markers,
)
from skillopt.version import __version__

_LONG = 500
"""Lines of a body from which the format's authors advise to split it."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What was written, and what its reader should know."""

    folder: Path
    files: tuple[str, ...]
    notes: tuple[str, ...]


def export(
    run: RunDirectory, to: Path, *, description: str = "", references: int | None = None, overwrite: bool = False
) -> Exported:
    """Write the run's best skill as a package into `to`, whose name is the package's.

    A run that began with a package gives that package with only the trained part changed. Any other package gets
    front matter that names its origin. With `references`, sections move to separate files while the body is longer than
    this number of tokens.
    """
    if not run.best_skill.is_file() or not run.config_json.is_file():
        raise UserError(f"{run.root}: is not a run's folder (it has no best_skill.md)")
    to = Path(to).absolute()
    if to.exists() and (not to.is_dir() or any(to.iterdir())) and not overwrite:
        raise UserError(f"{to}: exists already; choose another folder, or add --overwrite")
    skill, notes = run.read_best(), []
    base = whole_package(run.package) if run.package.is_dir() else Skill()
    package = _given_back(run, skill, base) if base.front else _fresh(run, skill, to.name, description)
    if base.front and description:
        raise UserError("--description: the run began with a package, whose front matter stays as it is")
    moved: list[Reference] = []
    if references is not None:
        body, moved = split_body(package.body, references)
        package = package.with_body(body)
        if moved:
            notes.append("The scores were measured with the skill in one piece; measure an agent that reads the parts.")
    elif package.body.count("\n") > _LONG:
        notes.append(f"The body has more than {_LONG} lines; --references 2000 would split it.")
    if found := problems(package, to.name):
        raise UserError(f"{to}: {found[0]}")
    others = (skill if skill.is_package else base).others
    if taken := [r.path for r in moved if r.path in others]:
        raise UserError(f"{taken[0]}: the package has a file of that name already; rename the section")
    others = {**others, **{reference.path: reference.text.encode() for reference in moved}}
    files = _write(to, Skill(package.body, package.front, others, base.executable))
    return Exported(folder=to, files=files, notes=tuple(notes))


def _given_back(run: RunDirectory, skill: Skill, base: Skill) -> Package:
    package = Package(base.front, base.text)
    if read_json(run.config_json)["env.name"] == "trigger":
        return package.with_description(plain_description(skill.text))
    return package.with_body(without_markers(skill.text))


def _fresh(run: RunDirectory, skill: Skill, name: str, description: str) -> Package:
    if problem := name_problem(name):
        raise UserError(f"--to: {problem}; '{suggested_name(name)}' is possible")
    summary, config = read_json(run.summary), read_json(run.config_json)
    description = one_line(description) or _described(summary, skill)
    metadata = {"generator": f"skillopt {__version__}", **_provenance(run, summary, config, skill)}
    lines = [f"name: {name}", f"description: {quoted(description)}", "metadata:"]
    lines += [f"  {key}: {quoted(str(value))}" for key, value in metadata.items()]
    body = without_markers(skill.text).lstrip("\n")
    return Package("---\n" + "\n".join(lines) + "\n---\n", f"\n{body}" if body.startswith("#") else body)


def _described(summary: dict[str, Any], skill: Skill) -> str:
    """What can be said without the author: the task's name, and the skill's own first sentence."""
    words = re.sub(r"[-_.]+", " ", summary["benchmark"]).strip()
    first = next((line for line in without_markers(skill.text).splitlines() if re.match(r"\s*[A-Za-z]", line)), "")
    return one_line(f"How to do {words} tasks. Use for {words} tasks and questions like them. {first}")[:1000]


def _provenance(run: RunDirectory, summary: dict[str, Any], config: dict[str, Any], skill: Skill) -> dict[str, Any]:
    best = summary["best"]
    scores = {f"score-{split}": f"{best[split]:.3f}" for split in ("val", "test") if best.get(split) is not None}
    return {
        "benchmark": summary["benchmark"],
        "run": run.root.name,
        "status": summary["status"],
        "target-model": config["models.target_model"],
        "optimizer-model": config["models.optimizer_model"],
        "metric": config["evaluation.metric"],
        **scores,
        "sha256": skill.hash,
    }


def _write(to: Path, skill: Skill) -> tuple[str, ...]:
    """Write everything to a temporary folder first, so that the name never has half a package."""
    draft = to.with_name(f".{to.name}.tmp")
    shutil.rmtree(draft, ignore_errors=True)
    skill.write_to(draft)
    if to.exists() and any(to.iterdir()):
        shutil.copytree(draft, to, dirs_exist_ok=True)
        shutil.rmtree(draft)
    else:
        if to.exists():
            to.rmdir()
        draft.replace(to)
    return tuple(sorted(skill.files))
