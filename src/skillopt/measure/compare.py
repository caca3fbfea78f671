"""Compares two skills on the same items. Both skills do each item equally often; a comparison never ends early."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import fmean

from skillopt.config import Config
from skillopt.config.shipped import is_file, is_there
from skillopt.errors import UserError
from skillopt.measure.check import PairMeasurement, both_measured
from skillopt.measure.check_result import Question, SkillVersion, check_result
from skillopt.measure.evaluate import note_read
from skillopt.measure.session import written
from skillopt.measure.verdict import (
    Sentence,
    Word,
    always_answering,
    counted,
    more_tasks,
    named_figures,
    not_above,
    say,
    too_few,
)
from skillopt.models.base import ChatModel
from skillopt.record.directory import RunDirectory, best_in, resolve_run
from skillopt.record.events import Listener
from skillopt.record.results import (
    CheckedSkill,
    CheckResult,
    ComparedSkill,
    Comparison,
    ItemLists,
    MajorityScore,
    ScoreWithInterval,
)
from skillopt.record.summary import Gain
from skillopt.skill import FILE, Skill
from skillopt.tasks import using_env
from skillopt.tasks.base import Env
from skillopt.tasks.data import shown_names
from skillopt.tasks.splits import how_to_enlarge
from skillopt.training.final_scores import majority
from skillopt.training.initial import initial_of, read_initial, run_of

WORDS = ("initial", "best")
"""Names of a run's skills. A user may give such a name instead of a file."""


def find_skill(name: str, config: Config, run: Path | None, env: Env | None = None) -> tuple[Skill, Path]:
    """Find a skill and its path. `name` is `initial`, `best` or a name that `skill_named` accepts. `initial` and `best`
    are skills of `run` or, if `run` is None, of the config's run."""
    if name not in WORDS:
        return skill_named(name)
    if run is None:
        with nullcontext(env) if env else using_env(config) as opened:
            run = run_of(config, opened, initial_of(config)).root
    directory = RunDirectory(run)
    path = directory.snapshot(0) if name == "initial" else directory.best_skill
    if not path.is_file():
        raise UserError(f"'{name}': no training has begun in {run}; train first, or give a run's folder with --run")
    return directory.read_skill(0) if name == "initial" else directory.read_best(), path


def skill_named(name: str) -> tuple[Skill, Path]:
    """Find a skill and its path by name: a file, a package, a run's folder (its best skill) or RUN@3 (version 3)."""
    root, _, version = name.rpartition("@")
    if root and version.isdecimal() and len(version) < 10 and not is_there(Path(name)):
        run = RunDirectory(resolve_run(Path(root)))
        path = run.snapshot(int(version))
        if not path.is_file():
            raise UserError(f"{name}: there is no {path}; choose another version")
        try:
            return run.read_skill(int(version)), path
        except UnicodeDecodeError:
            raise UserError(f"{name}: is not UTF-8 text") from None
    path = best_in(Path(name)) if is_there(Path(name)) else Path(name)
    if not is_file(path) and not is_file(path / FILE):
        raise UserError(
            f"'{name}': is neither a run's folder nor a skill file or package; give the path of one of them, or RUN@3 "
            f"(version 3 of a run). With a config, these names are also possible: {', '.join(WORDS)}"
        )
    return read_initial(str(path), "skill"), path


async def compare(
    config: Config,
    a: tuple[Skill, Path | None],
    b: tuple[Skill, Path | None],
    *,
    split: str = "val",
    repeats: int = 1,
    items: Sequence[str] = (),
    env: Env | None = None,
    models: dict[str, ChatModel] | None = None,
    listeners: Sequence[Listener] = (),
) -> Comparison:
    """Compare skill `b` with skill `a` on a split or on some of its items (ids in `items`), `repeats` times per item
    and skill. The result is also written to `comparison.json`.

    A comparison of a skill with itself shows only the target's noise.
    """
    base, skill = (
        SkillVersion(skill=side[0].shown, path=str(side[1] or ""), where=name)
        for side, name in zip((a, b), names_of(a[1], b[1]), strict=True)
    )
    question = Question(skill=skill, base=base, split=split, repeats=repeats, only=tuple(items))
    async with both_measured(config, question, env=env, models=models, listeners=listeners) as done:
        ctx = done.session.ctx
        spent = done.session.spent()
        checked = check_result(config, ctx.env, question, done.trial, done.word, done.samples, done.refused, spent)
        always = await majority(ctx.env, split, config.evaluation.metric)
        differing = sum(abs(after - before) > 1e-9 for before, after in _means(done).values())
        verdict = _verdict(checked, differing, always, config)
        result = Comparison(
            verdict=verdict.text,
            outcome=verdict.word,
            benchmark=checked.benchmark,
            split=split,
            metric=checked.metric,
            items=checked.measured,
            difference=checked.difference,
            difference_interval=checked.difference_interval,
            p=checked.p,
            differing=differing,
            lists=_lists(done),
            a=_side(checked.base, checked.scores.base),
            b=_side(checked.skill, checked.scores.skill),
            names=shown_names(ctx.env.items(split)),
            same_skill=question.same_text,
            repeats=repeats,
            set_aside=checked.set_aside,
            paid=done.session.paid().target,
            majority=always,
            test_reads=max(
                note_read("compare", path, ctx.run, checked.measured, side.score)
                for path, side in ((a[1], checked.scores.base), (b[1], checked.scores.skill))
            )
            if split == "test"
            else None,
        )
    return written(result, done.session.folder / "comparison.json")


def _verdict(checked: CheckResult, differing: int, always: MajorityScore | None, config: Config) -> Sentence:
    spent, base, skill = checked.telemetry.paid, checked.scores.base.score, checked.scores.skill.score
    if checked.same_text:
        tasks = counted(checked.measured, checked.split)
        return say("no better", f"both are the same skill, and {differing} of {tasks} differ by chance", spent=spent)
    gain = Gain(
        before=base, after=skill, tasks=checked.measured, split=checked.split, interval=checked.difference_interval
    )
    word: Word = "cannot tell" if checked.verdict == "better" and gain.word != "better" else checked.verdict
    unsure = word == "cannot tell"  # also if the test says better, but the interval contains zero
    return say(
        word,
        named_figures(gain, checked.base.where, checked.skill.where),
        because=too_few(gain) * unsure,
        note=not_above(max(base, skill), {always_answering(always.answer): always.score})[1] if always else "",
        advice=more_tasks(gain, how_to_enlarge(config.flat(), gain.split)) * unsure,
        spent=spent,
    )


def _side(about: CheckedSkill, measured: ScoreWithInterval) -> ComparedSkill:
    return ComparedSkill(name=about.where, **about.model_dump(exclude={"where"}), **dict(measured))


def _means(done: PairMeasurement) -> dict[str, tuple[float, float]]:
    """The mean scores of the base and of the skill, by item."""
    pairs = done.trial.pairs
    return {item: (fmean(b for b, _ in pairs[item]), fmean(s for _, s in pairs[item])) for item in done.trial.measured}


def _lists(done: PairMeasurement) -> ItemLists:
    """The items in four lists: solved only by the skill, solved only by the base, solved by both, solved by neither. A
    skill solves an item if at least half of its samples are right."""
    solved: dict[str, dict[str, list[float]]] = {"base": {}, "skill": {}}
    for sample in done.samples:
        solved[sample.side].setdefault(sample.trajectory.item_id, []).append(sample.trajectory.score.hard)
    lists: dict[tuple[bool, bool], list[str]] = {}
    for item in sorted(done.trial.measured):
        before, after = (fmean(solved[side][item]) >= 0.5 for side in ("base", "skill"))
        lists.setdefault((before, after), []).append(item)
    improved, regressed, both_pass, both_fail = (
        tuple(lists.get(key, ())) for key in ((False, True), (True, False), (True, True), (False, False))
    )
    return ItemLists(improved=improved, regressed=regressed, both_pass=both_pass, both_fail=both_fail)


def names_of(a: Path | None, b: Path | None) -> tuple[str, str]:
    """Readable names of two skills: `initial`, `best` or the file's name. If both names are the same, the folders'
    names are added."""
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
    """The name of the folder of a file; for a file in a run's folder `skills`, the name of the run."""
    folder = path.resolve().parent
    return folder.parent.name if folder.name == "skills" else folder.name
