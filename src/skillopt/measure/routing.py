"""Measures which skill of a library an agent loads for which request. Nothing is trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from skillopt.config import Config
from skillopt.measure.evaluate import evaluate
from skillopt.measure.session import written
from skillopt.measure.verdict import spent_sentence
from skillopt.models.base import ChatModel
from skillopt.record.events import Listener
from skillopt.record.files import read_jsonl
from skillopt.record.routing import Confusion, Routing, confusion
from skillopt.record.trajectory import Trajectory
from skillopt.skill import Skill


def for_routing(config: Config, library: Path) -> Config:
    """The config with which a library is measured: it uses the trigger metric and all packages of the library."""
    options = {key: value for key, value in config.env.options.items() if key not in {"package", "others"}}
    name = config.env.benchmark or f"{library.resolve().name}-routing"
    return config.with_values(
        {"env.name": "trigger", "env.options": {**options, "skills": str(library)}, "env.benchmark": name}
    )


async def route(
    config: Config,
    library: Path,
    *,
    split: str = "val",
    models: dict[str, ChatModel] | None = None,
    listeners: Sequence[Listener] = (),
) -> Routing:
    """Measure the confusion matrix of a library, and write it to `routing.json`. An interrupted measurement is
    continued."""
    config = for_routing(config, library)
    done = await evaluate(config, Skill(""), split=split, models=models, listeners=listeners)
    folder = Path(done.path or "").parent
    rows = read_jsonl(folder / "trajectories.jsonl")
    matrix = confusion(Trajectory.model_validate(row) for row in rows)
    bounds = f" (95 % interval: {done.interval[0]:.2f} to {done.interval[1]:.2f})" if done.interval else ""
    right = sum(row.right for row in matrix.rows)
    first = f"The right skill is loaded for {right} of {done.items} requests, {done.score:.2f}{bounds}."
    result = Routing(
        verdict=" ".join(part for part in (first, _worst(matrix), spent_sentence(done.spent)) if part),
        benchmark=done.benchmark,
        target=config.models.target_model,
        split=split,
        items=done.items,
        score=done.score,
        interval=done.interval,
        confusion=matrix,
        set_aside=done.set_aside,
        spent=done.spent,
        test_reads=done.test_reads,
    )
    return written(result, folder / "routing.json")


def _worst(matrix: Confusion) -> str:
    """A sentence on the most frequent mistake; empty if there is no mistake."""
    mistakes = [
        (count, row.expected, name) for row in matrix.rows for name, count in row.loaded.items() if name != row.expected
    ]
    if not mistakes:
        return ""
    count, expected, loaded = max(mistakes, key=lambda each: (each[0], each[1:]))
    times = "once" if count == 1 else f"{count} times"
    return f"Most frequent mistake: {loaded} is loaded for a request for {expected} ({times})."
