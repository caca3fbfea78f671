"""Wherever tasks are done, the driver makes the calls, and the outcome is that of this process."""

from __future__ import annotations

import asyncio
import errno
import importlib.util
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import skillopt
from skillopt.models.base import ChatReply, ChatRequest, Message, RefusedError, TransientError
from skillopt.record.directory import RunDirectory
from skillopt.skill import Skill
from skillopt.tasks.base import Chat, Env, Episode, Item, Score, ScorerError
from skillopt.tasks.executor.cluster import RayWorker
from skillopt.tasks.executor.pool import WorkerLostError, do_task
from skillopt.tasks.executor.worker import EnvWorker
from support import TESTS, Spy, differing, essence, only_run, train_sim

TASK = Item(id="a", question="What?", answers=("x",))


class Handle:
    """What Ray makes of an actor, without Ray: `worker.tell.remote(…)` can be awaited."""

    def __init__(self, worker: EnvWorker) -> None:
        self._worker = worker

    def __getattr__(self, name: str) -> Any:
        class Remote:
            @staticmethod
            def remote(*arguments: Any) -> Any:
                return getattr(self._worker, name)(*arguments)

        return Remote


def worker_of(worker: Any) -> RayWorker:
    """A worker as Ray's, which is gone if it raises ConnectionError."""
    ray = SimpleNamespace(exceptions=SimpleNamespace(RayError=ConnectionError))
    return RayWorker(ray, worker)


class ScriptedEnv(Env):
    """An env whose `run` is a function of the test."""

    name = "scripted"

    def __init__(self, run: Callable[[Chat], Awaitable[str]], score: Callable[[str], Score]) -> None:
        self._run, self._score = run, score

    def items(self, split: str) -> list[Item]:
        return []

    async def run(self, item: Item, skill: Skill, chat: Chat) -> Episode:
        return Episode(messages=[], output=await self._run(chat))

    def score(self, item: Item, output: str) -> Score:
        return self._score(output)


class Desk:
    """A Chat on the driver's side: numbered replies, or an error; whole rollouts are tried twice."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[Any] = []
        self._error = error

    async def __call__(self, messages: list[Message], *, tools: Any = ()) -> ChatReply:
        self.asked.append((messages[-1]["content"], list(tools)))
        if self._error:
            raise self._error
        return ChatReply(text=f"reply {len(self.asked)}")

    async def opaque_rollout(self, identity: Any, work: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        self.asked.append(identity)
        try:
            return await work()
        except TransientError:
            return await work()


def worker_with(run: Callable[[Chat], Awaitable[str]], score: Callable[[str], Score]) -> EnvWorker:
    worker = EnvWorker()
    worker.env = ScriptedEnv(run, score)  # type: ignore[assignment]
    return worker


def converse(
    run: Callable[[Chat], Awaitable[str]], desk: Desk, score: Callable[[str], Score] = lambda out: Score(hard=1, soft=1)
) -> tuple[Episode, Score | None]:
    async def whole() -> tuple[Episode, Score | None]:
        worker = worker_with(run, score)
        found = await do_task(worker_of(Handle(worker)), 1, desk, TASK, Skill(""))  # type: ignore[arg-type]
        assert worker._talks == {}, "a finished task is forgotten"
        return found

    return asyncio.run(whole())


def say(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


def test_every_turn_of_an_env_is_answered_by_the_driver_in_order() -> None:
    async def run(chat: Chat) -> str:
        first = await chat(say("one"), tools=[{"type": "function"}])
        return f"{first.text}, {(await chat(say('two'))).text}"

    desk = Desk()
    episode, score = converse(run, desk, lambda out: Score(hard=0, soft=0.5, feedback=out))
    assert desk.asked == [("one", [{"type": "function"}]), ("two", [])]
    assert episode.output == "reply 1, reply 2"
    assert score == Score(hard=0, soft=0.5, feedback="reply 1, reply 2")


def test_a_call_that_fails_raises_inside_the_env_and_then_in_the_driver() -> None:
    seen: list[str] = []

    async def run(chat: Chat) -> str:
        try:
            await chat(say("one"))
        except RefusedError:
            seen.append("in the env")
            raise
        return ""

    with pytest.raises(RefusedError, match="filter"):
        converse(run, Desk(RefusedError("the filter")))
    assert seen == ["in the env"]


def test_a_scorer_that_fails_in_a_worker_fails_here_by_the_same_name() -> None:
    async def run(chat: Chat) -> str:
        return "x"

    def score(output: str) -> Score:
        raise ScorerError("cannot tell")

    with pytest.raises(ScorerError, match="cannot tell"):
        converse(run, Desk(), score)


def test_a_whole_rollouts_work_is_done_in_the_worker_and_tried_again_as_the_driver_says() -> None:
    tries: list[str] = []

    async def run(chat: Chat) -> str:
        async def work() -> dict[str, Any]:
            tries.append((await chat(say("inside"))).text)
            if len(tries) == 1:
                raise TransientError("stumbled")
            return {"output": "done"}

        return str((await chat.opaque_rollout(["agent", 1], work))["output"])

    desk = Desk()
    episode, _ = converse(run, desk)
    assert episode.output == "done"
    assert tries == ["reply 2", "reply 3"]
    assert desk.asked[0] == ["agent", 1]


def together(runs: list[Callable[[Chat], Awaitable[str]]]) -> list[Any]:
    """Tasks side by side on one worker: their outputs or errors."""

    async def whole() -> list[Any]:
        async def run(chat: Chat) -> str:
            return await runs[int((await chat(say("which"))).text)](chat)

        class Numbered(Desk):
            def __init__(self, number: int) -> None:
                super().__init__()
                self._number = number

            async def __call__(self, messages: list[Message], *, tools: Any = ()) -> ChatReply:
                await super().__call__(messages)
                return ChatReply(text=str(self._number) if len(self.asked) == 1 else f"reply {len(self.asked)}")

        worker = Handle(worker_with(run, lambda out: Score(hard=1, soft=1)))
        line = worker_of(worker)
        talks = [do_task(line, n + 1, Numbered(n), TASK, Skill("")) for n in range(len(runs))]  # type: ignore[arg-type]
        found = await asyncio.gather(*talks, return_exceptions=True)
        return [each if isinstance(each, BaseException) else each[0].output for each in found]

    return asyncio.run(whole())


def test_tasks_that_work_for_long_hold_up_no_others() -> None:
    over = asyncio.Event()

    async def slow(chat: Chat) -> str:
        await over.wait()
        return "slow"

    async def quick(chat: Chat) -> str:
        for _ in range(3):
            await chat(say("again"))
        over.set()
        return "quick"

    assert together([slow] * 8 + [quick]) == ["slow"] * 8 + ["quick"]


def test_what_cannot_travel_fails_its_own_task_alone() -> None:
    async def odd(chat: Chat) -> str:
        await chat([{"role": "user", "content": lambda: "no text"}])
        return ""

    async def even(chat: Chat) -> str:
        return (await chat(say("again"))).text

    outputs = together([odd, even])
    assert isinstance(outputs[0], RuntimeError)
    assert "cannot be sent" in str(outputs[0])
    assert outputs[1] == "reply 2"


def test_a_worker_that_is_gone_is_lost_to_all_its_tasks_and_to_later_ones() -> None:
    class Dead(Handle):
        def __getattr__(self, name: str) -> Any:
            class Remote:
                @staticmethod
                async def remote(*arguments: Any) -> None:
                    raise ConnectionError("gone")

            return Remote

    async def whole() -> list[Any]:
        line = worker_of(Dead(None))  # type: ignore[arg-type]
        talks = [do_task(line, n, Desk(), TASK, Skill("")) for n in (1, 2, 3)]  # type: ignore[arg-type]
        first = await asyncio.gather(*talks[:2], return_exceptions=True)
        return [*first, *await asyncio.gather(talks[2], return_exceptions=True)]

    assert [type(each) for each in asyncio.run(whole())] == [WorkerLostError] * 3


# On a real cluster

ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra: pip install 'skillopt[ray]'")
SHORT = ("train.num_epochs=2", "env.options={rules: 12, train: 16, val: 8, test: 8}", "train.batch_size=8")


@ray
@pytest.mark.ray
def test_a_run_on_a_cluster_that_loses_a_worker_equals_a_local_one_and_pays_nothing_twice(tmp_path: Path) -> None:
    env = f"env.name={TESTS / 'support' / 'odd_env.py'}:TwoCallEnv"
    options = "env.options={{rules: 12, train: 16, val: 8, test: 8, dies_once: {}}}"
    here = train_sim(tmp_path / "here", *SHORT, env, options.format('""'))
    target = Spy()
    there = train_sim(
        tmp_path / "there",
        *SHORT,
        env,
        options.format(tmp_path / "died"),
        "hardware.executor=ray",
        models={"target": target},
    )
    assert (tmp_path / "died").exists(), "no worker died"
    assert differing(essence(RunDirectory(here.path)), essence(RunDirectory(there.path))) == []
    asked = [str(request.messages) for request in target.requests]
    assert len(asked) == len(set(asked)), "a reply that had been received was asked for again"


class Hostile:
    """A target whose replies are as no model's should be."""

    name = endpoint = "hostile"
    deterministic = True
    REPLIES = ("", "\0", "\ud800 half", "\x1b[2J\u202e", "{" * 50_000, "[" * 50_000, "word " * 40_000, "</s>" * 1000)

    async def chat(self, request: ChatRequest) -> ChatReply:
        number = int(str(request.messages[-1]["content"]).rpartition("#")[2])
        return ChatReply(text=self.REPLIES[number % len(self.REPLIES)])

    async def close(self) -> None:
        return


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["processes", pytest.param("ray", marks=[pytest.mark.ray, ray])])
def test_hostile_tasks_and_replies_give_the_same_run_on_other_processes(tmp_path: Path, executor: str) -> None:
    names = ["../../x", "a/b", "\u202eevil", "<script>", "x" * 3000, "-rf", " ", "$(id)"]
    rows = [
        {
            "id": f"{names[n % 8]}{n}",
            "question": f"{'Long. ' * 5000 * (n % 8 == 0)}Which? #{n}",
            "answers": ['{"a": 1}'],
        }
        for n in range(32)
    ]
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = ["env.name=qa", "env.options={}", f"env.data={tasks}", "env.scoring=json", "train.num_epochs=1"]
    runs = {
        name: train_sim(tmp_path / name, *own, f"hardware.executor={name}", models={"target": Hostile()})
        for name in ("local", executor)
    }
    for run in runs.values():
        RunDirectory(run.path).patch_log.path.touch()  # there may be no edit in it
    one, other = (essence(RunDirectory(run.path)) for run in runs.values())
    assert differing(one, other) == []
    assert {path.name for path in tmp_path.iterdir()} == {"local", executor, "tasks.jsonl", "tasks.split.json"}


def test_any_number_of_workers_gives_the_same_run(tmp_path: Path) -> None:
    runs = {"one": ("hardware.workers=1", "gradient.analyst_workers=1"), "many": ("hardware.workers=64",)}
    for name, overrides in runs.items():
        train_sim(tmp_path / name, *SHORT, *overrides)
    one, many = (essence(only_run(tmp_path / name)) for name in runs)
    assert differing(one, many) == []


# In processes of this machine


@pytest.mark.slow
def test_a_run_in_processes_equals_one_in_this_process(tmp_path: Path) -> None:
    small = (
        "train.num_epochs=1",
        "optimizer.lr_scheduler=constant",
        "env.options={rules: 8, train: 12, val: 12, test: 8}",
    )
    here = train_sim(tmp_path / "here", *small)
    there = train_sim(tmp_path / "there", *small, "hardware.executor=processes")
    assert differing(essence(RunDirectory(here.path)), essence(RunDirectory(there.path))) == []


BUSY = """
import os

def score(item, output):
    return 1.0 if os.getpid() != {driver} else 0.0

def done_where(item, skill, model):
    return str(os.getpid())
"""


def test_agents_do_their_tasks_in_other_processes_and_the_journal_is_here(tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text(BUSY.format(driver=os.getpid()))
    rows = [{"question": f"Q{n}", "answer": str(os.getpid())} for n in range(24)]
    env = {"agent": f"{tmp_path}/busy.py:done_where", "scoring": "exact"}
    result = skillopt.evaluate(
        {"env": {**env, "output_root": str(tmp_path / "out"), "split_dir": str(split_folder(tmp_path, rows))}},
        Skill(""),
        models={"target_model": "agent:busy"},
        executor="processes",
        split="val",
    )
    assert (result["score"], result["items"]) == (0, 8)  # none was done in this process


def split_folder(folder: Path, rows: list[dict[str, str]]) -> Path:
    for place, split in enumerate(("train", "val", "test")):
        (folder / "data" / split).mkdir(parents=True)
        own = [{"id": f"{split}{n}", **row} for n, row in enumerate(rows[place * 8 : place * 8 + 8])]
        (folder / "data" / split / "items.json").write_text(json.dumps(own))
    return folder / "data"


@pytest.mark.slow
def test_a_process_that_dies_is_replaced_and_the_task_is_done_again(tmp_path: Path) -> None:
    text = """
import os
from pathlib import Path

def fragile(item, skill, model):
    mark = Path({folder!r}) / "died"
    if not mark.exists():
        mark.touch()
        os._exit(7)
    return "yes"
"""
    (tmp_path / "fragile.py").write_text(text.format(folder=str(tmp_path)))
    rows = [{"question": f"Q{n}", "answer": "yes"} for n in range(24)]
    env = {"agent": f"{tmp_path}/fragile.py:fragile", "split_dir": str(split_folder(tmp_path, rows))}
    result = skillopt.evaluate(
        {"env": {**env, "output_root": str(tmp_path / "out")}},
        Skill(""),
        models={"target_model": "agent:x"},
        executor="processes",
        split="val",
    )
    assert (result["score"], (tmp_path / "died").exists()) == (1, True)


def test_an_env_that_no_process_can_open_is_refused_before_anything_runs(tmp_path: Path) -> None:
    rows = [{"question": f"Q{n}", "answer": "yes"} for n in range(24)]
    given: dict[str, Any] = {"target_model": "sim:world", "output_root": str(tmp_path), "executor": "processes"}
    with pytest.raises(skillopt.UserError, match=r"hardware\.executor: this env cannot be sent to processes"):
        skillopt.evaluate(None, Skill(""), tasks=rows, scorer=lambda item, output: 1.0, **given)


@pytest.mark.slow
def test_functions_of_a_module_go_to_the_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "parts_of_mine.py").write_text(
        "import os\n\ndef agent(item, skill, model):\n    return str(os.getpid())\n\n"
        "def score(item, output):\n    return float(output != os.environ['DRIVER'] and output == str(os.getpid()))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("DRIVER", str(os.getpid()))
    import parts_of_mine  # type: ignore[import-not-found]

    rows = [{"question": f"Q{n}", "answer": "yes"} for n in range(24)]
    given: dict[str, Any] = {"output_root": str(tmp_path / "out"), "executor": "processes", "split": "val"}
    parts = {"agent": parts_of_mine.agent, "scorer": parts_of_mine.score}
    assert skillopt.evaluate(None, Skill(""), tasks=rows, **parts, **given)["score"] == 1
    sim = {"env": {"name": "sim", "options": {"rules": 6, "train": 12, "val": 10, "test": 6}}}
    assert skillopt.evaluate(sim, Skill(""), **parts, **given)["score"] == 1


# Workers that do not start


@pytest.mark.parametrize(("begun", "error"), [(0, skillopt.UserError), (1, skillopt.Stopped)])
def test_a_worker_that_the_machine_cannot_start_ends_the_run_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: int, error: type[Exception]
) -> None:
    """`begun`: how many processes the machine can still start; the agent ends each of them."""
    (tmp_path / "fragile.py").write_text("import os\n\ndef fragile(item, skill, model):\n    os._exit(7)\n")
    rows = [{"question": f"Q{n}", "answer": "yes"} for n in range(24)]
    env = {"agent": f"{tmp_path}/fragile.py:fragile", "split_dir": str(split_folder(tmp_path, rows))}
    start, started = asyncio.create_subprocess_exec, []

    async def fork(*command: str, **how: Any) -> asyncio.subprocess.Process:
        started.append(command)
        if len(started) > begun:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return await start(*command, **how)

    async def measure() -> str:
        keys: dict[str, Any] = {"hardware": {"executor": "processes", "workers": 1}, "split": "val"}
        config = {"env": {**env, "output_root": str(tmp_path / "out")}}
        work = skillopt.evaluate_async(config, Skill(""), models={"target_model": "agent:x"}, **keys)
        try:
            async with asyncio.timeout(30):
                await work
        except error as raised:
            return str(raised)
        except TimeoutError:
            return "still waiting for a worker after 30 s"
        return "measured without a worker"

    monkeypatch.setattr(asyncio, "create_subprocess_exec", fork)
    assert "Resource temporarily unavailable" in asyncio.run(measure())
