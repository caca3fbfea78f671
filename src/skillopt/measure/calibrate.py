"""`skillopt judge calibrate`: compares a judge with people's grades of the same answers.

Each answer is judged several times, with a different label each time, to see whether the judge's grades vary. Only the
first judgement is compared with the person's grade, because a training judges each answer once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite, sqrt
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.models.base import ChatModel, Message, Schema
from skillopt.models.call import Caller, gather_all
from skillopt.models.structured import CheckedReply, ask
from skillopt.record.calibration import Disagreement, JudgeCalibration, LengthBias, PositionBias
from skillopt.record.directory import RunDirectory, is_private, safe_name, short_hash
from skillopt.record.files import file_digest, write_json
from skillopt.record.journal import Journal
from skillopt.statistics import bootstrap, kappa, sign_test, spearman, wilson
from skillopt.tasks.base import Item, Score
from skillopt.tasks.data import read_items
from skillopt.tasks.judge import (
    TOP,
    Judgement,
    JudgeOptions,
    judge_options,
    rubric_of,
    samples_of,
    score_of_samples,
    setup_hash,
)
from skillopt.training.callers import make_callers, open_models
from skillopt.training.judging import judge_model
from skillopt.training.session import check_prices

LEAST = 10
"""The minimum number of graded answers for a calibration."""
_SHOWN = 5
"""The maximum number of disagreements that a calibration's record lists."""
_WORDS = {"pass": 1.0, "fail": 0.0, "true": 1.0, "false": 0.0}


@dataclass(frozen=True, kw_only=True)
class GradedAnswer:
    """An answer, and a person's grade of it."""

    item: Item
    output: str
    grade: float
    """The person's grade, from 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class JudgedAnswer:
    graded: GradedAnswer
    scores: tuple[Score, ...]
    """The judge's scores, one for each repeat."""
    samples: tuple[Judgement, ...]
    """The judgements of all repeats."""

    @property
    def excess(self) -> float:
        return self.scores[0].soft - self.graded.grade


async def calibrate(
    config: Config,
    graded: Path,
    out: Path,
    *,
    top: float = 1.0,
    repeats: int = 3,
    models: dict[str, ChatModel] | None = None,
) -> JudgeCalibration:
    """Judge every graded answer `repeats` times, and write the result to `out`. Replies are stored in a journal in
    `env.output_root`; if the command is repeated, only missing replies are requested."""
    options = judge_options(config.env)
    if options is None:
        raise UserError("env.scoring: there is no judge to calibrate; set env.scoring=judge (docs/judge.md)")
    answers = read_graded(graded, top, options)
    role = "judge" if config.models.judge_model else "optimizer"
    check_prices(config, [judge_model(config)])
    setup = setup_hash(judge_model(config), options)
    digest = file_digest(graded)
    benchmark = safe_name(config.env.benchmark or config.env.name)
    root = Path(config.env.output_root) / "calibrations" / benchmark
    run = RunDirectory(root / short_hash([setup, digest, top]))
    with run.held(private=is_private(config.env.private, config.env.output_root)), Journal(run.journal) as journal:
        async with open_models(config, models, (role,), run) as opened:
            caller: Caller = make_callers(config, journal, opened)[0][role]
            caller.deterministic = False  # each repeat must be a fresh judgement
            judged = await gather_all(_judged(caller, n, each, options, repeats) for n, each in enumerate(answers))
    record = calibration_record(judged, options, judge_model(config), setup, digest, repeats)
    write_json(out, record)
    return record


def read_graded(file: Path, top: float, options: JudgeOptions) -> list[GradedAnswer]:
    """Read rows with a question, an `output` and a `grade`: a number from 0 to `top`, `pass`, `fail`, `true` or
    `false`."""
    if not isfinite(top):
        raise UserError(f"--top: {top} is not a finite number; give the best grade that a person can give")
    answers = []
    for item in read_items(file, answers=options.form == "pairwise"):
        rubric_of(item, options)
        fields = item.model_extra or {}
        output, grade = fields.get("output"), fields.get("grade")
        if not isinstance(output, str) or not output.strip():
            raise UserError(f"{file}: item '{item.id}': output: is missing; it is the answer that a person graded")
        answers.append(GradedAnswer(item=item, output=output, grade=_grade(grade, top, f"{file}: item '{item.id}'")))
    if len(answers) < LEAST:
        raise UserError(f"{file}: has {len(answers)} graded answers; at least {LEAST} are needed, 50 are better")
    if len({each.grade for each in answers}) == 1:
        raise UserError(
            f"{file}: all answers have the same grade, so they cannot show whether the judge tells good answers from "
            "bad ones; add answers with other grades"
        )
    return answers


def _grade(value: object, top: float, where: str) -> float:
    text = str(value).strip().casefold()
    if text in _WORDS:
        return _WORDS[text]
    try:
        share = float(text) / top
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UserError(
            f"{where}: grade: {value!r} must be 'pass', 'fail' or a number from 0 to {top:g}; if people used another "
            "scale, give its best grade with --top"
        )
    return share


async def _judged(caller: Caller, number: int, each: GradedAnswer, options: JudgeOptions, repeats: int) -> JudgedAnswer:
    rubric, scores, samples = rubric_of(each.item, options), [], []
    for repeat in range(repeats):
        judge = _Asker(caller, f"calibrate/{number}/{repeat}")
        found = await samples_of(each.item, each.output, judge, options, rubric)
        scores.append(score_of_samples(found, options.pass_at))
        samples += found
    return JudgedAnswer(graded=each, scores=tuple(scores), samples=tuple(samples))


class _Asker:
    """Asks the judge. Each call has a different label, so it gets a fresh reply."""

    def __init__(self, caller: Caller, label: str) -> None:
        self._caller, self._label, self._asked = caller, label, 0

    async def __call__(self, messages: list[Message], schema: Schema, check: Any) -> CheckedReply[Any]:
        self._asked += 1
        return await ask(self._caller, messages, schema, check, label=f"{self._label}/{self._asked}")


def calibration_record(
    judged: Sequence[JudgedAnswer], options: JudgeOptions, model: str, setup: str, graded: str, repeats: int
) -> JudgeCalibration:
    line = options.pass_at / TOP - 1e-9
    people = [each.graded.grade for each in judged]
    judge = [each.scores[0].soft for each in judged]
    passed = [grade >= line for grade in people], [each.scores[0].hard >= 1 for each in judged]
    pairs = [pair for each in judged for pair in combinations([score.hard for score in each.scores], 2)]
    farthest = sorted(judged, key=lambda each: (-abs(each.excess), each.graded.item.id))[:_SHOWN]
    record = JudgeCalibration(
        model=model,
        setup=setup,
        form=options.form,
        graded=graded,
        items=len(judged),
        agreement=fmean(a == b for a, b in zip(*passed, strict=True)),
        kappa=kappa(*passed),
        spearman=spearman(judge, people),
        excess=fmean(each.excess for each in judged),
        length=length_bias(judged),
        position=position_bias([each.samples[0] for each in judged]) if options.form == "pairwise" else None,
        repeats=repeats,
        flip_rate=fmean(a != b for a, b in pairs) if pairs else 0.0,
        deviation=sqrt(fmean(variance([score.soft for score in each.scores]) for each in judged)),
        disagreements=tuple(
            Disagreement(
                id=each.graded.item.id,
                person=each.graded.grade,
                judge=each.scores[0].soft,
                reason=each.samples[0].reason[:300],
            )
            for each in farthest
            if abs(each.excess) > 1e-9
        ),
    )
    return record.model_copy(update={"verdict": verdict_of(record)})


def length_bias(judged: Sequence[JudgedAnswer]) -> LengthBias:
    """Measure how much more the judge's grades exceed people's grades for long answers than for short answers."""
    ordered = sorted(judged, key=lambda each: (len(each.graded.output), each.graded.item.id))
    half = len(ordered) // 2
    short, long = ([each.excess for each in part] for part in (ordered[:half], ordered[len(ordered) - half :]))
    low, high = bootstrap(short), bootstrap(long)
    difference = fmean(long) - fmean(short)
    spread = sqrt(((low[1] - low[0]) / 2) ** 2 + ((high[1] - high[0]) / 2) ** 2)  # the two halves are independent
    lengths = [float(len(each.graded.output)) for each in judged]
    return LengthBias(
        correlation=spearman(lengths, [each.excess for each in judged]),
        difference=difference,
        interval=(difference - spread, difference + spread),
    )


def position_bias(samples: Sequence[Judgement]) -> PositionBias:
    """Count the pairs of answers whose winner depends on their order. `samples` has one judgement per answer, so the
    judgements are independent."""
    orders = [sample.preferred for sample in samples if sample.preferred]
    first, second = orders.count(("first", "first")), orders.count(("second", "second"))
    p = min(1.0, 2 * sign_test(max(first, second), min(first, second)))
    return PositionBias(pairs=len(orders), first=first, second=second, p=p)


def verdict_of(record: JudgeCalibration) -> str:
    """One or two sentences on the judge's biases and on the judge's agreement with people."""
    low, high = wilson(record.agreement * record.items, record.items)
    word = "no kappa, because all grades are the same" if record.kappa is None else f"kappa {record.kappa:.2f}"
    text = f"{record.model} agrees with people on {record.agreement:.0%} of {record.items} answers (95 % interval: "
    text += f"{low:.2f} to {high:.2f}); {word}."
    if record.biases:
        text += f" It {' and '.join(record.biases)}."
    return text
