"""`env.scoring: by_task`: each task names its scorer in its field `scoring`."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path

from skillopt.config import EnvConfig
from skillopt.errors import UserError
from skillopt.tasks.base import Item, Judge, Score, Scorer
from skillopt.tasks.judge import JudgeScorer
from skillopt.tasks.scorers import open_scorer


class TaskScorer(Scorer):
    """Scores each task with the scorer that the task names. `env.scoring_options` has options for each scorer, by
    name."""

    def __init__(self, config: EnvConfig, root: Path) -> None:
        self._config, self._root = config, root
        self._scorers: dict[str, Scorer] = {}
        self.description = "Each task is scored in its own way."

    def scorer(self, item: Item) -> Scorer:
        return self._scorers[_scoring(item)]

    def check(self, splits: Mapping[str, Sequence[Item]]) -> None:
        by_name: dict[str, dict[str, list[Item]]] = {}
        for split, items in splits.items():
            for item in items:
                by_name.setdefault(_scoring(item), {name: [] for name in splits})[split].append(item)
        for name, own in sorted(by_name.items()):
            self._scorers[name] = self._opened(name, own)
        if any(isinstance(scorer, JudgeScorer) for scorer in self._scorers.values()):
            self.judge = self._judged
        self.noisy = any(scorer.noisy for scorer in self._scorers.values())
        self.needs_workspace = any(scorer.needs_workspace for scorer in self._scorers.values())
        self.fingerprint = "".join(f"{name}{scorer.fingerprint}" for name, scorer in self._scorers.items())
        ways = (f"{name}: {scorer.description}" for name, scorer in self._scorers.items())
        self.description = "Each task is scored in one of these ways. " + " ".join(ways)

    def _opened(self, name: str, splits: Mapping[str, Sequence[Item]]) -> Scorer:
        items = [item for own in splits.values() for item in own]
        if not name or name == "by_task":
            raise UserError(
                f"item '{items[0].id}': scoring: is missing; with env.scoring=by_task, this field needs a scorer's name"
            )
        options = self._config.scoring_options.get(name, {})
        scorer = open_scorer(self._config.model_copy(update={"scoring": name, "scoring_options": options}), self._root)
        if scorer.needs_answers and (bare := next((item for item in items if not item.answers), None)):
            raise UserError(f"item '{bare.id}': answers: is missing; the scorer '{name}' needs at least one")
        scorer.check(splits)
        return scorer

    def is_judged(self, item: Item) -> bool:
        return isinstance(self.scorer(item), JudgeScorer)

    def __call__(self, item: Item, output: str) -> Score | Awaitable[Score]:
        return self.scorer(item)(item, output)

    async def score_files(self, item: Item, output: str, workspace: Path) -> Score:
        return await self.scorer(item).score_files(item, output, workspace)

    async def _judged(self, item: Item, output: str, ask: Judge) -> Score:
        scorer = self.scorer(item)
        if scorer.judge is not None:
            return await scorer.judge(item, output, ask)
        value = scorer(item, output)
        return value if isinstance(value, Score) else await value

    def close(self) -> None:
        for scorer in self._scorers.values():
            scorer.close()


def _scoring(item: Item) -> str:
    return str((item.model_extra or {}).get("scoring") or "")
