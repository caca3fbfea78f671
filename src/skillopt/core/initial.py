"""The skill that a training starts from, and the run that it makes with this config and data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skillopt import prompts
from skillopt.config import Config
from skillopt.config.config import defaults
from skillopt.config.identity import name_giving
from skillopt.envs.base import Env, data_hash
from skillopt.errors import UserError
from skillopt.keys import refuse_secrets
from skillopt.run.comments import Comment, feedback_of
from skillopt.run.directory import RunDirectory, find_run, run_name
from skillopt.run.files import digest, read_json
from skillopt.run.package import open_package, package_file, package_hash, read_skill
from skillopt.shipped import shipped
from skillopt.skill import FILE, Skill


def initial_of(config: Config) -> Skill:
    """The skill that a training starts from: the file's, or where the trigger is trained, its package's description."""
    skill = read_initial(config.train.init_skill)
    file = package_file(config.train.init_skill) if config.train.init_skill else None
    if config.env.name != "trigger":
        return skill
    if file is None:
        raise UserError("train.init_skill: a description is trained in its package; name the package's SKILL.md")
    return Skill(open_package(file).description)


def read_initial(path: str, where: str = "train.init_skill") -> Skill:
    """The skill to start from; an empty path or an empty file is an empty skill. `where` is named in errors."""
    if not path:
        return Skill("")
    file = shipped(path)
    if not file.is_file() and not (file / FILE).is_file():
        why = f"has no {FILE}" if file.is_dir() else "does not exist"
        raise UserError(f"{where}: '{path}' {why}; give an existing file or package, or leave it empty")
    try:
        skill = read_skill(file)
    except UnicodeDecodeError:
        raise UserError(f"{where}: '{path}' is not UTF-8 text") from None
    refuse_secrets(skill.text, f"{where}: '{path}'")
    return skill


def given_feedback(config: Config) -> list[Comment]:
    """Comments on an earlier run that this one is given."""
    if not config.gradient.feedback:
        return []
    path = Path(config.gradient.feedback)
    path = path / "comments.jsonl" if path.is_dir() else path
    if not path.is_file():
        raise UserError(f"gradient.feedback: '{config.gradient.feedback}' has no comments.jsonl; name a run's folder")
    found = feedback_of(path)
    refuse_secrets(" ".join(comment.text for comment in found), f"gradient.feedback: '{path}'")
    return found


def initial_kind(path: str, skill: Skill) -> str:
    """empty; pretrained (it is in a run's folder); or seed."""
    if not skill.text.strip():
        return "empty"
    near = Path(path).resolve().parent
    trained = any((folder / "patch_log.jsonl").exists() for folder in (near, near.parent))
    return "pretrained" if trained else "seed"


def needs_baseline(skill: Skill) -> bool:
    """Is the empty skill worth measuring next to this one? A line or two are about as good as none."""
    return len(skill.files) > 1 or sum(bool(line.strip()) for line in skill.text.splitlines()) > 2


def run_of(
    config: Config, env: Env, initial_skill: Skill, *, fresh: bool = False, passed_in: Mapping[str, Any] | None = None
) -> RunDirectory:
    """The run that this config, data and initial skill make, with the fingerprints of parts that were passed in; there
    may be nothing in it yet."""
    identity: dict[str, Any] = {"data": data_hash(env), "initial_skill": Skill(initial_skill.text).hash}
    if config.gradient.prompts_dir:
        identity["prompts"] = prompts.fingerprint(config.gradient.prompts_dir)
    if comments := given_feedback(config):
        identity["feedback"] = digest([comment.model_dump(mode="json", exclude={"when"}) for comment in comments])
    if passed_in:
        identity["parts"] = dict(passed_in)
    if package := package_hash(config.train.init_skill):
        identity["package"] = package
    elif initial_skill.is_package:
        identity["package"] = initial_skill.hash
    name = run_name(config.train.seed, {"config": config.identity(), **identity})
    run = find_run(config.env.output_root, env.name, name, fresh=fresh)
    if fresh or run.state.exists():
        return run
    former = getattr(env, "former_fingerprint", None)
    before = identity if former is None else {**identity, "data": data_hash(env, former)}
    return _earlier_run(config, run.root.parent, before) or run


def _earlier_run(config: Config, folder: Path, identity: Mapping[str, Any]) -> RunDirectory | None:
    """The newest run of an earlier version that these settings made; its name follows that version's rule."""
    found = []
    for run in map(RunDirectory, folder.glob(f"seed{config.train.seed}-*")):
        recorded, version = recorded_config(run)
        if version and config.carried_over(recorded, version) is not None:
            named = name_giving(recorded, version, defaults())
            if run.root.name.startswith(run_name(config.train.seed, {"config": named, **identity})):
                found.append(run)
    return max(found, key=lambda run: run.state.stat().st_mtime, default=None)


def recorded_settings(run: RunDirectory) -> dict[str, Any]:
    """The flat config of a run, however early it stopped; empty where none is readable."""
    try:
        return dict(read_json(run.config_json))
    except (OSError, ValueError, TypeError):
        return {}


def recorded_config(run: RunDirectory) -> tuple[dict[str, Any], str]:
    """The flat config that a run was trained under, and the version that began it; empty where none is readable."""
    try:
        return dict(read_json(run.config_json)), str(read_json(run.state)["pins"]["skillopt"])
    except (OSError, ValueError, LookupError, TypeError):
        return {}, ""
