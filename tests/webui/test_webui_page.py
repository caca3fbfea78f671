"""The page as people use it: widths and themes, comparisons, measurements, addresses. Each does what a user did."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from skillopt.errors import SkillOptError
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json
from skillopt.record.journal import read_totals
from support import train_sim, until
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
    with open_page(f"{world.ui.url}#/runs", **look, forgives=GONE) as page:
        page.locator(".line.run").first.wait_for()
        if look["width"] > 900:
            page.locator(".chooser summary").click()
            for box in page.locator(".chooser input").all()[:6]:  # three more columns
                box.check()
            page.locator(".chooser summary").click()
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
            assert line.locator(".c-score").inner_text().count("–") == 1


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
    result = world.ui.get(f"/api/measured/{written}")["result"]
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


# One header, six tabs, the curve


def test_one_header_of_56_px_six_tabs_and_the_curve_above_the_fold(world: World, look: dict[str, Any]) -> None:
    with open_page(f"{world.ui.url}#/run/{world.first}/overview", **look, forgives=GONE) as page:
        page.locator(".chart svg").first.wait_for()
        assert page.locator("nav.tabs a").count() <= 6
        tops = []
        for name in ("overview", "steps", "skill", "items", "review", "details"):
            page.locator(f'nav.tabs a[data-key="tab-{name}"]').click()
            page.locator(f'nav.tabs a[data-key="tab-{name}"][aria-current]').wait_for()
            box = page.locator(".runhead").bounding_box()
            tops.append((box["y"], box["height"]))
            assert page.evaluate(WIDE) <= 0, name
        assert {height for _, height in tops} == {56}
        page.locator('nav.tabs a[data-key="tab-overview"]').click()
        page.locator(".chart .mark").first.wait_for()
        chart = page.locator(".chart svg").first.bounding_box()
        assert chart["y"] < look["height"] - 60


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
