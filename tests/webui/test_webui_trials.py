"""What commands around a training leave, on the page: sweeps, replicates, ablations, and requests to the optimizer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json, read_jsonl
from skillopt.record.run import Run
from skillopt_webui.api_jobs import _failing
from support import SIM, skillopt, train_sim
from support.browser import open_page
from support.webui import Ui, make_workspace, serving

GONE = ("ERR_ABORTED",)
SMALL = ("train.num_epochs=1", "train.batch_size=6", "env.options={rules: 6, train: 12, val: 8, test: 6}")
WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
LOOKS = [
    {"width": width, "height": 900, "scheme": scheme}
    for width, scheme in itertools.product((390, 1024, 1512, 1920), ("light", "dark"))
]


@dataclass
class World:
    ui: Ui
    run: str
    """Its best version was ablated."""
    sweep: Path
    replicate: Path

    @property
    def files(self) -> RunDirectory:
        return self.ui.run(self.run)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    workspace = make_workspace(tmp_path_factory.mktemp("trials") / "work")
    out = workspace / "outputs"
    run = train_sim(out, *SMALL, "train.seed=9").path
    common = ("-c", str(SIM), f"env.output_root={out}", *SMALL)
    for command in (
        ("sweep", *common, "optimizer.learning_rate=2,4"),
        ("replicate", *common, "--seeds", "3", "train.seed=20"),
        ("ablate", str(run)),
    ):
        assert skillopt(*command).returncode == 0
    (sweep,), (replicate,) = out.glob("sweeps/*/*/sweep.json"), out.glob("replicates/*/*/replicate.json")
    with serving(workspace) as ui:
        yield World(ui, f"0/sim/{run.name}", sweep, replicate)


@pytest.fixture(params=LOOKS, ids=lambda look: f"{look['width']}-{look['scheme']}")
def look(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)


def test_the_journal_has_what_the_optimizer_was_sent_and_what_it_answered(world: World) -> None:
    run = Run(world.files)
    for record in run.history:
        patches = {patch.id: patch for patch in run.patches(record.step) if patch.source.startswith("llm")}
        exchanges = {each.label.split("/")[-1]: each for each in run.exchanges(record.step)}
        assert exchanges.keys() == patches.keys()
        rollouts = {rollout.id: rollout for rollout in run.batch_trajectories(record.step)}
        for name, each in exchanges.items():
            sent = "".join(str(message.content) for message in each.messages)
            shown = [rollouts[known] for known in patches[name].trajectory_ids[:3]]
            assert all(rollout.item_id and rollout.id in sent for rollout in shown)
            assert all(edit.text in each.reply for edit in patches[name].edits)
    ends = run.exchanges(run.history[-1].step, run.history[-1].epoch)
    assert ends[-1].stage == "meta_skill"


def test_an_item_fails_as_it_was_last_measured_up_to_a_version(world: World) -> None:
    run = Run(world.files)
    batches = [row for step in run.history for row in read_jsonl(run.files.step(step.step) / "trajectories.jsonl")]
    last = {row["item_id"]: row["score"]["hard"] for row in batches}
    assert set(_failing(run, max(run.versions), "train")) == {item for item, hard in last.items() if hard < 0.5}


@pytest.mark.browser
def test_what_was_sent_to_the_optimizer_can_be_read_for_every_step(world: World) -> None:
    run = Run(world.files)
    with open_page(f"{world.ui.url}#/run/{world.run}/steps", forgives=GONE) as page:
        for record in run.history:
            page.locator(".steps a").filter(has=page.locator("b", has_text=str(record.step))).first.click()
            page.get_by_role("heading", name=f"Step {record.step} ").wait_for()
            page.get_by_text("Requests to the optimizer, and its replies").click()
            for each in run.exchanges(record.step):
                box = page.locator(".exchange", has_text=each.label.split("/")[-1])
                box.get_by_text("sent: user").click()
                first = str(each.messages[-1].content).strip().splitlines()[-1]
                box.get_by_text(first[:60]).first.wait_for()
                assert '"edits"' in box.locator("details", has_text="answered").inner_text()


@pytest.mark.browser
def test_sweeps_and_replicates_fold_and_show_key_winner_and_interval(world: World, look: dict[str, Any]) -> None:
    swept, seeds = read_json(world.sweep), read_json(world.replicate)
    with open_page(f"{world.ui.url}#/runs?group=group", **look, forgives=GONE) as page:
        group = page.locator(".line.group", has_text="sweep of learning_rate")
        group.get_by_text(f"winner: learning_rate={swept['best']['values']['optimizer.learning_rate']}").wait_for()
        assert page.locator(".line.run", has_text="winner").count() >= 1
        low, high = seeds["interval"]["best_val"]
        mean = page.locator(".line.group", has_text="replicate of seeds 20, 21, 22")
        shown = f"{seeds['mean']['best_val']:.2f} [{low:.2f}–{high:.2f}]"
        mean.get_by_text(shown).wait_for()
        before = page.locator(".line.run").count()
        mean.get_by_role("button").click()
        mean.get_by_text("3 folded").wait_for()
        assert page.locator(".line.run").count() < before or before > 8, "its runs are folded"
        assert page.evaluate(WIDE) <= 0
        mean.get_by_role("link").click()
        page.get_by_role("heading", name="replicate of seeds 20, 21, 22").wait_for()
        page.get_by_text(seeds["verdict"]).wait_for()
        assert shown in page.locator("tr", has_text="mean of 3 runs").inner_text()
        assert page.evaluate(WIDE) <= 0


@pytest.mark.browser
def test_the_view_of_a_sweep_leads_to_its_runs(world: World) -> None:
    swept = read_json(world.sweep)
    with open_page(f"{world.ui.url}#/runs?group=group", forgives=GONE) as page:
        page.get_by_role("link", name="sweep of learning_rate").click()
        for row in swept["rows"]:
            line = page.locator("tbody tr", has_text=f"learning_rate={row['values']['optimizer.learning_rate']}")
            assert f"{row['best_val']:.2f} [" in line.inner_text()
            assert ("winner" in line.inner_text()) == (row["trial"] == swept["best"]["trial"])
        line.get_by_role("link").click()
        page.get_by_role("heading", name=Path(swept["rows"][-1]["run"]).name).wait_for()


@pytest.mark.browser
def test_the_worth_of_a_rule_stands_next_to_its_line(world: World) -> None:
    (ablation,) = Run(world.files).ablations
    with open_page(f"{world.ui.url}#/run/{world.run}/skill?v={ablation.version}", forgives=GONE) as page:
        page.locator(".worth").first.wait_for()
        shown = page.locator(".doc .ln:has(.worth)").evaluate_all(
            "all => all.map(e => [Number(e.querySelector('.no').innerText), e.querySelector('.worth').innerText])"
        )
    told = {part.lines[0]: f"{part.worth:+.2f}".replace("-", "−") for part in ablation.rows if part.lines}
    assert dict(map(tuple, shown)) == told


@pytest.mark.browser
def test_the_plan_is_not_cut(world: World, look: dict[str, Any]) -> None:
    with open_page(f"{world.ui.url}#/new", **look, forgives=GONE) as page:
        table = page.get_by_label("Plan", exact=True).locator("table").first
        table.wait_for()
        panel = page.get_by_label("Plan", exact=True).locator(".panel").bounding_box()
        place = table.bounding_box()
        assert place["x"] + place["width"] <= panel["x"] + panel["width"]
        assert page.evaluate(WIDE) <= 0
