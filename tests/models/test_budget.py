"""A spending limit holds: what is in flight counts, nothing paid is lost, a larger limit goes on as if unlimited."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from skillopt.config import BudgetConfig, Config, HardwareConfig, Price
from skillopt.errors import Stopped, UserError
from skillopt.models.base import ChatReply, ChatRequest, Usage
from skillopt.models.budget import Budget
from skillopt.models.call import Caller, Limiter, Switch
from skillopt.models.prices import cost_of, price_of
from skillopt.record.damage import journal_problem
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json
from skillopt.record.journal import Journal, JournalRow, Total
from skillopt.sim.model import SimOptions, SimulatedModel
from skillopt.training.session import check_prices
from support import SIM, differing, essence, only_run, over_http, sim_server, skillopt, train_sim

GPT = "openai:gpt-4o"


class Slow:
    """A model of a known price; every call takes a moment, so that many are in flight."""

    name, endpoint, deterministic = GPT, "slow", True

    def __init__(self, usage: Usage) -> None:
        self.calls, self._usage = 0, usage

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.calls += 1
        await asyncio.sleep(0.01)
        return ChatReply(text="yes", usage=self._usage)

    async def close(self) -> None:
        return


def spend(limits: BudgetConfig, journal: Journal, usage: Usage, *, role: str = "target", width: int = 4) -> int:
    """Ask until the budget stops it; gives the calls that were sent."""
    model = Slow(usage)

    async def all_calls() -> None:
        call = Caller(
            model=model,
            role=role,
            journal=journal,
            limiter=Limiter(width),
            budget=Budget(limits, journal),
            switch=Switch(),
            hardware=HardwareConfig(),
            deterministic=True,
        )
        work = (
            call([{"role": "user", "content": f"{role} {n} " + "x" * 400}], stage="s", label="") for n in range(100)
        )
        results = await asyncio.gather(*work, return_exceptions=True)
        reasons = {str(result) for result in results if isinstance(result, BaseException)}
        assert len(reasons) == 1
        assert all(isinstance(result, Stopped | ChatReply) for result in results)

    asyncio.run(all_calls())
    return model.calls


@pytest.mark.parametrize("width", [1, 7, 40])
def test_calls_in_flight_count_before_they_are_sent(width: int, tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        assert spend(BudgetConfig(max_calls=20), journal, Usage(prompt=10, completion=5), width=width) == 20
        assert sum(total.calls for total in journal.totals()) == 20, "all that was paid is kept"


def test_tokens_in_flight_count_by_their_estimate(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        calls = spend(BudgetConfig(max_tokens=5000), journal, Usage(prompt=100, completion=100), width=8)
    assert 5000 / 200 - 8 <= calls <= 5000 / 200 + 1


def test_money_is_counted_by_the_price_list(tmp_path: Path) -> None:
    a_call = cost_of(Usage(prompt=1000, completion=100), price_of(GPT, {}))
    assert a_call == pytest.approx(0.0035)
    with Journal(tmp_path / "j") as journal:
        calls = spend(BudgetConfig(max_usd=0.035), journal, Usage(prompt=1000, completion=100), width=1)
    assert calls == 10


def test_what_one_role_spent_counts_for_the_other(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        assert spend(BudgetConfig(max_calls=5), journal, Usage(), role="optimizer") == 5
        assert spend(BudgetConfig(max_calls=50), journal, Usage(), role="target") == 45


def test_the_reason_names_the_limit() -> None:
    with Journal(":memory:") as journal:
        budget = Budget(BudgetConfig(max_tokens=10), journal)
        with budget.call(GPT, Usage()) as paid:
            paid(Usage(prompt=10))
        reason = r"budget\.max_tokens: the limit of 10 is reached; raise it to continue"
        with pytest.raises(Stopped, match=reason), budget.call(GPT, Usage()):
            pass


def test_a_call_without_a_reply_is_not_paid_for() -> None:
    with Journal(":memory:") as journal:
        budget = Budget(BudgetConfig(max_calls=1), journal)
        with budget.call(GPT, Usage(prompt=5)):
            pass
        with budget.call(GPT, Usage()), pytest.raises(Stopped), budget.call(GPT, Usage()):
            pass


def test_time_is_a_limit() -> None:
    with Journal(":memory:") as journal:
        budget = Budget(BudgetConfig(max_minutes=1e-9), journal)
        with pytest.raises(Stopped, match=r"budget\.max_minutes"), budget.call(GPT, Usage()):
            pass


def test_cached_prompt_tokens_have_a_price_of_their_own() -> None:
    usage = Usage(prompt=1_000_000, completion=0, cached=600_000)
    assert cost_of(usage, Price(input=10, output=0, cached=1)) == pytest.approx(4.6)
    assert cost_of(usage, Price(input=10, output=0)) == pytest.approx(10)


def test_own_prices_stand_above_the_list_and_dated_versions_have_the_models_price() -> None:
    own = {GPT: Price(input=1, output=2)}
    assert price_of(GPT, own) == own[GPT]
    assert price_of(GPT, {}) == price_of("azure:gpt-4o", {}) == Price(input=2.5, output=10, cached=1.25)
    assert price_of("openai:gpt-4o-2024-08-06", {}) == price_of(GPT, {})
    claude = price_of("anthropic:claude-sonnet-4-5", {})
    assert claude
    assert price_of("anthropic:claude-sonnet-4-5-20250929", {}) == claude
    free = price_of("local:qwen2.5-coder-0.5b", {})
    assert free
    assert (free.input, free.output) == (0, 0)


@pytest.mark.parametrize(
    "model",
    [
        "vllm:gpt-4o",
        "openai:gpt-4o-of-mine",
        "openai:text-embedding-3-small",  # listed without a price for replies
        "my-openai-proxy:gpt-4o",  # genai-prices takes this for OpenAI
        "azure:my-deployment",
    ],
)
def test_an_unknown_price_is_unknown_and_not_0(model: str) -> None:
    assert price_of(model, {}) is None


def test_a_price_is_that_of_short_prompts_at_the_dearest_hour_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    def get_prices(moment: datetime) -> SimpleNamespace:
        assert moment.date() == datetime.now(UTC).date()
        return SimpleNamespace(input_mtok=SimpleNamespace(base=1 + (moment.hour == 3), tiers=[]), output_mtok=8)

    found = SimpleNamespace(model=SimpleNamespace(get_prices=get_prices))
    monkeypatch.setattr("genai_prices.calc_price", lambda *_, **__: found)
    assert price_of("deepseek:by-the-hour", {}) == Price(input=2, output=8)


def test_prices_are_looked_up_without_a_connection_and_a_thread() -> None:
    code = (
        "import socket, threading; socket.socket.connect = socket.getaddrinfo = None\n"
        "from skillopt.models.prices import price_of\n"
        "print(price_of('openai:gpt-4o', {}).input, threading.active_count())"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["2.5", "1"]


def test_an_unknown_price_is_said_to_be_unknown(tmp_path: Path) -> None:
    with sim_server() as (_, url):
        result = train_sim(tmp_path, *over_http(url), "train.num_epochs=1", "env.options={train: 6, val: 4, test: 4}")
    assert result.summary.cost_usd.model_dump() == {"target": None, "optimizer": None}
    assert set(result.summary.cost_usd_by_stage.target.values()) == {None}


def test_a_limit_in_money_needs_every_price() -> None:
    config = Config.parse({"budget": {"max_usd": 1}, "models": {"optimizer_model": "vllm:x"}})
    with pytest.raises(UserError, match=r"budget\.max_usd: the price of 'vllm:x' is unknown"):
        check_prices(config)
    check_prices(Config.parse({"budget": {"max_calls": 1}, "models": {"optimizer_model": "vllm:x"}}))


def test_what_the_journal_holds_counts_in_the_next_session() -> None:
    with Journal(":memory:") as journal:
        journal.put(
            JournalRow(key="k", attempt=1, role="target", stage="s", model=GPT, turn=1, reply={}, prompt_tokens=400_000)
        )
        assert Budget(BudgetConfig(), journal).cost(journal.totals()[0]) == pytest.approx(1.0)
        budget = Budget(BudgetConfig(max_usd=1), journal)
        with pytest.raises(Stopped, match="max_usd"), budget.call(GPT, Usage()):
            pass


def test_costs_are_told_by_role_and_stage() -> None:
    from skillopt.record.costs import usage

    def total(role: str, stage: str, tokens: int) -> Total:
        counts = {"calls": 1, "first_turns": 1, "completion_tokens": 0, "cached_tokens": 0}
        return Total(role=role, stage=stage, model=GPT, prompt_tokens=tokens, **counts)

    with Journal(":memory:") as journal:
        budget = Budget(BudgetConfig(), journal)
        paid = usage([total("target", "rollout", 10**6), total("target", "gate", 2 * 10**6)], budget.cost)
    assert paid["target"]["usd_by_stage"] == {"rollout": 2.5, "gate": 5.0}
    assert paid["target"]["usd"] == 7.5


def test_150_calls_are_150_calls_and_600_end_as_an_unlimited_run(tmp_path: Path) -> None:
    small = ["env.options={rules: 12, train: 24, val: 24, test: 24}", "train.num_epochs=2", "hardware.workers=16"]
    with sim_server(SimOptions(duds=0.35, latency=0.002)) as (server, url):
        with pytest.raises(Stopped, match="max_calls: the limit of 150 is reached"):
            train_sim(tmp_path / "limited", *over_http(url), *small, "budget.max_calls=150")
        assert server.requests.total() == 150
        resumed = train_sim(tmp_path / "limited", *over_http(url), *small, "budget.max_calls=600")
        assert max(server.requests.values()) == 1, "nothing is paid for twice"
        whole = train_sim(tmp_path / "whole", *over_http(url), *small)
    assert resumed.summary["status"] == "finished"
    assert differing(essence(RunDirectory(resumed.path)), essence(RunDirectory(whole.path))) == []
    stages = [dict(run.summary["calls_by_stage"]["target"]) for run in (resumed, whole)]
    assert all(calls.pop("gate") for calls in stages), "what a gate has in flight when it is sure depends on time"
    assert stages[0] == stages[1]
    assert read_json(RunDirectory(resumed.path).summary)["best"] == read_json(RunDirectory(whole.path).summary)["best"]


# The bill of a run, whatever became of it

PRICED = ("models.target_model=sim:world", "train.num_epochs=1", "env.options={rules: 6, train: 12, val: 12, test: 12}")


def test_a_run_that_its_budget_stops_in_the_first_step_has_a_bill_and_a_report(tmp_path: Path) -> None:
    config = ("--config", str(SIM), f"env.output_root={tmp_path}", *PRICED)
    done = skillopt("train", *config, "budget.max_calls=5")
    assert done.returncode == 3
    run = only_run(tmp_path)
    listed = json.loads(skillopt("runs", str(tmp_path), "--json").stdout)
    assert (listed["status"], listed["calls"]) == ("stopped", 5)
    assert skillopt("report", str(run.root)).returncode == 0
    page = run.report.read_text()
    assert "Not finished: nothing is measured yet (budget.max_calls" in page
    assert "It cost 5 calls" in page
    again = skillopt("train", *config)
    assert again.returncode == 0, again.stderr
    assert read_json(run.summary)["status"] == "finished"


def test_a_run_that_was_killed_is_billed_from_its_journal(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        train_sim(tmp_path, *PRICED, "budget.max_calls=60")
    run = only_run(tmp_path)
    summary = read_json(run.summary)
    summary |= {"status": "running", "calls": {"target": 0, "optimizer": 0, "from_journal": 0}}  # as a kill leaves it
    run.summary.write_text(json.dumps(summary))
    *lines, last = run.events.read_text().splitlines(keepends=True)
    assert "run_stopped" in last
    run.events.write_text("".join(lines))
    listed = json.loads(skillopt("runs", str(tmp_path), "--json").stdout)
    assert (listed["status"], listed["calls"]) == ("interrupted", 60)
    assert skillopt("report", str(run.root)).returncode == 0
    assert "It cost 60 calls" in run.report.read_text()


def test_a_run_without_a_price_says_so_in_its_verdict_and_report_takes_no_prices(tmp_path: Path) -> None:
    result = train_sim(tmp_path, *PRICED, models={"target": Unpriced(), "optimizer": SimulatedModel("sim:world")})
    assert result.summary["cost_usd"]["target"] is None
    assert "at an unknown price" in result.verdict
    refused = skillopt("report", str(result.path), "--prices", "mine:model=1000000,0")
    assert refused.returncode == 2
    assert "set budget.prices" in refused.stderr


class Unpriced(SimulatedModel):
    def __init__(self) -> None:
        super().__init__("sim:world")
        self.name = "mine:model"


def test_an_altered_sum_is_found(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with Journal(path) as journal:
        journal.put(JournalRow(key="l", attempt=1, role="target", stage="s", model="m", turn=1, reply={}, usd=0.25))
    assert journal_problem(path) == ""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("UPDATE replies SET usd = 0.01")
    assert "1 of 1 replies were changed after they were received" in journal_problem(path)
