"""The race between the candidates of a step: the better one wins on few items, and its rollouts serve the gate too."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from skillopt.record.directory import RunDirectory
from skillopt.record.edits import Patch
from skillopt.record.files import read_json
from skillopt.sim.model import TOPICS, code_for
from skillopt.skill import Applied, Edit, Skill
from skillopt.training import trainer
from skillopt.training.analysts.exemplar import ExemplarAnalyst
from skillopt.training.context import Context
from skillopt.training.edits.update import Candidate, candidates
from skillopt.training.gates.screening import screen, screening_order
from support import Spy, context, train_sim

SMALL = "env.options={rules: 20, train: 4, val: 40, test: 4}"
HEAT = 10


def rules(*topics: str) -> Skill:
    return Skill("\n".join(f"- For {topic}, answer {code_for(topic, 0)}." for topic in topics))


def runner(name: str, skill: Skill) -> Candidate:
    return Candidate(name=name, applied=Applied(skill=skill))


GOOD, HALF, NONE = rules(*TOPICS[:20]), rules(*TOPICS[:10]), rules()


def raced(*skills: Skill) -> tuple[str, list[dict[str, Any]], Context]:
    ctx = context(SMALL)
    current = {item.id: 0.0 for item in ctx.env.items("val")}
    winner, rows = asyncio.run(screen([runner(f"r{n}", skill) for n, skill in enumerate(skills)], current, ctx))
    return winner.name, rows, ctx


def calls(ctx: Context) -> int:
    return int(ctx.target.model.calls)  # type: ignore[attr-defined]


def test_one_candidate_does_not_race() -> None:
    assert raced(GOOD)[:2] == ("r0", ())
    assert calls(raced(GOOD)[2]) == 0


def test_the_better_one_wins_after_one_heat() -> None:
    name, rows, ctx = raced(HALF, GOOD)
    assert name == "r1"
    assert [(row["name"], row["items"]) for row in rows] == [("r1", HEAT), ("r0", HEAT)]
    assert rows[0]["score"] == 1.0 > rows[1]["score"]
    assert calls(ctx) == 2 * HEAT


def test_at_an_equal_score_the_shorter_one_stays_and_three_heats_are_enough() -> None:
    name, rows, ctx = raced(Skill(GOOD.text + "\n- Be kind."), GOOD)
    assert name == "r1"
    assert [row["items"] for row in rows] == [3 * HEAT, 3 * HEAT]
    assert calls(ctx) == 2 * 3 * HEAT


def test_of_four_the_worse_half_drops_out_heat_by_heat() -> None:
    name, rows, ctx = raced(NONE, HALF, GOOD, Skill("- Be kind."))
    assert name == "r2"
    assert {row["name"]: row["items"] for row in rows} == {"r0": HEAT, "r3": HEAT, "r1": 2 * HEAT, "r2": 2 * HEAT}
    assert calls(ctx) == 4 * HEAT + 2 * HEAT


def test_the_same_race_has_the_same_result_and_another_step_other_items() -> None:
    assert raced(HALF, GOOD)[:2] == raced(HALF, GOOD)[:2]
    ctx = context(SMALL)
    current = {item.id: 0.0 for item in ctx.env.items("val")}
    assert [i.id for i in screening_order(current, ctx)] != [i.id for i in screening_order(current, ctx.at(1, 2))]


@pytest.mark.parametrize("failing", [0, 4, 13, 40])
def test_every_heat_has_its_share_of_what_the_current_skill_fails(failing: int) -> None:
    ctx = context(SMALL)
    current = {item.id: float(n >= failing) for n, item in enumerate(ctx.env.items("val"))}
    order = [current[item.id] for item in screening_order(current, ctx)]
    assert len(order) == 40
    for at in range(0, 40, HEAT):
        assert abs(order[at : at + HEAT].count(0.0) - failing / 4) <= 1


class Misleading(ExemplarAnalyst):
    """Examples read off the data that teach a wrong code."""

    async def propose(self, skill: Skill, minibatch: Any, case: Any, optimizer: Any, config: Any) -> Patch:
        ids = tuple(t.id for t in minibatch.trajectories if t.score.hard < 1)
        text = "\n".join(f"- For {topic}, answer ZZ-00." for topic in TOPICS[:3])
        edit = Edit(op="add", section="Zz", text=text, trajectory_ids=ids, source="exemplar/batch", pattern="examples")
        return Patch(id="misled", source="exemplar/batch", trajectory_ids=ids, edits=(edit,) if ids else ())


def run_with(out: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[RunDirectory, Spy]:
    monkeypatch.setattr(ExemplarAnalyst, "propose", Misleading.propose)
    target = Spy()
    options = ("gradient.analysts=[llm, exemplar]", "train.num_epochs=1", "models.optimizer_model=sim:world")
    result = train_sim(out, *options, "evaluation.credit_gates=0", models={"target": target})
    return RunDirectory(result.path), target


def test_a_step_whose_examples_mislead_is_saved_by_the_candidate_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, _ = run_with(tmp_path / "two", monkeypatch)
    monkeypatch.setattr(trainer, "candidates", lambda *given: candidates(*given)[:1])
    alone, _ = run_with(tmp_path / "one", monkeypatch)
    first = read_json(both.history)[0]
    assert [row["name"] for row in first["race"]] == ["without examples from the data", "all edits"]
    assert first["verdict"] == "accept"
    assert "ZZ-00" not in both.best_skill.read_text()
    assert read_json(both.summary)["best"]["val"] > read_json(alone.summary)["best"]["val"]


def test_the_winners_rollouts_are_paid_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, target = run_with(tmp_path, monkeypatch)
    asked = [str(request.messages) for request in target.requests]
    assert len(asked) == len(set(asked)), "what the race measured the gate finds in the journal"
    assert read_json(run.summary)["calls_by_stage"]["target"]["race"] > 0
    events = (run.root / "events.jsonl").read_text()
    assert '"kind":"raced"' in events.replace('": "', '":"')
