"""Measures two skills on the same items, for `skillopt check` and `skillopt compare`."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.measure.check_result import Question, Sample, check_result
from skillopt.measure.evaluate import note_read
from skillopt.measure.sequential import Trial
from skillopt.measure.session import MeasuringSession, check_split, folder_of, measuring_session, written
from skillopt.measure.usage import UsageLog
from skillopt.models.base import ChatModel
from skillopt.record.directory import is_private, make_folder
from skillopt.record.events import EvaluationStarted, Listener
from skillopt.record.files import write_jsonl
from skillopt.record.results import CheckResult, CheckWord, Spent
from skillopt.skill import Skill
from skillopt.tasks.base import Env, Item, RolloutError, Trajectory, data_hash
from skillopt.training.context import Context
from skillopt.training.gates.paired_test import Ask, Side
from skillopt.training.parts import measuring_roles
from skillopt.training.rollout import all_measured, require_few, roll_out_one
from skillopt.training.session import check_prices

_SIDES: dict[Side, str] = {"current": "base", "candidate": "skill"}


@dataclass(frozen=True, kw_only=True)
class PairMeasurement:
    """The measurement of two skills, after the last rollout."""

    session: MeasuringSession
    trial: Trial
    word: CheckWord
    samples: list[Sample]
    refused: dict[str, dict[str, str]]
    spent: Spent
    """The cost of this session, without earlier sessions in the same folder."""


async def check(
    config: Config,
    question: Question,
    *,
    env: Env | None = None,
    models: dict[str, ChatModel] | None = None,
    listeners: Sequence[Listener] = (),
) -> CheckResult:
    """Check a skill against a base, and write the verdict with its evidence to `check.json`. If an earlier check
    already made a rollout, this rollout costs nothing."""
    async with both_measured(config, question, env=env, models=models, listeners=listeners) as done:
        session, trial = done.session, done.trial
        result = check_result(
            config, session.ctx.env, question, trial, done.word, done.samples, done.refused, done.spent
        )
        if question.split == "test":
            score, path = result.scores.skill.score, Path(question.skill.path)
            reads = note_read("check", path, session.ctx.run, len(trial.measured), score)
            result = result.model_copy(update={"test_reads": reads})
    return written(result, session.folder / "check.json")


@asynccontextmanager
async def both_measured(
    config: Config,
    question: Question,
    *,
    env: Env | None = None,
    models: dict[str, ChatModel] | None = None,
    listeners: Sequence[Listener] = (),
) -> AsyncIterator[PairMeasurement]:
    """Roll out both skills `question.repeats` times; if that is None, until the verdict is sure."""
    check_split(question.split)
    kind = "comparisons" if question.repeats else "checks"
    root = Path(config.env.output_root) / kind

    def folder(env: Env) -> Path:
        """The folder of the question. Each question has its own folder."""
        identity = {
            "config": config.identity(),
            "data": data_hash(env),
            "skills": [question.skill.skill.hash, question.base.skill.hash],
            "split": question.split,
            "max_items": question.max_items,
            "repeats": question.repeats,
            **({"only": sorted(question.only)} if question.only else {}),
        }
        return folder_of(config, kind, identity, env.name, f"{question.split}-")

    if is_private(config.env.private, config.env.output_root):
        make_folder(root, private=True)
    shared = root / "journal.sqlite"  # all checks against the same base share its rollouts
    async with measuring_session(
        config, folder, env=env, models=models, listeners=listeners, shared_journal=shared
    ) as session:
        done = await measure_pair(session, question, UsageLog(root / "readings.jsonl"), alpha=config.evaluation.alpha)
        yield done
        write_jsonl(session.folder / "trajectories.jsonl", [sample.trajectory for sample in done.samples])


async def measure_pair(
    session: MeasuringSession, question: Question, usage: UsageLog, *, alpha: float
) -> PairMeasurement:
    """Measure both skills of a question in an open session."""
    ctx, config = session.ctx, session.ctx.config
    check_prices(config, [config.role(role).model for role in measuring_roles(config, ctx.env)])
    items = _chosen(in_order(ctx.env.items(question.split), config.train.seed), question)
    before = session.spent()
    bench = _Bench(ctx, {item.id: item for item in items}, question, usage)
    trial = Trial(
        order=[item.id for item in items],
        noisy=ctx.noisy,
        metric=config.evaluation.metric,
        margin=question.margin,
        alpha=alpha,
        max_repeats=config.evaluation.max_repeats,
        fixed=question.repeats,
    )
    ctx.emit(EvaluationStarted(split=question.split, name="checked and base", items=len(items)))
    word = await bench.verdict(trial)
    return PairMeasurement(
        session=session,
        trial=trial,
        word=word,
        samples=bench.samples,
        refused=bench.refused,
        spent=since(before, session.spent()),
    )


def _chosen(items: list[Item], question: Question) -> list[Item]:
    if unknown := sorted(set(question.only) - {item.id for item in items}):
        raise UserError(f"--items: the {question.split} split has no item '{unknown[0]}'")
    return [item for item in items if not question.only or item.id in question.only][: question.max_items]


def in_order(items: Sequence[Item], seed: int) -> list[Item]:
    """The items in a random order that depends only on the seed. New items do not change the order of the old items."""
    return sorted(items, key=lambda item: hashlib.sha256(f"check/{seed}/{item.id}".encode()).digest())


@dataclass
class _Bench:
    """Makes the rollouts of both skills that a trial asks for."""

    ctx: Context
    items: dict[str, Item]
    question: Question
    usage: UsageLog
    samples: list[Sample] = field(default_factory=list)
    refused: dict[str, dict[str, str]] = field(default_factory=lambda: {"base": {}, "skill": {}})
    """The reason why the endpoint refused an item, by side (`base` or `skill`) and item."""

    async def verdict(self, trial: Trial) -> CheckWord:
        if self.question.same_text and not self.question.repeats:
            return "no worse"
        play = trial.play()
        try:
            asks = next(play)
            while True:
                asks = play.send(await self._sample(asks))
        except StopIteration as end:
            word: CheckWord = end.value
        return word

    async def _sample(self, asks: Sequence[Ask]) -> list[float | None]:
        numbers = {item: number for number, item in enumerate(self.items)}
        results = await all_measured([partial(self._one, ask, numbers[ask.item_id]) for ask in asks], self.ctx, "check")
        values: list[float | None] = []
        for ask, result in zip(asks, results, strict=True):
            if isinstance(result, Trajectory):
                usage = self.usage.of(self._key(ask), result)
                self.samples.append(Sample(side=_SIDES[ask.side], trajectory=result, usage=usage))
                values.append(result.score.value(self.ctx.config.evaluation.metric))
            else:
                self.refused[_SIDES[ask.side]][result.item_id] = result.error
                values.append(None)
        require_few(self.refused["base"] | self.refused["skill"], len(self.items))
        return values

    async def _one(self, ask: Ask, number: int) -> Trajectory | RolloutError:
        """Roll out one item. The label of the rollout names the side (`skill` or `base`). If the skill later becomes
        the base of another check, its rollouts get the label of the base. So the skill is measured again, and a lucky
        score is not reused."""
        item = self.items[ask.item_id]
        return await roll_out_one(self._skill(ask), item, self.ctx, tag=self._tag(ask), number=number, stage="check")

    def _skill(self, ask: Ask) -> Skill:
        return (self.question.base if ask.side == "current" else self.question.skill).skill

    def _tag(self, ask: Ask) -> str:
        return f"{'compare' if self.question.repeats else 'check'}-{_SIDES[ask.side]}-{ask.name}"

    def _key(self, ask: Ask) -> str:
        target = self.ctx.target.model
        return f"{target.name}/{target.endpoint}/{self._skill(ask).hash[:16]}/{self._tag(ask)}/{ask.item_id}"


def since(before: Spent, after: Spent) -> Spent:
    """The difference between two counts of a folder's costs."""
    usd = None if before.usd is None or after.usd is None else after.usd - before.usd
    calls, tokens = after.calls - before.calls, after.tokens - before.tokens
    return after.model_copy(update={"calls": calls, "tokens": tokens, "usd": usd})
