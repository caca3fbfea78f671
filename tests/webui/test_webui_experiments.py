"""The page as a notebook of experiments: the table of runs, what people write about them, and what is never cut off."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any
from zipfile import ZipFile

import pytest

from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json, read_jsonl, write_json, write_jsonl
from skillopt.skill import FILE
from skillopt.tasks.base import FileChange
from skillopt_webui.runs import RunIndex, RunLine, experiment
from skillopt_webui.settings import make_settings
from support import train_sim, until
from support.browser import open_page
from support.webui import Ui, make_workspace, serving

SMALL = ("train.num_epochs=1", "train.batch_size=6", "env.options={rules: 6, train: 12, val: 8, test: 6}")
GONE = ("ERR_ABORTED",)


@dataclass
class World:
    ui: Ui
    seeds: list[str]
    """Three seeds of one config."""
    package: str

    def folder(self, name: str) -> RunDirectory:
        return self.ui.run(name)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    workspace = make_workspace(tmp_path_factory.mktemp("experiments") / "work")
    package = workspace / "data" / "house-codes"
    (package / "references").mkdir(parents=True)
    front = "---\nname: house-codes\ndescription: Codes of the house.\n---\n"
    (package / FILE).write_text(f"{front}# Ticket codes\n\nAnswer in codes.\n")
    (package / "references" / "codes.md").write_text("# Codes\n\n- For maple, answer ZZ-99.\n")
    out = workspace / "outputs"

    def trained(*overrides: str) -> str:
        return f"0/sim/{train_sim(out, *SMALL, *overrides).path.name}"

    seeds = [trained(f"train.seed={seed}") for seed in (1, 2, 3)]
    packaged = trained("train.seed=4", "models.optimizer_model=sim:world", f"train.init_skill={package}")
    with serving(workspace) as ui:
        yield World(ui, seeds, packaged)


# Without a browser


def row(run: str, **config: Any) -> RunLine:
    return RunLine(id=run, path=Path(run), name=run, benchmark="b", status="finished", config=config)


def test_settings_differ_as_they_are_written() -> None:
    def keys(*values: object) -> object:
        return experiment([row(f"r{n}", k=value) for n, value in enumerate(values)])["keys"]

    assert keys(1, 1) == keys("a", "a") == keys({"a": 1}, {"a": 1}) == keys([], []) == keys(None, None) == []
    pairs: list[tuple[object, object]] = [
        (1, True),
        (1, 1.0),
        (0, None),
        ([], {}),
        ([1], [True]),
        ("1", 1),
        ({}, {"a": 2}),
    ]
    for pair in pairs:
        assert keys(*pair) == ["k"], pair
    assert experiment([row("a", k=1), row("b")])["keys"] == ["k"], "one of them does not have it"


def test_the_table_is_made_again_only_when_a_run_has_changed(tmp_path: Path) -> None:
    run = RunDirectory(train_sim(tmp_path / "outputs", *SMALL).path)
    index = RunIndex(make_settings(workspace=tmp_path))
    first = index.table()
    assert index.table() is first
    write_json(run.labels, {"name": "mine", "tags": [], "note": ""})
    second = index.table()
    assert second["rows"][0].labels.name == "mine"
    assert second["stamp"] != first["stamp"]


# Nothing is cut without a word


@pytest.mark.browser
def test_every_failed_measurement_can_be_reached_and_is_counted(world: World) -> None:
    folder = make_settings(workspace=world.ui.workspace).records / "launches"
    for kind, count in (("eval", 45), ("train", 50)):  # trainings are among the runs
        for number in range(count):
            own = folder / f"{(1700000000000 if kind == 'eval' else 1800000000000) + number}-0000{number:04x}"
            own.mkdir(parents=True)
            record = {"kind": kind, "title": f"{kind} number {number}", "started": time.time(), "pid": 0, "run": None}
            write_json(own / "launch.json", record)
            write_json(own / "exit.json", {"code": 2})
            (own / "log.txt").write_text(f"error: reason {number}\n")
    with open_page(f"{world.ui.url}#/evaluate", forgives=GONE) as page:
        page.get_by_text("20 of 45").wait_for()
        page.get_by_role("button", name="Show more commands").click()
        page.get_by_text("40 of 45").wait_for()
        page.get_by_role("button", name="Show more commands").click()
        page.get_by_text("45 of 45").wait_for()
        page.get_by_text("reason 0", exact=True).wait_for()
        page.get_by_label("Search measurements").press_sequentially("number 31")
        page.get_by_text("1 of 1", exact=True).wait_for()
        page.get_by_text("reason 31", exact=True).wait_for()
        assert page.get_by_label("Search measurements").input_value() == "number 31", "typing is not disturbed"


@pytest.mark.browser
def test_every_skill_file_can_be_picked(world: World) -> None:
    many = world.ui.workspace / "data" / "many"
    many.mkdir()
    for number in range(620):
        (many / f"skill{number:04}.md").write_text("- Be brief.\n")
    there = len(world.ui.get("/api/skills")["files"])
    assert there >= 620
    with open_page(f"{world.ui.url}#/evaluate", forgives=GONE) as page:
        page.get_by_text(f"Type to search 4 runs and {there} skill files.").wait_for()
        picker = page.get_by_label("Skill", exact=True)
        picker.fill("skill0619")
        picker.press("Enter")
        until(lambda: picker.input_value() == "data/many/skill0619.md")


@pytest.mark.browser
def test_before_the_baseline_is_measured_there_is_a_dash(world: World) -> None:
    path = world.folder(world.seeds[2]).summary
    kept = path.read_bytes()
    summary = read_json(path)
    for side in ("initial", "best"):
        summary[side] |= {"val": None, "val_interval": None, "test": None, "test_interval": None}
    write_json(path, summary)
    try:
        with open_page(f"{world.ui.url}#/run/{world.seeds[2]}/overview", forgives=GONE) as page:
            page.get_by_text("Nothing was measured.").wait_for()
            assert page.locator(".figure dd").first.inner_text() == "–"
    finally:
        path.write_bytes(kept)


# The table of runs, and what people write


@pytest.mark.browser
def test_the_table_is_exported_as_csv_with_the_figures_of_the_files(world: World, tmp_path: Path) -> None:
    with open_page(f"{world.ui.url}#/runs", forgives=GONE) as page:
        page.locator(".line.run").nth(3).wait_for()
        with page.expect_download() as saved:
            page.get_by_role("button", name="Export CSV").click()
        saved.value.save_as(tmp_path / "runs.csv")
    with (tmp_path / "runs.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert rows.keys() == {*world.seeds, world.package}
    for name, row in rows.items():
        summary = read_json(world.folder(name).summary)
        assert float(row["best_val"]) == summary["best"]["val"]
        assert float(row["best_test"]) == summary["best"]["test"]
        assert int(row["train.seed"]) == int(row["seed"]) == summary["seed"]


@pytest.mark.browser
def test_name_tags_and_note_are_kept_and_found(world: World) -> None:
    name = world.seeds[0]
    with open_page(f"{world.ui.url}#/runs", forgives=GONE) as page:
        page.get_by_role("button", name=f"Name, tags and note of {name.split('/')[-1]}").click()
        page.get_by_label("Name", exact=True).fill("=the first")
        page.get_by_label("Tags, separated by commas").fill("paper, baseline")
        page.get_by_label("Note", exact=True).fill("<b>kept</b> for the talk")
        page.get_by_role("button", name="Save").click()
        page.locator(".line.run", has_text="=the first").wait_for()
        page.reload()
        line = page.locator(".line.run", has_text="=the first")
        line.get_by_text("<b>kept</b> for the talk").wait_for()
        assert line.locator(".tags .tag").all_inner_texts() == ["baseline", "paper"]
        page.get_by_label("Search", exact=True).fill("baseline")
        page.get_by_text("1 of 4", exact=True).wait_for()
    kept = read_json(world.folder(name).labels)
    assert kept == {"name": "=the first", "note": "<b>kept</b> for the talk", "tags": ["baseline", "paper"]}


@pytest.mark.browser
def test_seeds_of_one_config_are_grouped_with_their_mean(world: World) -> None:
    with open_page(f"{world.ui.url}#/runs", forgives=GONE) as page:
        page.locator(".line.run").nth(3).wait_for()
        page.get_by_label("Groups", exact=True).select_option("group")
        group = page.locator(".line.group")
        group.get_by_text("mean of 3 finished runs").wait_for()
        assert group.count() == 1
        tested = fmean(read_json(world.folder(name).summary)["best"]["test"] for name in world.seeds)
        assert group.locator(".c-test").inner_text().startswith(f"{tested:.2f}")
        title = group.locator("b").first.inner_text()
        assert sorted(title.removeprefix("sim: seeds ").split(", ")) == ["1", "2", "3"]


@pytest.mark.browser
def test_a_comment_on_an_item_is_there_after_a_reload(world: World) -> None:
    name = world.seeds[1]
    with open_page(f"{world.ui.url}#/run/{name}/items?split=train", forgives=GONE) as page:
        page.locator(".items .virtual .line").first.click()
        drawer = page.get_by_role("dialog")
        drawer.get_by_label("Your comment").fill("The code is missing.")
        drawer.get_by_role("button", name="Save comment").click()
        page.get_by_text("Saved.").wait_for()
        drawer.get_by_role("button", name="bad").click()
        until(lambda: read_rating(world, name) == "bad")
        page.reload()
        drawer.get_by_role("button", name="bad").and_(page.locator("[aria-pressed=true]")).wait_for()
        assert drawer.get_by_label("Your comment").input_value() == "The code is missing."
        page.keyboard.press("Escape")
        page.get_by_role("button", name="More").click()
        page.get_by_role("link", name="Train with 1 comment").wait_for()


def read_rating(world: World, name: str) -> str:
    return str(world.ui.get(f"/api/runs/{name}/comments")["comments"][-1]["rating"])


# Workspaces and packages


@pytest.mark.browser
def test_a_trajectory_shows_what_became_of_the_files_of_its_workspace(world: World) -> None:
    path = world.folder(world.seeds[0]).step(1) / "trajectories.jsonl"
    rows = read_jsonl(path)
    changes = [
        FileChange(path="notes.txt", kind="changed", shown="-word\n+<i>WORD</i>\n"),
        FileChange(path="old.txt", kind="removed", shown="-gone\n"),
    ]
    rows[0]["changes"] = [change.model_dump() for change in changes]
    write_jsonl(path, rows)
    item = rows[0]["item_id"]
    with open_page(f"{world.ui.url}#/run/{world.seeds[0]}/steps?n=1", forgives=GONE) as page:
        page.get_by_role("heading", name="Batch: ").scroll_into_view_if_needed()  # rows out of sight do not exist
        page.locator(".items .virtual .line", has_text=item).first.click()
        drawer = page.get_by_role("dialog")
        for change in changes:
            part = drawer.locator("section.say", has_text=f"{change.kind} {change.path}")
            part.wait_for()
            assert part.locator(".text").inner_text().strip() == change.shown.strip()
            assert part.locator(".diffline.del").first.inner_text() == change.shown.split("\n")[0]


@pytest.mark.browser
def test_a_package_shows_each_file_and_what_training_did_to_it(world: World) -> None:
    run = world.folder(world.package)
    best = read_json(run.summary)["best"]["version"]
    learned = run.read_skill(best).read("references/codes.md")
    assert learned is not None
    added = [line for line in learned.splitlines() if "For " in line and "ZZ-99" not in line]
    assert added, "training has changed the reference"
    with open_page(f"{world.ui.url}#/run/{world.package}/skill?v={best}", forgives=GONE) as page:
        page.get_by_text("== references/codes.md").wait_for()
        page.locator(".doc").get_by_text(added[0]).wait_for()
        assert page.locator(".files button").all_inner_texts() == [FILE, "references/codes.md"]
        page.get_by_role("button", name="Diff").click()
        page.get_by_label("Left version").select_option("0")
        page.locator(".sidebyside .add", has_text=added[0]).first.wait_for()
        page.get_by_role("button", name="More").click()
        with page.expect_download() as saved:
            page.get_by_role("link", name="Export skill").click()
        names = set(ZipFile(saved.value.path()).namelist())
        assert {Path(name).name for name in names} >= {FILE, "codes.md"}


@pytest.mark.browser
def test_a_line_of_a_packages_file_is_changed_and_measured(world: World) -> None:
    best = read_json(world.folder(world.package).summary)["best"]["version"]
    with open_page(f"{world.ui.url}#/run/{world.package}/skill?v={best}", width=1512, forgives=GONE) as page:
        page.locator("button.ln", has_text="- For maple, answer ZZ-99.").click()
        page.get_by_text("rollouts, about $0.00 (estimate)").wait_for()
        page.get_by_label("The line as you would write it").fill("- For maple, answer ZM-73.")
        page.get_by_role("button", name="Measure the change").click()
        page.get_by_role("link", name="Item by item").click()
        page.get_by_role("heading", name=f"Comparison: an edit of v{best} against").wait_for()
    (edited,) = world.ui.workspace.glob("outputs/.webui/skills/edited_v*/references/codes.md")
    before = world.folder(world.package).read_skill(best).read("references/codes.md")
    assert edited.read_text() == (before or "").replace("maple, answer ZZ-99", "maple, answer ZM-73")


@pytest.mark.browser
def test_a_trajectory_begins_with_task_output_and_expected_and_folds_calls_of_tools(world: World) -> None:
    call = {"function": {"name": "look_up", "arguments": '{"topic": "maple"}'}}

    def with_a_tool(route: Any) -> None:
        answer = route.fetch().json()
        answer["rollout"]["messages"].append({"role": "assistant", "content": "", "tool_calls": [call]})
        route.fulfill(json=answer)

    with open_page(f"{world.ui.url}#/run/{world.seeds[2]}/items?split=train", forgives=GONE) as page:
        page.route("**/trajectory?*", with_a_tool)
        page.locator(".items .virtual .line").first.click()
        drawer = page.get_by_role("dialog")
        drawer.get_by_text("calls look_up").wait_for()
        assert drawer.locator(".say > header > span").all_inner_texts()[:3] == ["Task", "Scored output", "Expected"]
        arguments = drawer.get_by_text('{"topic": "maple"}')
        assert not arguments.is_visible()
        drawer.get_by_text("calls look_up").click()
        arguments.wait_for()
        assert drawer.locator(".tool").get_by_role("button", name="Copy").is_visible()
