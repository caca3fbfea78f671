"""Random runs: every figure that the page is given equals the figure in the run's files."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import fmean

import pytest

from skillopt.errors import SkillOptError
from skillopt.record.directory import RunDirectory
from skillopt.record.files import plain, read_json, read_jsonl
from skillopt.record.run import Run
from skillopt.tasks.base import Score
from skillopt.view.text import score
from skillopt.view.use import SkillInUse, skill_in_use
from skillopt_webui import insight, items, view
from skillopt_webui.runs import RunIndex
from skillopt_webui.settings import make_settings
from support import train_sim

SEEDS = range(4)


def random_run(out: Path, seed: int) -> RunDirectory:
    draw = random.Random(seed)
    metric = draw.choice(["hard", "soft", "mixed"])
    return RunDirectory(
        train_sim(
            out,
            f"train.seed={seed}",
            f"train.num_epochs={draw.randint(1, 3)}",
            f"train.batch_size={draw.randint(3, 7)}",
            f"optimizer.learning_rate={draw.randint(1, 4)}",
            f"evaluation.metric={metric}",
            f"models.optimizer_model=sim:world?duds={draw.choice([0.1, 0.5])}",
            f"env.options={{rules: {draw.randint(4, 9)}, train: 14, val: {draw.randint(5, 9)}, test: 6}}",
            draw.choice(["gradient.analysts=[llm]", "gradient.analysts=[llm, exemplar]"]),
        ).path
    )


@pytest.fixture(scope="module", params=SEEDS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return random_run(tmp_path_factory.mktemp("figures") / "outputs", request.param)


def test_the_overview_has_the_figures_of_the_summary_and_the_history(run: RunDirectory) -> None:
    shown, summary, history = view.overview(Run(run)), read_json(run.summary), read_json(run.history)
    assert plain(shown["summary"]) == summary
    assert shown["verdict"] == summary["verdict"]
    assert shown["status"] == summary["status"]
    assert plain(shown["steps"]) == history
    marks = [mark for mark in shown["curves"].marks if mark.kind != "guidance"]
    assert [(m.kind, m.x) for m in marks] == [(r["verdict"], r["step"]) for r in history if r["verdict"] != "skipped"]
    for mark in marks:
        assert mark.said.endswith(score(mark.score))
    assert shown["curves"].scores[-1][1] == pytest.approx(summary["best"]["val"])


def test_every_score_of_the_items_table_is_the_mean_of_its_measurements(run: RunDirectory) -> None:
    """Read again from the trajectories themselves, whatever the digests say."""
    metric = read_json(run.config_json)["evaluation.metric"]
    versions = {run.read_skill(v).hash: f"v{v}" for v in reversed(run.versions())}
    values: dict[tuple[str, str], list[float]] = {}
    for path in [*run.root.glob("steps/*/trajectories.jsonl"), *run.evaluations.glob("*.jsonl")]:
        for row in read_jsonl(path):
            if "score" in row and row["skill_hash"] in versions:
                key = row["item_id"], versions[row["skill_hash"]]
                values.setdefault(key, []).append(Score(**row["score"]).value(metric))
    for path in run.root.glob("slow_update/*/trajectories.jsonl"):
        for row in read_jsonl(path):
            key = row["item_id"], versions[row["skill_hash"]]
            values.setdefault(key, []).append(Score(**row["score"]).value(metric))
    for path in [*run.root.glob("steps/*/gate.json"), *run.root.glob("slow_update/*/gate.json")]:
        gate = read_json(path)
        for row in gate["evidence"] if gate["candidate_hash"] in versions else ():
            values.setdefault((row["item_id"], versions[gate["candidate_hash"]]), []).append(row["after"])
    table = items.run_items(Run(run))
    shown = {
        (row["item"], column): value
        for row in table["rows"]
        for column, value in zip(table["columns"], row["scores"], strict=True)
        if value is not None and column != items.NO_SKILL
    }
    assert shown.keys() == values.keys()
    for key, value in shown.items():
        assert value == pytest.approx(fmean(values[key]), abs=1e-6), key
    tested = {row["item"] for row in table["rows"] if row["split"] == "test"}
    assert tested == set(read_json(run.evaluations / "test_initial.json")["items"])


def skill_in_use_of(run: RunDirectory) -> SkillInUse:
    opened = Run(run)
    assert opened.summary
    return skill_in_use(opened, opened.summary, opened.history)


def test_what_failed_and_what_it_cost_is_in_the_files(run: RunDirectory) -> None:
    summary = read_json(run.summary)
    costs = insight.costs(Run(run))
    for role in ("target", "optimizer"):
        rows = [row for row in costs.rows if row.role == role]
        assert sum(row.calls for row in rows) == summary["calls"][role]
    drawn = {use.version: (use.score, use.use.tokens_per_call) for use in skill_in_use_of(run).versions}
    assert {each.version: (each.score, each.tokens) for each in costs.versions} == drawn
    assert len(drawn) > 1
    stuck = {item.item_id for group in insight.failures(Run(run)).groups for item in group.items}
    assert stuck == set(summary["persistent_failures"])


def test_the_experiment_table_has_the_figures_of_each_run_and_of_its_seeds(tmp_path: Path) -> None:
    same = ("train.num_epochs=1", "train.batch_size=6", "env.options={rules: 6, train: 12, val: 8, test: 6}")
    runs = [RunDirectory(train_sim(tmp_path / "outputs", *same, f"train.seed={seed}").path) for seed in (1, 2, 3)]
    other = RunDirectory(train_sim(tmp_path / "outputs", *same, "train.seed=1", "optimizer.learning_rate=1.6").path)
    with pytest.raises(SkillOptError):  # it has no final score, and so no part in the mean
        train_sim(tmp_path / "outputs", *same, "train.seed=4", "budget.max_calls=20")
    table = RunIndex(make_settings(workspace=tmp_path)).table()
    rows = {row.name: row for row in table["rows"]}
    for run in [*runs, other]:
        summary, row = read_json(run.summary), rows[run.root.name]
        assert (row.initial_val, row.best_val, row.best_test) == (
            summary["initial"]["val"],
            summary["best"]["val"],
            summary["best"]["test"],
        )
        assert row.test_interval
        assert list(row.test_interval) == summary["best"]["test_interval"]
        assert row.config["optimizer.learning_rate"] == read_json(run.config_json)["optimizer.learning_rate"]
    assert {"train.seed", "optimizer.learning_rate"} <= set(table["keys"])
    group = table["groups"][rows[runs[0].root.name].group]
    assert group["runs"] == 3
    assert group["best_test"] == pytest.approx(fmean(read_json(run.summary)["best"]["test"] for run in runs))
    assert rows[other.root.name].group not in table["groups"]


def test_live_numbers_are_those_of_the_journal_and_the_summary(run: RunDirectory) -> None:
    figures, summary = view.figures(Run(run)), read_json(run.summary)
    assert figures.calls == summary["calls"]["target"] + summary["calls"]["optimizer"]
    tokens = summary["tokens"]
    assert figures.tokens == sum(tokens[role]["prompt"] + tokens[role]["completion"] for role in tokens)
    assert (figures.usd, figures.steps) == (sum(summary["cost_usd"].values()), summary["steps"]["run"])
    assert figures.seconds == pytest.approx(summary["seconds"], abs=0.1)


def test_the_paired_verdict_of_two_runs_rests_on_their_shared_items(run: RunDirectory, tmp_path: Path) -> None:
    other = random_run(tmp_path / "outputs", 99)
    metrics = {read_json(each.config_json)["evaluation.metric"] for each in (run, other)}
    shown = insight.paired(Run(run), Run(other))
    sides = [read_json(each.evaluations / "test_best.json")["items"] for each in (run, other)]
    shared = sides[0].keys() & sides[1].keys()
    assert (shown.split, shown.items) == ("test", len(shared))
    if metrics == {"hard"}:
        means = [fmean(side[item]["hard"] for item in shared) for side in sides]
        assert shown.difference == pytest.approx(means[1] - means[0], abs=1e-6)
    assert insight.paired(Run(run), Run(run)).difference == 0
