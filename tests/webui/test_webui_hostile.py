"""Markup in everything that the page shows, in a real browser: tasks, outputs, names, comments, skills, letters, logs.

The runs are real ones whose data set, target and optimizer are hostile; one is at work while it is looked at. A text
that became an element, ran, asked another host for something or met the page's policy fails the test.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from skillopt.config import Config
from skillopt.errors import Stopped
from skillopt.measure.compare import compare
from skillopt.measure.evaluate import evaluate
from skillopt.models.base import ChatModel, ChatReply, ChatRequest, Usage
from skillopt.record.files import append_jsonl, read_json, write_json
from skillopt.training.trainer import TrainingLoop
from support import skillopt, train_sim
from support.browser import close_drawer, open_page
from support.webui import Ui, make_workspace, serving

pytestmark = pytest.mark.browser

GONE = ("ERR_ABORTED",)
NAME = "<img src=x onerror=window.owned=1><x-owned>"
"""Markup that can be the name of a file."""
MARKUP = (
    f"{NAME}</textarea></pre><script>window.owned=1</script><svg onload=window.owned=1></svg>"
    "<a href=javascript:window.owned=1>x</a><iframe srcdoc='<script>top.owned=1</script>'></iframe>"
    '" onmouseover="window.owned=1" x="\' ${window.owned=1} {{constructor.constructor("window.owned=1")()}}'
)
TEXT = f"{MARKUP}\x1b[2J\u202e"
"""With what edits may not have: an escape, and a mark that turns the line round."""
SHOWN = "<x-owned>"
"""How it looks as text."""

FOUND = r"""() => {
  const ours = 'img[src="/static/icon.svg"], script[src^="/static/"]';
  const elements = `:is(x-owned, iframe, object, embed, base, img, script):not(${ours})`;
  const led = ({ name, value }) => /href|src|action/i.test(name) && /^\s*(javascript|data|vbscript):/i.test(value);
  const bad = (attribute) => /^on/i.test(attribute.name) || led(attribute);
  const all = [...document.querySelectorAll('*')];
  const wrong = all.filter((node) => node.matches(elements) || [...node.attributes].some(bad));
  return [...wrong.map((node) => node.outerHTML.slice(0, 200)), ...(window.owned === undefined ? [] : ['it ran'])];
}"""
"""Elements and attributes that no view of ours has."""


class Target:
    """Right once the skill has the rule; hostile in any case."""

    name, endpoint, deterministic = f"hostile:{NAME}", "hostile", True

    async def chat(self, request: ChatRequest) -> ChatReply:
        system, user = (str(message["content"]) for message in request.messages[:2])
        number = re.findall(r"number (\d+)", user)
        answer = f"answer-{number[0]}" if number and "RULE" in system else "wrong"
        return ChatReply(text=f"{TEXT} {answer}", usage=Usage(prompt=10, completion=10))

    async def close(self) -> None:
        return


class Optimizer:
    """Hostile edits: a rule that helps, and two that contradict each other."""

    name, endpoint, deterministic = f"hostile:{NAME}", "hostile", True

    async def chat(self, request: ChatRequest) -> ChatReply:
        ids = re.findall(r"\b\d{4}-\d{3}\b", str(request.messages[-1]["content"]))[:2]
        common = {"op": "add", "section": "", "anchor": "", "trajectory_ids": ids, "impact": 0.5}
        texts = (f"RULE {MARKUP}", "- Write the codes in capitals.", "- Never write the codes in capitals.")
        reply = {
            "job": MARKUP,
            "patterns": [{"name": MARKUP, "cause": MARKUP, "trajectory_ids": ids}],
            "edits": [common | {"text": text, "rationale": MARKUP, "pattern": MARKUP} for text in texts],
            "reason": MARKUP,
            "order": [],
            "guidance": MARKUP,
            "memory": MARKUP,
        }
        wanted = (request.schema.body if request.schema else {}).get("properties", {})
        kept = {key: value for key, value in reply.items() if key in wanted}
        return ChatReply(text=json.dumps(kept), usage=Usage(prompt=10, completion=10))

    async def close(self) -> None:
        return


@dataclass
class World:
    ui: Ui
    run: str
    """A finished run, with hostile names of its folders."""
    live: str
    """A copy of it on which a process works."""
    letters: str
    """A run that waits for letters."""
    measured: list[str]


def hostile_config(workspace: Path, **changes: Any) -> Config:
    tree: dict[str, Any] = {
        "train": {"num_epochs": 2, "batch_size": 8, "init_skill": f"data/{NAME}-skill.md"},
        "env": {
            "name": "qa",
            "data": "data/hostile.jsonl",
            "scoring": "contains",
            "task": TEXT,
            "output_root": str(workspace / "outputs"),
        },
        "notes": {"init_skill": TEXT, "schedule": TEXT},
        "evaluation": {"gate": "strict"},
    }
    for dotted, value in changes.items():
        section, key = dotted.split("__")
        tree.setdefault(section, {})[key] = value
    return Config.parse(tree)


def write_inputs(workspace: Path) -> None:
    rows = [
        {"id": f"{NAME}{n}", "question": f"{TEXT} number {n}", "answer": f"answer-{n}", "type": f"{NAME}{n % 2}"}
        for n in range(48)
    ]
    (workspace / "data" / "hostile.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (workspace / "data" / f"{NAME}-skill.md").write_text(f"# {TEXT}\n\nAnswer.\n", newline="")
    config = hostile_config(workspace).model_dump(mode="json", exclude_defaults=True)
    config["env"].pop("output_root")
    (workspace / "configs" / f"{NAME}.yaml").write_text(json.dumps(config))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    workspace = make_workspace(tmp_path_factory.mktemp("hostile") / "work")
    models: dict[str, ChatModel] = {"target": Target(), "optimizer": Optimizer()}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(workspace)
        write_inputs(workspace)
        config = hostile_config(workspace)
        result = asyncio.run(TrainingLoop(config, models=models).fit())
        assert skillopt("report", str(result.path), cwd=workspace).returncode == 0
        assert result.summary["best"]["val"] > result.summary["initial"]["val"]
        sides = [(result.best_skill, result.path / "best_skill.md")] * 2
        asyncio.run(evaluate(config, sides[0][0], split="val", skill_path=sides[0][1], models=models))
        asyncio.run(compare(config, *sides, models=models))
        handoff = hostile_config(workspace, models__optimizer_model="handoff", budget__max_minutes=0.05)
        with pytest.raises(Stopped):
            asyncio.run(TrainingLoop(handoff, models={"target": models["target"]}).fit())
    outputs = workspace / "outputs"
    (waiting,) = [path for path in (outputs / "qa").iterdir() if path != result.path]
    (outputs / NAME).mkdir()
    run = result.path.rename(outputs / NAME / f"{NAME}-1a2b3c4d")
    live = Path(shutil.copytree(run, run.with_name(f"{NAME}-live")))
    for folder in (run, live):
        summary = read_json(folder / "summary.json")
        write_json(folder / "summary.json", summary | {"stop_reason": TEXT, "set_aside": {NAME: TEXT}})
        append_jsonl(folder / "events.jsonl", hostile_events())
    write_json(
        live / "live.json",
        {
            "kind": "rollout_started",
            "step": 1,
            "epoch": 1,
            "progress": {"stage": TEXT, "done": 1, "total": 3},
            "in_flight": {"target": 1, "optimizer": 1},
            "spent": {"calls": [3, None], "tokens": [3, None], "usd": [0.1, None], "minutes": [1, None]},
            "letters": 0,
            "throttled": [{"model": TEXT, "why": TEXT, "waiting": 1, "seconds": 3, "turned_away": 2}],
            "retries": 1,
        },
    )
    (waiting / "letters" / "0001.problem.md").write_text(TEXT)
    launch = outputs / ".webui" / "launches" / "1700000000000-00000000"
    launch.mkdir(parents=True)
    write_json(launch / "launch.json", {"kind": "eval", "title": TEXT, "started": 1.0, "pid": 0, "run": None})
    write_json(launch / "exit.json", {"code": 2})
    (launch / "log.txt").write_text(f"error: {TEXT}\n")
    hold = "import sys; from pathlib import Path; from skillopt.record.directory import RunDirectory\n"
    hold += "with RunDirectory(Path(sys.argv[1])).held(): print('held', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, str(live)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        with serving(workspace) as ui:
            ids = [f"0/{NAME}/{folder.name}" for folder in (run, live)]
            for name in ids:
                write_notes(ui, name)
            measured = [str(row["id"]) for row in ui.get("/api/measured")["rows"]]
            yield World(ui, *ids, f"0/qa/{waiting.name}", measured)
    finally:
        assert holder.stdin
        holder.stdin.close()
        holder.wait()
        assert holder.stdout
        holder.stdout.close()


def hostile_events(text: str = TEXT) -> list[dict[str, Any]]:
    common = {"time": 2e9, "step": 1, "epoch": 1}
    return [
        common | {"kind": "set_aside", "items": {NAME: text}},
        common | {"kind": "retrying", "stage": text, "unmeasured": 1, "items": 3, "error": text},
        common | {"kind": "advice", "checks": [{"status": "warn", "name": text, "says": text, "fix": text}]},
        common | {"kind": "tracker_failed", "name": text, "error": text},
        common | {"kind": NAME, "reason": text},
    ]


def write_notes(ui: Ui, run: str) -> None:
    where = f"/api/runs/{quote(run)}"
    ui.post(f"{where}/labels", {"name": TEXT[:80], "tags": [NAME[:40], f"={NAME}"[:40]], "note": TEXT})
    line = ui.get(f"{where}/skills/1")
    comments = [{"kind": "item", "about": f"{NAME}0", "split": "train", "rating": "bad", "text": TEXT}]
    comments += [{"kind": "line", "about": str(line["lines"][0][0]), "rating": "good", "text": TEXT}]
    for comment in comments:
        ui.post(f"{where}/comments", comment)


def views(world: World) -> list[str]:
    of_run = ["overview", "steps?n=1", "skill?v=1", "skill?v=1&mode=plain", "skill?v=1&mode=diff&a=0", "items"]
    of_run += [f"items?t={quote(f'item={quote(NAME)}0&train=1', safe='')}", "review", "costs", "config", "log"]
    found = ["#/runs", "#/evaluate", "#/new"]
    for run in (world.run, world.live):
        found += [f"#/run/{quote(run)}/{name}" for name in of_run]
        found += [f"#/new?run={quote(run, safe='')}", f"#/evaluate?run={quote(run, safe='')}&v=1"]
    found += [f"#/compare?runs={quote(world.run, safe='')},{quote(world.live, safe='')}"]
    found += [f"#/run/{quote(world.letters)}/letters"]
    return found + [f"#/measured/{quote(name)}" for name in world.measured]


def test_markup_is_text_in_every_view_of_finished_and_live_runs(world: World) -> None:
    ui = world.ui
    with open_page("about:blank", forgives=GONE) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("dialog", lambda dialog: asked.append(f"dialog {dialog.message}"))
        found, hidden = {}, []
        for view in views(world):
            page.goto("about:blank")
            page.goto(ui.url + view)
            page.locator("main .panel:visible, main .runs .line, main .items").first.wait_for()
            page.wait_for_timeout(400)
            found[view] = page.evaluate(FOUND)
            text = page.evaluate("document.body.innerText")
            fields = page.evaluate("[...document.querySelectorAll('input, textarea')].map((field) => field.value)")
            if SHOWN not in f"{text} {fields}":
                hidden.append(view)
            assert "\x1b" not in text, view
            assert "\u202e" not in text, view
        assert {view: what for view, what in found.items() if what} == {}
        assert hidden == [], "these views show nothing hostile, so that they prove nothing"
        assert [url for url in asked if not url.startswith((ui.url, "about:", "blob:"))] == []


def test_markup_stays_text_in_what_a_click_opens_and_in_events_as_they_arrive(world: World) -> None:
    ui, base = world.ui, f"{world.ui.url}#/run/{quote(world.run)}"

    def look(part: str = "main") -> None:
        page.wait_for_function(
            "([part, text]) => document.querySelector(part)?.innerText.includes(text)", arg=[part, SHOWN]
        )
        assert page.evaluate(FOUND) == []

    with open_page(f"{ui.url}#/new", forgives=(*GONE, "status of 400")) as page:
        page.locator("main select").first.select_option(f"path:configs/{NAME}.yaml")
        page.get_by_role("button", name="Preview data").click()
        page.get_by_text("The splits are disjoint").wait_for()
        look()
        page.get_by_role("cell", name="tokens").first.wait_for()
        page.get_by_role("button", name="Doctor").click()
        page.get_by_text("disjoint;").first.wait_for()
        look()

        page.goto(f"{ui.url}#/run/{quote(world.letters)}/letters")
        page.get_by_text("<limits>").first.wait_for()
        look()
        page.get_by_label("Reply to letter 1").fill(json.dumps({TEXT: TEXT}))
        page.get_by_role("button", name="Submit reply").click()
        page.get_by_role("alert").first.wait_for()
        look()

        page.goto(f"{base}/steps?n=1")
        page.locator(".chip").first.click()
        look("dialog")
        close_drawer(page)
        page.goto(f"{base}/skill?v=1")
        page.locator("button.ln:not([data-seq='0'])").first.click()
        look()
        page.goto(f"{base}/items")
        page.locator(".items .virtual .line").first.click()
        look("dialog")
        close_drawer(page)
        page.goto(f"{ui.url}#/runs")
        page.get_by_label("Name, tags and note of").first.click()
        page.get_by_role("dialog").wait_for()
        assert page.evaluate(FOUND) == []
        page.keyboard.press("Escape")

        page.goto(f"{ui.url}#/run/{quote(world.live)}/log")
        page.locator(".log li").first.wait_for()
        append_jsonl(ui.run(world.live).events, hostile_events(f"arrived {TEXT}"))
        page.get_by_text("arrived").first.wait_for()
        look()

        told: list[str] = []
        report = page.context.browser.new_page()
        report.on("console", lambda said: told.append(said.text))
        report.goto(f"{ui.url}api/runs/{quote(world.run)}/report")
        report.get_by_text(SHOWN).first.wait_for()
        assert report.locator("x-owned, script, iframe, [onerror], [onload]").count() == 0
        assert [text for text in told if "404" not in text] == [], "it has no icon, and nothing that is blocked"


FORMULA = "=HYPERLINK(1)"
BEGINS_FORMULA = re.compile(r"[\s\u200b\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20\t\r\n]")


def test_no_cell_of_the_exported_table_is_a_formula(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "work")
    result = train_sim(workspace / "outputs", "train.num_epochs=1")
    config, notes = read_json(result.path / "config.json"), []
    for number, begin in enumerate(("=", "+", "-", "@", "\t=", "\r=", "\n=", " =", "\uff1d")):
        text = f"{begin}HYPERLINK({number})"
        notes.append({"name": text, "tags": [text, "b"], "note": text})
        folder = Path(shutil.copytree(result.path, result.path.with_name(f"{FORMULA}{number}")))
        write_json(folder / "labels.json", notes[-1])
        changed = {"gradient.analysts": [text], "env.task": text, text: text, "env.options": {text: text}}
        write_json(folder / "config.json", config | changed)
        summary = read_json(folder / "summary.json")
        write_json(folder / "summary.json", summary | {"seed": text, "seconds": text})
    with serving(workspace) as ui, open_page(f"{ui.url}#/runs", forgives=GONE) as page:
        page.locator(".runs .line.run").nth(5).wait_for()
        with page.expect_download() as started:
            page.get_by_role("button", name="Export CSV").click()
        text = Path(started.value.path()).read_bytes().decode()
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert len(rows) == 11
    cells = [cell for row in rows for cell in row]
    assert any("HYPERLINK" in cell for cell in cells)
    formulas = {cell for cell in cells if BEGINS_FORMULA.match(cell) and not re.fullmatch(r"-?[\d.e+-]+", cell)}
    assert formulas == set()
