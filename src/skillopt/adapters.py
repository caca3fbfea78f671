"""Makes scorers from dspy metrics, and envs from gepa adapters. dspy is imported when such a scorer is called; gepa is
never imported here."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from typing import Any, Protocol, runtime_checkable

from skillopt import plugins
from skillopt.chat_protocol import Message
from skillopt.errors import UserError
from skillopt.models.base import TransientError
from skillopt.skill import Skill
from skillopt.tasks.agents import journalled, task_text
from skillopt.tasks.base import Chat, Env, Episode, Item, Json, score_of
from skillopt.tasks.memory import Tasks, read_tasks
from skillopt.tasks.tools import start
from skillopt.tasks.workspace import WorkedEpisode

__all__ = ["from_dspy", "from_gepa"]


def from_dspy(
    metric: Callable[..., Any], *, answer: str = "answer", columns: Mapping[str, str] | None = None
) -> Callable[[Any, str], Any]:
    """Make a scorer from a dspy metric: `train(tasks=trainset, scorer=from_dspy(metric))`.

    The metric gets an Example with the task's fields, and a Prediction with the output in the field that `answer`
    names. The metric may return a bool, a number from 0 to 1, or a Prediction with score and feedback (as metrics for
    dspy.GEPA do).
    """
    if not callable(metric):
        raise UserError(f"from_dspy: {metric!r} is not a metric; give a function with arguments (example, prediction)")
    try:
        parameters = list(inspect.signature(metric).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    further = [p for p in parameters if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}][2:]
    names = {"answer" if ours == "answers" else ours: theirs for ours, theirs in (columns or {}).items()}
    nothing = [None for p in further if p.default is p.empty]  # a metric for dspy.GEPA has trace, pred_name, pred_trace

    def score(item: Any, output: str) -> Any:
        import dspy

        fields = {**item, "answer": item.answer, answer: item.answer}
        fields |= {theirs: item.answer if ours == "answer" else item.get(ours) for ours, theirs in names.items()}
        example = dspy.Example(**fields)
        result = metric(example, dspy.Prediction(**{answer: output}), *nothing)
        return (float(result.score), str(result.feedback or "")) if hasattr(result, "feedback") else result

    update_wrapper(score, metric, updated=())  # the scorer gets the metric's name and source
    if not hasattr(metric, "__name__"):
        score.__name__ = score.__qualname__ = type(metric).__name__
    score.__signature__ = inspect.signature(lambda item, output: None)  # type: ignore[attr-defined]
    return score


@runtime_checkable
class GepaAdapter(Protocol):
    """The method that SkillOpt needs of a gepa adapter (gepa.GEPAAdapter)."""

    def evaluate(self, batch: list[Any], candidate: dict[str, str], capture_traces: bool = False) -> Any: ...


def from_gepa(
    adapter: GepaAdapter, tasks: Tasks, *, component: str = "system_prompt", others: Mapping[str, str] | None = None
) -> GepaEnv:
    """Make an env from a gepa adapter: `train(env=from_gepa(adapter, trainset))`.

    `tasks` is the adapter's data: a list of dicts, which SkillOpt splits, or a dict of the three splits. The skill is
    the text of the component that `component` names; `others` contains the texts of the other components, which do not
    change. The adapter calls its own models.
    """
    return GepaEnv(adapter, tasks, component, dict(others or {}))


class GepaEnv(Env):
    """An env in which a gepa adapter does the tasks, one task per call. The feedback is the text that the adapter
    writes for reflection."""

    task = "Each task is an input of the user's own program, whose instructions the skill is."
    scores_files = True
    """Each rollout returns its own score; the env cannot score an output afterwards."""

    def __init__(self, adapter: GepaAdapter, tasks: Tasks, component: str, others: dict[str, str]) -> None:
        if not isinstance(adapter, GepaAdapter):
            raise UserError(f"from_gepa: {type(adapter).__name__} has no method 'evaluate'; give a gepa adapter")
        self.name = type(adapter).__name__
        self._adapter, self._component, self._others = adapter, component, others
        self.fingerprint = _fingerprint(adapter, component, others)
        self._splits = read_tasks(_with_data(tasks), answers=False)

    def items(self, split: str) -> Sequence[Item]:
        return self._splits[split]

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        async def work() -> WorkedEpisode:
            try:
                return await asyncio.to_thread(self._evaluated, item, skill)
            except Exception as error:  # an error of the user's code: no answer, no score
                raise TransientError(f"{self.name}.evaluate: {type(error).__name__}: {error}") from error

        return await journalled(chat, ["gepa", self.fingerprint, item.model_dump(mode="json"), skill.hash], work)

    def _evaluated(self, item: Item, skill: Skill) -> WorkedEpisode:
        candidate = {self._component: skill.text, **self._others}
        batch = self._adapter.evaluate([item["data"]], candidate, capture_traces=True)
        if len(batch.outputs) != 1 or len(batch.scores) != 1:
            raise ValueError(
                f"returned {len(batch.outputs)} outputs and {len(batch.scores)} scores for one task; it must return "
                "one of each"
            )
        output, points = _text(batch.outputs[0]), float(batch.scores[0])
        if math.isnan(points):
            raise ValueError("gave nan as the score")
        score = score_of((min(1.0, max(0.0, points)), self._feedback(candidate, batch)))
        talk: list[Message] = [*start(skill, task_text(item)), {"role": "assistant", "content": output}]
        return WorkedEpisode(messages=talk, output=output, score=score)

    def _feedback(self, candidate: dict[str, str], batch: Any) -> str:
        make = getattr(self._adapter, "make_reflective_dataset", None)
        records = (make(candidate, batch, [self._component]) or {}).get(self._component) if make else ()
        return str(records[0].get("Feedback") or "") if records else ""


def _fingerprint(adapter: GepaAdapter, component: str, others: Mapping[str, str]) -> str:
    """A hash of the adapter's source and settings: if the model or the metric changes, a new run begins. The hash
    ignores the values of whole numbers and lists, because an adapter may count its calls in them; each use would then
    begin a new run."""

    def shown(value: object) -> object:
        if value is None or isinstance(value, str | bool | float):
            return value
        if isinstance(value, Mapping):
            return {str(key): shown(each) for key, each in value.items()}
        return plugins.fingerprint(value, module=False) if callable(value) else type(value).__qualname__

    settings = [plugins.fingerprint(adapter, module=False), shown(vars(adapter)), component, dict(others)]
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _with_data(tasks: Tasks) -> Tasks:
    if isinstance(tasks, Mapping):
        return {split: _rows(rows) for split, rows in tasks.items()}
    return _rows(tasks)


def _rows(tasks: object) -> list[Json]:
    """Make a task from each row of the adapter's data. The row is in the task's field `data`, which only the adapter
    reads."""
    if not isinstance(tasks, Sequence) or not all(isinstance(each, Mapping) for each in tasks):
        raise UserError(
            "from_gepa: tasks: give the adapter's data as a list of dicts, or as a dict with one list for each split"
        )
    rows: list[Json] = []
    for data in tasks:
        asked = data.get("question", data.get("input"))
        hidden = {key: value for key, value in data.items() if key not in {"answer", "answers"}}
        question = asked if isinstance(asked, str) else json.dumps(hidden, ensure_ascii=False, default=str)
        try:
            json.dumps(dict(data))
        except (TypeError, ValueError) as error:
            raise UserError(
                f"from_gepa: tasks[{len(rows)}]: is not JSON ({error}); use only texts, numbers, lists and dicts"
            ) from None
        rows.append({"question": question, "answers": data.get("answer", []), "data": dict(data)})
    return rows


def _text(output: Any) -> str:
    """Return an output as text. If the output is a dict with a single value, return only that value as text."""
    if isinstance(output, Mapping) and len(output) == 1:
        output = next(iter(output.values()))
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, default=str)
