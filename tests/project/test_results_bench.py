"""bench/results.py: cells run, continue, fail and are shown; a recorded run repeats from its replies alone."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from skillopt.config import Config
from skillopt.models.base import ChatRequest, Schema
from skillopt.models.handoff import Box
from skillopt.record.directory import RunDirectory
from skillopt.record.events import Event
from skillopt.sim.model import SimulatedModel
from skillopt.sim.optimizer import ASKED
from skillopt.tasks import open_env
from skillopt.tasks.base import Item, RolloutError
from skillopt.training.rollout import LEARNING
from skillopt.training.trainer import TrainingLoop
from skillopt.view.console import Lines
from skillopt.view.curves import curves
from skillopt.view.html import write_report
from support import REPO, Spy, context

sys.path.insert(0, str(REPO / "bench"))

from learning import make_tasks
from learning.cells import METHODS, Cell, baseline_of
from learning.keep import MEASURED, keep, replayed
from learning.mechanisms import MECHANISMS
from learning.plots import averaged, write_plots
from learning.recording import RECORDINGS, Recording
from learning.result import CellResult
from learning.run import Job, run_cell
from learning.serve import Served
from learning.sets import SETS, load, most_rollouts
from learning.table import fill, runs_p, tables

from skillopt.errors import UserError

SIM = Cell(set="rulebook", target="sim", optimizer="sim", method="ours", seed=1)


class Reader(threading.Thread):
    """Answers letters as the simulated optimizer would."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.box = Box(folder, "")
        self.done = threading.Event()
        self.answered = 0

    def run(self) -> None:
        model = SimulatedModel("sim:world")
        while not self.done.is_set():
            for letter in self.box.open_letters():
                request = ChatRequest(messages=tuple(letter.messages), schema=Schema(**(letter.schema or {})))
                reply = asyncio.run(model.chat(request)).text
                self.box.hand_in(letter.number, reply.encode())
                self.answered += 1
            time.sleep(0.02)

    def __enter__(self) -> Reader:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.done.set()
        self.join()


def made(cell: Cell, test: dict[str, dict[str, float]], **given: object) -> CellResult:
    own = {"rollouts": 100, "requests": 4, "tokens": {"target": 2000, "optimizer": None}, "minutes": 3.0}
    return CellResult(cell=cell, test=test, **{**own, **given})  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_handoff_cell_repeats_from_its_recording_without_models_and_gives_the_same_bytes(tmp_path: Path) -> None:
    job = Job(cell=replace(SIM, optimizer="handoff"), out=tmp_path, box=tmp_path / "box")
    with Reader(tmp_path / "box") as reader:
        result = run_cell(job)
    assert result.error == ""
    assert result.score() == 1.0
    assert reader.answered == result.requests > 0
    places = {"measured": tmp_path / "measured", "recordings": tmp_path / "recordings"}
    kept = keep(job, job.folder, **places)
    assert kept.replies > reader.answered
    assert kept.why_not == ""
    recording = Recording.read(tmp_path / "recordings" / f"{job.cell.name}.jsonl")
    again = replayed(replace(job, recording=recording), near=tmp_path)
    assert again.differences(result) == []
    assert again.curve == result.curve
    assert again.skill == result.skill


@pytest.mark.slow
def test_a_recording_has_the_reply_that_the_run_read_not_one_that_was_written_later(tmp_path: Path) -> None:
    job = Job(cell=replace(SIM, optimizer="handoff"), out=tmp_path, box=tmp_path / "box")
    with Reader(tmp_path / "box"):
        result = run_cell(job)
    first = (tmp_path / "box" / "0001.reply.json").read_text(encoding="utf-8")
    (tmp_path / "box" / "0001.reply.json").write_text('{"job": "", "patterns": [], "edits": []}', encoding="utf-8")
    kept = keep(job, job.folder, measured=tmp_path / "measured", recordings=tmp_path / "recordings")
    assert kept.why_not == ""
    recording = Recording.read(tmp_path / "recordings" / f"{job.cell.name}.jsonl")
    assert first in {reply.text for replies in recording.replies.values() for reply in replies}
    assert replayed(replace(job, recording=recording), near=tmp_path).skill == result.skill


@pytest.mark.slow
def test_cells_share_the_targets_replies_and_each_counts_its_own_rollouts(tmp_path: Path) -> None:
    first, second = (run_cell(Job(cell=replace(SIM, seed=seed), out=tmp_path)) for seed in (1, 2))
    alone = run_cell(Job(cell=replace(SIM, seed=2), out=tmp_path / "alone"))
    assert second.differences(alone) == []
    assert (second.rollouts, second.tokens) == (alone.rollouts, alone.tokens)
    with closing(sqlite3.connect(tmp_path / "replies.sqlite")) as db:
        [asked] = db.execute("SELECT count(*) FROM replies").fetchone()
    done = sum(cell.rollouts + 2 * cell.items["test"] for cell in (first, second))
    assert asked <= done - 24, "the initial skill's validation and test tasks were asked once"


@pytest.mark.slow
def test_what_a_recording_has_is_not_asked_of_the_target_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On another machine the target would answer differently, and a cell with a mechanism off with it."""
    job = Job(cell=replace(SIM, optimizer="handoff"), out=tmp_path)
    with Reader(job.folder / "letters"):
        run_cell(job)
    keep(job, job.folder, measured=tmp_path / "measured", recordings=tmp_path / "recordings")
    monkeypatch.setattr("learning.remembered.RECORDINGS", tmp_path / "recordings")

    async def never(self: SimulatedModel, request: ChatRequest) -> None:
        raise AssertionError("the target was asked")

    monkeypatch.setattr(SimulatedModel, "chat", never)
    again = run_cell(Job(cell=baseline_of(job.cell), out=tmp_path / "elsewhere"))
    assert again.test["initial"]
    assert not again.error


@pytest.mark.slow
def test_a_request_without_a_recorded_reply_says_which_version_recorded_the_cell(tmp_path: Path) -> None:
    job = Job(cell=replace(SIM, optimizer="handoff"), out=tmp_path)
    with Reader(job.folder / "letters"):
        run_cell(job)
    keep(job, job.folder, measured=tmp_path / "measured", recordings=tmp_path / "recordings")
    path = tmp_path / "recordings" / f"{job.cell.name}.jsonl"
    head, *rows = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([head, *(row for row in rows if '"optimizer"' not in row)]) + "\n", encoding="utf-8")
    again = replayed(replace(job, recording=Recording.read(path)), near=tmp_path)
    assert "no reply to this request of the optimizer (reflect)" in again.error
    assert f"since version {json.loads(head)['version']}" in again.error


@pytest.mark.slow
def test_a_finished_cell_is_not_run_again_and_a_failed_one_is(tmp_path: Path) -> None:
    job = Job(cell=replace(SIM, method="random"), out=tmp_path)
    failed = run_cell(job)
    assert "run that cell first" in failed.error
    ours = run_cell(Job(cell=SIM, out=tmp_path))
    before = (tmp_path / SIM.name / "result.json").stat().st_mtime_ns
    assert run_cell(Job(cell=SIM, out=tmp_path)) == ours
    assert (tmp_path / SIM.name / "result.json").stat().st_mtime_ns == before
    found = run_cell(job)
    assert found.error == ""
    assert found.requests == 0
    assert found.rollouts <= ours.rollouts
    assert found.val_best is not None
    assert found.val_best >= (found.val_initial or 0)


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Our whole training with a reader, kept."""
    monkeypatch.setattr("learning.recording.RECORDINGS", tmp_path / "recordings")
    job = Job(cell=replace(SIM, optimizer="handoff"), out=tmp_path, box=tmp_path / "box")
    with Reader(tmp_path / "box"):
        run_cell(job)
    keep(job, job.folder, measured=tmp_path / "measured", recordings=tmp_path / "recordings")
    return job


@pytest.mark.slow
@pytest.mark.parametrize("method", ["no-gate", "no-notes", "no-history"])
def test_without_a_mechanism_a_reader_is_only_asked_what_the_whole_training_did_not_ask(
    recorded: Job, method: str, tmp_path: Path
) -> None:
    job = replace(recorded, cell=replace(recorded.cell, method=method), box=tmp_path / "second")
    with Reader(tmp_path / "second") as reader:
        result = run_cell(job)
    assert result.error == ""
    assert reader.answered < result.requests, "the first letter of both is the same"
    assert (result.val_best is None) == (method == "no-gate")
    places = {"measured": tmp_path / "measured", "recordings": tmp_path / "recordings"}
    assert keep(job, job.folder, **places).why_not == ""
    recording = Recording.read(tmp_path / "recordings" / f"{job.cell.name}.jsonl")
    assert replayed(replace(job, recording=recording), near=tmp_path / "elsewhere").differences(result) == []


@pytest.mark.slow
def test_without_a_gate_nothing_says_a_validation_score_that_was_not_measured(tmp_path: Path) -> None:
    """The initial skill scores 0.00, which is measured; no later version is."""
    overrides = [f"env.output_root={tmp_path}", "train.num_epochs=2", "train.init_skill=", "evaluation.baselines=false"]
    config = Config.load(REPO / "configs" / "sim" / "default.yaml", overrides)
    optimizer, lines, said = Spy(), Lines(), []

    def watch(event: Event) -> None:
        said.append(lines(event) or "")

    parts = MECHANISMS["no-gate"].parts(config)
    result = asyncio.run(TrainingLoop(config, models={"optimizer": optimizer}, listeners=[watch], parts=parts).fit())
    run = RunDirectory(result.path)
    letters = "\n".join(optimizer.asked("reflect")[1:])
    assert set(re.findall(r'"validation": "([^"]*)"', letters)) == {"not measured"}
    assert set(re.findall(r"validation tasks, which you never see: (.*)\.", letters)) == {"not measured"}
    assert {(row["val_before"], row["val_after"]) for row in result.history} == {(None, None)}
    gates = [line for line in said if "Gate:" in line]
    assert gates
    assert all("val score not measured" in line for line in gates)
    write_report(run)
    for page in (run.report.read_text(), run.report_md.read_text()):
        assert "not measured" in page
        assert "0.00 → 0.00" not in page
    points = curves(result.history, result.summary, {}).scores
    assert len(points) == 1, "only the initial skill was measured"


@pytest.mark.slow
def test_a_recorded_run_repeats_after_its_letters_have_changed_and_says_how_many(
    recorded: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "recordings" / f"{recorded.cell.name}.jsonl"
    first = CellResult.read(tmp_path / "measured" / f"{recorded.cell.name}.json")
    same = Recording.read(path)
    assert replayed(replace(recorded, recording=same), near=tmp_path).differences(first) == []
    assert same.changed == 0
    monkeypatch.setattr("skillopt.training.requests.compose.contrast", lambda passes: [])
    other = Recording.read(path)
    assert replayed(replace(recorded, recording=other), near=tmp_path).differences(first) == []
    assert 0 < other.changed <= first.requests


@pytest.mark.slow
def test_random_search_repeats_where_only_recordings_are(recorded: Job, tmp_path: Path) -> None:
    job = replace(recorded, cell=replace(recorded.cell, method="random"))
    result = run_cell(job)
    places = {"measured": tmp_path / "measured", "recordings": tmp_path / "recordings"}
    assert keep(job, job.folder, **places).why_not == ""
    recording = Recording.read(tmp_path / "recordings" / f"{job.cell.name}.jsonl")
    assert replayed(replace(job, recording=recording), near=tmp_path / "elsewhere").differences(result) == []


def test_a_baseline_measures_no_skill_and_the_initial_one(tmp_path: Path) -> None:
    result = run_cell(Job(cell=baseline_of(SIM), out=tmp_path))
    assert set(result.test) == {"no_skill", "initial"}
    assert result.score("no_skill") == 0.0


def test_the_table_has_means_over_seeds_gains_comparisons_and_failed_cells() -> None:
    cell = Cell(set="cards", target="1.5b", optimizer="handoff", method="ours", seed=1)
    none, some = {"a": 0.0, "b": 0.0}, {"a": 1.0, "b": 0.0}
    blocks = tables(
        [
            made(cell, {"initial": none, "best": {"a": 1.0, "b": 1.0}}),
            made(replace(cell, seed=2), {"initial": none, "best": some}, rollouts=120),
            made(replace(cell, method="gepa"), {"initial": none, "best": none}),
            made(baseline_of(cell), {"initial": none, "no_skill": none}),
            CellResult(cell=replace(cell, seed=3), error="no letters | came"),
        ]
    )
    assert "| cards | 1.5b | handoff | ours | 1.00, 0.50 | **0.75 [" in blocks["measured"]
    assert "| +0.75 [" in blocks["measured"]
    assert "| 110 | 4.0 | 2 + – | 3 |" in blocks["measured"]
    assert "| cards | 1.5b | handoff | gepa | 1 | 1.00 | 0.00 | +1.00 [" in blocks["compared"]
    assert "| 0.500 |" in blocks["compared"]  # two items won, none lost: one in four by chance, on either side
    assert "Mean over" not in blocks["compared"], "one set is no mean"
    assert "`cards-1.5b-handoff-ours-3` failed: no letters / came" in blocks["failed"]


def test_what_a_mechanism_earns_has_a_table_of_its_own() -> None:
    cell = Cell(set="cards", target="1.5b", optimizer="handoff", method="ours", seed=1)
    none, both = {"a": 0.0, "b": 0.0}, {"a": 1.0, "b": 1.0}
    blocks = tables(
        [
            made(cell, {"initial": none, "best": both}),
            made(replace(cell, seed=2), {"initial": none, "best": both}),
            made(replace(cell, method="no-gate"), {"initial": none, "best": {"a": 1.0, "b": 0.0}}, rollouts=70),
            made(replace(cell, method="no-notes", seed=9), {"initial": none, "best": both}),
        ]
    )
    assert "| cards | 1.5b | nothing off | 1.00, 1.00 | 1.00 [" in blocks["mechanisms"]
    assert "| cards | 1.5b | gate (all is accepted) | 0.50 | 0.50 [" in blocks["mechanisms"]
    assert "| -0.50 [" in blocks["mechanisms"]
    assert "| 70 | 4.0 |" in blocks["mechanisms"]
    assert "meta skill" not in blocks["mechanisms"], "no whole training has its seed"
    assert "no-gate" not in blocks["measured"] + blocks["compared"]


def test_runs_are_dealt_out_anew_to_say_how_likely_a_difference_is_by_chance() -> None:
    assert runs_p([([1.0, 1.0, 1.0], [0.0, 0.0, 0.0])]) == pytest.approx(2 / 20)  # two of twenty deals are as far apart
    assert runs_p([([0.9, 0.8, 0.7], [0.3, 0.2, 0.1])] * 2) == pytest.approx(2 / 400)
    assert runs_p([([0.9, 0.8], [0.1, 0.2]), ([0.1, 0.2], [0.9, 0.8])]) == 1.0  # what one set shows, the other undoes
    assert runs_p([([0.5], [0.5])]) == 1.0


def test_means_are_over_sets_and_over_both_targets() -> None:
    none, one, both = {"a": 0.0, "b": 0.0}, {"a": 1.0, "b": 0.0}, {"a": 1.0, "b": 1.0}
    ours = Cell(set="cards", target="0.5b", optimizer="handoff", method="ours", seed=1)
    found = []
    for name, target, best in (
        ("cards", "0.5b", one),
        ("tickets", "0.5b", both),
        ("cards", "1.5b", both),
        ("tickets", "1.5b", both),
    ):
        cell = replace(ours, set=name, target=target)
        found.append(made(cell, {"initial": none, "best": best}))
        found.append(made(replace(cell, method="gepa"), {"initial": none, "best": one}, rollouts=160))
    text = tables(found)["compared"]
    assert (
        "- Mean over 2 sets, 0.5b (handoff): ours 0.75 after 100 rollouts and 4.0 requests, gepa 0.50 after 160" in text
    )
    assert "- Mean over 2 sets, 0.5b and 1.5b (handoff): ours 0.88 after" in text


def test_the_page_keeps_what_is_around_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("one\n<!-- failed -->\nold\n<!-- end of failed -->\ntwo\n", encoding="utf-8")
    fill(page, {"failed": "new"})
    assert page.read_text(encoding="utf-8") == "one\n<!-- failed -->\nnew\n<!-- end of failed -->\ntwo\n"
    with pytest.raises(ValueError, match="markers"):
        fill(page, {"measured": "new"})


def test_the_command_shows_all_cells_of_the_machine_and_leaves_out_what_cannot_be_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import results

    page = tmp_path / "page.md"
    markers = (
        f"<!-- {name} -->\n<!-- end of {name} -->\n"
        for name in ("fresh", "measured", "compared", "mechanisms", "failed")
    )
    page.write_text("".join(markers), encoding="utf-8")
    for name, place in {
        "PAGE": page,
        "IMAGES": tmp_path,
        "MEASURED": tmp_path,
        "RECORDINGS": tmp_path / "kept",
    }.items():
        monkeypatch.setattr(results, name, place)
    none = {"initial": {"a": 0.0}, "best": {"a": 1.0}}
    for name in ("cards", "tickets"):
        cell = Cell(set=name, target="0.5b", optimizer="handoff", method="ours", seed=1)
        made(cell, none).write(tmp_path / "out" / cell.name / "result.json")
    games = tmp_path / "kept" / "alfworld-0.5b-none-ours-1.jsonl"
    games.parent.mkdir()
    games.write_text('{"cell": "alfworld-0.5b-none-ours-1"}\n', encoding="utf-8")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert results.main(["--out", str(tmp_path / "out")]) == 0
    assert "left out; first install its package: pip install '.[alfworld]'" in capsys.readouterr().out
    assert "| cards | 0.5b |" in page.read_text(encoding="utf-8")
    assert "| tickets | 0.5b |" in page.read_text(encoding="utf-8")


def test_fresh_items_are_in_no_split_and_their_table_compares_all_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = [item["question"] for item in make_tasks.fresh("procedure", 40)]
    known = {item["question"] for items in make_tasks.make("procedure").values() for item in items}
    assert len(set(fresh)) == 40
    assert not known & set(fresh)
    monkeypatch.setattr("learning.fresh.FRESH", tmp_path)
    for name, scores in {"ours-1": (1, 1), "ours-2": (1, 0), "gepa-1": (0, 1), "gepa-2": (0, 0)}.items():
        path = tmp_path / f"procedure-0.5b-handoff-{name}.json"
        path.write_text(json.dumps(dict(zip("ab", scores, strict=True))), encoding="utf-8")
    table = tables([])["fresh"]
    assert "| procedure | 0.5b | 2 | 1.00, 0.50 | 0.50, 0.00 | 0.75 | 0.25 | +0.50 [" in table


def test_a_plot_has_a_line_for_each_method(tmp_path: Path) -> None:
    cell = Cell(set="cards", target="1.5b", optimizer="handoff", method="ours", seed=1)
    results = [made(replace(cell, method=m), {}, curve=[(16, 0.0), (60, 0.5)]) for m in ("ours", "gepa", "no-gate")]
    [path] = write_plots(results, tmp_path)
    lines = path.read_text(encoding="utf-8").count('class="line"')
    assert lines == 4, "two in the chart, two in the legend; none without a mechanism"
    assert averaged([[(16, 0.0), (60, 1.0)], [(16, 0.0), (40, 0.5)]]) == [(16, 0.0), (40, 0.25), (60, 0.75)]


def test_a_cells_name_says_what_it_is() -> None:
    cell = Cell.of("bbh_date-0.5b-handoff-no-credit-12")
    assert cell == Cell(set="bbh_date", target="0.5b", optimizer="handoff", method="no-credit", seed=12)
    assert cell.name == "bbh_date-0.5b-handoff-no-credit-12"
    with pytest.raises(UserError, match="is not a cell's name"):
        Cell.of("cards-ours-1")
    with pytest.raises(UserError, match="needs an optimizer"):
        replace(cell, optimizer="none", method="gepa").check()


def test_published_sets_are_drawn_from_the_users_folder_and_never_twice(tmp_path: Path) -> None:
    cell = Cell(set="bbh_date", target="0.5b", optimizer="none", method="ours", seed=1)
    with pytest.raises(UserError, match="--data FOLDER is missing"):
        load(cell, tmp_path / "out" / cell.name)
    source = tmp_path / "data" / "bbh" / "date_understanding.json"
    source.parent.mkdir(parents=True)
    rows = [{"input": f"question {n}", "target": f"({n})"} for n in range(100)]
    source.write_text(json.dumps({"canary": "canary GUID", "examples": [*rows, rows[0]]}), encoding="utf-8")
    config = load(cell, tmp_path / "out" / cell.name, data=tmp_path / "data")
    folder = Path(config.env.split_dir)
    items = [json.loads(line) for path in folder.glob("*/items.jsonl") for line in path.read_text().splitlines()]
    assert len(items) == len({item["question"] for item in items}) == 72
    assert (folder / "canary.txt").read_text() == "canary GUID"
    assert load(cell, tmp_path / "out" / cell.name).env.split_dir == str(folder)  # once drawn, it is there


@pytest.mark.slow
def test_nothing_of_a_published_set_is_kept_but_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(cell=replace(SIM, optimizer="handoff"), out=tmp_path)
    with Reader(job.folder / "letters"):
        result = run_cell(job)
    monkeypatch.setitem(SETS, SIM.set, replace(SETS[SIM.set], published="elsewhere"))
    kept = keep(job, job.folder, measured=tmp_path / "measured", recordings=tmp_path / "recordings")
    assert result.skill
    assert (kept.result.skill, kept.replies) == ("", 0)
    assert not (tmp_path / "recordings").exists()
    assert CellResult.read(tmp_path / "measured" / f"{job.cell.name}.json").score() == result.score()


def test_the_rivals_get_as_many_rollouts_as_our_training_can_take() -> None:
    cell = Cell(set="cards", target="1.5b", optimizer="handoff", method="ours", seed=1)
    config = load(cell, Path("nowhere") / cell.name)
    assert most_rollouts(config, {"train": 24, "val": 16, "test": 32}) == 16 + 4 * (12 + 16) + 2 * 8 + 16


def test_every_committed_cell_can_be_read_and_names_a_known_set_and_method() -> None:
    for path in MEASURED.glob("*.json"):
        result = CellResult.read(path)
        assert result.cell.name == path.stem
        assert result.cell.set in SETS
        assert not result.error
    for path in RECORDINGS.glob("*.jsonl"):
        assert (MEASURED / f"{path.stem}.json").exists()
        assert Cell.of(path.stem).method in METHODS


@pytest.mark.slow
def test_an_ablated_training_is_scored_by_its_rules_alone() -> None:
    import ablations

    row = ablations.train("noisy", "gate (all is accepted)", 1)
    assert 0 < row["test"] <= 1
    env = open_env(load(replace(SIM, seed=1), Path("nowhere") / "x"))
    assert ablations.true_score(env, "") == 0.0
    rules = {topic: code for item in env.items("test") for topic, code in _answers(item)}
    assert ablations.true_score(env, "".join(f"- For {t}, answer {c}.\n" for t, c in rules.items())) == 1.0


def _answers(item: Item) -> list[tuple[str, str]]:
    asked = ASKED.search(item.question)
    assert asked
    return list(zip((topic.strip() for topic in asked[1].split(",")), item.answers[0].split(), strict=True))


def test_the_ablations_table_pairs_seeds_and_marks_what_is_sure() -> None:
    import ablations

    def row(off: str, seed: int, test: float) -> dict[str, object]:
        own = {"world": "quiet", "off": off, "seed": seed, "test": test, "rollouts": 100, "reached": test > 0.8}
        return {**own, "paid": 200, "calls": 7}

    rows = [row("nothing off", seed, 1.0) for seed in (1, 2, 3)]
    rows += [row("deep reflection", seed, test) for seed, test in ((1, 0.7), (2, 0.72), (3, 0.74))]
    text = ablations.table(rows)
    assert "| nothing off | 1.000 |  | 100 |  | 7 |" in text
    assert "| deep reflection | 0.720 | **-0.280 [" in text
    assert "| never | – | 7 |" in text


@pytest.mark.slow
def test_the_figures_of_the_choosing_page_are_what_its_script_measures() -> None:
    import choosing

    stored = json.loads(choosing.RESULTS.read_text(encoding="utf-8"))
    anew = "remove bench/learning/choosing.json and run python bench/choosing.py"
    assert choosing.sweep() == stored["sweep"], anew
    assert choosing.run(("epochs 1", 1)) in stored["rows"], anew
    page = choosing.PAGE.read_text(encoding="utf-8")
    assert [name for name, table in choosing.tables(stored).items() if table not in page] == []


def test_a_rivals_skill_is_tried_as_it_is_with_its_own_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = []

    async def seen(*_: object, stage: str, **__: object) -> RolloutError:
        stages.append(stage)
        return RolloutError(id="t", item_id="i", skill_hash="", error="not asked")

    monkeypatch.setattr("learning.serve.roll_out_one", seen)
    ctx = context()
    asked = {"split": "train", "id": ctx.env.items("train")[0].id, "skill": "# Examples"}
    request: Any = SimpleNamespace(json=AsyncMock(return_value=asked))
    asyncio.run(Served(ctx, SimulatedModel("sim:world")).rollout(request))
    assert stages
    assert not LEARNING & {*stages}
