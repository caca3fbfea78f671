"""The gate stops early and still decides as the full evaluation would, whatever the timing; it never guesses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skillopt.errors import Stopped
from skillopt.models.base import FatalError
from skillopt.record.state import State
from skillopt.record.step import ItemEvidence
from skillopt.skill import Applied, Skill
from skillopt.training import step_files
from skillopt.training.gates import Rule, Verdict, strict_gate
from skillopt.training.gates.credit import Credited
from skillopt.training.gates.strict import HARM, PROOF
from skillopt.training.rollout import measure
from support.table import CANDIDATE, PARTS, Outcome, TableTarget, context


def decide(target: TableTarget, current: Mapping[str, Fraction], metric: str, rule: Rule, workers: int) -> Verdict:
    async def work() -> Verdict:
        values = {item_id: float(value) for item_id, value in current.items()}
        ctx = context(target, metric, workers)
        with ctx.target.journal:
            return await strict_gate(Skill(""), CANDIDATE, values, ctx, rule=rule)

    return asyncio.run(work())


@pytest.mark.parametrize("workers", [1, 3])
def test_no_more_calls_are_begun_than_there_are_places(workers: int) -> None:
    """What only waits for a place saves no time, and costs where the gate is decided before its turn."""
    names = [f"i{n:02}" for n in range(16)]
    outcomes = {name: (int(name != "i02"), 0) for name in names}
    target = TableTarget(outcomes, delays=dict.fromkeys(names, 3))
    verdict = decide(target, {name: Fraction(name != "i00") for name in names}, "hard", "strict", workers)
    assert (verdict.decision, verdict.measured) == ("reject", 3)
    assert len(target.asked) <= 3 + workers - 1


def value(outcome: Outcome, metric: str) -> Fraction:
    assert isinstance(outcome, tuple)
    hard, soft = Fraction(outcome[0]), Fraction(outcome[1], PARTS)
    return {"hard": hard, "soft": soft, "mixed": (hard + soft) / 2}[metric]


@dataclass(frozen=True)
class Case:
    outcomes: dict[str, Outcome]
    current: dict[str, Fraction]
    metric: str
    rule: Rule

    @property
    def order(self) -> list[str]:
        return sorted(self.current, key=lambda item_id: (self.current[item_id], item_id))

    def lost(self, shown: int) -> bool:
        """Can the candidate no longer win, after so many items of the order? Reckoned without the code under test."""
        seen = self.order[:shown]
        margin = Fraction(0)
        for item_id in self.order:
            outcome = self.outcomes[item_id]
            if item_id in seen and outcome == "refused":
                continue
            best = value(outcome, self.metric) if item_id in seen and outcome != "down" else Fraction(1)
            margin += best - self.current[item_id]
        return margin <= 0 if self.rule == "strict" else margin < 0

    def told_apart(self, seen: int) -> bool:
        """Is it known after so many items whether the candidate does harm?"""
        if self.rule == "keep" or self.lost(0):
            return True
        shown = {i: value(out, self.metric) for i in self.order[:seen] if not isinstance(out := self.outcomes[i], str)}
        if any(score < float(self.current[i]) - HARM for i, score in shown.items()):
            return True
        refused = [i for i in self.order[:seen] if self.outcomes[i] == "refused"]
        solved = [i for i in self.order if self.current[i] >= Fraction(1, 2) and i not in refused]
        return len([i for i in solved if i in shown]) >= min(PROOF, len(solved))

    @property
    def deciding(self) -> int:
        decided = (n for n in range(len(self.order)) if self.lost(n) and self.told_apart(n))
        return next(decided, len(self.order))


@st.composite
def cases(draw: st.DrawFn, troubles: tuple[str, ...] = ()) -> Case:
    metric = draw(st.sampled_from(["hard", "soft", "mixed"]))
    ids = [f"i{n:02d}" for n in range(draw(st.integers(2, 12)))]
    hards = st.integers(0, 1)
    softs = st.one_of(st.sampled_from([0, 3, 6, 9, 27, PARTS]), st.integers(0, PARTS))
    outcomes: dict[str, Outcome] = {item_id: (draw(hards), draw(softs)) for item_id in ids}
    current = {item_id: value((draw(hards), draw(softs)), metric) for item_id in ids}
    if draw(st.booleans()):  # as often as not, the same score in another order
        shuffled = draw(st.permutations(ids))
        current = {a: value(outcomes[b], metric) for a, b in zip(ids, shuffled, strict=True)}
    for trouble in troubles:
        outcomes[draw(st.sampled_from(ids))] = trouble
    return Case(outcomes, current, metric, draw(st.sampled_from(["strict", "keep"])))


timings = st.tuples(
    st.dictionaries(st.sampled_from([f"i{n:02d}" for n in range(12)]), st.integers(0, 30)), st.integers(1, 9)
)


def under(case: Case, timing: tuple[dict[str, int], int]) -> Verdict:
    delays, workers = timing
    return decide(TableTarget(case.outcomes, delays), case.current, case.metric, case.rule, workers)


@given(cases(), timings)
def test_the_gate_decides_as_the_full_evaluation_does(case: Case, timing: tuple[dict[str, int], int]) -> None:
    after = sum(value(outcome, case.metric) for outcome in case.outcomes.values())
    before = sum(case.current.values())
    verdict = under(case, timing)
    assert verdict.accepted == (after > before if case.rule == "strict" else after >= before)
    assert verdict.before == pytest.approx(float(before / len(case.order)))
    if verdict.after is not None:
        assert verdict.after == pytest.approx(float(after / len(case.order)))
    assert verdict.at_most >= float(after / len(case.order)) - 1e-9


@given(cases(), timings)
def test_the_evidence_is_the_shortest_deciding_prefix(case: Case, timing: tuple[dict[str, int], int]) -> None:
    verdict = under(case, timing)
    assert [row.item_id for row in verdict.evidence] == case.order[: case.deciding]
    assert [t.item_id for t in verdict.trajectories] == case.order[: case.deciding]
    assert verdict.measured == case.deciding
    assert (verdict.after is None) == (case.deciding < len(case.order))
    for row in verdict.evidence:
        assert row.after == pytest.approx(float(value(case.outcomes[row.item_id], case.metric)))
        assert row.before == pytest.approx(float(case.current[row.item_id]))


@given(cases(("refused",)), timings, timings)
def test_timing_and_width_change_nothing_that_is_recorded(
    case: Case, one: tuple[dict[str, int], int], other: tuple[dict[str, int], int]
) -> None:
    first, second = under(case, one), under(case, other)
    assert first.model_dump(exclude={"telemetry"}) == second.model_dump(exclude={"telemetry"})
    recorded = [[t.model_dump(exclude={"telemetry"}) for t in verdict.trajectories] for verdict in (first, second)]
    assert recorded[0] == recorded[1]


@given(cases(("refused",)), timings)
def test_a_refused_item_counts_for_neither_side(case: Case, timing: tuple[dict[str, int], int]) -> None:
    counted = [item_id for item_id, outcome in case.outcomes.items() if outcome != "refused"]
    after = sum(value(case.outcomes[item_id], case.metric) for item_id in counted)
    before = sum(case.current[item_id] for item_id in counted)
    verdict = under(case, timing)
    assert verdict.accepted == (after > before if case.rule == "strict" else after >= before)
    shown = case.order[: case.deciding]
    assert set(verdict.set_aside) == {item_id for item_id in shown if case.outcomes[item_id] == "refused"}
    assert [row.item_id for row in verdict.evidence] == [item_id for item_id in shown if item_id in counted]
    assert verdict.items == len(case.order) - len(verdict.set_aside)


@given(cases(("down",)), timings)
def test_an_endpoint_failure_never_decides(case: Case, timing: tuple[dict[str, int], int]) -> None:
    (down,) = [item_id for item_id, outcome in case.outcomes.items() if outcome == "down"]
    if case.order.index(down) < case.deciding:
        with pytest.raises(Stopped, match="could not be measured"):
            under(case, timing)
    else:
        verdict = under(case, timing)
        assert not verdict.accepted
        assert down not in verdict.values


def test_an_accepted_candidate_was_measured_on_every_item() -> None:
    case = Case({"a": (1, 0), "b": (1, 0), "c": "down"}, {i: Fraction(0) for i in "abc"}, "hard", "strict")
    with pytest.raises(Stopped, match="nothing was decided"):
        under(case, ({}, 2))


def test_a_fatal_error_ends_the_gate_as_itself() -> None:
    case = Case({"a": (1, 0), "b": "fatal"}, {i: Fraction(0) for i in "ab"}, "hard", "strict")
    with pytest.raises(FatalError, match="401"):
        under(case, ({}, 2))


@given(cases(), timings)
def test_rollouts_and_savings_add_up(case: Case, timing: tuple[dict[str, int], int]) -> None:
    target = TableTarget(case.outcomes, timing[0])
    verdict = decide(target, case.current, case.metric, case.rule, timing[1])
    assert len(target.asked) == len(set(target.asked)) == verdict.telemetry["rollouts"] >= verdict.measured
    assert verdict.telemetry["rollouts"] + verdict.telemetry["saved"] == len(case.order)


def test_a_hopeless_candidate_costs_only_the_calls_that_show_it() -> None:
    ids = [f"i{n:02d}" for n in range(20)]
    current = {item_id: Fraction(int(n >= 3)) for n, item_id in enumerate(ids)}
    target = TableTarget(dict.fromkeys(ids, (0, 0)))
    verdict = decide(target, current, "hard", "strict", workers=16)
    assert verdict.decision == "reject"
    assert verdict.measured == 4, "three that stay wrong, and one that it breaks"
    assert len(target.asked) <= 3 + PROOF


def check_changed_first() -> None:
    """Of the solved items, the one that an earlier candidate has broken comes first, and breaks again."""
    ids = [f"i{n:02d}" for n in range(20)]
    current = {item_id: Fraction(int(n >= 1)) for n, item_id in enumerate(ids)}
    target = TableTarget({item_id: (int(0 < n < 19), 0) for n, item_id in enumerate(ids)})
    ctx = context(target, "hard", 1)
    state = State(val={item_id: float(score) for item_id, score in current.items()})
    rows = tuple(ItemEvidence(item_id=i, before=1.0, after=float(i != "i19"), hard=0.0) for i in ids[1:])
    earlier = Verdict(
        decision="reject", rule="strict", metric="hard", before=1, after=1, at_most=1, items=20, measured=19,
        evidence=rows,
    )  # fmt: skip
    found = Credited(candidate=CANDIDATE, verdict=earlier, rejected=earlier, last=CANDIDATE, last_verdict=earlier)
    step_files.count_changes(state, found)
    with ctx.target.journal:
        work = strict_gate(Skill(""), CANDIDATE, state.val, replace(ctx, changed=state.changed))
        verdict = asyncio.run(work)
    assert [row.item_id for row in verdict.evidence] == ["i00", "i19"]


def test_what_has_changed_under_earlier_candidates_comes_first() -> None:
    check_changed_first()


def test_unplugged_that_goes_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_files, "count_changes", lambda *rest: None)
    with pytest.raises(AssertionError):
        check_changed_first()


def test_a_perfect_skill_cannot_be_improved_and_nothing_is_asked() -> None:
    target = TableTarget({"a": (1, 30), "b": (1, 30)})
    verdict = decide(target, {"a": Fraction(1), "b": Fraction(1)}, "hard", "strict", workers=4)
    assert (verdict.decision, verdict.measured, target.asked) == ("reject", 0, [])


def test_without_an_applied_edit_there_is_nothing_to_decide() -> None:
    target = TableTarget({"a": (1, 30)})

    async def work() -> Verdict:
        same = Skill("Same.")
        return await strict_gate(same, Applied(skill=same), {"a": 0.0}, context(target))

    verdict = asyncio.run(work())
    assert (verdict.decision, verdict.accepted, target.asked) == ("skipped", False, [])


def test_rounding_is_no_improvement() -> None:
    tenths = {"a": (0, 3), "b": (0, 6), "c": (0, 0)}
    current = {"a": Fraction(0), "b": Fraction(0), "c": Fraction(9, PARTS)}
    assert 0.1 + 0.2 > 0.3
    assert under(Case(tenths, current, "soft", "strict"), ({}, 1)).decision == "reject"
    assert under(Case(tenths, current, "soft", "keep"), ({}, 1)).decision == "accept"


def test_too_many_refused_items_stop_the_run() -> None:
    outcomes: dict[str, Outcome] = {f"i{n:02d}": "refused" if n < 3 else (1, 0) for n in range(20)}
    with pytest.raises(Stopped, match="3 of 20 items cannot be measured"):
        under(Case(outcomes, {i: Fraction(0) for i in outcomes}, "hard", "strict"), ({}, 4))


def test_refusals_are_counted_against_the_whole_split_over_the_run() -> None:
    """Twenty items, two of them set aside earlier: a third is one too many, although it is one of eighteen."""
    outcomes: dict[str, Outcome] = {f"i{n:02d}": "refused" if n == 2 else (1, 0) for n in range(20)}
    earlier = [f"i{n:02d}" for n in range(2)]
    left = {i: Fraction(0) for i in outcomes if i not in earlier}
    one_before = left | {"i01": Fraction(0)}
    assert decide(TableTarget(outcomes), one_before, "hard", "strict", 4).set_aside == {"i02": "content filter"}
    with pytest.raises(Stopped, match="3 of 20 items cannot be measured"):
        decide(TableTarget(outcomes), left, "hard", "strict", 4)


# The whole split


def measured(outcomes: Mapping[str, Outcome], metric: str = "hard") -> Any:
    async def work() -> Any:
        ctx = context(TableTarget(outcomes, {"a": 9}), metric)
        with ctx.target.journal:
            return await measure(Skill(""), ctx.env.items("val"), ctx, tag="val", stage="evaluate")

    return asyncio.run(work())


def test_a_measurement_is_the_mean_over_all_items_in_their_order() -> None:
    result = measured({"a": (1, 15), "b": (0, 15), "c": (0, 30)}, "mixed")
    assert result.values == {"a": 0.75, "b": 0.25, "c": 0.5}
    assert list(result.values) == ["a", "b", "c"]
    assert result.score == pytest.approx(0.5)


def test_a_measurement_without_all_items_is_none() -> None:
    with pytest.raises(Stopped, match="1 of 3 items could not be measured"):
        measured({"a": (1, 0), "b": "down", "c": (1, 0)})


def test_a_measurement_sets_refused_items_aside_and_says_why() -> None:
    result = measured({"a": (1, 0), "b": "refused", "c": (0, 0)})
    assert (result.values, result.score) == ({"a": 1, "c": 0}, 0.5)
    assert "content filter" in result.set_aside["b"]


@given(st.integers(2, 30), st.integers(0, 30))
def test_a_tenth_of_the_items_and_always_one_may_be_refused(total: int, refused: int) -> None:
    assume(refused < total)
    outcomes: dict[str, Outcome] = {f"i{n:02d}": "refused" if n < refused else (1, 0) for n in range(total)}
    if refused <= max(1, total // 10):
        assert len(measured(outcomes).values) == total - refused
    else:
        with pytest.raises(Stopped, match=f"{refused} of {total} items cannot be measured"):
            measured(outcomes)


def test_a_measurement_counts_what_was_set_aside_before() -> None:
    async def work(set_aside: int) -> Any:
        left = range(20 - set_aside)
        ctx = context(TableTarget({f"i{n:02d}": "refused" if n == 0 else (1, 0) for n in left}))
        with ctx.target.journal:
            items = ctx.env.items("val")
            return await measure(Skill(""), items, ctx, tag="val", stage="evaluate", set_aside=set_aside)

    assert len(asyncio.run(work(1)).values) == 18
    with pytest.raises(Stopped, match="3 of 20 items cannot be measured"):
        asyncio.run(work(2))


def test_a_split_of_which_nothing_is_left_stops_the_run() -> None:
    with pytest.raises(Stopped, match="1 of 1 items cannot be measured"):
        under(Case({"a": "refused"}, {"a": Fraction(0)}, "hard", "strict"), ({}, 1))
