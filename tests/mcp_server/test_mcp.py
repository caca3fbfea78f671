"""The MCP server over stdio, driven by the official SDK's client, as an agent drives it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from skillopt.record.directory import RunDirectory
from skillopt_webui.alive import holder
from support import differing, essence, train_sim
from support.cli_mind import reply_to_page
from support.mcp_client import Call, connected
from support.webui import make_workspace
from support.wire import listening

pytestmark = pytest.mark.extras
pytest.importorskip("mcp", reason="pip install 'skillopt[mcp]'")

SHORT = [
    "train.num_epochs=1",
    "train.batch_size=12",
    "env.options={rules: 6, train: 12, val: 10, test: 6}",
    "models.optimizer_model=handoff",
]
CONFIG = "configs/sim/default.yaml"


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
        assert plan["calls"]["optimizer"]["likely"] >= 1
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
        assert "## Cost and time" in await call("report", run=run)
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
    costly = ["models.target_model=openai:gpt-4o-mini"]

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
            ("start_run", {"config": CONFIG, "changes": costly}, "no budget is set"),
            ("start_run", {"config": CONFIG, "changes": [*costly, "budget.max_minutes=5"]}, "no budget is set"),
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


def test_no_key_goes_to_an_address_that_only_the_agent_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = "ghp-0123456789abcdef-of-somebody"
    monkeypatch.setenv("GITHUB_TOKEN", token)
    with listening() as (url, heard):
        changes = [*SHORT, "models.target_model=openai:m", f"models.target_url={url}", "budget.max_calls=5"]
        changes += ["models.target_key_name=GITHUB_TOKEN"]

        async def work(client: Any, call: Call, folder: Path) -> None:
            said = ""
            try:
                run = (await call("start_run", config=CONFIG, changes=changes))["run"]
                await call("watch_run", run=run, seconds=20)
            except ValueError as error:
                said = str(error)
            assert not [sent for sent in heard if token in sent], heard
            assert "would be sent to" in said

        in_workspace(tmp_path, work)


def test_a_config_in_the_output_folder_names_no_program(tmp_path: Path) -> None:
    async def work(client: Any, call: Call, folder: Path) -> None:
        run = folder / "outputs" / "qa" / "foreign"
        run.mkdir(parents=True)
        config = f"env: {{name: qa, data: data/tasks.jsonl, command: ['{sys.executable}', '-c', 'print(1)']}}\n"
        for name in (run / "config.yaml", folder / "outputs" / "config.yaml"):
            name.write_text(f"{config}budget: {{max_calls: 50}}\n")
        rows = [{"id": f"i{n}", "question": f"What is {n}?", "answer": "1"} for n in range(12)]
        (folder / "data" / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        for tool in ("plan", "start_run"):
            with pytest.raises(ValueError, match="names code"):
                await call(tool, config="outputs/qa/foreign/config.yaml")
        assert not [name for name in await call("list_configs") if name.startswith("outputs")]

    in_workspace(tmp_path, work)


PAID = ["models.target_model=openai:gpt-4o-mini", "models.optimizer_model=openai:gpt-4o"]
FREE_PRICES = '{"openai:gpt-4o-mini": {input: 0, output: 0}, "openai:gpt-4o": {input: 0, output: 0}}'


@pytest.mark.parametrize(
    ("file", "changes", "said"),
    [
        ("", ["budget.max_usd=1", f"budget.prices={FREE_PRICES}"], "only a config file may set prices"),
        ("", ["budget.max_calls=999999999999"], "is more than"),
        ("", ["budget.max_usd=100000"], "is more than"),
        ("", ["budget.max_tokens=999999999999"], "is more than"),
        ("budget: {max_usd: 2}", ["budget.max_usd=20"], "the config file allows 2"),
        ("budget: {max_usd: 2}", ["budget.max_usd=null", "budget.max_calls=100"], "the config file allows 2"),
    ],
)
def test_what_an_agent_may_spend_is_a_limit_that_it_cannot_raise(
    tmp_path: Path, file: str, changes: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-0123456789abcdef-of-the-user")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")

    async def work(client: Any, call: Call, folder: Path) -> None:
        (folder / "configs" / "paid.yaml").write_text(f"env: {{name: sim}}\n{file}\n")
        with pytest.raises(ValueError, match=said):
            await call("start_run", config="configs/paid.yaml", changes=[*PAID, *changes])
        assert not list((folder / "outputs").glob("*/*")), "nothing was started"

    in_workspace(tmp_path, work)


def test_no_detour_lets_an_agent_spend_more_than_the_config_file_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "key-0123456789abcdef-of-the-user")
    with listening() as (url, heard):
        paid = "configs/paid.yaml"
        models = f"models: {{target_model: 'vllm:m', target_url: '{url}', optimizer_model: handoff}}\n"

        async def work(client: Any, call: Call, folder: Path) -> None:
            rows = [{"id": f"i{n}", "question": f"What is {n}?", "answer": str(n)} for n in range(60)]
            (folder / "data" / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            text = (
                f"env: {{name: qa, data: data/t.jsonl}}\ntrain: {{num_epochs: 1}}\n{models}budget: {{max_calls: 5}}\n"
            )
            (folder / paid).write_text(text)
            run = (await call("start_run", config=paid))["run"]
            await ended(call, run)
            other = ["env.name=qa", "env.options={}", "env.data=data/t.jsonl", "train.num_epochs=1"]
            other += ["models.target_model=vllm:m", f"models.target_url={url}", "models.optimizer_model=handoff"]
            record = f"outputs/{run}/config.yaml"
            detours: list[dict[str, Any]] = [
                {"config": record, "changes": ["budget.max_calls=40"]},
                {"config": record, "changes": ["budget.max_calls=null", "budget.max_tokens=100000"]},
                {"config": CONFIG, "changes": [*other, "budget.max_calls=40"]},
                {"config": CONFIG, "changes": [*other, "budget.max_calls=5", "train.seed=7"]},
                {"config": paid, "fresh": True},
                {"config": paid, "changes": ["train.seed=100"]},
                {"config": paid, "changes": ["env.benchmark=another"]},
            ]
            passed = []
            for given in detours:
                with contextlib.suppress(ValueError):
                    await ended(call, (await call("start_run", **given))["run"])
                    passed.append(given)
            assert len(heard) <= 5, passed
            for config in (paid, record):
                assert (await call("start_run", config=config))["run"] == run, "the run itself may continue"

        in_workspace(tmp_path, work)


async def ended(call: Call, run: str) -> None:
    """Wait until a run that was started has stopped or waits for its optimizer."""
    await call("watch_run", run=run, seconds=20)


def test_numbers_without_end_and_models_that_are_addresses_are_refused_in_words(tmp_path: Path) -> None:
    async def work(client: Any, call: Call, folder: Path) -> None:
        for change, said in (
            ("train.seed=0x" + "f" * 100_000, "too long"),
            ("train.seed=" + ":".join(["59"] * 400) + ".5", "too long"),
            ("models.target_model=huggingface:http://127.0.0.1:9/x", "names a URL as the model"),
        ):
            for tool in ("plan", "start_run"):
                with pytest.raises(ValueError, match=said):
                    await call(tool, config=CONFIG, changes=[change])

    in_workspace(tmp_path, work)


def test_a_list_of_runs_is_short(tmp_path: Path) -> None:
    async def work(client: Any, call: Call, folder: Path) -> None:
        result = await asyncio.to_thread(train_sim, folder / "outputs", *SHORT[:3], "models.optimizer_model=sim:world")
        for number in range(7):
            shutil.copytree(result.path, result.path.with_name(f"copy{number}"))
        rows = await call("list_runs")
        assert len(rows) == 8
        assert len(json.dumps(rows)) < 8 * 300
        assert {"run", "status", "best", "initial"} <= set(rows[0])

    in_workspace(tmp_path, work)


def test_errors_name_runs_and_folders_as_an_agent_knows_them(tmp_path: Path) -> None:
    async def work(client: Any, call: Call, folder: Path) -> None:
        said = []
        for name, given in (
            ("best_skill", {"run": "outputs/sim/none"}),
            ("plan", {"config": "none.yaml"}),
            ("plan", {"config": CONFIG, "changes": ["train.init_skill=/etc/hosts.md"]}),
            ("plan", {"config": CONFIG, "changes": ["models.optimizer_model=handoff:/tmp"]}),
            ("plan", {"config": CONFIG, "changes": ["env.output_root=/tmp/elsewhere"]}),
        ):
            with pytest.raises(ValueError) as refused:  # noqa: PT011
                await call(name, **given)
            said.append(str(refused.value))
        assert not [text for text in said if "'0/" in text or "page" in text or "--" in text], said
        assert "'outputs/sim/none'" in said[0]
        assert str(folder) in said[1]

    in_workspace(tmp_path, work)


@pytest.mark.parametrize("name", ["comments.jsonl", "config.json", "review/conflicts.jsonl"])
def test_a_damaged_file_of_a_run_is_told_in_words(tmp_path: Path, name: str) -> None:
    async def work(client: Any, call: Call, folder: Path) -> None:
        result = await asyncio.to_thread(train_sim, folder / "outputs", *SHORT[:3], "models.optimizer_model=sim:world")
        run = f"sim/{result.path.name}"
        (result.path / "summary.json").unlink()  # as of a run that was killed
        (result.path / name).write_text('{"kind": \n')
        said = {}
        for tool in ("watch_run", "list_letters", "best_skill", "evidence"):
            with contextlib.suppress(ValueError):
                await call(tool, run=run)
                continue
            with pytest.raises(ValueError) as refused:  # noqa: PT011
                await call(tool, run=run)
            said[tool] = str(refused.value)
        assert not {tool: text for tool, text in said.items() if str(result.path) not in text}

    in_workspace(tmp_path, work)
