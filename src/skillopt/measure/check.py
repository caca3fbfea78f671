"""Does a skill earn its place: against no skill or another version, on the same items, until the verdict is sure."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from skillopt.config import Config
from skillopt.core.context import Context
from skillopt.core.retry import all_measured
from skillopt.core.rollout import require_few, roll_out_one
from skillopt.envs.base import SPLITS, Env, Item, RolloutError, Trajectory, data_hash
from skillopt.errors import UserError
from skillopt.gates.duel import Ask, Side
from skillopt.measure.checked import Question, Sample, checked
from skillopt.measure.evaluate import note_read
from skillopt.measure.meter import Meter
from skillopt.measure.sequential import Trial, Word
from skillopt.measure.session import measuring_session
from skillopt.measure.verdict import Spent, spent_on
from skillopt.models.base import ChatModel
from skillopt.models.prices import is_priced
from skillopt.run.directory import is_private, make_folder, safe_name
from skillopt.run.events import Listener
from skillopt.run.files import append_jsonl, digest, read_jsonl, write_json, write_jsonl
from skillopt.skill import Skill

EXIT = {"better": 0, "no worse": 0, "worse": 1, "cannot tell": 4}
_SIDES: dict[Side, str] = {"current": "base", "candidate": "skill"}


async def check(
    config: Config,
    question: Question,
    *,
    env: Env | None = None,
    models: dict[str, ChatModel] | None = None,
    listeners: Sequence[Listener] = (),
) -> dict[str, Any]:
    """The verdict with its evidence, also written to `check.json`. What an earlier check paid for is not paid again."""
    if question.split not in SPLITS:
        raise UserError(f"--split: '{question.split}' is not one of {', '.join(SPLITS)}")
    _require_prices(config)
    places = _Places(config, question)

    async with measuring_session(
        config, places.folder, env=env, models=models, listeners=listeners, shared_journal=places.shared
    ) as session:
        ctx = session.ctx
        items = in_order(ctx.env.items(question.split), config.train.seed)[: question.max_items]
        before = spent_on(session.paid())
        bench = _Bench(ctx, {item.id: item for item in items}, question, Meter(places.readings), places.label)
        trial = Trial(
            order=[item.id for item in items],
            noisy=ctx.noisy,
            metric=config.evaluation.metric,
            margin=question.margin,
            alpha=config.evaluation.alpha,
            max_repeats=config.evaluation.max_repeats,
        )
        ctx.emit("evaluation_started", split=question.split, name="checked and base", items=len(items))
        word = await bench.verdict(trial)
        result = {
            **checked(config, ctx.env, question, trial, word, bench.samples, bench.refused),
            "exit_code": EXIT[word],
            "telemetry": {"paid": _since(before, spent_on(session.paid()))},
        }
        if question.split == "test":
            place = Path(question.skill.path)
            score = result["scores"]["skill"]["score"]
            result["test_reads"] = note_read("check", place, ctx.run, len(trial.measured), score)
        places.close(result)
        write_jsonl(session.folder / "trajectories.jsonl", [sample.trajectory for sample in bench.samples])
        write_json(session.folder / "check.json", result)
    return result | {"path": str(session.folder / "check.json")}


def in_order(items: Sequence[Item], seed: int) -> list[Item]:
    """A random order that is always the same, also for the items of a set that grew."""
    return sorted(items, key=lambda item: hashlib.sha256(f"check/{seed}/{item.id}".encode()).digest())


class _Places:
    """Where a check lies: one folder for one question, below a folder of all checks that share what they paid for."""

    def __init__(self, config: Config, question: Question) -> None:
        self._config = config
        self._question = question
        self._checks = Path(config.env.output_root) / "checks"
        self._root = self._checks
        self._number = 0
        if is_private(config.env.private, config.env.output_root):
            make_folder(self._checks, private=True)

    @property
    def label(self) -> str:
        return f"watch{self._number}" if self._question.watch else "check"

    def folder(self, env: Env) -> Path:
        question = self._question
        identity = {
            "config": self._config.identity(),
            "data": data_hash(env),
            "skills": [question.skill.skill.hash, question.base.skill.hash],
            "split": question.split,
            "max_items": question.max_items,
        }
        self._root = self._checks / safe_name(env.name) / f"{question.split}-{digest(identity)[:8]}"
        if not question.watch:
            return self._root
        self._number = len(read_jsonl(self._root / "watch.jsonl")) + 1
        return self._root / f"watch-{self._number:04d}"

    @property
    def shared(self) -> Path | None:
        """The journal of all checks: a base is paid for once. A watch asks anew."""
        return None if self._question.watch else self._checks / "journal.sqlite"

    @property
    def readings(self) -> Path:
        """What each rollout of the shared journal took."""
        own = self._root / f"watch-{self._number:04d}"
        return (own if self._question.watch else self._checks) / "readings.jsonl"

    def close(self, result: dict[str, Any]) -> None:
        """A watch is counted when it is done, so that one that stopped is taken up again."""
        if self._question.watch:
            earlier = read_jsonl(self._root / "watch.jsonl")
            result["before"] = earlier[-1] if earlier else None
            kept = {key: result[key] for key in ("verdict", "difference", "scores", "measured")}
            append_jsonl(self._root / "watch.jsonl", [{"when": datetime.now(UTC).isoformat(), **kept}])


@dataclass
class _Bench:
    """Both skills at work on what a trial asks for."""

    ctx: Context
    items: dict[str, Item]
    question: Question
    meter: Meter
    label: str
    samples: list[Sample] = field(default_factory=list)
    refused: dict[str, dict[str, str]] = field(default_factory=lambda: {"base": {}, "skill": {}})
    """By side and item, why the endpoint refused it."""

    async def verdict(self, trial: Trial) -> Word:
        if self.question.skill.skill.hash == self.question.base.skill.hash:
            return "no worse"
        play = trial.play()
        try:
            asks = next(play)
            while True:
                asks = play.send(await self._sample(asks))
        except StopIteration as end:
            word: Word = end.value
        return word

    async def _sample(self, asks: Sequence[Ask]) -> list[float | None]:
        free = asyncio.Semaphore(self.ctx.config.role("target").workers)  # whoever waits here is not on the meter yet
        results = await all_measured([partial(self._one, ask, free) for ask in asks], self.ctx, "check")
        self.meter.flush()
        values: list[float | None] = []
        for ask, result in zip(asks, results, strict=True):
            if isinstance(result, Trajectory):
                reading = self.meter.get(self._key(ask))
                self.samples.append(Sample(side=_SIDES[ask.side], trajectory=result, reading=reading))
                values.append(result.score.value(self.ctx.config.evaluation.metric))
            else:
                self.refused[_SIDES[ask.side]][result.item_id] = result.error
                values.append(None)
        require_few(self.refused["base"] | self.refused["skill"], len(self.items))
        return values

    async def _one(self, ask: Ask, free: asyncio.Semaphore) -> Trajectory | RolloutError:
        """The label names the side and the sample: a skill that was lucky when it was checked is measured afresh when
        it has become the base."""
        ctx = replace(self.ctx, executor=self.meter.around(self.ctx.executor, self._key(ask)))
        number = list(self.items).index(ask.item_id)
        async with free:
            return await roll_out_one(
                self._skill(ask), self.items[ask.item_id], ctx, tag=self._tag(ask), number=number, stage="check"
            )

    def _skill(self, ask: Ask) -> Skill:
        return (self.question.base if ask.side == "current" else self.question.skill).skill

    def _tag(self, ask: Ask) -> str:
        return f"{self.label}-{_SIDES[ask.side]}-{ask.name}"

    def _key(self, ask: Ask) -> str:
        target = self.ctx.target.model
        return f"{target.name}/{target.endpoint}/{self._skill(ask).hash[:16]}/{self._tag(ask)}/{ask.item_id}"


def _require_prices(config: Config) -> None:
    """A limit in dollars cannot work without prices."""
    judge = [config.models.optimizer_model] if config.env.scoring == "judge" else []
    for name in [config.models.target_model, *judge]:
        if config.budget.max_usd is not None and not is_priced(name, config.budget.prices):
            raise UserError(
                f"--budget: the price of {name} is unknown; give it as "
                f'budget.prices={{"{name}": {{input: 2.5, output: 10}}}}, or set budget.max_calls'
            )


def _since(before: Spent, after: Spent) -> dict[str, Any]:
    """What this session paid of what all sessions of the check did."""
    usd = None if before.usd is None or after.usd is None else after.usd - before.usd
    return {"calls": after.calls - before.calls, "tokens": after.tokens - before.tokens, "usd": usd}
