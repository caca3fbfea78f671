"""Finds the initial skill of a training, and the run that belongs to a config, its tasks and its initial skill."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from pydantic import JsonValue

from skillopt.config import Config
from skillopt.config.identity import relevant
from skillopt.config.shipped import shipped
from skillopt.errors import Damaged, UserError
from skillopt.keys import refuse_secrets
from skillopt.record.comments import Comment, feedback_of
from skillopt.record.directory import RunDirectory, run_name, safe_name
from skillopt.record.events import NearestRun
from skillopt.record.files import digest
from skillopt.record.package import open_package, package_file, package_hash, read_skill
from skillopt.record.run import Run, Settings
from skillopt.record.run_key import EPOCHS, RunKey, sibling_runs
from skillopt.skill import FILE, Skill
from skillopt.tasks.base import Env, data_hash
from skillopt.training import prompts

Fingerprints: TypeAlias = Mapping[str, JsonValue]
"""Fingerprints of the analysts, gate, vetoes and schedule that a program passed in, by kind of part."""


def initial_of(config: Config) -> Skill:
    """The initial skill, which `train.init_skill` names. In the env `trigger`, the initial skill is only the
    description of the package that `train.init_skill` names."""
    skill = read_initial(config.train.init_skill)
    file = package_file(config.train.init_skill) if config.train.init_skill else None
    if config.env.name != "trigger":
        return skill
    if file is None:
        raise UserError("train.init_skill: is not a package; give the SKILL.md whose description is to be trained")
    if not config.env.options.get("package"):
        raise UserError("env.options.package is empty; set it to the package to train, or use --description")
    return Skill(open_package(file).description)


def read_initial(path: str, where: str = "train.init_skill") -> Skill:
    """Read the initial skill. If the path or the file is empty, the skill is empty. `where` is the config key that
    error messages name."""
    if not path:
        return Skill("")
    file = shipped(path)
    if not file.is_file() and not (file / FILE).is_file():
        why = f"has no {FILE}" if file.is_dir() else "does not exist"
        raise UserError(f"{where}: '{path}' {why}; give an existing file or package, or leave the key empty")
    try:
        skill = read_skill(file)
    except UnicodeDecodeError:
        raise UserError(f"{where}: '{path}' is not UTF-8 text") from None
    refuse_secrets(skill.text, f"{where}: '{path}'")
    return skill


def given_feedback(config: Config) -> list[Comment]:
    """People's comments on the earlier run that `gradient.feedback` names; empty if the key is empty."""
    if not config.gradient.feedback:
        return []
    path = Path(config.gradient.feedback)
    path = path / "comments.jsonl" if path.is_dir() else path.resolve()
    if not path.is_file():
        fix = "give the folder of a run that has comments, or leave the key empty"
        raise UserError(f"gradient.feedback: '{config.gradient.feedback}' has no comments.jsonl; {fix}")
    comments = feedback_of(path)
    refuse_secrets(" ".join(comment.text for comment in comments), f"gradient.feedback: '{path}'")
    return comments


def given_notes(config: Config) -> str:
    """The optimizer's notes from the earlier run that `train.init_notes` names; empty if the key is empty."""
    folder = config.train.init_notes
    if not folder:
        return ""
    try:
        state = Run.open(folder).state
    except (UserError, Damaged, OSError) as error:
        raise UserError(f"train.init_notes: {error}") from None
    if state is None or not state.memory:
        fix = "give a run that finished an epoch and had optimizer.use_meta_skill on, or leave train.init_notes empty"
        raise UserError(f"train.init_notes: '{folder}' has no notes; {fix}")
    refuse_secrets(state.memory, f"train.init_notes: '{folder}'")
    return state.memory


def initial_kind(path: str, skill: Skill) -> str:
    """The kind of an initial skill: `empty`, `pretrained` (its file is in a run's folder) or `seed` (any other)."""
    if not skill.shown.text.strip():
        return "empty"
    near = Path(path).resolve().parent
    trained = any((folder / "patch_log.jsonl").exists() for folder in (near, near.parent))
    return "pretrained" if trained else "seed"


def needs_baseline(skill: Skill) -> bool:
    """True if the score without a skill is worth measuring. An initial skill of one or two lines scores about the same
    as no skill."""
    return len(skill.files) > 1 or sum(bool(line.strip()) for line in skill.shown.text.splitlines()) > 2


def run_of(config: Config, env: Env, initial_skill: Skill) -> RunDirectory:
    """The run of this config, data and initial skill; its folder may be empty or missing."""
    key = run_key(config, env, initial_skill)
    return key.find() or key.new()


def run_key(config: Config, env: Env, initial_skill: Skill, passed_in: Fingerprints | None = None) -> RunKey:
    """The key that identifies the runs of one config, its tasks, its initial skill and the parts that a program passed
    in."""
    identity: dict[str, JsonValue] = {"data": data_hash(env), "initial_skill": Skill(initial_skill.text).hash}
    if config.gradient.prompts_dir:
        identity["prompts"] = prompts.fingerprint(config.gradient.prompts_dir)
    if comments := given_feedback(config):
        identity["feedback"] = digest([comment.model_dump(mode="json", exclude={"when"}) for comment in comments])
    if notes := given_notes(config):
        identity["notes"] = digest(notes)
    if passed_in:
        identity["parts"] = dict(passed_in)
    if package := package_hash(config.train.init_skill):
        identity["package"] = package
    elif initial_skill.is_package:
        identity["package"] = initial_skill.hash
    settings = config.identity()
    without_epochs = {key: value for key, value in settings.items() if key != EPOCHS}
    return RunKey(
        folder=Path(config.env.output_root) / safe_name(env.name),
        name=run_name(config.train.seed, {"config": without_epochs, **identity}),
        old_name=run_name(config.train.seed, {"config": settings, **identity}),
        epochs=config.train.num_epochs,
    )


def recorded_settings(run: RunDirectory) -> Settings:
    """The flat config of a run, even if the run stopped early; empty if the config cannot be read."""
    try:
        return Run(run).settings
    except (OSError, Damaged):
        return {}


def differences(run: RunDirectory, config: Config) -> NearestRun | None:
    """The other run of this benchmark whose settings are most similar, with the settings that differ; None if there is
    no other run."""
    ours, nearest = relevant(config.flat()), None
    for other in sibling_runs(run):
        recorded = recorded_settings(other)
        if other.root != run.root and recorded:
            its = relevant(recorded)
            changed = {key: (its[key], ours[key]) for key in sorted(ours.keys() & its.keys()) if its[key] != ours[key]}
            row = (-len(changed), other.config_json.stat().st_mtime, other.root.name, changed)
            nearest = max(nearest or row, row, key=lambda each: each[:3])
    return NearestRun(run=nearest[2], settings=nearest[3]) if nearest else None
