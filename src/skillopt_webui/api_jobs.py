"""Answers the page's requests about commands: starts evaluations and comparisons, and shows the state of every started
command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from skillopt.errors import UserError
from skillopt.record.base import Record
from skillopt.record.files import write_atomic
from skillopt.record.run import Run
from skillopt.skill import FILE, Skill
from skillopt.skill.folder import write_folder
from skillopt.tasks.base import SPLITS
from skillopt.view.diagnosis import paid_now
from skillopt.view.runs_table import side_of
from skillopt.view.skill_diff import whole_text
from skillopt_webui import forms, view
from skillopt_webui.allowed import check_allowed, run_config, with_outputs
from skillopt_webui.answers import Body, Call, Routes, number
from skillopt_webui.items import run_items
from skillopt_webui.launch import LaunchStatus, quoted
from skillopt_webui.places import find_config, find_file, find_run, shown
from skillopt_webui.settings import PageSettings

routes = Routes()


class LaunchPage(Record):
    launches: list[LaunchStatus]


class SkillFiles(Record):
    files: list[str]


class ChosenSkill(Body):
    """A skill: a version of a run's skill, or a file."""

    run: str | None = None
    version: int | str = "best"
    file: str | None = None


class MeasureBody(Body):
    """A measurement to start, with the tasks and the target of a config file or a run."""

    split: str = "val"
    config: str = ""
    run: str = ""


class EvaluateBody(MeasureBody):
    skill: ChosenSkill | None = None


class DiffBody(Body):
    a: ChosenSkill | None = None
    b: ChosenSkill | None = None


class CompareBody(DiffBody, MeasureBody):
    repeats: Annotated[int, Field(ge=1, le=30)] = 1


@routes.read("/api/launches")
def launches(call: Call[Body]) -> LaunchPage:
    """The measurements that are running, then those that failed; in both groups, the newest is first. Successful
    measurements are in the list of results."""
    every = [launch.status(call.settings) for launch in call.server.launches.all()]
    shown = [status for status in every if status.kind != "train" and status.code != 0]
    return LaunchPage(launches=sorted(shown, key=lambda status: status.state != "running"))


@routes.read("/api/launches/{id}")
def one(call: Call[Body]) -> LaunchStatus:
    return call.server.launches.get(call.args["id"]).status(call.settings)


@routes.change("/api/launches/{id}/stop", Body)
def stop(call: Call[Body]) -> LaunchStatus:
    launch = call.server.launches.get(call.args["id"])
    call.server.launches.stop(launch)
    return launch.status(call.settings)


@routes.read("/api/skills")
def skills(call: Call[Body]) -> SkillFiles:
    """The skill files under the data folders, without the skill files of runs."""
    return SkillFiles(files=_skill_files(call.settings))


def _skill_files(settings: PageSettings) -> list[str]:
    found = []
    for folder in settings.data:
        for path in sorted(folder.glob("data/**/*.md")) + sorted(folder.glob("*skill*.md")):
            if path.name != "README.md" and not any(part.startswith(".") for part in path.parts[len(folder.parts) :]):
                found.append(shown(settings, path))
    return found


@routes.change("/api/evaluate", EvaluateBody)
def evaluate(call: Call[EvaluateBody]) -> LaunchStatus:
    """Start the measurement of a skill on a split."""
    skill, name = _skill(call.settings, call.wish.skill)
    return _measure(call, "eval", name, ["--skill", skill])


@routes.change("/api/compare", CompareBody)
def compare(call: Call[CompareBody]) -> LaunchStatus:
    """Start a comparison of two skills on the same items."""
    (a, a_name), (b, b_name) = (_skill(call.settings, side) for side in (call.wish.a, call.wish.b))
    return _measure(call, "compare", f"{a_name} against {b_name}", [a, b, "--repeats", str(call.wish.repeats)])


class TryBody(Body):
    """A request to change one line in a version of a run's skill. The changed skill is compared with this version on
    the items that the version fails."""

    run: str
    version: int
    file: str = FILE
    """The name of the skill's file that contains the line."""
    line: Annotated[int, Field(ge=1)]
    text: str
    """The new text of the line; it may have several lines."""
    split: Literal["train", "val"] = "train"
    start: bool = False
    """If true, start the measurement; if false, only return its cost."""


class TrialCost(Record):
    items: int
    rollouts: int
    usd: float | None
    """The estimated cost in dollars, calculated from the cost of the run's rollouts; None if a price is unknown."""
    launch: LaunchStatus | None = None


@routes.change("/api/try", TryBody)
def try_text(call: Call[TryBody]) -> TrialCost:
    """Compare an edited skill with the version that it was made from. Without `start`, only return the cost."""
    wish, run = call.wish, find_run(call.settings, call.wish.run)
    failing = _failing(run, wish.version, wish.split)
    paid = paid_now(run).target
    rollouts = 2 * len(failing)
    usd = None if paid.usd is None or not paid.rollouts else rollouts * paid.usd / paid.rollouts
    trial = TrialCost(items=len(failing), rollouts=rollouts, usd=usd)
    if not wish.start or not failing:
        return trial
    edited = _edited(run.skill(wish.version).shown, wish)
    path = call.settings.records / "skills" / f"edited_v{wish.version}_{edited.hash[:8]}"
    base = str(run.files.snapshot(wish.version))
    if not run.files.trains_package:
        path = path.with_suffix(".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, edited.text)
    else:
        base = f"{run.root}@{wish.version}"
        if not path.exists():
            write_folder(edited, path)
    yaml, overrides = run_config(run, call.settings), [f"env.output_root={quoted(str(run.root.parent.parent))}"]
    arguments = [base, str(path), *overrides, "--split", wish.split, "--items", ",".join(failing)]
    title = f"edit of {run.root.name} v{wish.version} on {len(failing)} failing items"
    launched = call.server.launches.start("compare", title, yaml, arguments).status(call.settings)
    return trial.model_copy(update={"launch": launched})


def _edited(skill: Skill, wish: TryBody) -> Skill:
    lines = (skill.read(wish.file) or "").split("\n")
    if wish.line > len(lines):
        raise UserError(f"{wish.file}: version {wish.version} has no line {wish.line}")
    return skill.with_file(wish.file, "\n".join([*lines[: wish.line - 1], wish.text, *lines[wish.line :]]))


def _failing(run: Run, version: int, split: str) -> list[str]:
    """The items of a split that scored below one half with this version. If an item was not measured with this version,
    its score with the newest earlier version counts."""
    table = run_items(run)
    name = f"v{version}"
    upto = table.columns.index(name) + 1 if name in table.columns else 0
    rows = [row for row in table.rows if row.split == split]
    measured = {row.item: [score for score in row.scores[:upto] if score is not None] for row in rows}
    return [item for item, scores in measured.items() if scores and scores[-1] < 0.5]


@routes.change("/api/diff", DiffBody)
def diff(call: Call[DiffBody]) -> view.Diff:
    """The differences between two skills, for a side-by-side view."""
    a, b = (_skill(call.settings, side)[0] for side in (call.wish.a, call.wish.b))
    return view.diff(whole_text(side_of(a).skill), whole_text(side_of(b).skill))


def _measure(
    call: Call[EvaluateBody] | Call[CompareBody], kind: Literal["eval", "compare"], title: str, arguments: list[str]
) -> LaunchStatus:
    split = call.wish.split
    if split not in SPLITS:
        raise UserError(f"split: must be one of {', '.join(SPLITS)}")
    yaml, overrides = _config(call.settings, call.wish)
    arguments = [*arguments, *overrides, "--split", split]
    return call.server.launches.start(kind, f"{title} on {split}", yaml, arguments).status(call.settings)


def _skill(settings: PageSettings, chosen: ChosenSkill | None) -> tuple[str, str]:
    """A skill as an argument of a command, and its name for people. The argument is a file, a package's folder, or
    `RUN@3` for version 3 of a run's package."""
    if chosen and chosen.run is not None:
        run, version = find_run(settings, chosen.run), chosen.version
        files = run.files
        path = files.best_skill if version == "best" else files.snapshot(number(str(version)))
        if not path.is_file():
            raise UserError(f"{chosen.run}: has no version {version}")
        if files.trains_package:
            path = files.best_package if version == "best" else Path(f"{run.root}@{version}")
        return str(path), f"{run.root.name} {'best' if version == 'best' else f'v{version}'}"
    if chosen and chosen.file is not None:
        path = find_file(settings, chosen.file, what="skill")
        if path.suffix != ".md":
            raise UserError(f"{chosen.file}: is not a skill; choose a .md file")
        return str(path), Path(chosen.file).name
    raise UserError("no skill was chosen; choose one")


def _config(settings: PageSettings, wish: MeasureBody) -> tuple[str, list[str]]:
    """The text of the config of a file or a run, and an override that stores the results below an output folder."""
    if wish.run:
        run = find_run(settings, wish.run)
        return run_config(run, settings), [f"env.output_root={quoted(str(run.root.parent.parent))}"]
    path = find_config(settings, wish.config)
    yaml = forms.load(path, settings)
    check_allowed(with_outputs(forms.parse(yaml), settings.outputs[0]), settings)
    return yaml, [f"env.output_root={quoted(str(settings.outputs[0]))}"]
