"""Questions about a config, answered in a separate process: `python -m skillopt_webui.worker plan < config.yaml`.

Data sets are loaded, task code runs and endpoints are asked here and not in the server, which stays small and cannot be
taken down by them. The answer is one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from skillopt.config import Config
from skillopt.core.initial import read_initial
from skillopt.envs import open_env
from skillopt.envs.base import SPLITS, Env, Item, check_splits, close_env
from skillopt.errors import SkillOptError
from skillopt.keys import redact
from skillopt.preflight.doctor import endpoints, examine
from skillopt.preflight.plan import plan_run
from skillopt.run.files import plain
from skillopt.run.summary import ROLES
from skillopt_webui.forms import parse

SHOWN = 5
"""Items of each split that a preview shows."""


def preview(config: Config) -> dict[str, Any]:
    """The data set: its sizes, its first items, and whether its splits overlap."""
    with _opened(config) as env:
        try:
            check_splits(env)
            overlap = ""
        except SkillOptError as error:
            overlap = str(error)
        return {"name": env.name, "overlap": overlap, "splits": {split: _split(env, split) for split in SPLITS}}


@contextmanager
def _opened(config: Config) -> Iterator[Env]:
    env = open_env(config)
    try:
        yield env
    finally:
        close_env(env)


def _split(env: Env, split: str) -> dict[str, Any]:
    items = env.items(split)
    types = Counter(item.type for item in items if item.type)
    return {"size": len(items), "types": dict(types.most_common(12)), "items": [_item(item) for item in items[:SHOWN]]}


def _item(item: Item) -> dict[str, Any]:
    return {
        "id": item.id,
        "type": item.type,
        "question": _cut(item.question),
        "context": _cut(item.context),
        "answers": [_cut(answer) for answer in item.answers[:5]],
    }


def _cut(text: str) -> str:
    return text if len(text) <= 600 else f"{text[:500]} … ({len(text):,} characters)"


def plan(config: Config) -> dict[str, Any]:
    with _opened(config) as env:
        check_splits(env)
        made = plan_run(config, env, read_initial(config.train.init_skill))
    return asdict(made) | {"calls": {role: made.calls(role) for role in ROLES}}


def doctor(config: Config) -> dict[str, Any]:
    """The checklist without asking an endpoint: nothing is paid."""
    return {"checks": [asdict(check) for check in asyncio.run(examine(config, offline=True))]}


def connection(config: Config) -> dict[str, Any]:
    """One short question to each role's model, which is paid for."""
    try:
        return {"checks": [asdict(check) for check in asyncio.run(endpoints(config))]}
    except SkillOptError as error:
        return {"checks": [{"name": "models", "status": "fail", "says": str(error), "fix": "see docs/providers.md"}]}


COMMANDS: dict[str, Callable[[Config], dict[str, Any]]] = {
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
        answer = {"error": str(error)}
    print(redact(json.dumps(plain(answer), ensure_ascii=False)))


if __name__ == "__main__":
    main()
