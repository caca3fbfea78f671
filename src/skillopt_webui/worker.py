"""Questions about a config, answered in a separate process: `python -m skillopt_webui.worker plan < config.yaml`.

Data sets are loaded, task code runs and endpoints are asked here and not in the server, which stays small and cannot be
taken down by them. The answer is one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable

from pydantic import BaseModel

from skillopt.config import Config
from skillopt.errors import SkillOptError
from skillopt.keys import redact
from skillopt.preflight.doctor import endpoints, examine
from skillopt.preflight.plan import plan_run
from skillopt.record.base import ROLES
from skillopt.record.files import plain
from skillopt.record.forecast import Check
from skillopt.tasks import using_env
from skillopt.tasks.base import SPLITS, Env, Item, check_splits
from skillopt.training.initial import initial_of
from skillopt_webui.forms import parse
from skillopt_webui.worker_answers import Checklist, Failed, PlanAnswer, Preview, PreviewItem, PreviewSplit

SHOWN = 5
"""Items of each split that a preview shows."""


def preview(config: Config) -> Preview:
    with using_env(config) as env:
        try:
            check_splits(env)
            overlap = ""
        except SkillOptError as error:
            overlap = str(error)
        return Preview(name=env.name, overlap=overlap, splits={split: _split(env, split) for split in SPLITS})


def _split(env: Env, split: str) -> PreviewSplit:
    items = env.items(split)
    types = Counter(item.type for item in items if item.type)
    return PreviewSplit(
        size=len(items), types=dict(types.most_common(12)), items=[_item(item) for item in items[:SHOWN]]
    )


def _item(item: Item) -> PreviewItem:
    return PreviewItem(
        id=item.id,
        type=item.type,
        question=_cut(item.question),
        context=_cut(item.context),
        answers=[_cut(answer) for answer in item.answers[:5]],
    )


def _cut(text: str) -> str:
    return text if len(text) <= 600 else f"{text[:500]} … ({len(text):,} characters)"


def plan(config: Config) -> PlanAnswer:
    with using_env(config) as env:
        check_splits(env)
        made = plan_run(config, env, initial_of(config))
    return PlanAnswer.model_validate(made.model_dump() | {"calls": {role: made.calls(role) for role in ROLES}})


def doctor(config: Config) -> Checklist:
    """The checklist without asking an endpoint: nothing is paid."""
    return Checklist(checks=asyncio.run(examine(config, offline=True)))


def connection(config: Config) -> Checklist:
    """One short question to each role's model, which is paid for."""
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
    command = COMMANDS[sys.argv[1]]
    try:
        answer = command(parse(sys.stdin.read()))
    except SkillOptError as error:
        answer = Failed(error=str(error))
    print(redact(json.dumps(plain(answer), ensure_ascii=False)))


if __name__ == "__main__":
    main()
