"""A rejected candidate is taken apart: what broke something is left out, and good edits do not die with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from skillopt.config import Config
from skillopt.measure.session import measuring_session
from skillopt.record.state import State
from skillopt.sim.model import TOPICS, code_for
from skillopt.skill import Edit, Skill
from skillopt.training.edits.update import update
from skillopt.training.gates import Gate, Verdict, paired_gate
from skillopt.training.gates import credit as module
from skillopt.training.gates.credit import Credited, credit
from skillopt.training.rollout import measure
from skillopt.training.step_files import apply_verdict
from support import SIM, Spy

KNOWN, RULES = 7, 8
"""Rules that the skill states, of those that there are."""


def rule(topic: str, code: str = "") -> str:
    return f"- For {topic}, answer {code or code_for(topic, 0)}."


SKILL = Skill("## Rules\n\n" + "\n".join(rule(topic) for topic in TOPICS[:KNOWN]) + "\n")
GOOD = [
    Edit(id=f"good-{topic}", op="add", section="Rules", text=rule(topic), trajectory_ids=("t",))
    for topic in TOPICS[KNOWN:RULES]
]
IDLE = Edit(id="idle", op="add", section="Advice", text="- Be careful.", trajectory_ids=("t",))
HARMFUL = [
    Edit(id=f"harm-{t}", op="modify", anchor=rule(t), text=rule(t, "ZZ-00"), trajectory_ids=("t",)) for t in TOPICS[:3]
]


@dataclass
class Outcome:
    found: Credited
    spy: Spy
    items: int
    state: State
    """After the step."""


def credited(
    out: Path, edits: Sequence[Edit], *overrides: str, gate: Gate = paired_gate, decay: float = 1.0
) -> Outcome:
    """A candidate with these edits goes through the gate, then through credit."""
    world = f"env.options={{rules: {RULES}, train: 8, val: 24, test: 8}}"
    config = Config.load(SIM, [f"env.output_root={out}", world, *overrides])
    spy = Spy(config.models.target_model)

    async def work() -> Outcome:
        async with measuring_session(config, out, models={"target": spy}) as session:
            ctx = session.ctx.at(1, 1)
            current = (await measure(SKILL, ctx.env.items("val"), ctx, tag="val", stage="evaluate")).values
            candidate = update(SKILL, edits, ctx)
            verdict = await gate(SKILL, candidate, current, ctx)
            spy.requests.clear()
            found = await credit(SKILL, candidate, verdict, current, ctx, gate)
            state = State(val=current, decay=decay)
            apply_verdict(state, SKILL, found, ctx)
            return Outcome(found, spy, len(current), state)

    return asyncio.run(work())


async def stubborn(*arguments: Any, **keys: Any) -> Verdict:
    """Rejects whatever comes, with the evidence of the real gate."""
    verdict = await paired_gate(*arguments, **keys)
    return verdict.model_copy(update={"decision": "reject", "known_scores": {}})


def names(edits: Sequence[Edit]) -> list[str]:
    return sorted(edit.id for edit in edits)


def check_rescue(out: Path) -> None:
    found = credited(out, [*GOOD, IDLE, *HARMFUL[:2]]).found
    assert found.rejected.decision == "reject"
    assert found.verdict.accepted
    assert names(found.left_out) == names(HARMFUL[:2])
    assert names(found.candidate.applied) == names([*GOOD, IDLE])


def test_good_edits_do_not_die_of_harmful_ones(tmp_path: Path) -> None:
    check_rescue(tmp_path)


@pytest.mark.parametrize("name", ["_healed", "update"])
def test_unplugged_that_goes_red(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*arguments: Any) -> set[str]:
        return set()

    plugs = {"_healed": nothing, "update": lambda skill, edits, ctx: update(skill, [*GOOD, IDLE, *HARMFUL[:2]], ctx)}
    monkeypatch.setattr(module, name, plugs[name])
    with pytest.raises(AssertionError):
        check_rescue(tmp_path)


def test_blame_is_found_on_the_broken_items_alone(tmp_path: Path) -> None:
    outcome = credited(tmp_path, [*GOOD, IDLE, *HARMFUL[:2]])
    broken = module.broken_rows(outcome.found.rejected)
    assert 0 < len(broken) <= module.MOST_BROKEN
    (tried,) = outcome.found.tries
    assert tried["decision"] == "accept"
    assert len(outcome.spy.requests) <= 4 * len(broken) + outcome.items, "four edits left out in turn, then one gate"


def test_a_candidate_that_helps_nothing_is_not_taken_apart(tmp_path: Path) -> None:
    outcome = credited(tmp_path, [IDLE, *HARMFUL])
    found = outcome.found
    assert found.rejected.decision == "reject"
    assert (found.verdict.decision, found.left_out, found.tries, outcome.spy.requests) == ("reject", (), (), [])


@pytest.mark.parametrize(
    ("edits", "overrides"), [([*GOOD, *HARMFUL], ["evaluation.credit_gates=0"]), (GOOD, []), ([HARMFUL[0]], [])]
)
def test_nothing_is_asked_without_leave_or_need(edits: list[Edit], overrides: list[str], tmp_path: Path) -> None:
    outcome = credited(tmp_path, edits, *overrides)
    found = outcome.found
    assert (found.tries, found.left_out, outcome.spy.requests) == ((), (), [])
    assert found.candidate.applied == tuple(edits)


def test_each_try_is_one_gate_and_their_number_is_limited(tmp_path: Path) -> None:
    tags: list[str] = []

    async def watched(*arguments: Any, tag: str = "", **keys: Any) -> Verdict:
        tags.append(tag)
        return await stubborn(*arguments, tag=tag, **keys)

    found = credited(tmp_path, [*GOOD, IDLE, *HARMFUL], "evaluation.credit_gates=3", gate=watched).found
    assert tags[1:] == [f"gate-0001-credit-{n:02d}" for n in range(1, len(found.tries) + 1)]
    assert 1 <= len(found.tries) <= 3
    assert found.verdict.decision == "reject"
    assert names(found.candidate.applied) == names([*GOOD, IDLE, *HARMFUL]), "the whole candidate stays rejected"


def test_with_a_noisy_target_the_same_edits_are_found(tmp_path: Path) -> None:
    noisy = "models.target_model=sim:world?noise=0.05"
    found = credited(tmp_path, [*GOOD, IDLE, *HARMFUL[:2]], noisy).found
    assert names(found.left_out) == names(HARMFUL[:2])
    assert found.verdict.accepted


# What is remembered of rejected edits


def test_every_edit_of_a_rejected_step_is_remembered_as_rejected_or_carried(tmp_path: Path) -> None:
    outcome = credited(tmp_path, [*GOOD, IDLE, HARMFUL[0]], gate=stubborn)
    assert names([entry.edit for entry in outcome.state.rejected]) == names(HARMFUL[:1])
    assert names(outcome.state.pending) == names([*GOOD, IDLE]), "what is left of it broke nothing"
    alone = credited(tmp_path / "alone", HARMFUL[:2])
    assert names([entry.edit for entry in alone.state.rejected]) == names(HARMFUL[:2])
    assert alone.state.pending == []


def test_edits_that_were_left_out_of_an_accepted_step_are_remembered_as_rejected(tmp_path: Path) -> None:
    outcome = credited(tmp_path, [*GOOD, *HARMFUL[:2]])
    assert outcome.state.counts.accepted == 1
    assert names([entry.edit for entry in outcome.state.rejected]) == names(HARMFUL[:2])


def test_an_accepted_step_takes_one_decay_back(tmp_path: Path) -> None:
    assert credited(tmp_path / "some", GOOD, decay=0.64).state.decay == pytest.approx(0.8)
    assert credited(tmp_path / "none", GOOD, decay=1.0).state.decay == 1.0
    assert credited(tmp_path / "lost", [HARMFUL[0]], decay=0.8).state.decay == pytest.approx(0.64)
