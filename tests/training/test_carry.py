"""Edits of a rejected candidate that broke nothing are carried to the next step, within the learning rate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skillopt.models.base import ChatReply, ChatRequest
from skillopt.record.directory import RunDirectory
from skillopt.record.edits import EditPool, Pooled
from skillopt.record.files import read_json
from skillopt.record.run import Run
from skillopt.record.state import State
from skillopt.record.step import ItemEvidence
from skillopt.skill import Edit, Skill
from skillopt.training.edits.carry import CARRIED, broke_nothing, with_pending
from skillopt.training.edits.select import select
from skillopt.training.gates import Verdict
from skillopt.training.gates.strict import PROOF
from support import Spy, context, train_sim

WORLD = (
    "env.options={rules: 12, train: 24, val: 24, test: 4}",
    "train.batch_size=12",
    "train.num_epochs=1",
    "optimizer.lr_scheduler=constant",
)


def edit(name: str, text: str, **fields: Any) -> Edit:
    return Edit(id=name, op="add", section="Rules", text=text, trajectory_ids=("t1",), **fields)


def verdict(*pairs: tuple[float, float], decision: Any = "reject", **fields: Any) -> Verdict:
    rows = tuple(ItemEvidence(item_id=f"i{n}", before=a, after=b, hard=b) for n, (a, b) in enumerate(pairs))
    numbers = {"before": 0.5, "after": None, "at_most": 0.5, "items": 20, "measured": len(rows)}
    return Verdict(decision=decision, rule="strict", metric="hard", evidence=rows, **numbers, **fields)


FAILS, STAYS, BREAKS = (0.0, 0.0), (1.0, 1.0), (1.0, 0.0)
CURRENT = {f"i{n}": float(n > 0) for n in range(12)}


@pytest.mark.parametrize(
    ("found", "neutral"),
    [
        (verdict(FAILS, *[STAYS] * PROOF), True),
        (verdict(FAILS, *[STAYS] * (PROOF - 1)), False),
        (verdict(FAILS, *[STAYS] * PROOF, BREAKS), False),
        (verdict(FAILS), False),
        (verdict(), False),
        (verdict(FAILS, *[STAYS] * PROOF, reason="a veto"), False),
        (verdict(FAILS, *[STAYS] * PROOF, decision="accept"), False),
        (verdict(FAILS, *[STAYS] * PROOF, decision="indecisive"), True),
    ],
)
def test_neutral_is_what_broke_nothing_although_enough_was_tried(found: Verdict, neutral: bool) -> None:
    assert broke_nothing(found, CURRENT) == neutral


def pool(*edits: Edit) -> EditPool:
    return EditPool(edits=tuple(Pooled(edit=each, support=1, merged=(each.id,)) for each in edits))


NEW = [edit(f"0002-00-0{n}", text) for n, text in enumerate(("Red.", "Green.", "Blue.", "Grey."))]
OLD = [edit(f"0001-00-0{n}", text) for n, text in enumerate(("Small.", "Large.", "Round."))]


@pytest.mark.parametrize(
    ("new", "rate", "chosen"),
    [
        (4, 4, ["0001-00-00", "0001-00-01", "0002-00-00", "0002-00-01"]),
        (4, 2, ["0001-00-00", "0002-00-00"]),
        (4, 1, ["0002-00-00"]),
        (1, 4, ["0001-00-00", "0001-00-01", "0001-00-02", "0002-00-00"]),
        (0, 4, []),
    ],
)
def test_carried_and_new_edits_together_never_exceed_the_rate(new: int, rate: int, chosen: list[str]) -> None:
    mixed = with_pending(pool(*NEW[:new]), State(pending=OLD))
    ranked = select(mixed, rate, Skill("# Codes\n"), context())
    assert sorted(row.edit.id for row in ranked if row.selected) == chosen


def test_an_edit_that_is_proposed_again_or_contradicted_does_not_come_twice() -> None:
    again = [edit("0002-00-00", "Small."), edit("0002-00-01", "Never large.")]
    old = [OLD[0], edit("0001-00-01", "Large."), OLD[2]]
    assert [p.edit.id for p in with_pending(pool(*again), State(pending=old)).edits][2:] == ["0001-00-02"]


class Late(Spy):
    """An optimizer that begins with advice of no use; `ever` it does not learn better."""

    def __init__(self, *, ever: bool = False) -> None:
        super().__init__()
        self.ever = ever

    async def chat(self, request: ChatRequest) -> ChatReply:
        reply = await super().chat(request)
        value = json.loads(reply.text)
        learned = "<history>" in str(request.messages[-1]["content"]) and not self.ever
        if learned or "edits" not in value:
            return reply
        advice = {"op": "add", "section": "Advice", "anchor": ""}
        rows = [{**row, **advice, "text": f"- Mind this: {row['pattern']}."} for row in value["edits"]]
        return ChatReply(text=json.dumps({**value, "edits": rows}), usage=reply.usage)


def check_carry(out: Path) -> None:
    """Neutral edits of step 1 are accepted with the edits of step 2, and the rate holds for both together."""
    spy = Late()
    run = RunDirectory(train_sim(out, *WORLD, models={"optimizer": spy}).path)
    first, second = read_json(run.history)
    assert (first["verdict"], second["verdict"]) == ("reject", "accept")
    assert [each["id"] for each in first["pending"]] == [each["id"] for each in first["applied"]]
    carried = [each for each in second["applied"] if each["source"].startswith(CARRIED)]
    assert carried
    assert {each["id"] for each in carried} < {each["id"] for each in first["pending"]}
    assert len(second["applied"]) - len(carried) > 0
    assert len(second["applied"]) <= round(second["learning_rate"]["used"])
    assert not {each["id"] for each in second["pending"]} & {each["id"] for each in carried}
    last = spy.asked("reflect")[-1]
    shown = last.partition("<pending>\n")[2].partition("\n</pending>")[0]
    assert [json.loads(row)["text"] for row in shown.splitlines()] == [each["text"] for each in first["pending"]]
    assert '"fate": "in <pending>"' in last
    assert '"kind":"edits_carried"' in (run.root / "events.jsonl").read_text().replace('": "', '":"')


def test_neutral_edits_are_accepted_together_with_the_next_steps_edits(tmp_path: Path) -> None:
    check_carry(tmp_path)


@pytest.mark.parametrize(
    "plug",
    [
        ("skillopt.training.step_files.carried", lambda *rest: ()),
        ("skillopt.training.trainer.with_pending", lambda pool, state: pool),
        ("skillopt.training.gates.strict.EarlyStop.told_apart", lambda self, shown: True),
    ],
)
def test_unplugged_that_goes_red(plug: tuple[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*plug)
    with pytest.raises(AssertionError):
        check_carry(tmp_path)


def test_what_was_never_confirmed_is_offered_at_the_end(tmp_path: Path) -> None:
    run = RunDirectory(train_sim(tmp_path, *WORLD, models={"optimizer": Late(ever=True)}).path)
    pending = State.read(run.state).pending
    assert len({each.id for each in pending}) == len(pending) > 0
    offered = [conflict for conflict in Run(run).conflicts if conflict.b is None]
    assert [conflict.a for conflict in offered] == pending
    said = read_json(run.summary)["verdict"]
    assert f"{len(pending)} edits were neither accepted nor dropped: decide with `skillopt review`." in said
