"""Two skills on the same items: who is better, on which items, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from skillopt.config import Config
from skillopt.core.context import Context
from skillopt.core.initial import initial_of, read_initial, run_of
from skillopt.core.retry import all_measured
from skillopt.core.rollout import require_few, roll_out_one
from skillopt.envs import open_env
from skillopt.envs.base import SPLITS, Env, Item, Trajectory, data_hash
from skillopt.envs.data import shown_names
from skillopt.envs.splits import how_to_enlarge
from skillopt.errors import UserError
from skillopt.measure.baselines import majority
from skillopt.measure.evaluate import note_read
from skillopt.measure.session import folder_of, measuring_session
from skillopt.measure.verdict import Gain, Spent, compared, not_above_majority, spent_on
from skillopt.models.base import ChatModel
from skillopt.run.directory import RunDirectory, meant_run
from skillopt.run.events import Listener
from skillopt.run.files import write_json, write_jsonl
from skillopt.skill import FILE, Skill
from skillopt.statistics import gain_interval, interval, permutation_p

WORDS = ("initial", "best")
"""Names for a run's own skills, in place of a file."""


def find_skill(name: str, config: Config, run: Path | None, env: Env | None = None) -> tuple[Skill, Path]:
    """A file or a package, or RUN@3 for a version of a run; or `initial` or `best` of a run, which is the config's own
    unless another is named."""
    if name not in WORDS:
        path = Path(name)
        root, _, version = name.rpartition("@")
        if root and version.isdecimal() and len(version) < 10 and not path.exists():
            return _version(RunDirectory(meant_run(Path(root))), int(version))
        if not path.is_file() and not (path / FILE).is_file():
            raise UserError(
                f"'{name}': no such skill file, and no package's folder; give either, or one of: {', '.join(WORDS)}"
            )
        return read_initial(name), path
    if run is None:
        env = env or open_env(config)
        run = run_of(config, env, initial_of(config)).root
    directory = RunDirectory(run)
    path = directory.snapshot(0) if name == "initial" else directory.best_skill
    if not path.is_file():
        raise UserError(f"'{name}': {run} is not a run that has begun; train first, or name its folder with --run")
    return directory.read_skill(0) if name == "initial" else directory.read_best(), path


def _version(run: RunDirectory, version: int) -> tuple[Skill, Path]:
    path = run.snapshot(version)
    if not path.is_file():
        raise UserError(f"{run.root}@{version}: there is no {path}")
    return run.read_skill(version), path


async def compare(
    config: Config,
    a: tuple[Skill, Path | None],
    b: tuple[Skill, Path | None],
    *,
    split: str = "val",
    repeats: int = 1,
    env: Env | None = None,
    models: dict[str, ChatModel] | None = None,
    listeners: Sequence[Listener] = (),
) -> dict[str, Any]:
    """A against B on a split, each item `repeats` times under both; also written to `comparison.json`.

    The same skill twice is an A/A probe: what it shows is the target's noise and nothing else.
    """
    if split not in SPLITS:
        raise UserError(f"--split: '{split}' is not one of {', '.join(SPLITS)}")
    skills = {"a": a[0], "b": b[0]}

    def where(opened: Env) -> Path:
        hashes = [skill.hash for skill in skills.values()]
        identity = {"config": config.identity(), "data": data_hash(opened), "skills": hashes, "repeats": repeats}
        return folder_of(config, "comparisons", identity, opened.name, f"{split}-")

    async with measuring_session(config, where, env=env, models=models, listeners=listeners) as session:
        ctx = session.ctx
        items = ctx.env.items(split)
        trajectories, refused = await _measure(skills, items, repeats, ctx)
        names = names_of(a[1], b[1])
        result = {
            "benchmark": ctx.env.name,
            "split": split,
            **report(trajectories, config.evaluation.metric),
            "a": {"name": names[0], **_about(*a, trajectories["a"], config)},
            "b": {"name": names[1], **_about(*b, trajectories["b"], config)},
            "names": shown_names(items),
            "same_skill": a[0].hash == b[0].hash,
            "repeats": repeats,
            "set_aside": refused,
            "paid": session.paid()["target"],
        }
        always = await majority(ctx.env, split, config.evaluation.metric)
        result = _with_verdict(result | {"majority": always}, spent_on(session.paid()), config)
        if split == "test":
            paths = {"a": a[1], "b": b[1]}
            result["test_reads"] = max(
                note_read("compare", paths[side], ctx.run, len(items), result[side]["score"]) for side in skills
            )
        write_jsonl(session.folder / "trajectories.jsonl", [t for side in skills for t in trajectories[side]])
        write_json(session.folder / "comparison.json", result)
    return result | {"path": str(session.folder / "comparison.json")}


def names_of(a: Path | None, b: Path | None) -> tuple[str, str]:
    """What people call the two: `initial`, `best`, or the file; with its folder where two files have one name."""
    plain = [_plain_name(path) for path in (a, b)]
    if a == b and plain[0]:
        return plain[0], f"{plain[0]} again"
    if plain[0] == plain[1]:
        longer = [f"{_place(path)}/{name}" if path else name for path, name in zip((a, b), plain, strict=True)]
        plain = longer if longer[0] != longer[1] else [str(a or plain[0]), str(b or plain[1])]
    return plain[0] or "the first skill", plain[1] or "the second skill"


def _plain_name(path: Path | None) -> str:
    if path is None:
        return ""
    return {"skill_v0000": "initial", "best_skill": "best"}.get(path.stem, path.name)


def _place(path: Path) -> str:
    """The folder that distinguishes a file; a run's own folders do not."""
    folder = path.resolve().parent
    return folder.parent.name if folder.name == "skills" else folder.name


def _with_verdict(result: dict[str, Any], spent: Spent, config: Config) -> dict[str, Any]:
    gain = Gain(
        before=result["a"]["score"],
        after=result["b"]["score"],
        tasks=result["items"],
        split=result["split"],
        interval=result["difference_interval"],
    )
    verdict = compared(
        gain,
        names=(result["a"]["name"], result["b"]["name"]),
        same=result["same_skill"],
        differing=result["differing"],
        spent=spent,
        note=not_above_majority(max(gain.before, gain.after), result["majority"], "score"),
        how=how_to_enlarge(config.flat(), gain.split),
    )
    return {"verdict": verdict.text, "outcome": verdict.word, **result}


async def _measure(
    skills: dict[str, Skill], items: Sequence[Item], repeats: int, ctx: Context
) -> tuple[dict[str, list[Trajectory]], dict[str, str]]:
    """Both sides on all items; one that the endpoint refuses for either side counts for neither."""
    work = [
        (side, partial(roll_out_one, skill, item, ctx, tag=f"compare-{side}-r{n}", number=number, stage="compare"))
        for side, skill in skills.items()
        for n in range(1, repeats + 1)
        for number, item in enumerate(items)
    ]
    results = await all_measured([job for _, job in work], ctx, "compare")
    refused = {r.item_id: r.error for r in results if not isinstance(r, Trajectory)}
    require_few(refused, len(items))
    kept: dict[str, list[Trajectory]] = {side: [] for side in skills}
    for (side, _), result in zip(work, results, strict=True):
        if isinstance(result, Trajectory) and result.item_id not in refused:
            kept[side].append(result)
    return kept, refused


def report(trajectories: dict[str, list[Trajectory]], metric: str) -> dict[str, Any]:
    """Scores, difference, the paired test, and the four lists of items."""
    values: dict[str, dict[str, list[float]]] = {"a": {}, "b": {}}
    solved: dict[str, dict[str, list[float]]] = {"a": {}, "b": {}}
    for side, own in trajectories.items():
        for t in own:
            values[side].setdefault(t.item_id, []).append(t.score.value(metric))
            solved[side].setdefault(t.item_id, []).append(t.score.hard)
    pairs = [(values["a"][item], values["b"][item]) for item in sorted(values["a"])]
    differences = [fmean(after) - fmean(before) for before, after in pairs]
    better, worse = permutation_p(pairs), permutation_p([(after, before) for before, after in pairs])
    lists: dict[str, list[str]] = {name: [] for name in ("improved", "regressed", "both_pass", "both_fail")}
    for item in sorted(solved["a"]):
        before, after = (fmean(solved[side][item]) >= 0.5 for side in ("a", "b"))
        name = ("both_pass" if before else "improved") if after else ("regressed" if before else "both_fail")
        lists[name].append(item)
    return {
        "metric": metric,
        "items": len(pairs),
        "difference": fmean(differences),
        "difference_interval": gain_interval(differences),
        "p": min(1.0, 2 * min(better, worse)),
        "differing": sum(abs(difference) > 1e-9 for difference in differences),
        "lists": lists,
    }


def _about(skill: Skill, path: Path | None, trajectories: list[Trajectory], config: Config) -> dict[str, Any]:
    by_item: dict[str, list[float]] = {}
    for t in trajectories:
        by_item.setdefault(t.item_id, []).append(t.score.value(config.evaluation.metric))
    means = [fmean(values) for values in by_item.values()]
    known = {"path": str(path or ""), "hash": skill.hash, "tokens": skill.tokens}
    return {**known, "score": fmean(means), "interval": interval(means)}
