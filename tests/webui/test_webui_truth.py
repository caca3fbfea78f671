"""What the page shows is true: each test does what a user did when it was not, in both themes and on a phone."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from skillopt.errors import SkillOptError
from skillopt.record.directory import RunDirectory
from skillopt.record.files import append_jsonl, read_json, read_jsonl, write_json, write_jsonl
from skillopt.record.run import Run
from skillopt.view.failures import failure_groups
from skillopt.view.html import write_report
from support import skillopt, train_sim, until
from support.browser import close_drawer, open_page
from support.webui import Ui, make_workspace, serving

MOST_PROBED: dict[str, dict[str, Any]] = {
    "light": {"scheme": "light"},
    "dark": {"scheme": "dark"},
    "phone": {"scheme": "light", "width": 390, "height": 780},
}
GONE = ("ERR_ABORTED",)


@dataclass
class World:
    """A server over one workspace with one run of each kind."""

    ui: Ui
    guided: str
    """Guidance was accepted; some items were not tried under the newest versions."""
    stopped: str
    failed: str
    """Nothing was ever measured: the endpoint was not there."""
    torn: str
    """Two opposite edits wait for a person."""

    def run(self, name: str) -> RunDirectory:
        return self.ui.run(name)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    workspace = make_workspace(tmp_path_factory.mktemp("truth") / "work")
    out = workspace / "outputs"

    def trained(*overrides: str) -> str:
        before = set(out.glob("sim/*"))
        with contextlib.suppress(SkillOptError):
            train_sim(out, *overrides)
        (new,) = set(out.glob("sim/*")) - before
        return f"0/sim/{new.name}"

    alone = "gradient.analysts=[llm]"
    duds = "models.optimizer_model=sim:world?duds=0.5"
    guided = trained("train.seed=7", "train.num_epochs=3", "optimizer.learning_rate=1.6", duds, alone)
    write_report(RunDirectory(out / guided[2:]))
    stopped = trained("train.seed=11", "budget.max_calls=200", alone)
    away = ("models.target_model=vllm:x", "hardware.vllm_url=http://127.0.0.1:9/v1", "hardware.max_retries=0")
    failed = trained("train.seed=12", *away)
    torn = trained("train.seed=13", "models.optimizer_model=sim:world?opposites=1", "budget.max_calls=150", alone)
    with serving(workspace) as ui:
        yield World(ui, guided, stopped, failed, torn)


@pytest.fixture(params=MOST_PROBED)
def look(request: pytest.FixtureRequest) -> dict[str, Any]:
    return MOST_PROBED[request.param]


# Persistent failures


def test_an_item_that_only_the_slow_update_saw_solved_is_no_persistent_failure(world: World, tmp_path: Path) -> None:
    shutil.copytree(world.run(world.guided).root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    item = next(name for name in Run(run).persistent_failures if name.startswith("train"))
    path = sorted(run.root.glob("slow_update/*/trajectories.jsonl"))[-1]
    rows = read_jsonl(path)
    rows.append({**rows[0], "item_id": item, "score": {"hard": 1.0, "soft": 1.0, "feedback": ""}})
    write_jsonl(path, rows)
    assert item not in Run(run).persistent_failures


def test_the_task_is_blamed_only_where_the_evidence_holds(world: World, tmp_path: Path) -> None:
    """Several versions failed, the newest among them, and training had come to rest."""
    run = world.run(world.guided)
    newest = max(run.versions())
    for group in failure_groups(Run(run)):
        for item in group.items:
            assert (f"not tried since version {item.versions[-1]}" in item.said) == (newest not in item.versions)
            assert item.standing != "task"
    shutil.copytree(run.root, tmp_path / "run")
    rested = RunDirectory(tmp_path / "run")
    history = read_json(rested.history)
    for record in history[-3:]:
        record["verdict"] = "reject"
        record.pop("epoch_end", None)
    write_json(rested.history, history)
    blamed = {item.item_id for group in failure_groups(Run(rested)) for item in group.items if item.standing == "task"}
    groups = failure_groups(Run(run))
    ended = {item.item_id for group in groups for item in group.items if item.standing in {"ended", "few"}}
    assert blamed == ended != set()
    assert not any("expected" in group.pattern.split(":")[0] for group in failure_groups(Run(run)))


@pytest.mark.browser
def test_what_a_persistent_failure_says_is_what_its_trajectory_shows(world: World, look: dict[str, Any]) -> None:
    with open_page(f"{world.ui.url}#/run/{world.guided}/items", **look) as page:
        page.get_by_text("not tried since version").first.wait_for()
        for chip in page.locator(".failing .chip:not([disabled])").all()[:4]:
            chip.click()
            page.get_by_role("dialog").get_by_text("✗ failed").wait_for()
            close_drawer(page)
        assert page.get_by_text("the training ended first").count() > 0


# Charts


def expected_curves(run: RunDirectory) -> tuple[dict[float, float], dict[float, float], set[tuple[str, float, float]]]:
    """Scores, lengths and marks by step, from the files alone; half a step later for an epoch's end."""
    summary, history = read_json(run.summary), read_json(run.history)
    scores, lengths = {0.0: summary["initial"]["val"]}, {0.0: summary["initial"]["tokens"]}
    marks = set()
    for record in history:
        step, seen = float(record["step"]), record["evidence"]
        scores[step] = seen["after"] if record["verdict"] == "accept" else seen["before"]
        lengths[step] = record["skill_tokens"]
        if record["verdict"] != "skipped":
            marks.add((record["verdict"], step, seen["at_most"] if seen["after"] is None else seen["after"]))
        slow = record.get("epoch_end", {}).get("slow_update", {})
        if slow.get("decision") == "accept":
            scores[step + 0.5] = slow["evidence"]["after"]
            lengths[step + 0.5] = run.read_skill(slow["version"]).tokens
            marks.add(("guidance", step + 0.5, slow["evidence"]["after"]))
    return scores, lengths, marks


@pytest.mark.browser
def test_every_drawn_point_is_in_the_files(world: World, look: dict[str, Any]) -> None:
    """The chart is read as a user reads it: with the arrow keys, from the first value to the last."""
    scores, lengths, marks = expected_curves(world.run(world.guided))
    with open_page(f"{world.ui.url}#/run/{world.guided}/overview", **look) as page:
        chart = page.locator(".chart svg").first
        page.locator(".chart .mark").first.wait_for()
        drawn = page.locator(".chart .mark").evaluate_all(
            "found => found.map(m => [m.dataset.kind, Number(m.dataset.x), Number(m.dataset.y)])"
        )
        assert {(kind, x, y) for kind, x, y in drawn} == marks
        assert "guidance" in {kind for kind, _, _ in drawn}
        chart.focus()
        for x in sorted(scores):
            page.keyboard.press("ArrowRight")
            said = page.locator(".chart .tip").first.inner_text().split("\n")
            assert said[0] == (f"step {x:g}" if x.is_integer() else f"after step {int(x)}")
            assert f"validation {scores[x]:.2f}" in said
            assert f"tokens {lengths[x]:,}" in said
            told = next((line for line in said if "accepted, version" in line), "")
            if told:
                assert told.endswith(f"{scores[x]:.2f}"), "a version with another version's score"


def test_the_reports_chart_shows_the_same_points(world: World) -> None:
    run = world.run(world.guided)
    scores, _, marks = expected_curves(run)
    plot = (run.plots / "progress.svg").read_text(encoding="utf-8")
    assert len(re.findall(r'class="mark (?:accept|reject|indecisive)"><title>', plot)) == len(
        [kind for kind, _, _ in marks if kind != "guidance"]
    )
    assert len(re.findall(r'class="mark guidance"><title>', plot)) == len([k for k, _, _ in marks if k == "guidance"])
    path = re.search(r'class="score" d="M([^"]*)"', plot)
    assert path
    corners = [tuple(map(float, corner.split())) for corner in path[1].split("L")]
    heights = sorted({y for _, y in corners}, reverse=True)
    assert len(heights) == len({round(value, 6) for value in scores.values()}), "a level that nothing was measured at"
    assert len({x for x, _ in corners}) <= len(scores) + 1, "a step that never was"


@pytest.mark.browser
def test_before_anything_is_measured_no_point_is_drawn(world: World, look: dict[str, Any]) -> None:
    with open_page(f"{world.ui.url}#/run/{world.failed}/overview", **look) as page:
        page.get_by_text("Nothing was measured.").wait_for()
        assert page.locator(".chart path[data-name], .chart .mark, .chart .area").count() == 0


# A run that failed


@pytest.mark.browser
def test_a_failed_run_says_why_and_what_to_do_on_its_first_screen(world: World, look: dict[str, Any]) -> None:
    for name, reason in ((world.failed, "cannot connect"), (world.stopped, "budget.max_calls: the limit of 200")):
        with open_page(f"{world.ui.url}#/run/{name}/overview", **look) as page:
            box = page.get_by_role("alert")
            box.get_by_text(reason).wait_for()
            box.get_by_text("then resume").wait_for()
            place = box.bounding_box()
            assert place["y"] + place["height"] < page.viewport_size["height"], "it must be seen without scrolling"
            color = box.evaluate("box => getComputedStyle(box).borderColor")
            red = page.evaluate(
                "() => { const p = document.createElement('p'); p.style.color = 'var(--bad)';"
                "document.body.append(p); return getComputedStyle(p).color }"
            )
            assert (color == red) == (name == world.failed), "only a failure is red"


def test_one_word_for_one_status_on_page_terminal_and_files(world: World) -> None:
    listed = skillopt("runs", "outputs", cwd=world.ui.workspace).stdout
    rows = {row["id"]: row for row in world.ui.get("/api/runs")["rows"]}
    for name in (world.guided, world.stopped, world.failed):
        line = next(line for line in listed.splitlines() if name.split("/")[-1] in line)
        assert rows[name]["status"] == world.ui.get(f"/api/runs/{name}")["status"]
        assert rows[name]["status"] in line.split()
    assert read_json(world.run(world.stopped).summary)["status"] == rows[world.stopped]["status"] == "stopped"


# Drawer, skip link, review


@pytest.mark.browser
def test_the_trajectory_closes_when_the_view_changes_and_leaves_room_on_a_phone(
    world: World, look: dict[str, Any]
) -> None:
    with open_page(f"{world.ui.url}#/run/{world.guided}/overview", **look, forgives=GONE) as page:
        page.get_by_role("link", name="Items", exact=True).click()
        page.locator(".items .virtual .line").first.click()
        drawer = page.get_by_role("dialog")
        drawer.get_by_text("Scored output").wait_for()
        assert drawer.bounding_box()["y"] > 0 or look.get("width") != 390, "it fills the phone"
        page.go_back()
        drawer.wait_for(state="detached")
        page.go_forward()  # its address names the trajectory
        drawer.get_by_role("link", name=re.compile("open version")).click()
        drawer.wait_for(state="detached")
        page.get_by_text("Who wrote what").wait_for()


@pytest.mark.browser
def test_an_open_trajectory_has_an_address_that_can_be_sent(world: World) -> None:
    with open_page(f"{world.ui.url}#/run/{world.guided}/items?split=val&mode=failing", forgives=GONE) as page:
        page.locator(".items .virtual .line").first.click()
        page.get_by_role("dialog").get_by_text("Scored output").wait_for()
        item = page.get_by_role("dialog").locator("code").first.inner_text()
        address = page.url
        page.goto("about:blank")
        page.goto(address)
        page.get_by_role("dialog").get_by_text("Scored output").wait_for()
        assert page.get_by_role("dialog").locator("code").first.inner_text() == item
        close_drawer(page)
        pressed = page.locator(".itemtable button[aria-pressed=true]").all_inner_texts()
        assert any(text.startswith("Failing") for text in pressed)


@pytest.mark.browser
def test_the_skip_link_stays_in_the_run(world: World, look: dict[str, Any]) -> None:
    with open_page(f"{world.ui.url}#/run/{world.guided}/overview", **look) as page:
        page.get_by_role("heading", name=world.guided.split("/")[-1]).wait_for()
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        assert page.get_by_role("heading", name=world.guided.split("/")[-1]).is_visible()
        assert world.guided in page.url


@pytest.mark.browser
def test_the_review_badge_counts_what_is_open_and_the_choice_is_marked(world: World, look: dict[str, Any]) -> None:
    (world.run(world.torn).decisions).unlink(missing_ok=True)
    with open_page(f"{world.ui.url}#/run/{world.torn}/review", **look) as page:
        tab = page.locator("nav.tabs a", has_text="Review")
        before = int(tab.locator(".tag").inner_text())
        card = page.get_by_label("Conflict 1-1", exact=True)
        card.get_by_role("button", name="Choose A").click()
        card.get_by_text("decided: a").wait_for()
        page.wait_for_function(
            "n => (document.querySelector('nav.tabs a[data-key=tab-review] .tag')?.textContent || '0') == n",
            arg=str(before - 1),
        )
        assert card.locator(".picked h3").inner_text().startswith("Side A")
        assert card.get_by_role("button", name="Choose A").get_attribute("aria-pressed") == "true"
        assert card.get_by_role("button", name="Choose B").get_attribute("aria-pressed") == "false"


# Nothing is cut without a word


@pytest.mark.browser
def test_all_events_can_be_reached_and_are_counted(world: World, look: dict[str, Any]) -> None:
    run = world.run(world.torn)
    had = len(run.events.read_bytes().splitlines())
    many = [{"time": 1.0, "kind": "gate_decided", "step": n, "epoch": 1, "decision": "skipped"} for n in range(1200)]
    kept = run.events.read_bytes()
    append_jsonl(run.events, many)
    try:
        with open_page(f"{world.ui.url}#/run/{world.torn}/log", **look) as page:
            page.get_by_text(f"1–200 of {had + 1200:,}").wait_for()
            for n in range((had + 1199) // 200):  # a click while a page is on its way would be lost
                page.get_by_text(f"–{200 * (n + 1)} of").wait_for()
                page.get_by_role("button", name="Older").click()
            page.get_by_text(f"–{had + 1200} of").wait_for()
            page.get_by_text("Began: 16 steps").wait_for()
            page.get_by_label("Search events").fill('"step": 777')
            page.get_by_text("1–1 of 1", exact=True).wait_for()
    finally:
        run.events.write_bytes(kept)


@pytest.mark.browser
def test_two_thousand_items_of_a_gate_and_a_batch_are_all_there(world: World, tmp_path: Path) -> None:
    run = world.run(world.stopped)
    folder, kept = run.step(1), tmp_path / "kept"
    shutil.copytree(folder, kept)
    gate = read_json(folder / "gate.json")
    gate["evidence"] = [gate["evidence"][0] | {"item_id": f"val-{n:04}", "after": n % 2} for n in range(2000)]
    write_json(folder / "gate.json", gate)
    rows = read_jsonl(folder / "trajectories.jsonl")
    write_jsonl(folder / "trajectories.jsonl", [{**rows[0], "id": f"0001-{n}", "item_id": f"t{n}"} for n in range(900)])
    try:
        with open_page(f"{world.ui.url}#/run/{world.stopped}/steps?n=1") as page:
            page.get_by_text("2,000 of 2,000 items").wait_for()
            page.get_by_text("900 of 900 items").wait_for()
            page.get_by_label("Search items").first.fill("val-1999")
            page.get_by_text("1 of 2,000 items").wait_for()
            page.locator(".items").first.get_by_text("val-1999").wait_for()
    finally:
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)


@pytest.mark.browser
def test_every_run_can_be_picked(world: World, tmp_path: Path) -> None:
    source, many = world.run(world.guided).root, world.ui.workspace / "outputs" / "many"
    for number in range(650):
        (many / f"seed{number}-00000000").mkdir(parents=True)
        for name in ("summary.json", "config.json", "run.lock", "history.json"):
            (many / f"seed{number}-00000000" / name).hardlink_to(source / name)
    try:
        with open_page(f"{world.ui.url}#/compare", forgives=(*GONE, "400")) as page:  # those runs have no skill
            picker = page.get_by_label("Left skill", exact=True)
            picker.fill("many / seed649-")
            picker.press("Enter")
            until(lambda: "seed649" in picker.input_value() and "(0." in picker.input_value())
            page.get_by_label("Add a run").fill("many / seed648-")
            page.get_by_label("Add a run").press("Enter")
            page.get_by_role("link", name="many seed648-00000000").wait_for()
    finally:
        shutil.rmtree(many)


# Launching, the form, the report, figures


@pytest.mark.browser
def test_launching_a_finished_config_says_so_and_leaves_the_run_alone(tmp_path: Path) -> None:
    with serving(make_workspace(tmp_path / "work")) as ui:
        run = ui.launch("train.num_epochs=1")
        until(lambda: ui.get(f"/api/runs/{run}")["status"] == "finished")
        before = ui.run(run).config_json.read_bytes(), ui.run(run).config_json.stat().st_mtime_ns
        with open_page(f"{ui.url}#/new?run={run}", forgives=GONE) as page:
            page.locator('[id="f-budget.max_usd"]').wait_for()
            page.get_by_label("Search settings").fill("max_calls")
            page.locator('[id="f-budget.max_calls"]').fill("4321")
            until(lambda: "4321" in page.locator("#yaml").input_value())
            page.locator("#launch").click()
            page.get_by_text("a run of this config is already finished").wait_for()
            page.get_by_role("button", name="Start a fresh run").wait_for()
            after = ui.run(run).config_json.read_bytes(), ui.run(run).config_json.stat().st_mtime_ns
            assert before == after
            page.get_by_role("link", name="Open the finished run").click()
            page.get_by_role("heading", name=run.split("/")[-1]).wait_for()


@pytest.mark.browser
def test_changes_in_the_form_survive_leaving_it(world: World, look: dict[str, Any]) -> None:
    with open_page(f"{world.ui.url}#/new", **look, forgives=GONE) as page:
        page.get_by_label("Search settings").fill("batch_size")
        page.locator('[id="f-train.batch_size"]').fill("17")
        until(lambda: "batch_size: 17" in page.locator("#yaml").input_value())
        page.get_by_role("link", name="Runs", exact=True).click()
        page.get_by_role("heading", name="Runs", exact=True).wait_for()
        page.get_by_role("link", name="New run").first.click()
        page.get_by_text("Your changes from before are still here.").wait_for()
        assert page.locator('[id="f-train.batch_size"]').input_value() == "17"
        page.get_by_role("button", name="Discard them").click()
        until(lambda: "batch_size: 12" in page.locator("#yaml").input_value())


@pytest.mark.browser
def test_the_report_opens_and_fits_a_phone(world: World, look: dict[str, Any]) -> None:
    with open_page(f"{world.ui.url}#/run/{world.guided}/overview", **look) as page:
        with page.expect_popup() as opened:
            page.get_by_role("button", name="More").click()
            page.get_by_role("link", name="Report").click()
        report = opened.value
        report.get_by_role("heading", name="All steps").wait_for()
        wide = report.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{wide} pixels too wide"
        cell = report.locator("#steps td:nth-child(3)").first
        lines = cell.evaluate(
            "cell => cell.getBoundingClientRect().height / parseFloat(getComputedStyle(cell).lineHeight)"
        )
        assert lines < 4, "the steps table wraps word by word"


def test_the_report_on_the_page_can_run_no_script(world: World) -> None:
    import urllib.request

    with urllib.request.urlopen(f"{world.ui.url}api/runs/{world.guided}/report") as response:
        assert response.headers["Content-Type"].startswith("text/html")
        assert response.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
        assert "attachment" not in (response.headers["Content-Disposition"] or "")


@pytest.mark.browser
def test_the_test_split_is_called_not_read_yet_only_until_it_was_read(world: World, look: dict[str, Any]) -> None:
    for name, label in ((world.guided, "Test"), (world.stopped, "Test (not read yet)")):
        with open_page(f"{world.ui.url}#/run/{name}/overview", **look) as page:
            shown = page.locator(".figure dt:visible", has_text="Test")
            shown.wait_for()
            assert shown.inner_text() == label


@pytest.mark.browser
def test_figures_are_rounded_as_on_the_terminal(world: World) -> None:
    values = [n / 1000 for n in range(0, 1001)] + [n / 64 for n in range(65)] + [0.625, 2.675, 1.005, 0.075]
    with open_page(world.ui.url) as page:
        shown = page.evaluate(
            "async values => { const f = await import('/static/js/format.js');"
            "return values.map(v => [f.score(v), f.fixed(v, 1), f.fixed(v, 4)]) }",
            values,
        )
    assert shown == [[f"{v:.2f}", f"{v:.1f}", f"{v:.4f}"] for v in values]


@pytest.mark.browser
def test_names_are_whole_on_a_phone(world: World) -> None:
    with open_page(f"{world.ui.url}#/runs", **MOST_PROBED["phone"]) as page:
        page.locator(".c-name").first.wait_for()
        cut = page.locator(".runs .c-name *").evaluate_all(
            "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).length"
        )
        assert cut == 0
        shown = json.dumps(page.locator(".runs .c-name").all_inner_texts())
        for name in (world.guided, world.stopped, world.failed, world.torn):
            assert name.split("/")[-1] in shown
