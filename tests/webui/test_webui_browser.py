"""The page in a real browser, against a real server and real run processes. A console error fails a test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillopt.record.files import append_jsonl, read_json, write_json
from support import train_sim, until
from support.browser import PATIENCE, close_drawer, open_page
from support.webui import SLOW, Ui, make_workspace, serving

pytestmark = pytest.mark.browser

GONE = ("ERR_ABORTED", "ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET")
"""What a browser says when a page is left, or while the server is away."""


@pytest.fixture
def ui(tmp_path: Path) -> Iterator[Ui]:
    with serving(make_workspace(tmp_path / "work")) as running:
        yield running


def fill(page: Any, key: str, value: str) -> None:
    field = page.locator(f'[id="f-{key}"]')
    if not field.is_visible():
        page.get_by_label("Search settings").fill(key)
    field.fill(value)


STEPS_SHOWN = "wanted => [...document.body.innerText.matchAll(/(\\d+) \\/ 16/g)].some(found => found[1] >= wanted)"


def open_section(page: Any, name: str) -> None:
    section = page.locator(f'details[data-section="{name}"]')
    if section.get_attribute("open") is None:
        section.locator("summary").click()


def test_a_run_is_launched_watched_paused_reviewed_resumed_and_understood_while_the_server_restarts(ui: Ui) -> None:
    with open_page(ui.url, forgives=GONE) as page:
        page.get_by_text("No runs yet").wait_for()
        page.get_by_role("link", name="Start a first run").click()
        launch_from_form(page)
        page.get_by_role("button", name="Pause").wait_for()
        run = page.url.split("#/run/")[1].removesuffix("/overview")
        page.locator(".livebar").get_by_text("in flight").wait_for()
        page.locator(".runhead dt", has_text="Step ·").wait_for()

        other = page.context.browser.new_page()  # a second tab shows the same, at the same time
        other.set_default_timeout(PATIENCE)
        other.goto(page.url)
        other.get_by_role("button", name="Pause").wait_for()

        until(lambda: len(ui.get(f"/api/runs/{run}")["steps"]) >= 1)
        ui.stop()
        page.get_by_text("server away").wait_for()
        assert (ui.run(run).root / "run.lock").exists()
        ui.start()
        page.get_by_text("server away").wait_for(state="detached")
        assert ui.get(f"/api/runs/{run}")["pid"], "the run went on without the server"
        seen = len(ui.get(f"/api/runs/{run}")["steps"])
        for tab in (page, other):
            tab.wait_for_function(STEPS_SHOWN, arg=seen + 1)

        page.get_by_role("button", name="Pause").click()
        page.get_by_role("button", name="Resume").wait_for()
        other.get_by_role("button", name="Resume").wait_for()
        assert read_json(ui.run(run).summary)["status"] == "stopped"

        page.get_by_role("link", name="Review").click()
        card = page.get_by_label("Conflict 1-1", exact=True)
        card.get_by_role("button", name="Write your own").click()
        card.get_by_label("Your own edit").fill("- Write codes as they stand in the rules.")
        card.get_by_role("button", name="Use this").click()
        page.get_by_text("decided: own, waiting for the next step").wait_for()

        page.get_by_role("button", name="Resume").click()
        dialog = page.get_by_role("dialog", name="Resume")
        dialog.get_by_label("hardware.workers").fill("32")
        dialog.get_by_role("button", name="Resume").click()
        page.get_by_text("used in step").wait_for()
        page.locator(".tag.finished").wait_for()
        other.locator(".tag.finished").wait_for()
        assert read_json(ui.run(run).config_json)["hardware.workers"] == 32
        assert any("as they stand in the rules" in p.read_text() for p in ui.run(run).steps.rglob("selected.json"))
        look_around(page, ui, run)


def launch_from_form(page: Any) -> None:
    """A bad value is told at its field; YAML and form stay in step; plan and preview answer; then it starts."""
    page.locator("#source").wait_for()
    fill(page, "train.num_epochs", "none")
    field = page.locator('[data-field="train.num_epochs"]')
    field.get_by_text("must be a valid integer").wait_for()
    assert page.locator("#launch").is_disabled()
    fill(page, "train.num_epochs", "4")
    field.get_by_text("must be a valid integer").wait_for(state="detached")
    fill(page, "train.init_skill", "/etc/passwd")
    page.locator('[data-field="train.init_skill"]').get_by_text("under the page's folders").wait_for()
    fill(page, "train.init_skill", "data/sim/seed_skill.md")
    for key, value in SLOW.items():
        fill(page, key, value)
    fill(page, "train.batch_size", "3")
    fill(page, "env.options", "{rules: 20, train: 12, val: 12, test: 6}")
    yaml = page.locator("#yaml")
    until(
        lambda: all(
            word in yaml.input_value() for word in ("opposites=1", "train: 12", "batch_size: 3", "num_epochs: 4")
        )
    )
    seeded = yaml.input_value().replace("num_epochs:", "seed: 77\n  num_epochs:")
    yaml.fill(seeded + "hardware: {workers: 1}\n")
    until(lambda: page.locator('[id="f-train.seed"]').input_value() == "77")
    page.get_by_role("button", name="Preview data").click()
    page.get_by_text("The splits are disjoint").wait_for()
    page.get_by_text("16 steps in 4 epochs").wait_for()
    page.get_by_role("cell", name="tokens").first.wait_for()
    page.get_by_role("button", name="Test connection").click()
    page.get_by_text("target endpoint").wait_for()
    page.locator("#launch").click()


def look_around(page: Any, ui: Ui, run: str) -> None:
    """Diff, blame, trajectory, heat map, costs of the finished run."""
    base = f"{ui.url}#/run/{run}"
    page.goto(f"{base}/skill")
    page.locator("button.ln:not([data-seq='0'])").first.click()
    page.get_by_role("link", name="Open step").wait_for()
    page.locator(".chip").first.click()
    drawer = page.get_by_role("dialog")
    drawer.get_by_text("Scored output").wait_for()
    close_drawer(page)
    page.get_by_role("button", name="Diff", exact=True).click()
    page.locator(".sidebyside .add").first.wait_for()
    page.goto(f"{base}/items")
    page.locator(".items .virtual .line").first.wait_for()
    for key in ("j", "ArrowDown", "ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    page.get_by_role("dialog").get_by_text("Scored output").wait_for()
    close_drawer(page)
    page.goto(f"{base}/steps?n=2")
    page.get_by_text("Gate, item by item").wait_for()
    page.goto(f"{base}/costs")
    page.get_by_text("Planned (estimate) and real").wait_for()
    page.get_by_role("heading", name="Score against cost, by version").wait_for()
    assert page.locator(".chart .mark").count() > 1
    page.goto(f"{ui.url}#/runs")
    page.locator(".runs .line.run").wait_for()


def test_a_skill_is_evaluated_compared_and_exported(ui: Ui) -> None:
    seed = f"train.init_skill={ui.workspace}/data/sim/seed_skill.md"
    result = train_sim(ui.workspace / "outputs", "train.num_epochs=1", seed)
    run = f"0/sim/{result.path.name}"
    with open_page(f"{ui.url}#/evaluate", forgives=GONE) as page:
        page.get_by_role("button", name="Measure").click()
        page.get_by_text("val score (hard)").wait_for()
        page.get_by_role("link", name="Items").click()
        page.get_by_text("40 of 40 items").wait_for()
        page.locator(".items .virtual .line").first.click()
        page.get_by_role("dialog").get_by_text("Scored output").wait_for()
        close_drawer(page)
        page.goto(f"{ui.url}#/compare")
        page.get_by_role("button", name="Measure both").click()
        page.get_by_text("paired test").wait_for()
        page.goto(f"{ui.url}#/run/{run}/overview")
        with page.expect_download() as started:
            page.get_by_role("button", name="More").click()
            page.get_by_role("link", name="Export skill").click()
        assert Path(started.value.path()).read_text() == result.best_skill.text


HOSTILE = (
    '<script>document.title="owned"</script><img src=x onerror=document.title="owned">\x1b[2J\x1b]0;owned\x07\u202eevil'
)


def poison(value: Any) -> Any:
    """The same values with every text that a model or a task wrote made hostile."""
    if isinstance(value, dict):
        ours = {
            "id",
            "item_id",
            "decision",
            "op",
            "kind",
            "skill_hash",
            "candidate_hash",
            "verdict",
            "rule",
            "metric",
            "gate",
        }
        return {k: v if k in ours or k in {"trajectory_ids", "merged"} else poison(v) for k, v in value.items()}
    if isinstance(value, list):
        return [poison(v) for v in value]
    return HOSTILE + value[:20] + "x" * 20_000 if isinstance(value, str) else value


def test_hostile_text_is_shown_as_text_in_every_view(ui: Ui) -> None:
    opposites = "models.optimizer_model=sim:world?opposites=1"
    result = train_sim(ui.workspace / "outputs", "train.num_epochs=2", opposites)
    for pattern in ("steps/*/*.json", "slow_update/*/comparison.json"):
        for path in result.path.glob(pattern):
            write_json(path, poison(read_json(path)))
    for path in [*result.path.glob("steps/*/*.jsonl"), *result.path.glob("review/*.jsonl")]:
        rows = [poison(json.loads(line)) for line in path.read_text().splitlines()]
        path.write_text("")
        append_jsonl(path, rows)
    for path in (result.path / "skills").glob("*.md"):
        path.write_text(f"{HOSTILE}\n{'y' * 50_000}\n{path.name}")
    config = read_json(result.path / "config.json")
    write_json(result.path / "config.json", config | {"models.target_model": HOSTILE})
    summary = read_json(result.path / "summary.json")
    write_json(result.path / "summary.json", summary | {"stop_reason": HOSTILE, "set_aside": {HOSTILE: HOSTILE}})
    append_jsonl(
        result.path / "events.jsonl", [{"time": 1.0, "kind": "run_stopped", "step": 0, "epoch": 0, "reason": HOSTILE}]
    )
    base = f"#/run/0/sim/{result.path.name}"
    views = [
        "overview",
        "steps?n=1",
        "skill?mode=plain",
        "skill?v=1&mode=diff&a=0",
        "items",
        "review",
        "costs",
        "config",
        "log",
    ]
    with open_page(ui.url, width=390, forgives=(*GONE, "status of 400")) as page:
        for view in ["#/runs", *(f"{base}/{name}" for name in views), "#/compare"]:
            page.goto("about:blank")
            page.goto(ui.url + view)
            page.locator("main .panel:visible").first.wait_for()
            page.wait_for_timeout(150)
            assert page.title().endswith("SkillOpt"), view
            assert page.locator("main img, main script, main iframe").count() == 0, view
            body = page.evaluate("document.body.textContent")
            assert "\x1b" not in body, view
            assert "\u202e" not in body, view
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{view} is {wide} pixels too wide"
        page.goto(f"{ui.url}{base}/steps?n=1")
        page.locator(".chip").first.click()
        page.get_by_role("dialog").get_by_text("<script>").first.wait_for()
        assert page.title() != "owned"


def test_the_page_can_be_used_with_the_keyboard_alone(ui: Ui) -> None:
    result = train_sim(ui.workspace / "outputs", "train.num_epochs=1")
    train_sim(ui.workspace / "outputs", "train.num_epochs=1", "train.seed=9")
    with open_page(ui.url, forgives=GONE) as page:
        page.locator(".runs .line.run").first.wait_for()
        for key in ("j", "j"):
            page.keyboard.press(key)
        page.keyboard.press("Enter")
        page.get_by_role("heading", name=result.path.name).wait_for()
        page.keyboard.press("2")
        page.get_by_role("heading", name="Step 4").wait_for()
        page.keyboard.press("[")
        page.get_by_role("heading", name="Step 3").wait_for()
        page.keyboard.press("3")
        page.get_by_text("Who wrote what").wait_for()
        before = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.keyboard.press("t")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
        page.keyboard.press("?")
        page.get_by_role("dialog", name="Keyboard").wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("dialog").wait_for(state="hidden")
        page.keyboard.press("g")
        page.keyboard.press("n")
        page.get_by_role("heading", name="New run").wait_for()
        for _ in range(5):
            page.keyboard.press("Tab")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline not in {"none", ""}


def test_a_page_that_others_can_reach_asks_for_its_token(tmp_path: Path) -> None:
    token = "a-long-and-secret-token"
    served = serving(make_workspace(tmp_path / "work"), "--host", "0.0.0.0", env={"SKILLOPT_UI_TOKEN": token})
    with served as ui, open_page(ui.url, forgives=("401",)) as page:
        page.get_by_label("Token").fill("wrong-wrong-wrong")
        page.get_by_role("button", name="Open").click()
        page.get_by_text("The token is wrong.").wait_for()
        page.get_by_label("Token").fill(token)
        page.keyboard.press("Enter")
        page.get_by_text("No runs yet").wait_for()
        assert token not in page.content()
