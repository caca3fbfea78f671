"""From `env.scoring` to a scorer: by name, a function of the user's own, or a judge."""

from __future__ import annotations

import inspect
import json
import math
import re
import sys
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from skillopt import plugins
from skillopt.envs import judge as judging
from skillopt.envs.base import Item, Judge, Score, ScorerError, closed_set
from skillopt.envs.load import described_in_source, is_reference, parameters_in_source, source_hash
from skillopt.envs.scoring import DESCRIPTIONS, SCORERS
from skillopt.errors import UserError
from skillopt.keys import no_secrets
from skillopt.options import Options
from skillopt.workers import WorkerGoneError, WorkerPool, WorkerProcess

WORKER = Path(__file__).with_name("scorer_worker.py")
TRIES = 2
"""A scorer that hangs or crashes gets a second try in a fresh process: the machine may have been to blame."""


class Scorer:
    """Scores outputs; where `needs_workspace`, by the files that a rollout left (`look`)."""

    needs_answers = noisy = needs_workspace = False
    fingerprint = description = ""
    """The description says how it decides, in a sentence, for the optimizer."""

    def __call__(self, item: Item, output: str) -> Score | Awaitable[Score]:
        raise ScorerError("this scorer is asked in a rollout only")

    async def look(self, item: Item, output: str, workspace: Path) -> Score:
        raise NotImplementedError

    def check(self, splits: Mapping[str, Sequence[Item]]) -> None:
        """Refuse items that can never be scored."""

    def close(self) -> None:
        """End what was started."""


def open_scorer(scoring: str, options: Mapping[str, Any], root: Path = Path()) -> Scorer:
    """`root` is the folder of the tasks, below which checks find their files."""
    if scoring in SCORERS:
        return NamedScorer(scoring, options)
    if scoring == "judge":
        return JudgeScorer(options)
    if scoring in {"files", "command"}:
        from skillopt.envs import checks

        if scoring == "files":
            return checks.FilesCheck(checks.FilesOptions.read(options, "env.scoring_options"), root)
        return checks.CommandCheck(checks.CommandCheckOptions.read(options, "env.scoring_options"), root)
    if is_reference(scoring):
        return OwnScorer(scoring, options)
    if registered := plugins.reference("scorers", scoring):
        return OwnScorer(registered, options)
    known = ", ".join([*sorted(SCORERS), "judge", "files", "command", *plugins.names("scorers")])
    raise UserError(f"env.scoring: unknown '{scoring}'; known are: {known}, or your function as scorer.py:fn")


class ScorerPool:
    """Worker processes for one scorer, `file.py:fn`, `module:fn` or `built-in:name`: one that hangs, crashes or eats
    memory costs its item and not the run."""

    def __init__(
        self, reference: str, *, timeout: float, memory_mb: int, workers: int, pass_env: Sequence[str] = ()
    ) -> None:
        self._name = f"{Path(reference.rpartition(':')[0]).name}:{reference.rpartition(':')[2]}"
        self._timeout = timeout
        self._setup = {"reference": reference, "memory_mb": memory_mb, "path": [p for p in sys.path if p]}
        self._env = no_secrets(pass_env)
        self._pool = WorkerPool(self._started, workers)

    def check(self, where: str) -> None:
        """Load the scorer once, so that a missing file or function is reported before anything is paid for."""
        try:
            self._pool.warm_up()
        except ScorerError as error:
            raise UserError(f"{where}: {error}; a scorer is a function of item and output") from None

    async def score(self, item: Mapping[str, Any], output: str, workspace: Path | None = None) -> dict[str, Any]:
        """What the function returned, as fields; raises ScorerError where it returned nothing."""
        request = {"item": dict(item), "output": output} | ({"workspace": str(workspace)} if workspace else {})
        for attempt in range(TRIES):
            try:
                reply = await self._pool.ask(request, self._timeout)
            except WorkerGoneError as error:
                if attempt + 1 == TRIES:
                    raise ScorerError(f"scorer {self._name}: {error}") from None
                continue
            if "error" in reply:
                raise ScorerError(f"scorer {self._name}: {reply['error']}")
            return reply
        raise AssertionError("the last try raises")

    def close(self) -> None:
        self._pool.close()

    def _started(self) -> WorkerProcess:
        worker = WorkerProcess(WORKER, self._env)
        try:
            said = worker.ask(self._setup, max(self._timeout, 60.0)).get("error", "")
        except WorkerGoneError as error:
            said = str(error)
        if said:
            worker.stop()
            raise ScorerError(f"scorer {self._name}: cannot be loaded: {said}")
        return worker


class NamedScorer(Scorer):
    """One of scoring.py. Its options are in the config; a field of an item with the same name overrides them."""

    needs_answers = True

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self._name = name
        self._function = SCORERS[name]
        chosen = ", ".join(f"{key}: {value}" for key, value in options.items())
        self.description = DESCRIPTIONS[name] + f" Its options: {chosen}." * bool(chosen)
        parameters = inspect.signature(self._function).parameters.values()
        self._takes = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        for key, value in options.items():
            if key not in self._takes:
                takes = ", ".join(self._takes) or "none"
                raise UserError(f"env.scoring_options.{key}: unknown for '{name}'; it takes: {takes}")
            self._check_type("env.scoring_options", key, value)
        self._options = dict(options)
        self._pool: ScorerPool | None = None
        if name == "regex":  # a pattern may take for ever on an unlucky output
            self._pool = ScorerPool("built-in:regex", timeout=5, memory_mb=0, workers=2)

    def _check_type(self, where: str, key: str, value: Any) -> None:
        default = self._takes[key]
        wanted = (int, float) if isinstance(default, float) else (list, tuple, dict) if default == () else type(default)
        if not isinstance(value, wanted) or (isinstance(value, bool) and not isinstance(default, bool)):
            kind = type(default).__name__ if default != () else "list"
            raise UserError(f"{where}.{key}: must be a {kind}, not {value!r}")
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        if not all(isinstance(each, str | int | float) for each in inner):
            raise UserError(f"{where}.{key}: must hold texts or numbers, not {value!r}")
        allowed = {"units": ("optional", "required", "ignore"), "decimal": (".", ",")}.get(key)
        if allowed and value not in allowed:
            raise UserError(f"{where}.{key}: must be one of {', '.join(allowed)}, not {value!r}")

    def _given(self, item: Item) -> dict[str, Any]:
        own = {key: value for key, value in (item.model_extra or {}).items() if key in self._takes}
        return {**self._options, **own}

    def __call__(self, item: Item, output: str) -> Score | Awaitable[Score]:
        if self._pool is not None:
            return self._in_pool(self._pool, item, output)
        return self._function(output, item.answers, **self._given(item))

    async def _in_pool(self, pool: ScorerPool, item: Item, output: str) -> Score:
        return Score(**await pool.score({"answers": item.answers, "options": self._given(item)}, output))

    def check(self, splits: Mapping[str, Sequence[Item]]) -> None:
        for item in (item for items in splits.values() for item in items):
            for key, value in self._given(item).items():
                self._check_type(f"item '{item.id}'", key, value)
            try:
                self._check_answers(item)
            except (re.error, ValueError, RecursionError) as error:
                raise UserError(
                    f"item '{item.id}': answers: cannot be scored with '{self._name}': {error}; correct it, or choose "
                    "another env.scoring"
                ) from None
        if self._name == "choice" and "choices" not in self._options:
            labels = closed_set(splits["train"])
            self._options |= {"choices": labels} if labels and any(len(label) > 1 for label in labels) else {}

    def _check_answers(self, item: Item) -> None:
        for answer in item.answers:
            if self._name == "regex":
                re.compile(answer)
            elif self._name == "json":
                json.loads(answer)
            elif self._name == "number":
                self._function("0", [answer], **self._given(item))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()


class OwnOptions(Options):
    """`env.scoring_options` of a function of the user's own."""

    timeout: float = Field(default=10, gt=0)
    memory_mb: int = Field(default=2048, ge=0)
    workers: int = Field(default=4, ge=1, le=64)
    pass_env: tuple[str, ...] = ()
    noisy: bool = False
    pass_at: float = Field(default=1.0, gt=0, le=1)


class OwnScorer(Scorer):
    """`scorer.py:fn`: item and output give a score from 0 to 1, or (score, feedback), or a Score; sync or async.

    A third parameter gets the workspace that the rollout left, a Path.
    """

    def __init__(self, reference: str, options: Mapping[str, Any]) -> None:
        own = OwnOptions.read(options, "env.scoring_options")
        self.noisy = own.noisy
        self._reference = reference
        self._pass_at = own.pass_at
        self.fingerprint = source_hash(reference)
        self.description = described_in_source(reference) or "A function scores the reply; its rule is not described."
        self._pool = ScorerPool(
            reference, timeout=own.timeout, memory_mb=own.memory_mb, workers=own.workers, pass_env=own.pass_env
        )
        self._pool.check("env.scoring")
        self.needs_workspace = len(parameters_in_source(reference)) > 2

    async def __call__(self, item: Item, output: str) -> Score:
        return self._read(await self._pool.score(item.model_dump(mode="json"), output))

    async def look(self, item: Item, output: str, workspace: Path) -> Score:
        return self._read(await self._pool.score(item.model_dump(mode="json"), output, workspace))

    def _read(self, found: Mapping[str, Any]) -> Score:
        value = found.get("value")
        fields = {"soft": value, "hard": value} if value is not None else dict(found)
        fields.setdefault("hard", fields.get("soft"))
        fields.setdefault("soft", fields.get("hard"))
        hard, soft = fields["hard"], fields["soft"]
        for number in (hard, soft):
            if not isinstance(number, int | float) or not math.isfinite(number) or not 0 <= number <= 1:
                raise ScorerError(f"scorer {self._reference}: returned {number!r}; a score is a number from 0 to 1")
        return Score(hard=float(hard >= self._pass_at), soft=soft, feedback=str(found.get("feedback", ""))[:10_000])

    def close(self) -> None:
        self._pool.close()


class JudgeOptions(Options):
    """`env.scoring_options` of a judge."""

    rubric: str = ""
    pass_at: int = Field(default=judging.TOP, ge=1, le=judging.TOP)


class JudgeScorer(Scorer):
    """The optimizer model grades. Only a rollout has one at hand."""

    noisy = True

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = JudgeOptions.read(options, "env.scoring_options")
        self.fingerprint = json.dumps([judging.PROMPT, judging.RUBRIC])
        self.description = (
            f"A model grades the reply from 0 to 4 by this rubric: {self._options.rubric or judging.RUBRIC}"
        )

    async def judge(self, item: Item, output: str, ask: Judge) -> Score:
        return await judging.judged(item, output, ask, rubric=self._options.rubric, pass_at=self._options.pass_at)
