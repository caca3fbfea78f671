"""Answers questions about a config before a start. Each question gets a separate process with a time limit.

That process loads data sets, runs the code of tasks and calls endpoints, so a failure ends only this process, not
the server.
For example, `python -m skillopt_webui.questions plan < config.yaml` prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence

from pydantic import BaseModel, JsonValue, RootModel, ValidationError

from skillopt.config import Config
from skillopt.errors import SkillOptError, UserError
from skillopt.keys import redact
from skillopt.preflight.doctor import endpoints, examine
from skillopt.preflight.plan import plan_run
from skillopt.record.base import Record
from skillopt.record.files import plain
from skillopt.record.forecast import Check
from skillopt.tasks import using_env
from skillopt.tasks.base import SPLITS, Item, check_splits
from skillopt.training.initial import initial_of
from skillopt_webui.forms import parse
from skillopt_webui.settings import PageSettings

PATIENCE = 120
"""Seconds after which a question fails. The number is high, because a data set may be large or an endpoint slow."""
SHOWN = 5
"""The maximum number of items of each split that a preview shows."""


class Answer(RootModel[dict[str, JsonValue]]):
    """The answer of the process; it has the key `error` if the process could not answer."""


class Questions:
    """Asks questions in separate processes. At most two processes run at the same time, because each of them loads a
    data set."""

    def __init__(self, settings: PageSettings) -> None:
        self._settings = settings
        self._slots = asyncio.Semaphore(2)

    async def ask(self, question: str, config: str) -> Answer:
        async with self._slots:
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "skillopt_webui.questions", question),
                cwd=self._settings.workspace,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=16 * 2**20,
                env=os.environ,
            )
            try:
                async with asyncio.timeout(PATIENCE):
                    out, complaint = await child.communicate(config.encode())
            except TimeoutError:
                raise UserError(
                    f"no answer within {PATIENCE} s; a data set or an endpoint may be slow: try again"
                ) from None
            finally:
                if child.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        child.kill()
                    await child.wait()
        try:
            answer = Answer.model_validate_json(out.strip().rpartition(b"\n")[2])  # the code of a data set may print
        except ValidationError:
            last = complaint.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise UserError(f"the config could not be examined: {redact(last) or 'no answer'}") from None
        if "error" in answer.root:
            raise UserError(str(answer.root["error"]))
        return answer


class PreviewSplit(Record):
    size: int
    types: dict[str, int]
    """The most frequent types of items, with the number of items."""
    items: list[Item]
    """The first few items, shortened."""


class Preview(Record):
    """The data set: its sizes, its first items, and whether its splits overlap."""

    name: str
    overlap: str
    splits: dict[str, PreviewSplit]


class Checklist(Record):
    checks: list[Check]


def preview(config: Config) -> Preview:
    with using_env(config) as env:
        overlap = ""
        try:
            check_splits(env)
        except SkillOptError as error:
            overlap = str(error)
        return Preview(name=env.name, overlap=overlap, splits={split: _split(env.items(split)) for split in SPLITS})


def _split(items: Sequence[Item]) -> PreviewSplit:
    types = Counter(item.type for item in items if item.type)
    first = [
        Item(
            id=item.id,
            type=item.type,
            question=_cut(item.question),
            context=_cut(item.context),
            answers=tuple(map(_cut, item.answers[:5])),
        )
        for item in items[:SHOWN]
    ]
    return PreviewSplit(size=len(items), types=dict(types.most_common(12)), items=first)


def _cut(text: str) -> str:
    return text if len(text) <= 600 else f"{text[:500]} … ({len(text):,} characters)"


def plan(config: Config) -> Answer:
    """The plan of a run: the fields of `Plan`, and the calls of each role."""
    with using_env(config) as env:
        check_splits(env)
        made = plan_run(config, env, initial_of(config))
    return Answer(made.model_dump(mode="json") | {"calls": {role: made.calls(role).model_dump() for role in made.usd}})


def doctor(config: Config) -> Checklist:
    """The doctor's checklist. No endpoint is called, so nothing is paid for."""
    return Checklist(checks=asyncio.run(examine(config, offline=True)))


def connection(config: Config) -> Checklist:
    """Send one short request to the model of each role, and return the results as checks. These requests are paid
    for."""
    try:
        return Checklist(checks=asyncio.run(endpoints(config)))
    except SkillOptError as error:
        return Checklist(checks=[Check(name="models", status="fail", says=str(error), fix="see docs/providers.md")])


COMMANDS: dict[str, Callable[[Config], BaseModel]] = {
    "preview": preview,
    "plan": plan,
    "doctor": doctor,
    "connection": connection,
}


def main() -> None:
    try:
        answer = COMMANDS[sys.argv[1]](parse(sys.stdin.read()))
    except SkillOptError as error:
        answer = Answer({"error": str(error)})
    print(redact(json.dumps(plain(answer), ensure_ascii=False)))


if __name__ == "__main__":
    main()
