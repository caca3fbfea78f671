"""The page as people use it: widths and themes, comparisons, measurements, addresses. Each does what a user did."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from skillopt.errors import SkillOptError
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json
from skillopt.record.journal import read_totals
from support import skillopt, train_sim, until
from support.browser import open_page
from support.webui import Ui, make_workspace, serving

pytestmark = pytest.mark.browser

GONE = ("ERR_ABORTED",)
SIZES = ((390, 780), (1024, 768), (1512, 900), (1920, 1080))
LOOKS: list[dict[str, Any]] = [
    {"width": width, "height": height, "scheme": scheme} for width, height in SIZES for scheme in ("light", "dark")
]
ALONE = "gradient.analysts=[llm]"
WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@dataclass
class World:
    ui: Ui
    first: str
    second: str
    """Another seed of the first."""
    other: str
    """Has other validation items: 20 of its own 40 are those of the first."""
    short: str
    """Reached its limit of calls."""
    noisy: str

    def files(self, name: str) -> RunDirectory:
        return self.ui.run(name)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    workspace = make_workspace(tmp_path_factory.mktemp("page") / "work")
    out = workspace / "outputs"
    seed = f"train.init_skill={workspace}/data/sim/seed_skill.md"

    def trained(*overrides: str) -> str:
        before = set(out.glob("sim/*"))
        with contextlib.suppress(SkillOptError):
            train_sim(out, ALONE, seed, *overrides)
        (new,) = set(out.glob("sim/*")) - before
        return f"0/sim/{new.name}"

    first = trained("train.seed=1", "train.num_epochs=2")
    second = trained("train.seed=2", "train.num_epochs=2", "optimizer.learning_rate=2", "train.batch_size=10")
    other = trained("train.seed=3", "train.num_epochs=1", "env.options={rules: 20, train: 48, val: 20, test: 30}")
    short = trained("train.seed=4", "budget.max_calls=200")
    noisy = trained(
        "train.seed=5", "train.num_epochs=1", "models.target_model=sim:world?noise=0.1", "evaluation.gate=paired"
    )
    with serving(workspace) as ui:
        yield World(ui, first, second, other, short, noisy)


@pytest.fixture(params=LOOKS, ids=lambda look: f"{look['width']}-{look['scheme']}")
def look(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)


# The list of runs


def test_every_cell_of_the_list_can_be_reached_at_every_width(world: World, look: dict[str, Any]) -> None:
    reach_every_cell(world, look)


@pytest.mark.parametrize("width", [960, 1360, 2560])
def test_every_cell_of_the_list_can_be_reached_at_widths_between_and_beyond(world: World, width: int) -> None:
    reach_every_cell(world, {"width": width, "height": 900})


def reach_every_cell(world: World, look: dict[str, Any]) -> None:
    with open_page(f"{world.ui.url}#/runs", **look, forgives=GONE) as page:
        page.locator(".line.run").first.wait_for()
        if look["width"] > 900:
            page.get_by_role("button", name="Columns").click()
            for box in page.locator(".chooser input").all()[:6]:  # three more columns
                box.check()
            page.keyboard.press("Escape")
            page.locator(".chooser input").first.wait_for(state="hidden")
        assert page.evaluate(WIDE) <= 0
        button = page.locator(".line.run .c-edit button").first
        button.scroll_into_view_if_needed()
        place, panel = button.bounding_box(), page.locator(".runs").bounding_box()
        assert place["x"] + place["width"] <= panel["x"] + panel["width"] + 1
        assert place["x"] + place["width"] <= look["width"]
        if look["width"] > 900:
            assert page.locator(".runs .heads").is_visible()
            heads = page.locator(".runs .heads > span").evaluate_all("all => all.map(e => e.getBoundingClientRect().x)")
            line = page.locator(".line.run").first.locator("> span")
            cells = line.evaluate_all("all => all.map(e => e.getBoundingClientRect().x)")
            assert heads == pytest.approx(cells, abs=1), "heads are above their columns"
        button.click()
        page.get_by_role("dialog").wait_for()


def test_sparklines_have_one_scale_and_the_planned_steps(world: World) -> None:
    summary = read_json(world.files(world.short).summary)
    done, planned, score = summary["steps"]["run"], summary["plan"]["steps"]["planned"], summary["best"]["val"]
    assert 0 < done < planned
    with open_page(f"{world.ui.url}#/runs", width=1512, forgives=GONE) as page:
        end = page.locator(f'[data-key="{world.short}"] .spark circle')
        end.wait_for()
        assert float(end.get_attribute("cx")) == pytest.approx(2 + 112 * done / planned)
        assert float(end.get_attribute("cy")) == pytest.approx(27 - 24 * score)


# Compare


def compared(ui: Ui, *runs: str) -> str:
    return f"{ui.url}#/compare?runs={','.join(run.replace('/', '%2F') for run in runs)}"


def test_compare_shows_no_score_that_was_not_measured(world: World) -> None:
    names = (world.first, world.other)
    tables = [world.ui.get(f"/api/runs/{name}/items") for name in names]
    best = [read_json(world.files(name).summary)["best"]["version"] for name in names]
    scores: list[dict[str, float]] = []
    for table, version in zip(tables, best, strict=True):
        column = table["columns"].index(f"v{version}")
        rows = [row for row in table["rows"] if row["split"] == "val" and row["scores"][column] is not None]
        scores.append({row["item"]: row["scores"][column] for row in rows})
    shared = scores[0].keys() & scores[1].keys()
    alone = scores[0].keys() ^ scores[1].keys()
    assert shared
    assert alone
    with open_page(compared(world.ui, *names), width=1512, forgives=GONE) as page:
        page.get_by_text(f"{len(shared)} of {len(shared) + len(alone)} items are shared").wait_for()
        better = sum(scores[1][item] > scores[0][item] for item in shared)
        page.locator(".itemtable button", has_text=f"Improved {better}").wait_for()
        search = page.get_by_label("Search items")
        for item in sorted(alone)[:2]:
            search.fill(item)
            line = page.locator(".items .virtual .line", has_text=item)
            line.wait_for()
            marks = line.locator(".c-side .tag").all_inner_texts()
            assert [mark == "–" for mark in marks] == [item not in side for side in scores]


def test_each_run_has_its_outputs_in_a_column_of_its_own(world: World, look: dict[str, Any]) -> None:
    names = (world.first, world.second, world.noisy)
    with open_page(compared(world.ui, *names), **look, forgives=GONE) as page:
        page.locator(".itemtable").scroll_into_view_if_needed()
        page.locator(".itemtable h2").evaluate("title => title.scrollIntoView()")
        lines = page.locator(".items .virtual .line")
        lines.first.wait_for()
        assert page.evaluate(WIDE) <= 0
        item = lines.first.locator("b").first.inner_text()
        outputs = []
        for name in names:
            rows = world.ui.get(f"/api/runs/{name}/items")["rows"]
            outputs.append(next(row["output"] for row in rows if row["item"] == item))
        cells = lines.first.locator(".c-side")
        assert cells.locator(".clamp").all_inner_texts() == outputs
        boxes = [cell.bounding_box() for cell in cells.all()]
        if look["width"] > 900:
            heads = page.locator(".items .heads > span").all()
            assert len(heads) == 3 + len(names)
            assert [head.bounding_box()["x"] for head in heads[3:]] == pytest.approx([b["x"] for b in boxes], abs=1)
            assert all(a["x"] + a["width"] <= b["x"] for a, b in itertools.pairwise(boxes))
        else:
            assert all(a["y"] + a["height"] <= b["y"] for a, b in itertools.pairwise(boxes)), "below each other"


def test_compare_asks_which_runs(world: World) -> None:
    with open_page(f"{world.ui.url}#/compare", forgives=GONE) as page:
        page.get_by_text("Choose two").first.wait_for()
        assert page.locator(".sheet").count() == 0


# Evaluate


def test_a_name_that_fits_nothing_is_not_measured(world: World) -> None:
    with open_page(f"{world.ui.url}#/evaluate", forgives=GONE) as page:
        picker = page.get_by_label("Skill", exact=True)
        picker.fill("no such skill")
        measure = page.get_by_role("button", name="Measure", exact=True)
        assert measure.is_disabled()
        picker.fill("seed_skill")
        until(measure.is_enabled)
        measure.click()
        page.locator("main h3", has_text="seed_skill.md").wait_for()


def test_a_measurement_says_what_was_measured(world: World) -> None:
    first, second = (f"{world.files(name).root}/best_skill.md" for name in (world.first, world.other))
    launch = world.ui.post(
        "/api/compare", {"a": {"run": world.other}, "b": {"run": world.first}, "run": world.first, "split": "val"}
    )
    until(lambda: world.ui.get(f"/api/launches/{launch['id']}")["code"] is not None)
    written = world.ui.get(f"/api/launches/{launch['id']}")["written"]
    found = world.ui.get(f"/api/measured/{written}")
    result, pairs = found["result"], [row["scores"] for row in found["table"]["rows"]]
    means = [sum(pair[side] for pair in pairs) / len(pairs) for side in (0, 1)]
    assert means == pytest.approx([result["a"]["score"], result["b"]["score"]]), "each item has both sides"
    assert Path(first).name == Path(second).name == "best_skill.md", "a file's name alone would not tell them apart"
    with open_page(f"{world.ui.url}#/measured/{written}", width=1024, forgives=GONE) as page:
        page.get_by_text(result["verdict"]).wait_for()
        title = page.locator("h1").inner_text()
        assert world.first.split("/")[-1] in title
        assert world.other.split("/")[-1] in title
        low, high = result["difference_interval"]
        page.get_by_text(f"{result['difference']:+.2f} [{low:+.2f} to {high:+.2f}]".replace("-", "−")).wait_for()
        cut = page.locator(".facts *").evaluate_all("all => all.filter(e => e.scrollWidth > e.clientWidth + 1).length")
        assert cut == 0
        shown = page.evaluate("import('/static/js/format.js').then(f => [f.chance(0.00004), f.chance(0.25)])")
        assert shown == ["p < 0.001", "p = 0.250"]


def test_a_check_shows_both_scores_of_each_type(world: World) -> None:
    skill = world.files(world.first).best_skill
    done = skillopt("check", "-c", "configs/sim/default.yaml", str(skill), "--base", "none", cwd=world.ui.workspace)
    assert done.returncode == 0, done.stderr
    check = next(row["id"] for row in world.ui.get("/api/measured")["rows"] if row["kind"] == "checks")
    rows = world.ui.get(f"/api/measured/{check}")["table"]["rows"]
    types = sorted({row["type"] for row in rows})
    scores = {name: [row["scores"] for row in rows if row["type"] == name] for name in types}
    means = {
        name: [f"{sum(pair[side] for pair in scores[name]) / len(scores[name]):.2f}" for side in (0, 1)]
        for name in types
    }
    with open_page(f"{world.ui.url}#/measured/{check}", width=1024, forgives=GONE) as page:
        shown = page.get_by_role("group", name="By type").locator("tbody tr")
        shown.first.wait_for()
        lines = [line.split("\t") for line in shown.all_inner_texts()]
    assert lines == [[name, *means[name], str(len(scores[name]))] for name in types]
    assert len(types) > 1


def test_a_measurement_calls_a_run_by_its_name_and_names_the_skill_that_was_checked(world: World) -> None:
    skill = world.files(world.first).best_skill
    done = skillopt("check", "-c", "configs/sim/default.yaml", str(skill), "--base", "none", cwd=world.ui.workspace)
    assert done.returncode == 0, done.stderr
    world.ui.post(f"/api/runs/{world.first}/labels", {"name": "cosine, first try", "tags": [], "note": ""})
    try:
        with open_page(f"{world.ui.url}#/evaluate", width=1024, forgives=GONE) as page:
            page.locator("h3", has_text="Check: cosine, first try best against no skill").wait_for()
            page.locator(".facts dt", has_text="skill: cosine, first try best").wait_for()
            page.goto(f"{world.ui.url}#/runs")
            page.locator(".line.run b", has_text="cosine, first try").wait_for()
    finally:
        world.ui.post(f"/api/runs/{world.first}/labels", {"name": "", "tags": [], "note": ""})


def test_without_runs_a_skill_file_can_be_measured(tmp_path: Path) -> None:
    with serving(make_workspace(tmp_path / "work")) as ui, open_page(f"{ui.url}#/evaluate", forgives=GONE) as page:
        page.get_by_role("button", name="Measure", exact=True).click()
        page.locator("h3", has_text="seed_skill.md").wait_for()


def test_two_runs_begin_with_the_paired_verdict_of_the_files(world: World) -> None:
    scores = []
    for name in (world.first, world.second):
        rows = read_json(world.files(name).evaluations / "test_best.json")["items"]
        scores.append({item: row["hard"] for item, row in rows.items()})
    shared = scores[0].keys() & scores[1].keys()
    means = [sum(side[item] for item in shared) / len(shared) for side in scores]
    with open_page(compared(world.ui, world.first, world.second), width=1512, forgives=GONE) as page:
        page.locator(".paired .verdict").wait_for()
        said = page.locator(".paired").inner_text()
        assert f"B scores {means[1]:.2f} on {len(shared)} held-out tasks, A {means[0]:.2f}" in said
        assert page.locator(".paired").bounding_box()["y"] < page.locator(".sheet").bounding_box()["y"]
        page.goto(compared(world.ui, world.first, world.second, world.other))
        page.locator(".itemtable .legend").wait_for()
        assert page.locator(".itemtable .legend b").all_inner_texts() == ["A ", "B ", "C "]
        assert page.locator(".paired").count() == 0, "a paired test is of two"


# One header, six tabs, the curve


def test_one_header_of_56_px_six_tabs_and_the_curve_above_the_fold(world: World, look: dict[str, Any]) -> None:
    with open_page(f"{world.ui.url}#/run/{world.first}/overview", **look, forgives=GONE) as page:
        page.locator(".chart svg").first.wait_for()
        assert page.locator("nav.tabs a").count() <= 6
        tops = []
        for name in ("overview", "steps", "skill", "items", "review", "details"):
            page.locator(f'nav.tabs a[data-key="tab-{name}"]').click()
            page.locator(f'nav.tabs a[data-key="tab-{name}"][aria-current]').wait_for()
            box = until(page.locator(".runhead").bounding_box)
            tops.append((box["y"], box["height"]))
            assert page.evaluate(WIDE) <= 0, name
        assert {height for _, height in tops} == {56}
        page.goto("about:blank")  # the tab before has a chart, too
        page.goto(f"{world.ui.url}#/run/{world.first}/overview")
        page.locator(".chart .mark").first.wait_for()
        chart = until(page.locator(".chart svg").first.bounding_box)
        assert chart["y"] < look["height"] - 60
        titles = page.locator(".chart svg").first.locator(".axis").all_text_contents()
        assert set(titles) == {"score", "step", "tokens"}


def test_nothing_is_lost_where_the_header_is_narrow(world: World, look: dict[str, Any]) -> None:
    with open_page(f"{world.ui.url}#/run/{world.first}/overview", **look, forgives=GONE) as page:
        page.locator(".chart .mark").first.wait_for()
        for name in ("Validation", "Test", "Steps", "Calls", "Cost", "Time"):
            assert page.locator(".nums dt:visible", has_text=name).count() == 1, name
        more = page.get_by_role("button", name="More")
        if look["width"] <= 1280:
            assert not page.get_by_role("link", name="Duplicate").is_visible()
            more.click()
        for name in ("Export skill", "Compare", "Duplicate"):
            place = page.locator(".runhead").get_by_role("link", name=name).bounding_box()
            assert place["x"] >= 0, name
            assert place["x"] + place["width"] <= look["width"], name
        if look["width"] <= 1280:
            page.keyboard.press("Escape")
            page.get_by_role("link", name="Duplicate").wait_for(state="hidden")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_filters_break_no_word_and_rows_have_no_hole(world: World, scheme: Any) -> None:
    with open_page(f"{world.ui.url}#/run/{world.first}/items", width=390, scheme=scheme, forgives=GONE) as page:
        page.locator(".items .virtual .line").first.wait_for()
        heights = page.locator(".seg button").evaluate_all("all => all.map(e => e.getBoundingClientRect().height)")
        assert max(heights) < 40, "each is one line"
        gaps = page.locator(".items .virtual .line").evaluate_all(
            "all => all.map(line => { const at = c => line.querySelector(c).getBoundingClientRect();"
            " return [at('.c-output').top - at('.c-task').bottom,"
            " at('.c-strip').top - at('.c-output').bottom] }).flat()"
        )
        assert max(gaps) < 10
        page.goto(f"{world.ui.url}#/runs")
        page.locator(".line.run").first.wait_for()
        for line in page.locator(".line.run").all():
            name, status = line.locator(".c-name b").bounding_box(), line.locator(".c-status .tag").bounding_box()
            box = line.bounding_box()
            assert box["y"] <= min(name["y"], status["y"])
            test = line.locator(".c-test").bounding_box()
            assert test["y"] + test["height"] <= box["y"] + box["height"]


def test_the_list_says_that_the_server_is_gone_and_the_logo_stays(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "work")
    with serving(workspace) as ui, open_page(f"{ui.url}#/runs", forgives=(*GONE, "ERR_CONNECTION")) as page:
        page.get_by_text("No runs yet").wait_for()
        ui.stop()
        page.get_by_text("server away").wait_for()
        page.get_by_role("link", name="Evaluate").click()
        page.get_by_text("The server does not answer").wait_for()
        page.get_by_role("link", name="Runs", exact=True).click()
        page.get_by_text("The server does not answer").wait_for()
        ui.start()
        page.get_by_role("navigation", name="Main").get_by_role("link", name="New run").click()
        page.locator("#launch").wait_for()
        assert page.locator(".brand img").evaluate("img => img.complete && img.naturalWidth > 0")


def test_figures_come_from_one_source_and_a_run_says_how_it_ended(world: World) -> None:
    data = world.ui.get(f"/api/runs/{world.short}")
    assert data["word"] == "budget reached"
    assert data["figures"]["calls"] == sum(data["summary"]["calls"][role] for role in ("target", "optimizer"))
    with open_page(f"{world.ui.url}#/run/{world.short}/overview", width=1512, forgives=GONE) as page:
        page.locator(".runhead .tag", has_text="budget reached").wait_for()
        page.get_by_role("alert").get_by_text("Budget reached").wait_for()
        calls = page.locator(".runhead .figure", has_text="Calls").locator("dd").inner_text()
        assert calls == f"{data['figures']['calls']:,}"
        assert f"It cost {calls} calls" in page.locator(".verdict").inner_text(), "the sentence has the same figure"


def test_live_figures_are_those_of_the_journal_also_after_a_kill(tmp_path: Path) -> None:
    with serving(make_workspace(tmp_path / "work")) as ui:
        slow = ("models.target_model=sim:world?latency=0.3", "hardware.workers=4")
        run = ui.launch("train.num_epochs=2", *slow)
        until(lambda: ui.get(f"/api/runs/{run}")["figures"]["calls"] > 20)
        with open_page(f"{ui.url}#/run/{run}/overview", width=1512, forgives=GONE) as page:
            page.get_by_role("button", name="Stop now").click()
            page.get_by_role("dialog").get_by_role("button", name="Stop now").click()
            page.get_by_role("button", name="Resume").wait_for()
            paid = sum(total.calls for total in read_totals(ui.run(run).journal))
            shown = page.locator(".runhead .figure", has_text="Calls").locator("dd")
            until(lambda: shown.inner_text() == f"{paid:,}")


def test_stage_bar_and_step_belong_together_whatever_ran_ahead(world: World) -> None:
    began = {"kind": "evaluation_started", "name": "initial", "split": "val"}
    ahead = {"kind": "selected", "step": 1}
    last = {"kind": "evaluation_started", "name": "best", "split": "test"}
    cases: list[tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]] = [
        ([began, ahead], {"stage": "evaluate", "done": 20, "total": 40}, {"text": "initial skill on val 20 of 40"}),
        ([began, ahead], {"stage": "gate", "done": 4, "total": 8}, {"text": "gate 4 of 8"}),
        (
            [ahead, last],
            {"stage": "evaluate", "done": 1, "total": 4},
            {"text": "best skill on test 1 of 4", "final": True},
        ),
    ]
    with open_page(f"{world.ui.url}#/runs", forgives=GONE) as page:
        for events, progress, wanted in cases:
            shown = page.evaluate(
                "([events, progress]) => import('/static/js/views/live.js')"
                ".then(live => live.stage({data: {pid: 1}, events, pulse: {progress}}))",
                [events, progress],
            )
            assert shown["text"] == wanted["text"]
            assert bool(shown["final"]) == wanted.get("final", False)
            assert shown["share"] == progress["done"] / progress["total"]


# Noise


def test_selection_bias_is_said_and_a_share_is_not_a_cross(world: World) -> None:
    best = read_json(world.files(world.noisy).summary)["best"]
    with open_page(f"{world.ui.url}#/run/{world.noisy}/overview", width=1512, forgives=GONE) as page:
        text = f"the gate saw {best['val']:.2f} in validation, fresh samples give {best['val_remeasured']:.2f}"
        page.get_by_text(text).wait_for()
        page.goto(f"{world.ui.url}#/run/{world.noisy}/items?split=val")
        page.locator(".items .virtual .line").first.wait_for()
        marks = page.locator(".items .c-score .tag").all_inner_texts()
        assert not [mark for mark in marks if mark.startswith("✗") and not mark.endswith("0.00")]


# The form


def test_the_form_begins_with_five_fields_and_the_plan(world: World, look: dict[str, Any]) -> None:
    with open_page(f"{world.ui.url}#/new", **look, forgives=GONE) as page:
        page.get_by_text("16 steps in 4 epochs").wait_for()
        assert page.locator(".field:visible").count() == 5
        fields, launch = page.locator(".essentials").bounding_box(), page.locator("#launch").bounding_box()
        below = launch["y"] >= fields["y"] + fields["height"]
        assert below if look["width"] <= 1000 else launch["x"] >= fields["x"] + fields["width"]
        assert page.evaluate(WIDE) <= 0
        page.get_by_label("Search settings").fill("learning rate")
        page.locator('[id="f-optimizer.learning_rate"]').wait_for()


def test_what_is_launched_is_what_the_form_shows_and_nothing_is_discarded_unasked(world: World) -> None:
    with open_page(f"{world.ui.url}#/new", forgives=GONE) as page:
        page.locator("#source").wait_for()
        target = page.locator('[id="f-models.target_model"]')
        target.fill("sim:world?latency=0.5")
        page.locator("#source").select_option("template:the simulated world")
        page.get_by_role("button", name="Keep editing").click()
        assert target.input_value() == "sim:world?latency=0.5"
        page.get_by_label("Search settings").fill("train.seed")
        page.locator('[id="f-train.seed"]').fill("4711")
        page.locator("#launch").click()  # at once, before the check has come back
        page.get_by_role("button", name="Pause").wait_for()
        run = page.url.split("#/run/")[1].removesuffix("/overview")
        stored = read_json(world.files(run).config_json)
        assert (stored["train.seed"], stored["models.target_model"]) == (4711, "sim:world?latency=0.5")
        world.ui.post(f"/api/runs/{run}/stop", {})


# Addresses and Back


def test_back_closes_the_trajectory_then_returns_to_the_list_as_it_was(world: World) -> None:
    with open_page(f"{world.ui.url}#/runs", forgives=GONE) as page:
        page.locator(".line.run").first.wait_for()
        page.get_by_label("Search", exact=True).fill("seed1-")
        page.get_by_label("Status", exact=True).select_option("finished")
        assert "search=seed1-" in page.url
        assert "status=finished" in page.url
        page.locator(".line.run .c-name a").first.click()
        page.locator(".verdict").wait_for()
        page.get_by_role("link", name="Items", exact=True).click()
        page.locator(".items .virtual .line").first.wait_for()
        page.locator(".items .virtual .line").nth(3).click()
        page.get_by_role("dialog").wait_for()
        page.go_back()
        page.get_by_role("dialog").wait_for(state="detached")
        assert page.url.split("?")[0].endswith("/items")
        page.go_back()
        page.locator(".verdict").wait_for()
        page.go_back()
        page.get_by_text("1 of ").first.wait_for()
        assert page.get_by_label("Search", exact=True).input_value() == "seed1-"


def test_a_table_scrolls_inside_itself_and_what_is_below_can_be_reached(world: World, look: dict[str, Any]) -> None:
    with open_page(f"{world.ui.url}#/run/{world.first}/items", **look, forgives=GONE) as page:
        page.locator(".items .virtual .line").first.wait_for()
        assert page.locator(".tablebox").bounding_box()["height"] <= look["height"]
        page.locator(".tablebox").evaluate("box => { box.scrollTop = box.scrollHeight }")
        page.get_by_role("heading", name="Persistent failures").scroll_into_view_if_needed()
        page.mouse.wheel(0, 400)
        assert page.evaluate("document.documentElement.scrollHeight") < 6 * look["height"]


def test_back_returns_to_where_the_list_was_scrolled_to(world: World) -> None:
    with open_page(f"{world.ui.url}#/runs", width=390, height=420, forgives=GONE) as page:
        page.locator(".line.run").first.wait_for()
        page.locator(".tablebox").evaluate("box => { box.scrollTop = 40 }")
        page.wait_for_function("() => history.state?.inner === 40")
        page.locator(".line.run .c-name a").nth(2).click()
        page.locator(".runhead").wait_for()
        page.go_back()
        page.wait_for_function("() => document.querySelector('.tablebox')?.scrollTop === 40")


def test_the_address_says_what_the_list_shows(world: World) -> None:
    with open_page(f"{world.ui.url}#/runs", forgives=GONE) as page:
        page.locator(".line.run").first.wait_for()
        page.get_by_label("Status", exact=True).select_option("budget reached")
        page.get_by_role("link", name="Compare", exact=True).click()
        page.get_by_text("Choose two").first.wait_for()
        page.get_by_role("link", name="Runs", exact=True).click()
        page.get_by_text("1 of ").first.wait_for()
        assert "status=budget+reached" in page.url


def test_the_chosen_line_of_blame_has_an_address(world: World) -> None:
    with open_page(f"{world.ui.url}#/run/{world.first}/skill", forgives=GONE) as page:
        page.locator("button.ln:not([data-seq='0'])").nth(2).click()
        page.get_by_role("link", name="Open step").wait_for()
        assert "line=" in page.url
        text = page.locator(".ln[aria-pressed=true]").first.inner_text()
        page.reload()
        page.get_by_role("link", name="Open step").wait_for()
        assert page.locator(".ln[aria-pressed=true]").first.inner_text() == text


# Edit and try


def test_a_line_is_changed_and_the_change_is_measured_on_the_failing_items(world: World) -> None:
    with open_page(f"{world.ui.url}#/run/{world.short}/skill", width=1512, forgives=GONE) as page:
        page.locator("button.ln").first.click()
        page.get_by_label("Items", exact=True).select_option("val")
        page.get_by_text("rollouts, about $0.00 (estimate)").wait_for()
        go = page.get_by_role("button", name="Measure the change")
        assert go.is_disabled(), "nothing is changed yet"
        page.get_by_label("The line as you would write it").fill("- For amber, answer ZZ-00.")
        before = page.locator(".blamed p", has_text="rollouts").inner_text()
        go.click()
        page.get_by_role("link", name="Item by item").wait_for()
        items = int(before.split(" items")[0])
        assert page.locator(".blamed .facts div", has_text="items").first.locator("dd").inner_text() == str(items)
