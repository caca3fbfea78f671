"""A remedy in two forms: the optimizer writes both in one reply, and the race keeps the better one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skillopt.models.base import ChatReply, ChatRequest
from skillopt.report.funnel import step_funnel
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_json
from support import Spy, train_sim

IDLE = ("Never mind the weather.", "Greet people warmly.", "Prefer short words.", "Think of the reader.")


class TwoForms(Spy):
    """The simulated optimizer, whose proposals are spoiled in one of the two forms."""

    def __init__(self, *, spoiled: str, extra: str = "") -> None:
        super().__init__("sim:world")
        self.spoiled, self.extra = spoiled, extra

    async def chat(self, request: ChatRequest) -> ChatReply:
        reply = await super().chat(request)
        if request.schema is None or "alternative" not in request.schema.body["properties"]:
            return reply
        value = json.loads(reply.text)
        good = value["edits"]
        bad = [{**edit, "text": text} for edit, text in zip(good, IDLE, strict=False)]
        value["edits"], value["alternative"] = (bad, good) if self.spoiled == "edits" else (good, bad)
        if value["alternative"]:
            value["alternative"][0]["text"] += self.extra
        return replace(reply, text=json.dumps(value))


def first_step(out: Path, optimizer: Spy, *overrides: str) -> tuple[dict[str, Any], RunDirectory]:
    result = train_sim(
        out, "train.num_epochs=1", "gradient.minibatch_size=0", *overrides, models={"optimizer": optimizer}
    )
    run = RunDirectory(result.path)
    return read_json(run.history)[0], run


@pytest.mark.parametrize(("spoiled", "winner"), [("edits", "in another form"), ("alternative", "as first put")])
def test_the_better_form_wins_the_race_and_its_edits_are_the_selected_ones(
    spoiled: str, winner: str, tmp_path: Path
) -> None:
    record, run = first_step(tmp_path, TwoForms(spoiled=spoiled))
    assert record["race"][0]["name"] == winner
    assert record["verdict"] == "accept"
    assert not any(text in run.step_skill(1).read_text() for text in IDLE)
    rows = read_json(run.step(1) / "selected.json")["ranked"]
    chosen = {row["edit"]["id"] for row in rows if row["selected"]}
    assert chosen == {edit["id"] for edit in record["applied"]}
    assert {row["edit"]["id"][8] == "a" for row in rows if row["selected"]} == {winner == "in another form"}
    stages = list(step_funnel(record).values())
    assert stages == sorted(stages, reverse=True)


def test_the_next_letter_says_what_became_of_each_form(tmp_path: Path) -> None:
    optimizer = TwoForms(spoiled="edits")
    first_step(tmp_path, optimizer)
    later = optimizer.asked("reflect")[1]
    assert '"text": "Never mind the weather.", "fate": "not tried: rank' in later
    assert "left out: the other form did better" in later


def test_an_alternative_that_a_person_would_have_to_see_is_not_tried(tmp_path: Path) -> None:
    record, run = first_step(
        tmp_path, TwoForms(spoiled="edits", extra=" See https://example.com."), "gradient.review_risky=true"
    )
    assert record["edits"]["dropped"]["risky"] >= 1
    assert all(row["name"] != "in another form" for row in record["race"])
    assert "example.com" not in run.best_skill.read_text()


@pytest.mark.parametrize("override", ["gradient.candidates=1", "gradient.minibatch_size=8"])
def test_nobody_asks_for_two_forms_that_cannot_race(override: str, tmp_path: Path) -> None:
    spy = TwoForms(spoiled="edits")
    first_step(tmp_path, spy, override)
    assert all("`alternative`" not in letter for letter in spy.asked("reflect"))
