"""Harvested tasks on the page: decisions as `skillopt harvest review` writes them, within the page's folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from skillopt_harvest.harvest import harvest
from skillopt_harvest.records import MinedCheck, SourceSelection
from support import transcripts
from support.webui import Ui, make_workspace, serving

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def ui(tmp_path: Path) -> Iterator[Ui]:
    workspace = make_workspace(tmp_path / "work")
    sessions = [
        (f"{tool}{number}", (("user", f"Install {number}. {HOSTILE}"), ("assistant", f"{old} add x{number}"),
         ("user", f"No, use {tool} instead of {old}."), ("assistant", f"{tool} add x{number}")))
        for tool, old in (("pnpm", "npm"), ("uv", "pip")) for number in range(4)
    ]  # fmt: skip
    path = transcripts.plain(tmp_path / "sessions.jsonl", sessions)
    harvest(workspace / "harvest", SourceSelection(source="plain", path=path))
    with serving(workspace) as running:
        yield running


@pytest.mark.slow
def test_tasks_are_listed_tried_decided_on_and_written(ui: Ui) -> None:
    (row,) = ui.get("/api/harvests")["rows"]
    assert row == {"folder": "harvest", "waiting": 2, "tasks": 2}
    found = ui.get("/api/harvests/tasks?folder=harvest")["tasks"]
    assert {task["status"] for task in found} == {"rule"}
    assert all(trial["rejected_fails"] and trial["corrected_passes"] for task in found for trial in task["trials"])
    first, second = (card["task"]["id"] for card in found)

    def said(**wish: str) -> dict[str, str]:
        answer = ui.post("/api/harvests/decide", {"folder": "harvest", **wish})
        return {card["task"]["id"]: card["status"] for card in answer["tasks"]}

    assert ui.post("/api/harvests/finish", {"folder": "harvest"}) == {"files": []}
    assert said(task=first, action="drop") == {first: "dropped", second: "rule"}
    assert said(task=second, action="edit", text="rule=One tool.") == {first: "dropped", second: "kept"}
    (file,) = ui.post("/api/harvests/finish", {"folder": "harvest"})["files"]
    assert (file["config"], file["tasks"]) == ("harvest/skills/default/config.yaml", 4)
    assert said(task=first, action="merge", into=second) == {second: "kept"}
    for wish, problem in (
        ({"task": "none", "action": "keep"}, "there is no task 'none'"),
        ({"task": second, "action": "sell"}, "must be 'keep', 'drop', 'merge' or 'edit'"),
        ({"task": second, "action": "edit", "text": "colour=red"}, "must be ID.FIELD=TEXT"),
    ):
        status, answer = ui.ask("/api/harvests/decide", {"folder": "harvest", **wish})
        assert (status, problem in answer["error"]) == (400, True), answer


@pytest.mark.slow
def test_no_command_is_run_for_the_page_and_nothing_outside_of_the_folders_is_reached(ui: Ui, tmp_path: Path) -> None:
    marker, first = tmp_path / "ran", ui.get("/api/harvests/tasks?folder=harvest")["tasks"][0]["task"]["id"]
    check = MinedCheck(kind="command", values=("touch", str(marker)))
    wish = {"task": first, "action": "edit", "text": f"command={' '.join(check.values)}"}
    answer = ui.post("/api/harvests/decide", {"folder": "harvest", **wish})
    assert next(card["task"] for card in answer["tasks"] if card["task"]["id"] == first)["check"]["kind"] == "command"
    assert not marker.exists()
    (ui.workspace / "harvest").rename(tmp_path / "outside")
    (ui.workspace / "link").symlink_to(tmp_path / "outside")
    for folder in ("link", "../outside", str(tmp_path / "outside"), "", "outputs", "none"):
        assert ui.ask(f"/api/harvests/tasks?folder={folder}")[0] == 404
        assert ui.ask("/api/harvests/decide", {"folder": folder, **wish})[0] == 404
    assert ui.get("/api/harvests")["rows"] == []


@pytest.mark.browser
def test_a_person_keeps_a_task_on_the_page(ui: Ui) -> None:
    from support.browser import open_page

    with open_page(ui.url, width=390, forgives=("ERR_ABORTED",)) as page:
        page.goto(f"{ui.url}#/new")
        page.get_by_role("link", name="2 harvested rules wait for review").click()
        card = page.locator("section[aria-label^='Task ']").first
        card.get_by_text("The sessions' own words").click()
        card.get_by_text(HOSTILE).first.wait_for()
        assert page.locator("main img").count() == 0
        card.get_by_role("button", name="Keep").click()
        page.get_by_text("1 kept").wait_for()
        page.get_by_role("button", name="Write the tasks file").click()
        page.get_by_text("harvest/skills/default/config.yaml").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert (ui.workspace / "harvest/skills/default/tasks.jsonl").is_file()
