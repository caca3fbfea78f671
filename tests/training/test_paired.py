"""The paired gate is not fooled by noise, finds what is better, and never decides on a part of the split."""

from __future__ import annotations

import asyncio
import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillopt.config import Config
from skillopt.errors import Stopped
from skillopt.record.directory import RunDirectory
from skillopt.record.events import Event
from skillopt.record.files import read_json, read_jsonl
from skillopt.statistics import (
    bootstrap,
    interval,
    permutation_p,
    seeds_interval,
    sign_test,
    smallest_detectable,
    wilson,
)
from skillopt.training.gates.floors import with_floors
from skillopt.training.gates.paired import Screen
from skillopt.training.gates.paired_test import Ask, PairedTest
from skillopt.training.gates.strict import EarlyStop, strict_gate
from skillopt.view.console import Lines
from skillopt.view.curves import curves
from support import Spy, differing, essence, only_run, train_sim
from support.table import CANDIDATE, Outcome, TableTarget, context

NOISY = ("models.target_model=sim:world?noise=0.1", "evaluation.baselines=false")
SMALL = ("train.num_epochs=2", "train.batch_size=24", "optimizer.learning_rate=10", "env.options={rules: 8}")

Values = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=8)


# Statistics


@given(Values)
def test_one_sample_each_gives_mcnemars_exact_test(pairs: list[tuple[int, int]]) -> None:
    wins = sum(after > before for before, after in pairs)
    losses = sum(after < before for before, after in pairs)
    assert permutation_p([([a], [b]) for a, b in pairs]) == pytest.approx(sign_test(wins, losses))


@given(st.lists(st.lists(st.integers(0, 1), min_size=4, max_size=4), min_size=1, max_size=3))
def test_the_exact_p_is_the_share_of_all_deals_that_look_as_good(items: list[list[int]]) -> None:
    def weight(chosen: tuple[int, ...], scores: list[int]) -> int:
        difference = 2 * sum(scores[i] for i in chosen) - sum(scores)
        return int(math.copysign(difference**2, difference))

    deals: list[int] = [0]
    for scores in items:
        deals = [total + weight(chosen, scores) for total in deals for chosen in combinations(range(4), 2)]
    observed = sum(weight((2, 3), scores) for scores in items)
    expected = sum(total >= observed for total in deals) / len(deals)
    assert permutation_p([(scores[:2], scores[2:]) for scores in items]) == pytest.approx(expected)


def test_soft_scores_give_about_the_exact_p_and_always_the_same() -> None:
    hard = [([0, 0, 0], [1, 1, 0]), ([1, 0, 1], [1, 1, 1])]
    soft = [([value * 0.999 for value in a], [value * 0.999 for value in b]) for a, b in hard]
    assert permutation_p(soft) == permutation_p(soft) == pytest.approx(permutation_p(hard), abs=0.03)


Soft = st.lists(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=4, max_size=4), min_size=1, max_size=4)


@given(Soft, st.randoms())
@settings(max_examples=15)
def test_the_order_of_samples_and_of_items_plays_no_part(items: list[list[float]], draw: random.Random) -> None:
    samples = [(scores[:2], scores[2:]) for scores in items]
    shuffled = [tuple(draw.sample(side, 2) for side in pair) for pair in draw.sample(samples, len(samples))]
    assert permutation_p(samples) == permutation_p(shuffled)  # type: ignore[arg-type]


def test_an_item_whose_two_sides_are_equal_still_counts_as_a_chance_to_differ() -> None:
    clear = [([0.1, 0.1], [0.5, 0.5])]
    unsure = [([0.1, 0.9], [0.1, 0.9])] * 6
    constant = [([0.5, 0.5], [0.5, 0.5])] * 6
    assert permutation_p(clear + constant) == permutation_p(clear) == pytest.approx(1 / 6, abs=0.02)
    assert permutation_p(clear + unsure) > 0.3


@pytest.mark.parametrize(
    ("seeds", "t"), [(2, 12.706), (11, 2.228), (12, 2.201), (20, 2.093), (31, 2.042), (121, 1.980)]
)
def test_the_interval_over_seeds_is_students_for_any_number_of_them(seeds: int, t: float) -> None:
    values = [float(n) for n in range(seeds)]
    found = seeds_interval(values)
    assert found
    assert (found[1] - found[0]) / 2 == pytest.approx(t * stdev(values) / math.sqrt(seeds), rel=3e-4)


def test_intervals_hold_the_share_and_stay_between_0_and_1() -> None:
    low, high = wilson(10, 40)
    assert (round(low, 3), round(high, 3)) == (0.142, 0.402)  # published example of Wilson's interval
    assert interval([1.0] * 20) == pytest.approx((0.839, 1.0), abs=0.001)
    low, high = bootstrap([0.2, 0.5, 0.9, 0.4])
    assert 0.2 <= low < 0.5 < high <= 0.9


def test_the_smallest_detectable_gain_grows_with_noise_and_falls_with_items() -> None:
    assert smallest_detectable(40, 0.0) == pytest.approx(1 / 40)
    gains = [smallest_detectable(40, noise) for noise in (0.0, 0.05, 0.1, 0.2)]
    assert gains == sorted(gains)
    assert smallest_detectable(200, 0.1) < smallest_detectable(17, 0.1)


# The decision


def play(items: int, better: int, worse: int, flips: float, draw: random.Random) -> tuple[str, str]:
    """One candidate at the strict and at the paired gate."""
    truth = [int(i < items * 0.6) for i in range(items)]
    draw.shuffle(truth)
    after = list(truth)
    for change, solved in ((better, 0), (worse, 1)):
        for i in draw.sample([i for i, value in enumerate(truth) if value == solved], change):
            after[i] = 1 - solved

    def sample(values: list[int], item: str) -> float:
        value = values[int(item)]
        return float(1 - value if draw.random() < flips else value)

    order = [f"{i:03d}" for i in range(items)]
    current = {item: sample(truth, item) for item in order}
    known = {item: sample(after, item) for item in order}
    strict, screen = EarlyStop(order, current, "strict"), Screen(order, current, "strict")
    strict.scores = screen.scores = known
    first = "reject" if strict.beaten(order) else "accept"
    if screen.beaten(order):
        return first, "reject"
    steps = PairedTest(order, current, known, "hard", "strict", alpha=0.05, max_repeats=5).run()
    try:
        asks = next(steps)
        while True:
            asks = steps.send([sample(truth if ask.side == "current" else after, ask.item_id) for ask in asks])
    except StopIteration as end:
        return first, end.value


def rates(better: int, worse: int = 0, flips: float = 0.1, items: int = 40, trials: int = 300) -> tuple[float, float]:
    draw = random.Random(7)
    outcomes = [play(items, better, worse, flips, draw) for _ in range(trials)]
    strict, paired = (sum(row[n] == "accept" for row in outcomes) / trials for n in (0, 1))
    return strict, paired


@pytest.mark.parametrize("flips", [0.02, 0.1, 0.2])
def test_an_edit_that_does_nothing_is_hardly_ever_accepted(flips: float) -> None:
    strict, paired = rates(better=0, flips=flips)
    assert strict > 0.2
    assert paired <= 0.05


def test_an_edit_that_wins_as_much_as_it_breaks_is_seldom_accepted() -> None:
    strict, paired = rates(better=2, worse=2)
    assert strict > 0.3
    assert paired < 0.2


@pytest.mark.parametrize("flips", [0.05, 0.1, 0.2])
def test_an_edit_worth_ten_points_is_found_nearly_as_often_as_by_the_strict_gate(flips: float) -> None:
    strict, paired = rates(better=4, flips=flips)
    assert paired >= 0.8 * strict


def test_without_flips_a_single_better_item_is_enough_and_an_equal_one_is_not() -> None:
    assert rates(better=1, flips=0.0, trials=20) == (1.0, 1.0)
    assert rates(better=0, flips=0.0, trials=20) == (0.0, 0.0)


def duel(before: dict[str, float], after: Callable[[str], float], rule: str = "strict", metric: str = "hard") -> str:
    order = sorted(before)
    steps = PairedTest(order, before, {i: after(i) for i in order}, metric, rule, 0.05, 5).run()  # type: ignore[arg-type]
    try:
        asks = next(steps)
        while True:
            asks = steps.send([before[a.item_id] if a.side == "current" else after(a.item_id) for a in asks])
    except StopIteration as end:
        return str(end.value)


def asked(
    current: dict[str, float], screened: dict[str, float], fresh: Callable[[Ask], float]
) -> tuple[str, list[Ask]]:
    """The decision, and every sample that was asked for."""
    steps = PairedTest(sorted(current), current, screened, "hard", "strict", 0.05, 5).run()
    seen: list[Ask] = []
    try:
        asks = next(steps)
        while True:
            seen += asks
            asks = steps.send([fresh(ask) for ask in asks])
    except StopIteration as end:
        return end.value, seen


def test_an_item_whose_fresh_samples_are_all_equal_is_left_alone_after_two_rounds() -> None:
    current = {"better": 0.0, "flipped": 0.0, "same": 0.0}
    screened = {"better": 1.0, "flipped": 1.0, "same": 0.0}
    decision, seen = asked(current, screened, lambda ask: float(ask.item_id == "better" and ask.side == "candidate"))
    assert decision == "accept"
    rounds = {item: {ask.name for ask in seen if ask.item_id == item} for item in current}
    assert rounds == {"better": {"r1", "r2", "r3", "r4", "r5"}, "flipped": {"r1", "r2"}, "same": set()}


def test_a_loss_that_the_screen_missed_is_looked_for_where_the_current_skill_scores_and_nowhere_else() -> None:
    """Three items are better; three were solved and are broken, which the screen missed by luck."""
    current = {f"better{n}": 0.0 for n in range(3)} | {f"broken{n}": 1.0 for n in range(3)} | {"fails": 0.0}
    screened = {**current, **{item: 1.0 for item in current if item.startswith("better")}}
    truth = {item: float(item.startswith("better")) for item in current}
    decision, seen = asked(
        current, screened, lambda ask: truth[ask.item_id] if ask.side == "candidate" else current[ask.item_id]
    )
    confirmed = {ask.item_id for ask in seen if ask.name == "confirm"}
    assert confirmed == {"broken0", "broken1", "broken2"}
    assert decision == "reject"


def test_soft_scores_that_all_rise_a_little_are_accepted() -> None:
    assert duel({f"{i:02d}": 0.4 for i in range(12)}, lambda _: 0.5, metric="soft") == "accept"
    assert duel({f"{i:02d}": 0.4 for i in range(12)}, lambda _: 0.4, metric="soft") == "reject"


def test_guidance_that_changes_nothing_is_kept_and_harmful_guidance_is_not() -> None:
    before = {f"{i:02d}": float(i % 2) for i in range(20)}
    screens = [Screen(sorted(before), before, rule) for rule in ("keep", "strict")]
    for screen in screens:
        screen.scores = dict(before)
    assert [screen.beaten(sorted(before)) for screen in screens] == [False, True]
    assert duel(before, before.__getitem__, rule="keep") == "accept"
    assert duel(before, lambda i: before[i] * (i > "05"), rule="keep") == "reject"


# Whole trainings


def test_a_noisy_training_ends_the_same_at_any_width_and_measures_its_winner_again(tmp_path: Path) -> None:
    wide = train_sim(tmp_path / "wide", *NOISY, *SMALL, "hardware.workers=16")
    narrow = train_sim(tmp_path / "narrow", *NOISY, *SMALL, "hardware.workers=1")
    run = RunDirectory(wide.path)
    assert differing(essence(run), essence(RunDirectory(narrow.path))) == []
    best = wide.summary["best"]
    assert best["winners_curse"] == pytest.approx(best["val"] - best["val_remeasured"])
    gates = [read_json(path) for path in sorted(run.steps.glob("*/gate.json"))]
    accepted = [g for g in gates if g["decision"] == "accept"]
    assert accepted
    assert all(g["gate"] == "paired" and g["repeats"] >= 1 and g["p"] <= 0.1 for g in accepted)


def test_both_skills_are_sampled_afresh_on_the_items_that_differ(tmp_path: Path) -> None:
    run = RunDirectory(train_sim(tmp_path, *NOISY, *SMALL).path)
    folder = next(f for f in sorted(run.steps.iterdir()) if read_json(f / "gate.json")["decision"] == "accept")
    record = read_json(folder / "gate.json")
    repeated = [row for row in record["evidence"] if row["repeats"]]
    assert repeated
    rows = read_jsonl(folder / "gate_trajectories.jsonl")
    for row in repeated:
        ids = [t["id"] for t in rows if t["item_id"] == row["item_id"]]
        assert (
            sum("-current-" in i for i in ids) == sum("-candidate-" in i and "-r" in i for i in ids) == row["repeats"]
        )
    assert len({t["id"] for t in rows}) == len(rows)


DULL = (*NOISY, "train.num_epochs=3", "train.batch_size=12", "env.options={rules: 12}", "train.seed=3")
"""Steps of every kind: accepted, rejected, indecisive and skipped."""


def known_score(run: RunDirectory) -> float:
    """The mean of all that is known of the skill that training continues with."""
    return fmean(read_json(run.state)["val"].values())


@pytest.mark.slow
def test_every_score_before_a_step_is_the_known_mean_of_the_skill_that_it_continues(tmp_path: Path) -> None:
    optimizer = Spy("sim:world?duds=0.8&seed=3")
    known: list[float] = []
    shown: list[tuple[float, float, str]] = []
    lines = Lines()

    def watch(event: Event) -> None:
        line = lines(event) or ""
        if event.kind == "gate_decided" and event["decision"] != "skipped":
            known.append(known_score(only_run(tmp_path)))
            shown.append((event["before"], known[-1], line))

    result = train_sim(tmp_path, *DULL, models={"optimizer": optimizer}, listeners=[watch])
    run = RunDirectory(result.path)
    decisions = {record["verdict"] for record in result.history}
    assert {"accept", "reject", "skipped"} <= decisions
    assert [before for before, _, _ in shown] == [pytest.approx(before) for _, before, _ in shown]
    for _, before, line in shown:
        assert f" {before:.2f} " in line, "the terminal shows the same"
    for record in result.history:
        gate = read_json(run.step(record["step"]) / "gate.json")
        if gate["evidence"] and gate["repeats"]:
            for side in ("before", "after"):
                assert gate[side] == pytest.approx(fmean(row[side] for row in gate["evidence"])), gate["decision"]
    told = re.findall(r'"validation": "(\d\.\d\d) → [^"]*(\d\.\d\d)', optimizer.asked("reflect")[-1])
    assert [before for before, _ in told] == [f"{before:.2f}" for before in known[-len(told) :]]


@pytest.mark.slow
def test_a_step_that_is_not_accepted_is_recorded_as_paired_and_does_not_move_the_validation_score(
    tmp_path: Path,
) -> None:
    result = train_sim(tmp_path, *DULL, "models.optimizer_model=sim:world?duds=0.8&seed=3")
    skipped = [record["evidence"]["gate"] for record in result.history if record["verdict"] == "skipped"]
    assert skipped
    assert set(skipped) == {"paired"}
    points = dict(curves(result.history, result.summary, {}).scores)
    for record in result.history:
        if record["verdict"] != "accept":
            step = float(record["step"])
            earlier = max(x for x in points if x < step)
            assert points[step] == points[earlier], f"step {step:g} was not accepted"
    assert points[max(points)] == result.summary["best"]["val"]


def test_for_a_deterministic_target_paired_is_strict(tmp_path: Path) -> None:
    strict = train_sim(tmp_path / "strict", "train.num_epochs=1", "evaluation.gate=strict")
    paired = train_sim(tmp_path / "paired", "train.num_epochs=1")
    assert differing(essence(RunDirectory(strict.path)), essence(RunDirectory(paired.path))) == []
    assert paired.summary["best"]["val_remeasured"] is None


def test_an_indecisive_step_lowers_the_rate_and_its_edits_may_come_again() -> None:
    from types import SimpleNamespace

    from skillopt.record.state import State
    from skillopt.skill import Applied, Edit, Skill
    from skillopt.training.gates.base import Verdict
    from skillopt.training.gates.credit import Credited
    from skillopt.training.step_files import apply_verdict

    edit = Edit(id="e", op="add", text="- Be exact.", trajectory_ids=("t",))
    verdict = Verdict(
        decision="indecisive", gate="paired", rule="strict", metric="hard", before=0.5, after=0.6, at_most=0.6, items=2,
        measured=2, p=0.2, repeats=5, known_scores={"a": 0.25},
    )  # fmt: skip
    state = State(val={"a": 0.0, "b": 1.0})
    ctx = SimpleNamespace(config=Config())
    candidate = Applied(skill=Skill("new"), applied=(edit,))
    found = Credited(candidate=candidate, verdict=verdict, rejected=verdict, last=candidate, last_verdict=verdict)
    apply_verdict(state, Skill("old"), found, ctx)  # type: ignore[arg-type]
    assert (state.rejected, state.decay, state.current) == ([], 0.8, 0)
    assert state.counts.indecisive == 1
    assert state.val == {"a": 0.25, "b": 1.0}, "what was learned of the current skill is kept"


FELL = "floor fall: task type 'b' falls from 1.00 to 0.50"
LOW = "floor type:b: 0.50 is below 0.8"


@pytest.mark.parametrize(
    ("floors", "reason"),
    [
        ({}, ""),
        ({"fall": 0.5, "type:b": 0.5}, ""),
        ({"fall": 0.4}, FELL),
        ({"type:b": 0.8}, LOW),
        ({"type:b": 0.8, "fall": 0.4}, f"{LOW}; {FELL}"),
        ({"type:a": 1.0}, ""),
    ],
)
def test_the_regression_guard_turns_down_a_gain_that_costs_a_task_type_too_much(
    floors: dict[str, float], reason: str
) -> None:
    outcomes: dict[str, Outcome] = {"a1": (1, 0), "a2": (1, 0), "b1": (0, 0), "b2": (1, 0)}
    ctx = context(TableTarget(outcomes))
    ctx.env._items = [item.model_copy(update={"type": item.id[0]}) for item in ctx.env.items("val")]  # type: ignore[attr-defined]
    limits = ctx.config.evaluation.model_copy(update={"floors": floors})
    ctx = replace(ctx, config=ctx.config.model_copy(update={"evaluation": limits}))
    current = {"a1": 0.0, "a2": 0.0, "b1": 1.0, "b2": 1.0}
    verdict = asyncio.run(with_floors(strict_gate)(CANDIDATE.skill, CANDIDATE, current, ctx))
    assert (verdict.decision, verdict.after) == ("reject" if reason else "accept", 0.75)
    assert verdict.reason == reason


@pytest.mark.slow
def test_failures_of_the_endpoint_are_retried_then_stop_the_run_which_goes_on_without_loss(tmp_path: Path) -> None:
    from skillopt.models.base import ChatReply, ChatRequest, TransientError

    target = Spy("sim:world?noise=0.1")
    broken = True

    async def chat(request: ChatRequest) -> ChatReply:
        if broken and len(target.requests) > 70 and "Val ticket 3." in str(request.messages[-1]["content"]):
            raise TransientError("500: broken")
        return await Spy.chat(target, request)

    target.chat = chat  # type: ignore[method-assign]
    with pytest.raises(Stopped, match=r"gate: \d of 4\d items could not be measured, so nothing was decided"):
        train_sim(tmp_path, *NOISY, *SMALL, "hardware.max_retries=0", models={"target": target})
    broken = False
    paid = len(target.requests)
    healed = train_sim(tmp_path, *NOISY, *SMALL, "hardware.max_retries=0", models={"target": target})
    calm = train_sim(tmp_path / "calm", *NOISY, *SMALL)
    assert healed.best_skill == calm.best_skill
    assert healed.summary["calls"]["target"] == len(target.requests) > paid


def test_an_outage_that_passes_costs_the_gate_a_pause_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from skillopt.models.base import ChatReply, ChatRequest, TransientError
    from skillopt.training import rollout

    monkeypatch.setattr(rollout, "PAUSES", (0.01, 0.01))
    target = Spy()
    heard: list[str] = []

    async def chat(request: ChatRequest) -> ChatReply:
        down = len(target.requests) > 60 and "retrying" not in heard
        if down and "Val ticket" in str(request.messages[-1]["content"]):
            raise TransientError("500: stumbled")
        return await Spy.chat(target, request)

    target.chat = chat  # type: ignore[method-assign]
    options = ("hardware.max_retries=1", "train.num_epochs=1")
    rough = train_sim(
        tmp_path / "rough", *options, models={"target": target}, listeners=[lambda event: heard.append(event.kind)]
    )
    calm = train_sim(tmp_path / "calm", *options)
    assert heard.count("retrying") == 1
    assert differing(essence(RunDirectory(rough.path)), essence(RunDirectory(calm.path))) == []
