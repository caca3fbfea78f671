"""Opens all that a measurement outside of a training needs: env, models, lock, journal and events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.measure.verdict import spent_on
from skillopt.models.base import ChatModel
from skillopt.models.call import Budget
from skillopt.record.base import ByRole
from skillopt.record.costs import Paid, usage
from skillopt.record.directory import RunDirectory, announce, is_private, safe_name, short_hash
from skillopt.record.events import Events, Listener
from skillopt.record.files import write_json
from skillopt.record.journal import Journal
from skillopt.record.results import ResultFile, Spent
from skillopt.tasks.base import SPLITS, Env
from skillopt.tasks.executor import open_executor
from skillopt.training.callers import make_callers, open_env, open_models
from skillopt.training.context import Context
from skillopt.training.heartbeat import heartbeat
from skillopt.training.parts import measuring_roles


@dataclass(frozen=True, kw_only=True)
class MeasuringSession:
    """The work of one process on a measurement."""

    ctx: Context
    journal: Journal
    budget: Budget

    @property
    def folder(self) -> Path:
        return self.ctx.run.root

    def paid(self) -> ByRole[Paid]:
        """Calls, tokens and dollars by role, over all sessions in this folder."""
        return usage(self.journal.totals(), self.budget.cost)

    def spent(self) -> Spent:
        """The costs of all roles together, over all sessions in this folder."""
        return spent_on(self.paid())


def folder_of(config: Config, kind: str, identity: Any, name: str = "", before: str = "") -> Path:
    """The folder of a measurement. If the measurement is repeated, it gets the same folder again, with its journal and
    results."""
    benchmark = safe_name(name or config.env.benchmark or config.env.name)
    return Path(config.env.output_root) / kind / benchmark / f"{before}{short_hash(identity)}"


R = TypeVar("R", bound=ResultFile)


def written(result: R, path: Path) -> R:
    """Write a result to its file, and return the result with the file's path."""
    write_json(path, result)
    return result.model_copy(update={"path": str(path)})


def check_split(split: str) -> None:
    if split not in SPLITS:
        raise UserError(f"split: '{split}' is not one of {', '.join(SPLITS)}")


@asynccontextmanager
async def measuring_session(
    config: Config,
    folder: Path | Callable[[Env], Path],
    *,
    env: Env | None = None,
    models: dict[str, ChatModel] | None = None,
    listeners: Sequence[Listener] = (),
    shared_journal: Path | None = None,
) -> AsyncIterator[MeasuringSession]:
    """Open everything that a measurement needs, and close it at the end of the block.

    `folder` contains the lock, the journal and the events; it may be a function of the open env. If a model scores the
    answers, it is opened, too: `models.judge_model` or, if that is not set, the optimizer. Several folders may share
    the journal `shared_journal`: each folder gets the replies that the others paid for. If `env` is passed in, it stays
    open.
    """
    async with AsyncExitStack() as stack:
        opened_here = env is None
        env = await stack.enter_async_context(open_env(config, env))
        run = RunDirectory(folder if isinstance(folder, Path) else folder(env))
        roles = measuring_roles(config, env)
        opened = await stack.enter_async_context(open_models(config, models, roles, run))
        executor = await stack.enter_async_context(open_executor(config, env, own=opened_here))
        stack.enter_context(run.held(private=is_private(config.env.private, config.env.output_root)))
        announce(run.root)
        journal = stack.enter_context(Journal(run.journal, shared=shared_journal))
        events = stack.enter_context(Events(run.events, tuple(listeners)))
        callers, budget, _ = make_callers(config, journal, opened)
        ctx = Context(
            config=config,
            env=env,
            target=callers["target"],
            optimizer=callers["optimizer"],
            judge=callers.get("judge"),
            run=run,
            events=events,
            executor=executor,
        )
        await stack.enter_async_context(heartbeat(ctx))
        yield MeasuringSession(ctx=ctx, journal=journal, budget=budget)
