"""The page for everybody: an axe-core audit of every view, and a whole tour with the keyboard alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support import TESTS, train_sim
from support.browser import open_page
from support.webui import Ui, make_workspace, serving

pytestmark = pytest.mark.browser

AXE = TESTS / ".axe" / "node_modules" / "axe-core" / "axe.min.js"
GONE = ("ERR_ABORTED",)
VIEWS = {
    "#/runs": ".runs .line.run",
    "#/new": "#f-train\\.init_skill",
    "#/compare": "text=Choose two",
    "#/compare?runs={runs}": ".itemtable .heads",
    "#/run/{run}/skill?v=1&line=1": "text=Edit and try",
    "#/evaluate": "text=Measured",
    "#/run/{run}/overview": ".measured",
    "#/run/{run}/steps?n=1": ".itemtable",
    "#/run/{run}/skill": ".doc .ln",
    "#/run/{run}/skill?v=1&mode=diff&a=0": ".sidebyside",
    "#/run/{run}/items": ".items .virtual .line",
    "#/run/{run}/items?t=item%3Dval-000%26version%3D0": "dialog .say",
    "#/run/{run}/review": "text=Conflict 1-1",
    "#/run/{run}/costs": "text=Time by stage",
    "#/run/{run}/config": "pre",
    "#/run/{run}/log": ".log li",
}


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ui, str]]:
    workspace = make_workspace(tmp_path_factory.mktemp("access") / "work")
    options = ("train.num_epochs=2", "models.optimizer_model=sim:world?opposites=1", "gradient.analysts=[llm]")
    train_sim(workspace / "outputs", "train.seed=9", *options)
    result = train_sim(workspace / "outputs", *options)
    with serving(workspace) as running:
        yield running, f"0/sim/{result.path.name}"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_no_view_has_a_serious_finding_of_axe(ui: tuple[Ui, str], scheme: Any, width: int) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed (scripts/install_axe.sh, or npm install --prefix tests/.axe axe-core@4)")
    server, run = ui
    audit = (
        "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"
        ".filter(v => ['serious', 'critical'].includes(v.impact))"
        ".map(v => `${v.id}: ${v.nodes.map(n => n.html.slice(0, 120)).join(' | ')}`)"
    )
    found = {}
    runs = ",".join(row["id"].replace("/", "%2F") for row in server.get("/api/runs")["rows"])
    with open_page(server.url, scheme=scheme, width=width, forgives=GONE) as page:
        for view, content in VIEWS.items():
            page.goto("about:blank")
            page.goto(server.url + view.format(run=run, runs=runs))
            page.locator(content).first.wait_for(state="attached")
            page.evaluate(AXE.read_text(encoding="utf-8"))
            found[view] = page.evaluate(audit)
    assert {view: what for view, what in found.items() if what} == {}


def test_the_whole_page_is_toured_with_the_keyboard_alone(ui: tuple[Ui, str]) -> None:
    server, run = ui
    name = run.split("/")[-1]
    with open_page(server.url, forgives=GONE) as page:
        press = page.keyboard.press

        def focused() -> str:
            return str(page.evaluate("document.activeElement.textContent"))

        page.locator(".runs .line.run").first.wait_for()
        for _ in range(10):  # to the run, by lines
            press("j")
            if name in focused():
                break
        assert name in focused()
        for _ in range(4):  # back to its tick, and tick it
            press("Shift+Tab")
            if page.evaluate("document.activeElement.type") == "checkbox":
                break
        press("Space")
        page.get_by_text("1 selected").wait_for()
        press("j")
        for _ in range(4):
            press("Shift+Tab")
            if page.evaluate("document.activeElement.type") == "checkbox":
                break
        if not page.evaluate("document.activeElement.checked"):
            press("Space")
        press("k")
        press("Enter")
        page.locator(".verdict").wait_for()

        press("4")
        page.locator(".items .virtual .line").first.wait_for()
        press("j")
        first = focused()
        press("ArrowDown")
        assert focused() != first
        press("k")
        assert focused() == first
        press("ArrowLeft")
        press("ArrowLeft")
        press("Enter")
        page.get_by_role("dialog").get_by_text("Scored output").wait_for()
        press("Escape")
        page.get_by_role("dialog").wait_for(state="detached")
        press("/")
        page.keyboard.type("val-00")
        page.get_by_text("10 of 40 items").wait_for()
        press("Tab")
        press("Tab")  # from All to Failing
        press("Enter")
        page.wait_for_url("**mode=failing**")

        press("2")
        page.get_by_role("heading", name="Step 8").wait_for()
        press("[")
        page.get_by_role("heading", name="Step 7").wait_for()
        press("3")
        page.get_by_text("Who wrote what").wait_for()
        press("[")
        press("?")
        page.get_by_role("dialog", name="Keyboard").wait_for()
        press("Escape")
        page.get_by_role("dialog", name="Keyboard").wait_for(state="detached")  # keys are the dialog's until then
        for keys, heading in (("gc", "Compare"), ("ge", "Evaluate"), ("gn", "New run"), ("gr", "Runs")):
            press(keys[0])
            press(keys[1])
            page.get_by_role("heading", name=heading, exact=True).wait_for()
