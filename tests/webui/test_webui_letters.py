"""Letters on the page: shown as text, confined to the page's folders, and replies checked as `skillopt answer` does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillopt.api import new_training
from skillopt.config import Config
from skillopt.errors import Stopped
from skillopt.models.handoff import box_of
from skillopt.record.events import Event, LettersOpened
from skillopt.record.files import read_json, write_json
from skillopt.sim.model import SimOptions
from support import SIM, train_sim, until
from support.reader import reply_to
from support.webui import Ui, make_workspace, serving

SHORT = ("train.num_epochs=1", "train.batch_size=12", "env.options={rules: 8, train: 12, val: 10, test: 6}")
HANDOFF = "models.optimizer_model=handoff"
HOSTILE = "</pre><script>document.title='owned'</script><img src=x onerror=alert(1)>\x1b[2J\u202e"
WORLD = SimOptions()


@pytest.fixture
def ui(tmp_path: Path) -> Iterator[Ui]:
    with serving(make_workspace(tmp_path / "work")) as running:
        yield running


def stopped(ui: Ui, *overrides: str) -> tuple[str, Path]:
    """A run that waits for letters, without a process: its id and folder."""

    def stop(event: Event) -> None:
        if isinstance(event, LettersOpened):
            asyncio.get_running_loop().call_soon(training.interrupt)

    config = Config.load(SIM, [f"env.output_root={ui.workspace / 'outputs'}", HANDOFF, *SHORT, *overrides])
    training = new_training(config, listeners=[stop])
    with pytest.raises(Stopped):
        asyncio.run(training.fit())
    (folder,) = (ui.workspace / "outputs" / "sim").iterdir()
    return f"0/sim/{folder.name}", folder


def test_letters_are_listed_read_refused_and_answered_and_the_run_goes_on(ui: Ui) -> None:
    run, folder = stopped(ui)
    where = f"/api/runs/{run}/letters"
    found = ui.get(where)
    box = box_of(folder)
    assert [row["number"] for row in found["letters"]] == [letter.number for letter in box.open_letters()]
    assert ui.get(f"/api/runs/{run}")["letters"] == len(found["letters"])
    first = found["letters"][0]["number"]
    assert ui.get(f"{where}/{first}")["text"] == box.letter(first).page.read_text()
    for path, reply, status, said in (
        (f"{where}/{first}", "", 400, "it was empty"),
        (f"{where}/{first}", '{"edits": []}', 400, "is a required property"),
        (f"{where}/77", "{}", 400, "there is no letter 77"),
        (f"{where}/{first}", "x" * (10 << 20), 413, ""),
    ):
        code, answer = ui.ask(path, {"reply": reply})
        assert code == status
        assert said in str(answer)
    assert box.letter(first).open, "nothing half-written"
    for letter in box.open_letters():
        left = ui.post(f"{where}/{letter.number}", {"reply": reply_to(letter, WORLD).decode()})
    assert left == {"letters": [], "answered": len(box.letters())}
    assert "already has a reply" in ui.ask(f"{where}/{first}", {"reply": "{}"})[1]["error"]


def test_letters_outside_of_the_pages_folders_are_neither_shown_nor_answered(ui: Ui, tmp_path: Path) -> None:
    run, folder = stopped(ui)
    outside = tmp_path / "elsewhere"
    (folder / "letters").rename(outside)
    (folder / "letters").symlink_to(outside)
    assert ui.ask(f"/api/runs/{run}/letters")[0] == 404
    (folder / "letters").unlink()
    write_json(
        folder / "config.json", read_json(folder / "config.json") | {"models.optimizer_model": f"handoff:{outside}"}
    )
    assert ui.ask(f"/api/runs/{run}/letters/1")[0] == 404
    assert ui.ask(f"/api/runs/{run}/letters/1", {"reply": "{}"})[0] == 404


def test_a_problem_that_is_a_link_is_not_followed(ui: Ui, tmp_path: Path) -> None:
    run, folder = stopped(ui)
    (tmp_path / "secret").write_text("of the machine")
    (folder / "letters" / "0001.problem.md").symlink_to(tmp_path / "secret")
    status, answer = ui.ask(f"/api/runs/{run}/letters")
    assert status == 404, answer
    assert "of the machine" not in json.dumps(answer)


def test_a_run_without_a_handoff_has_no_letters(ui: Ui) -> None:
    folder = train_sim(ui.workspace / "outputs", *SHORT).path
    assert ui.get(f"/api/runs/0/sim/{folder.name}")["letters"] is None
    assert ui.get(f"/api/runs/0/sim/{folder.name}/letters") == {"letters": [], "answered": 0}


@pytest.mark.browser
def test_a_person_reads_and_answers_letters_on_the_page_while_the_run_waits(ui: Ui) -> None:
    from support.browser import open_page

    run = ui.launch(HANDOFF, *SHORT)
    box = box_of(ui.run(run).root)
    until(box.open_letters)
    request = box.open_letters()[0].request
    write_json(request, read_json(request) | {"messages": [{"role": "user", "content": HOSTILE}]})
    with open_page(ui.url, forgives=("ERR_ABORTED", "status of 400")) as page:
        page.goto(f"{ui.url}#/run/{run}/letters")
        card = page.get_by_label("Letter 1", exact=True)
        card.get_by_text("<script>").wait_for()
        assert page.locator("main img, main script").count() == 0
        card.get_by_label("Reply to letter 1").fill('{"edits": []}')
        card.get_by_role("button", name="Submit reply").click()
        card.get_by_text("is a required property").wait_for()
        page.locator(".runhead").get_by_text("letter waits").or_(
            page.locator(".runhead").get_by_text("letters wait")
        ).wait_for()
        while ui.get(f"/api/runs/{run}")["pid"]:
            for letter in box.open_letters():
                shown = page.get_by_label(f"Letter {letter.number}", exact=True)
                shown.get_by_label(f"Reply to letter {letter.number}").fill(reply_to(letter, WORLD).decode())
                shown.get_by_role("button", name="Submit reply").click()
                until(lambda letter=letter: not letter.open)
                page.locator("h1").click()  # the list is renewed when nobody writes
            page.wait_for_timeout(200)
        page.get_by_text("finished").first.wait_for()
    assert read_json(ui.run(run).summary)["status"] == "finished"


@pytest.mark.browser
def test_a_run_that_waits_says_so_first_and_a_draft_survives(ui: Ui) -> None:
    from support.browser import open_page

    run = ui.launch(HANDOFF, *SHORT, "gradient.minibatch_size=4")
    box = box_of(ui.run(run).root)
    until(lambda: len(box.open_letters()) > 1)
    until(lambda: any(event["kind"] == "evaluation_finished" for event in ui.get(f"/api/runs/{run}")["log"]))
    (initial,) = [e["score"] for e in ui.get(f"/api/runs/{run}")["log"] if e["kind"] == "evaluation_finished"]
    with open_page(f"{ui.url}#/runs", width=1512, forgives=("ERR_ABORTED",)) as page:
        page.locator(".line.run .tag", has_text="waits for a reply").wait_for()
        page.goto(f"{ui.url}#/run/{run}/overview")
        page.get_by_role("alert").get_by_role("link", name="Read and answer").wait_for()
        figures = page.locator(".runhead .figure")
        figures.filter(has_text="Validation").get_by_text(f"{initial:.2f}", exact=True).wait_for()
        page.get_by_text(f"The initial skill has {initial:.2f} in validation").wait_for()
        step = figures.filter(has_text="reflect: waits for")
        step.wait_for()
        assert step.locator("dd").inner_text().startswith("1 / ")
        page.get_by_role("alert").get_by_role("link", name="Read and answer").click()

        first, second = (letter.number for letter in box.open_letters()[:2])
        card = page.get_by_label(f"Letter {first}", exact=True)
        reply = card.get_by_label(f"Reply to letter {first}")
        card.get_by_text("Write an edit in a form").click()
        card.get_by_label("section of the edit").fill("Rules")
        card.get_by_label("text of the edit").fill("- For maple, answer ZM-73.")
        card.get_by_role("button", name="Add edit to the reply").click()
        draft = json.loads(reply.input_value())
        assert draft["edits"][0]["text"] == "- For maple, answer ZM-73."
        ui.post(f"/api/runs/{run}/letters/{second}", {"reply": reply_to(box.letter(second), WORLD).decode()})
        page.get_by_label(f"Letter {second}", exact=True).wait_for(state="detached")
        assert json.loads(reply.input_value()) == draft
        page.get_by_role("link", name="Overview").click()
        page.get_by_role("link", name="Read and answer").click()
        assert json.loads(reply.input_value()) == draft
        page.reload()
        reply.wait_for()
        assert json.loads(reply.input_value()) == draft
        boxes = card.locator(".letter").bounding_box(), reply.bounding_box()
        assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"], "the letter is next to the reply"
    ui.post(f"/api/runs/{run}/stop", {})
