"""Makes a scorer from `env.scoring`: a built-in one by name, a user's function, or a judge."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field, create_model

from skillopt import plugins
from skillopt.config import EnvConfig
from skillopt.config.options import Options
from skillopt.errors import UserError
from skillopt.keys import no_secrets
from skillopt.processes.workers import WorkerGoneError, WorkerPool, WorkerProcess
from skillopt.tasks.as_score import described, takes_workspace
from skillopt.tasks.base import Item, Json, Score, Scorer, ScorerError, closed_set, score_of
from skillopt.tasks.judge import JudgeOptions, JudgeScorer
from skillopt.tasks.load import is_reference, source_hash
from skillopt.tasks.scorer_worker import ScorerItem
from skillopt.tasks.scoring import DESCRIPTIONS, SCORERS

WORKER = Path(__file__).with_name("scorer_worker.py")
TRIES = 2
"""The maximum number of tries if a scorer hangs or crashes. Each try has a fresh process."""


def open_scorer(config: EnvConfig, root: Path = Path()) -> Scorer:
    """Make the scorer that `env.scoring` names. `root` is the folder of the tasks; checks find their files below it."""
    scoring, options = config.scoring, config.scoring_options
    if scoring in SCORERS:
        return NamedScorer(scoring, options)
    if scoring == "judge":
        return JudgeScorer(JudgeOptions.read(options, "env.scoring_options"))
    if scoring == "by_task":
        from skillopt.tasks.by_task import TaskScorer

        return TaskScorer(config, root)
    if scoring in {"files", "command"}:
        from skillopt.tasks import checks

        if scoring == "files":
            return checks.FilesCheck(checks.FilesOptions.read(options, "env.scoring_options"), root)
        return checks.CommandCheck(checks.CommandCheckOptions.read(options, "env.scoring_options"), root)
    if reference := scoring if is_reference(scoring) else plugins.reference("scorers", scoring):
        return OwnScorer(reference, OwnOptions.read(options, "env.scoring_options"))
    names = ", ".join([*sorted(SCORERS), "judge", "files", "command", "by_task", *plugins.names("scorers")])
    raise UserError(f"env.scoring: unknown '{scoring}'; known are: {names}; or give your own function as scorer.py:fn")


class ScorerPool:
    """Worker processes for one scorer, named `file.py:fn`, `module:fn` or `built-in:name`. If the scorer hangs, crashes
    or uses too much memory, only the item is set aside; the run goes on."""

    def __init__(
        self,
        reference: str,
        *,
        timeout: float,
        memory_mb: int,
        workers: int,
        pass_env: Sequence[str] = (),
        pass_at: float = 1.0,
    ) -> None:
        self._name = f"{Path(reference.rpartition(':')[0]).name}:{reference.rpartition(':')[2]}"
        self._timeout = timeout
        path = [entry for entry in sys.path if entry]
        self._setup = {"reference": reference, "memory_mb": memory_mb, "path": path, "pass_at": pass_at}
        self._env = no_secrets(pass_env)
        self._pool = WorkerPool(self._started, workers)

    def check(self, where: str) -> Json:
        """Load the scorer once, so a missing file or function is reported before anything is paid for. Returns
        whether the scorer takes the workspace, and its description."""
        try:
            return self._pool.ask_now({}, max(self._timeout, 60.0))
        except (ScorerError, WorkerGoneError) as error:
            raise UserError(f"{where}: {error}; a scorer is a function that takes an item and an output") from None

    async def score(self, item: Json, output: str, workspace: Path | None = None) -> Score:
        """The function's score; raises ScorerError if the function returned no score."""
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
            return Score.model_validate(reply)
        raise AssertionError("the last try raises")

    def close(self) -> None:
        self._pool.close()

    def _started(self) -> WorkerProcess:
        worker = WorkerProcess(WORKER, self._env)
        try:
            problem = str(worker.ask(self._setup, max(self._timeout, 60.0)).get("error", ""))
        except WorkerGoneError as error:
            problem = str(error)
        if problem:
            worker.stop()
            raise ScorerError(f"scorer {self._name}: cannot be loaded: {problem}")
        return worker


class _ScorerOptions(Options, strict=True):
    """Keyword arguments of a scorer."""


class NamedScorer(Scorer):
    """A built-in scorer of scoring.py. Its options are in the config. If an item has a field with the name of an
    option, the field's value is used for this item."""

    needs_answers = True

    def __init__(self, name: str, options: Json) -> None:
        self._name, self._function = name, SCORERS[name]
        chosen = ", ".join(f"{key}: {value}" for key, value in options.items())
        self.description = DESCRIPTIONS[name] + f" Its options: {chosen}." * bool(chosen)
        parameters = inspect.signature(self._function, eval_str=True).parameters.values()
        fields: dict[str, Any] = {p.name: (p.annotation, p.default) for p in parameters if p.kind is p.KEYWORD_ONLY}
        self._model: type[_ScorerOptions] = create_model(name, __base__=_ScorerOptions, **fields)
        self._model.read(options, "env.scoring_options")
        self._options = dict(options)
        self._pool: ScorerPool | None = None
        if name == "regex":  # a pattern may take for ever on an unlucky output
            self._pool = ScorerPool("built-in:regex", timeout=5, memory_mb=0, workers=2)

    def _options_for(self, item: Item) -> Json:
        of_item = {key: value for key, value in (item.model_extra or {}).items() if key in self._model.model_fields}
        return {**self._options, **of_item}

    def __call__(self, item: Item, output: str) -> Score | Awaitable[Score]:
        if self._pool is not None:
            return self._pool.score({"answers": list(item.answers), "options": self._options_for(item)}, output)
        return self._function(output, item.answers, **self._options_for(item))

    def check(self, splits: Mapping[str, Sequence[Item]]) -> None:
        for item in (item for items in splits.values() for item in items):
            self._model.read(self._options_for(item), f"item '{item.id}'")
            try:
                self._check_answers(item)
            except (re.error, ValueError, RecursionError) as error:
                raise UserError(
                    f"item '{item.id}': answers: cannot be scored with '{self._name}': {error}; correct the answer, "
                    "or choose another env.scoring"
                ) from None
        if self._name == "choice" and "choices" not in self._options:
            labels = closed_set(splits["train"])
            lettered = all(len(label) == 1 and label.isalpha() for label in labels)  # then the choices are A, B, C …
            self._options |= {} if lettered else {"choices": list(labels)}

    def _check_answers(self, item: Item) -> None:
        for answer in item.answers:
            if self._name == "regex":
                re.compile(answer)
            elif self._name == "json":
                json.loads(answer)
            elif self._name == "number":
                self._function("0", [answer], **self._options_for(item))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()


class FunctionOptions(Options):
    """Options of a scorer function that a program passes in (`env.scoring_options`)."""

    noisy: bool = False
    pass_at: float = Field(default=1.0, gt=0, le=1)


_ONE_AT_A_TIME = ThreadPoolExecutor(1, thread_name_prefix="scorer")


class FunctionScorer(Scorer):
    """A scorer function that a program passes in. It gets the item and the output. If it is not async, it runs in a
    thread that scores one output at a time. A parameter named `workspace` gets the Path of the workspace as it is after
    the rollout."""

    def __init__(self, function: Callable[..., Any], options: FunctionOptions) -> None:
        self._function, self._pass_at = function, options.pass_at
        self._name = plugins.named(function)
        try:
            self.needs_workspace = takes_workspace(function)
        except TypeError as error:
            raise UserError(f"scorer '{self._name}': {error}") from None
        self.noisy = options.noisy
        self.description = described(function)
        self.fingerprint = plugins.fingerprint(function, module=False)

    async def __call__(self, item: Item, output: str) -> Score:
        return await self._score(item, output)

    async def score_files(self, item: Item, output: str, workspace: Path) -> Score:
        return await self._score(item, output, workspace=workspace)

    async def _score(self, item: Item, output: str, **folder: Path) -> Score:
        work = partial(self._function, ScorerItem(item.model_dump(mode="json")), output, **folder)
        try:
            return score_of(await plugins.called(work, _ONE_AT_A_TIME), self._pass_at)
        except Exception as error:
            raise ScorerError(f"the scorer '{self._name}' failed on task '{item.id}': {error!r}") from error


class OwnOptions(FunctionOptions):
    """Options of a user's scorer function, which runs in separate processes (`env.scoring_options`)."""

    timeout: float = Field(default=10, gt=0)
    memory_mb: int = Field(default=2048, ge=0)
    workers: int = Field(default=4, ge=1, le=64)
    pass_env: tuple[str, ...] = ()


class OwnScorer(Scorer):
    """A user's scorer function, named `scorer.py:fn`. The function gets the item and the output and returns a score in
    one of the formats of skillopt/tasks/as_score.py. The function may be async.

    A parameter named `workspace` gets the Path of the workspace as it is after the rollout.
    """

    def __init__(self, reference: str, options: OwnOptions) -> None:
        self.noisy = options.noisy
        self.fingerprint = source_hash(reference)
        self._pool = ScorerPool(reference, **options.model_dump(exclude={"noisy"}))
        about = self._pool.check("env.scoring")
        self.needs_workspace, self.description = bool(about["workspace"]), str(about["description"])

    async def __call__(self, item: Item, output: str) -> Score:
        return await self._pool.score(item.model_dump(mode="json"), output)

    async def score_files(self, item: Item, output: str, workspace: Path) -> Score:
        return await self._pool.score(item.model_dump(mode="json"), output, workspace)

    def close(self) -> None:
        self._pool.close()
