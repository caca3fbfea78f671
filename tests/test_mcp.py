"""The MCP server over stdio, driven by the official SDK's client, as an agent drives it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from cli_mind import reply_to_page
from skillopt.run.directory import RunDirectory
from skillopt_webui.alive import holder
from support import differing, essence, train_sim
from webui import make_workspace

pytestmark = pytest.mark.extras
pytest.importorskip("mcp", reason="pip install 'skillopt[mcp]'")

SHORT = [
    "train.num_epochs=1",
    "train.batch_size=12",
    "env.options={rules: 6, train: 12, val: 10, test: 6}",
    "models.optimizer_model=handoff",
]
CONFIG = "configs/sim/default.yaml"
Call = Callable[..., Awaitable[Any]]


@contextlib.asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[tuple[Any, Call]]:
    """A client of a real server process; `call` gives a tool's value, and raises what the tool refused."""
    from mcp import Client, StdioServerParameters

    arguments = ["-m", "skillopt.cli", "mcp", str(folder)]
    server = StdioServerParameters(command=sys.executable, args=arguments, env={**os.environ})
    async with Client(server) as client:

        async def call(name: str, **given: Any) -> Any:
            result = await client.call_tool(name, given)
            text = "\n".join(part.text for part in result.content)
            if result.is_error:
                raise ValueError(text)
            found = result.structured_content
            return found["result"] if found and set(found) == {"result"} else found or text

        yield client, call
    for lock in folder.glob("outputs/*/*/run.lock"):
        if pid := holder(lock.parent):
            os.kill(pid, signal.SIGKILL)


def in_workspace(tmp_path: Path, work: Callable[[Any, Call, Path], Awaitable[None]]) -> None:
    folder = make_workspace(tmp_path / "work")

    async def run() -> None:
        async with connected(folder) as (client, call):
            await work(client, call, folder)

    asyncio.run(run())


async def answered(call: Call, run: str) -> dict[str, Any]:
    """Answer letters, as they are read, until the run has ended."""
    while True:
        seen = await call("watch_run", run=run, seconds=20)
        if not seen["letters"] and seen["status"] != "running":
            return dict(seen)
        for letter in seen["letters"]:
            text = await call("read_letter", run=run, number=letter["number"])
            await call(
                "answer_letter", run=run, number=letter["number"], reply=await asyncio.to_thread(reply_to_page, text)
            )


def test_an_agent_plans_starts_watches_answers_and_reads_the_result(tmp_path: Path) -> None:
    async def work(client: Any, call: Call, folder: Path) -> None:
        assert CONFIG in await call("list_configs")
        assert await call("list_runs") == []
        plan = await call("plan", config=CONFIG, changes=SHORT)
        assert plan["calls"]["optimizer"][1] >= 1
        run = (await call("start_run", config=CONFIG, changes=SHORT))["run"]
        seen = await call("watch_run", run=run, seconds=50)
        assert seen["status"] == "running"
        letter = seen["letters"][0]
        with pytest.raises(ValueError, match="does not fit"):
            await call("answer_letter", run=run, number=letter["number"], reply='{"edits": []}')
        ended = await answered(call, run)
        assert ended["status"] == "finished"
        assert ended["progress"]["best"]["val"] > ended["progress"]["initial"]["val"]
        skill = await call("best_skill", run=run)
        assert skill == (folder / "outputs" / run / "best_skill.md").read_text()
        assert "step 1" in await call("evidence", run=run)
        assert "trajectories" in await call("evidence", run=run, line=len(skill.splitlines()))
        assert "## What it took" in await call("report", run=run)
        (row,) = await call("list_runs")
        assert (row["run"], row["status"]) == (run, "finished")
        sim = "models.optimizer_model=sim:world"
        plain = await asyncio.to_thread(train_sim, tmp_path / "plain", *SHORT[:3], sim)
        assert differing(essence(RunDirectory(plain.path)), essence(RunDirectory(folder / "outputs" / run))) == []

    in_workspace(tmp_path, work)


def test_a_run_is_stopped_with_letters_open_and_continued(tmp_path: Path) -> None:
    async def work(client: Any, call: Call, folder: Path) -> None:
        run = (await call("start_run", config=CONFIG, changes=SHORT))["run"]
        await call("watch_run", run=run, seconds=50)
        await call("stop_run", run=run)
        while holder(folder / "outputs" / run):  # noqa: ASYNC110 - another process's end
            await asyncio.sleep(0.05)
        assert (await call("watch_run", run=run))["letters"], "they stay open"
        assert (await call("start_run", config=CONFIG, changes=SHORT))["run"] == run
        assert (await answered(call, run))["status"] == "finished"

    in_workspace(tmp_path, work)


def test_what_lies_outside_and_what_costs_without_a_budget_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "secret.yaml"
    outside.write_text("env: {name: sim}\n")
    costly = ["models.target_model=vllm:m", "hardware.vllm_url=http://127.0.0.1:9/v1"]

    async def work(client: Any, call: Call, folder: Path) -> None:
        (folder / "link.yaml").symlink_to(outside)
        for name, given, said in (
            ("plan", {"config": "../secret.yaml"}, "no file"),
            ("plan", {"config": str(outside)}, "no file"),
            ("plan", {"config": "link.yaml"}, "no file"),
            ("start_run", {"config": CONFIG, "changes": ["env.output_root=/tmp/elsewhere"]}, "output_root"),
            ("start_run", {"config": CONFIG, "changes": ["train.init_skill=/etc/passwd"]}, "init_skill"),
            ("start_run", {"config": CONFIG, "changes": ["models.optimizer_model=command:rm -rf x"]}, "names code"),
            ("start_run", {"config": CONFIG, "changes": ["models.optimizer_model=handoff:/tmp"]}, "outside"),
            ("start_run", {"config": CONFIG, "changes": costly}, "there is no budget"),
            ("start_run", {"config": CONFIG, "changes": [*costly, "budget.max_minutes=5"]}, "there is no budget"),
            ("start_run", {"config": CONFIG, "changes": ["train.nonsense=1"]}, "unknown key"),
            ("best_skill", {"run": "../../etc"}, "no run"),
            ("read_letter", {"run": "sim/none", "number": 1}, "no run"),
            ("stop_run", {"run": "0/../.."}, "no run"),
        ):
            with pytest.raises(ValueError, match=said):
                await call(name, **given)
        assert not list((folder / "outputs").glob("*/*"))
        with pytest.raises(ValueError, match="the run did not begin"):
            await call("start_run", config=CONFIG, changes=["train.init_skill=none.md"])

    in_workspace(tmp_path, work)


def test_every_tool_is_described_and_the_server_says_how_to_use_them(tmp_path: Path) -> None:
    async def work(client: Any, call: Call, folder: Path) -> None:
        tools = (await client.list_tools()).tools
        assert len(tools) == 12
        assert all(tool.description for tool in tools)
        assert "from that\nletter alone" in client.instructions

    in_workspace(tmp_path, work)
