"""The limiter: as many calls at once as an endpoint bears, no more than the user allows, pauses that are obeyed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from skillopt.config import HardwareConfig
from skillopt.errors import Stopped
from skillopt.models.base import ChatReply, ChatRequest, RefusedError, TransientError, Usage
from skillopt.models.call import Endpoint, Limiter
from skillopt.models.limiter import Bucket
from skillopt.record.journal import Journal
from skillopt.sim.model import SimOptions, SimulatedModel
from support import train_sim
from support.calls import ask_all, caller

pytestmark = pytest.mark.usefixtures("virtual_time")


class Scripted:
    """A model whose replies a test writes."""

    name, endpoint, deterministic = "vllm:scripted", "scripted", True

    def __init__(self, reply: Callable[[str], Awaitable[str]]) -> None:
        self._reply = reply
        self.sent: list[tuple[float, str]] = []

    async def chat(self, request: ChatRequest) -> ChatReply:
        text = str(request.messages[-1]["content"])
        self.sent.append((time.monotonic(), text))
        return ChatReply(text=await self._reply(text), usage=Usage(prompt=2, completion=200))

    async def close(self) -> None:
        return


def test_it_settles_at_what_the_endpoint_bears_and_loses_little(tmp_path: Path) -> None:
    def run(width: int, name: str) -> tuple[float, Limiter, SimulatedModel]:
        model = SimulatedModel("sim:world", SimOptions(latency=0.05, jitter=0.5, most_in_flight=8))
        limiter = Limiter(width)
        with Journal(tmp_path / name) as journal:
            started = time.monotonic()
            asyncio.run(ask_all(caller(model, limiter, journal, HardwareConfig(max_retries=50)), 300))
        return time.monotonic() - started, limiter, model

    fixed, _, _ = run(8, "fixed")
    adaptive, limiter, model = run(32, "adaptive")
    assert 7 <= limiter.endpoint.limit <= 9
    assert fixed / adaptive >= 0.85
    assert model.calls < 1.3 * 300


def test_calls_turned_away_at_any_width_do_not_narrow_it(tmp_path: Path) -> None:
    model = SimulatedModel("sim:world", SimOptions(latency=0.02, rate_limit_every=5, retry_after=0.05))
    limiter = Limiter(8)
    with Journal(tmp_path / "j") as journal:
        asyncio.run(ask_all(caller(model, limiter, journal), 100))
    assert limiter.endpoint.turned_away >= 20
    assert limiter.endpoint.limit >= 6
    assert model.calls <= 1.3 * 100


def test_a_call_is_not_sent_again_before_its_retry_after(tmp_path: Path) -> None:
    asked: dict[str, int] = {}

    async def reply(text: str) -> str:
        asked[text] = asked.get(text, 0) + 1
        await asyncio.sleep(0.01)
        if text == "call 7" and asked[text] == 1:
            raise TransientError("429", retry_after=0.4)
        return "yes"

    model = Scripted(reply)
    with Journal(tmp_path / "j") as journal:
        asyncio.run(ask_all(caller(model, 2, journal), 20))
    first, second = [when for when, text in model.sent if text == "call 7"]
    assert second - first >= 0.4
    others = [when for when, text in model.sent if first < when < second and text != "call 7"]
    assert len(others) == 12, "the others go on meanwhile"


def test_the_first_call_that_is_turned_away_holds_up_no_other(tmp_path: Path) -> None:
    rejected: list[str] = []

    async def reply(text: str) -> str:
        if text == "call 4" and not rejected:
            rejected.append(text)
            raise TransientError("429", retry_after=1.0, overloaded=True)
        await asyncio.sleep(0.1)
        return "yes"

    model = Scripted(reply)
    started = time.monotonic()
    with Journal(tmp_path / "j") as journal:
        asyncio.run(ask_all(caller(model, 8, journal), 20))
    others = [when - started for when, text in model.sent if text != "call 4"]
    assert max(others) < 0.5, "the others are answered meanwhile"
    assert max(when - started for when, _ in model.sent) >= 1.0


def test_a_call_that_was_turned_away_does_not_go_to_the_end_of_the_line(tmp_path: Path) -> None:
    rejected: list[str] = []

    async def reply(text: str) -> str:
        if text == "call 3" and not rejected:
            rejected.append(text)
            raise TransientError("429", retry_after=0.3, overloaded=True)
        await asyncio.sleep(0.1)
        return "yes"

    model = Scripted(reply)
    with Journal(tmp_path / "j") as journal:
        asyncio.run(ask_all(caller(model, 2, journal), 40))
    first, second = [when for when, text in model.sent if text == "call 3"]
    assert second - first < 0.5, "it has waited for as long as the endpoint asked; thirty others wait for less"


def test_an_endpoint_that_turns_every_call_away_after_a_while_gets_few_more(tmp_path: Path) -> None:
    opens = time.monotonic() + 20

    async def reply(text: str) -> str:
        await asyncio.sleep(0.05)
        if (left := opens - time.monotonic()) > 0:
            raise TransientError("429", retry_after=min(2.0, left), overloaded=True)
        return "yes"

    model = Scripted(reply)
    with Journal(tmp_path / "j") as journal:
        asyncio.run(ask_all(caller(model, 8, journal), 100))
    early = [when for when, _ in model.sent if when < opens]
    assert len(early) <= 40, "two widths at first, then one or two each time that the pause ends"


def test_429_on_every_fifth_request_costs_a_training_little_more_than_the_waits_themselves(tmp_path: Path) -> None:
    def trained(name: str, **weather: float) -> tuple[float, int]:
        model = SimulatedModel("sim:world", SimOptions(latency=0.1, optimizer_latency=0.1, duds=0.35, **weather))  # type: ignore[arg-type]
        started = time.monotonic()
        short = ("train.num_epochs=1", "train.seed=4", "optimizer.use_meta_skill=false")
        train_sim(tmp_path / name, *short, models={"target": model, "optimizer": model})
        return time.monotonic() - started, model.calls

    clean, calls = trained("clean")
    rough, more = trained("rough", rate_limit_every=5, retry_after=1)
    assert 5 < clean < 7
    assert rough - clean <= 1.2 * (more - calls) / 8, "each call that is turned away waits a second; eight wait at once"
    assert more <= 1.3 * calls


def test_an_endpoint_that_turns_everything_away_is_left_alone_for_as_long_as_it_asks(tmp_path: Path) -> None:
    opens = time.monotonic() + 0.5

    async def reply(text: str) -> str:
        if (left := opens - time.monotonic()) > 0:
            raise TransientError("429", retry_after=left + 0.05)
        return "yes"

    model = Scripted(reply)
    with Journal(tmp_path / "j") as journal:
        asyncio.run(ask_all(caller(model, 4, journal), 30))
    assert len(model.sent) <= 30 + 4, "only the calls in flight met the closed door"


def test_it_grows_again_when_the_endpoint_bears_more() -> None:
    endpoint = Endpoint(16)
    for level in range(16, 4, -1):
        endpoint.on_throttled(endpoint.sent(level), None)
    assert endpoint.limit == 4
    for _ in range(400):
        endpoint.on_success()
    assert endpoint.limit == 16


def test_a_wide_limit_begins_narrower_and_doubles_while_all_goes_well() -> None:
    endpoint = Endpoint(100)
    assert endpoint.limit == 32
    for _ in range(40):
        endpoint.on_success()
    assert endpoint.limit == 72


def test_roles_on_one_endpoint_share_its_health_and_keep_their_own_ceilings(tmp_path: Path) -> None:
    most = {"target": 0, "optimizer": 0}
    now = {"target": 0, "optimizer": 0}

    def busy(role: str) -> Scripted:
        async def reply(text: str) -> str:
            now[role] += 1
            most[role] = max(most[role], now[role])
            await asyncio.sleep(0.01)
            now[role] -= 1
            return "yes"

        return Scripted(reply)

    async def both(journal: Journal) -> Endpoint:
        endpoint = Endpoint(3)
        endpoint.widen(2)
        target = caller(busy("target"), Limiter(3, endpoint), journal)
        optimizer = caller(busy("optimizer"), Limiter(2, endpoint), journal)
        await asyncio.gather(ask_all(target, 30), ask_all(optimizer, 30, start=100))
        return endpoint

    with Journal(tmp_path / "j") as journal:
        endpoint = asyncio.run(both(journal))
    assert most == {"target": 3, "optimizer": 2}
    endpoint.pause(60)
    assert Limiter(1, endpoint).endpoint.paused() > 59


def test_the_users_requests_a_minute_are_kept(tmp_path: Path) -> None:
    async def reply(text: str) -> str:
        return "yes"

    model = Scripted(reply)
    with Journal(tmp_path / "j") as journal:
        asyncio.run(ask_all(caller(model, Limiter(8, requests=240), journal), 44))
    sent = sorted(when for when, _ in model.sent)
    assert sent[-1] - sent[0] >= 0.5, "40 at once, then four a second"
    assert sent[-1] - sent[0] <= 3


def test_the_users_tokens_a_minute_are_kept(tmp_path: Path) -> None:
    async def reply(text: str) -> str:
        return "yes"

    model = Scripted(reply)
    limiter = Limiter(8, tokens=6000)
    with Journal(tmp_path / "j") as journal:
        call = caller(model, limiter, journal)
        call.max_tokens = 200
        asyncio.run(ask_all(call, 7))
    sent = sorted(when for when, _ in model.sent)
    assert sent[-1] - sent[0] >= 0.5, "a thousand at once, then a hundred a second, at two hundred a call"


def test_retries_are_bounded_in_count(tmp_path: Path) -> None:
    async def reply(text: str) -> str:
        raise TransientError("500: broken")

    model = Scripted(reply)
    with Journal(tmp_path / "j") as journal, pytest.raises(TransientError, match=r"500: broken \(after 3 tries\)"):
        asyncio.run(ask_all(caller(model, 4, journal, HardwareConfig(max_retries=2)), 1))
    assert len(model.sent) == 3


def test_retries_are_bounded_in_time(tmp_path: Path) -> None:
    async def reply(text: str) -> str:
        raise TransientError("429: come back tomorrow", retry_after=86_400)

    model = Scripted(reply)
    started = time.monotonic()
    with Journal(tmp_path / "j") as journal, pytest.raises(Stopped, match="asks to wait 86400 s"):
        asyncio.run(ask_all(caller(model, 4, journal), 1))
    assert time.monotonic() - started < 1


def test_a_sample_that_always_fails_is_set_aside_and_does_not_hold_up_the_rest(tmp_path: Path) -> None:
    done: list[float] = []

    async def reply(text: str) -> str:
        if text == "call 3":
            raise TransientError("500: broken")
        done.append(time.monotonic())
        return "yes"

    model = Scripted(reply)
    started = time.monotonic()
    with (
        Journal(tmp_path / "j") as journal,
        pytest.raises(RefusedError, match=r"500: broken \(after 3 tries\), while 6 other calls were answered"),
    ):
        asyncio.run(ask_all(caller(model, 2, journal, HardwareConfig(max_retries=2)), 10))
    assert len(done) == 9
    assert max(done) - started < 0.5


def test_a_hung_request_is_given_up_and_tried_again(tmp_path: Path) -> None:
    tries: list[str] = []

    async def reply(text: str) -> str:
        tries.append(text)
        if len(tries) == 1:
            await asyncio.sleep(60)
        return "yes"

    with Journal(tmp_path / "j") as journal:
        call = caller(Scripted(reply), 2, journal, HardwareConfig(call_timeout=0.2))
        assert asyncio.run(ask_all(call, 1))[0].text == "yes"
    assert len(tries) == 2


UNPLUGGED: list[tuple[type, str, Callable[[Path], None]]] = [
    (Endpoint, "_fall", test_it_settles_at_what_the_endpoint_bears_and_loses_little),
    (Endpoint, "pause", test_an_endpoint_that_turns_everything_away_is_left_alone_for_as_long_as_it_asks),
    (Endpoint, "pause", test_an_endpoint_that_turns_every_call_away_after_a_while_gets_few_more),
    (Bucket, "take", test_the_users_requests_a_minute_are_kept),
]


@pytest.mark.parametrize(("owner", "name", "check"), UNPLUGGED)
def test_its_check_goes_red_when_a_mechanism_is_unplugged(
    owner: type, name: str, check: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, lambda *args, **more: None)
    with pytest.raises((AssertionError, RefusedError, TransientError)):
        check(tmp_path)


def test_a_validation_item_that_always_fails_is_set_aside_for_every_skill_and_reported(tmp_path: Path) -> None:
    class Broken(SimulatedModel):
        async def chat(self, request: ChatRequest) -> ChatReply:
            if "Val ticket 3." in str(request.messages[-1]["content"]):
                raise TransientError("500: broken")
            return await super().chat(request)

    small = ["env.options={rules: 8, train: 12, val: 12, test: 8}", "train.num_epochs=1", "hardware.max_retries=1"]
    result = train_sim(tmp_path, *small, models={"target": Broken("sim:world")})
    assert list(result.summary["set_aside"]) == ["val-003"]
    assert "500: broken (after 2 tries)" in result.summary["set_aside"]["val-003"]
    assert result.summary["status"] == "finished"


def test_a_validation_item_that_is_unlucky_in_a_partial_outage_gets_another_round(tmp_path: Path) -> None:
    tries: Counter[str] = Counter()

    class Shaky(SimulatedModel):
        """Fails all tries of the first round for one item, at its first validation and in every gate."""

        async def chat(self, request: ChatRequest) -> ChatReply:
            whole = str(request.messages)
            if "Val ticket 3." in whole:
                tries[whole] += 1
                if tries[whole] <= 2:
                    raise TransientError("502: bad gateway")
            return await super().chat(request)

    small = ["env.options={rules: 8, train: 12, val: 12, test: 8}", "train.num_epochs=1", "hardware.max_retries=1"]
    result = train_sim(tmp_path, *small, models={"target": Shaky("sim:world")})
    assert result.summary["set_aside"] == {}
    assert result.summary["status"] == "finished"
    assert len(tries) > 1, "the gate asked for it, too"


def test_a_validation_item_that_begins_to_fail_in_a_gate_is_set_aside_after_all_rounds(tmp_path: Path) -> None:
    asked: list[str] = []

    class Ageing(SimulatedModel):
        """Answers for one item under the first skill alone."""

        async def chat(self, request: ChatRequest) -> ChatReply:
            if "Val ticket 3." in str(request.messages[-1]["content"]):
                asked.append(str(request.messages))
                if asked[-1] != asked[0]:
                    raise TransientError("500: broken")
            return await super().chat(request)

    small = ["env.options={rules: 8, train: 12, val: 12, test: 8}", "train.num_epochs=1", "hardware.max_retries=1"]
    small.append("optimizer.lr_scheduler=constant")  # its one step has the full rate
    result = train_sim(tmp_path, *small, models={"target": Ageing("sim:world")})
    assert list(result.summary["set_aside"]) == ["val-003"]
    assert len(asked) == 1 + 3 * 2, "two tries in each of three rounds"
    assert result.summary["status"] == "finished"
