"""The headroom probe: four findings, on training tasks alone, within the budget, from the journal the second time."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from skillopt.config import Config
from skillopt.errors import Stopped
from skillopt.measure.probe import answer_form, chosen_items, plan_probe, probe, with_form
from skillopt.models.base import ChatModel, ChatReply, ChatRequest, RefusedError, Usage
from skillopt.record.probe import Probe
from skillopt.skill import Skill
from skillopt.tasks import using_env
from support import REPO, SIM
from support import skillopt as command

COLOURS = ["red", "green", "blue"]


def rows(count: int, start: int = 0) -> list[dict[str, str]]:
    return [{"id": f"t{n}", "question": f"Colour {n}?", "answer": COLOURS[n % 3]} for n in range(start, start + count)]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    for number, split in enumerate(("train", "val", "test")):
        (tmp_path / split).mkdir()
        (tmp_path / split / "items.json").write_text(json.dumps(rows(18, 18 * number)))
    models = {"target_model": "sim:world", "optimizer_model": "sim:world", "target_max_tokens": 50}
    return Config.parse({"models": models, "env": {"split_dir": str(tmp_path), "output_root": str(tmp_path / "out")}})


class Player(ChatModel):
    """A target that answers as one of its kind does."""

    name, endpoint = "sim:world", "player"

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.requests: list[ChatRequest] = []

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        number = int(re.findall(r"\d+", str(request.messages[-1]["content"]))[0])
        right, formed = COLOURS[number % 3], "Reply with one of these" in str(request.messages[0]["content"])
        text, tokens = right, 3
        if self.kind == "prudish" and number % 5 == 0:
            raise RefusedError("the content filter refused this item")
        if self.kind == "wordy" and not formed:
            text = f"Let me think about it. The colour is {right}."
        elif self.kind == "lost":
            text, tokens = "Well, let me begin at the beginning", 50
        elif self.kind == "ignorant" or (self.kind == "unsteady" and not request.temperature and number % 2):
            text = COLOURS[(number + 1) % 3]
        return ChatReply(text=text, usage=Usage(prompt=10, completion=tokens))


def probed(config: Config, model: Any, skill: str = "", **more: Any) -> Probe:
    return asyncio.run(probe(config, Skill(skill), models={"target": model}, **more))


@pytest.mark.parametrize(
    ("kind", "headroom", "says", "figures"),
    [
        ("able", "nothing to learn", "solves 100%", (1, 1, 1)),
        ("wordy", "form only", "solves 0% of these tasks as it is, and 100% if it is shown", (0, 0, 1)),
        ("unsteady", "train", "and 100% if the best of 4 samples counts", (0.5, 1, 0.5)),
        ("ignorant", "train", "lacks knowledge", (0, 0, 0)),
        ("lost", "this target cannot", "100% of its replies are cut off, also with the form", (0, 0, 0)),
    ],
)
def test_each_finding_has_its_reason(
    config: Config, kind: str, headroom: str, says: str, figures: tuple[float, ...]
) -> None:
    result = probed(config, Player(kind))
    assert result.headroom == headroom, result.sentence
    assert says in result.sentence
    assert result.with_form is not None
    measured = (result.pass_1, result.pass_any, result.with_form.right)
    assert measured == pytest.approx(figures, abs=0.25 if kind == "unsteady" else 0)
    assert (result.plain.cut_off, result.plain.unparsable) == (float(kind == "lost"), float(kind == "wordy"))
    assert result.majority is not None
    assert result.majority.score == pytest.approx(1 / 3)
    assert result.paid.calls == result.plan.calls == 60


def test_only_training_tasks_are_asked_and_the_form_shows_no_answer_of_theirs(config: Config) -> None:
    model = Player("able")
    result = probed(config, model, items=6)
    asked = {int(re.findall(r"\d+", str(request.messages[-1]["content"]))[0]) for request in model.requests}
    assert asked == {int(item[1:]) for item in result.items}
    assert max(asked) < 18, "validation begins at 18"
    assert len(model.requests) == 30
    with using_env(Config.load(SIM)) as env:
        chosen = chosen_items(Config.load(SIM), env, 12)
        form = answer_form(env, chosen)
        assert {item.id for item in chosen} <= {item.id for item in env.items("train")}
    assert form.count("`") == 6
    assert not any(f"`{item.answer}`" in form for item in chosen)
    assert with_form(Skill("Be brief."), form).text == f"Be brief.\n\n{form}\n"


def test_the_first_sample_is_as_in_training_and_the_others_vary(config: Config) -> None:
    model = Player("able")
    probed(config, model, items=2)
    assert [request.temperature for request in model.requests] == [0.0] * 2 + [0.7] * 6 + [0.0] * 2


def test_a_probe_is_paid_once_and_a_budget_stops_it_with_everything_kept(config: Config) -> None:
    model = Player("able")
    with pytest.raises(Stopped, match=r"budget\.max_calls"):
        probed(config.with_values({"budget.max_calls": 20, "hardware.workers": 1}), model)
    assert len(model.requests) == 20
    result = probed(config, model)
    assert len(model.requests) == 60
    assert probed(config, model).model_dump(exclude={"path"}) == result.model_dump(exclude={"path"})
    assert len(model.requests) == 60


def test_what_it_takes_is_known_before(config: Config) -> None:
    priced = config.with_values({"models.target_model": "openai:gpt-4o-mini"})
    with using_env(priced) as env:
        plan = plan_probe(priced, env, Skill(""))
        long = plan_probe(priced, env, Skill("Mind the colours of the house. " * 100))
    assert plan.calls == 60
    assert plan.usd is not None
    assert long.usd is not None
    assert 0 < plan.usd.likely < long.usd.likely < 0.05


def test_the_command_says_the_estimate_first_then_a_sentence_and_doctor_repeats_it(tmp_path: Path) -> None:
    arguments = ["--config", str(SIM), f"env.output_root={tmp_path}"]
    before = command("doctor", *arguments, "--offline").stdout
    assert "headroom: not measured; `skillopt probe` says whether a skill can help (estimated cost: 60 calls" in before
    done = command("probe", *arguments)
    assert re.match(r"Probe: 60 calls, .* tokens, \$0\.00 \(estimate\)", done.stderr)
    lines = done.stdout.strip().splitlines()
    sentence = next(line for line in lines if line.startswith("Train: "))
    assert {"pass@1", "pass@4", "form"} <= {line.split()[0] for line in lines if line}
    assert f"headroom: {sentence}" in command("doctor", *arguments, "--offline").stdout
    as_json = command("probe", *arguments, "--json")
    assert Probe.model_validate_json(as_json.stdout).sentence == sentence


def test_an_item_that_is_refused_is_named_and_counts_for_nothing(config: Config) -> None:
    result = probed(config, Player("prudish"))
    assert result.set_aside.keys() == {item for item in result.items if int(item[1:]) % 5 == 0} != set()
    assert result.set_aside.keys() | result.solved.keys() == set(result.items)
    assert (result.headroom, result.pass_any) == ("nothing to learn", 1)


@pytest.mark.real_model
def test_a_real_model_that_follows_no_instructions_cannot(tmp_path: Path) -> None:
    quickstart = REPO / "configs/quickstart/default.yaml"
    overrides = [f"env.output_root={tmp_path}", "models.target_model=local:smollm2-135m"]
    result = asyncio.run(probe(Config.load(quickstart, overrides), Skill(""), items=3, samples=2))
    assert result.headroom == "this target cannot", result.sentence
    assert result.plain.cut_off > 0.5
