"""Text from models, tasks and endpoints is shown as text: it runs nothing, moves no cursor and hides nothing."""

from __future__ import annotations

import io
import json
import re
import shutil
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from skillopt.cli import main
from skillopt.record.directory import RunDirectory
from skillopt.record.events import Event
from skillopt.record.files import read_json, write_json
from skillopt.record.summary import Summary
from skillopt.view.console import result_lines, result_table, watching
from skillopt.view.html import write_report
from skillopt.view.markdown import fenced, plain
from skillopt.view.text import dollars, printable, score
from support import train_sim
from support.hostile_text import ALL, HOSTILE, inject, report_with

HARMLESS = "plain words"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, list[Event]]:
    """A real run, small, and its events."""
    events: list[Event] = []
    result = train_sim(
        tmp_path_factory.mktemp("report"),
        "train.num_epochs=2",
        "train.batch_size=6",
        "env.options={rules: 5, train: 12, val: 8, test: 6}",
        listeners=[events.append],
    )
    return RunDirectory(result.path), events


class Tags(HTMLParser):
    """The markup of a page without its text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, list[str]]] = []
        self.links: list[str | None] = []
        self.seen = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, [name for name, _ in attrs]))
        self.links += [value for name, value in attrs if name in {"src", "href"}]

    def handle_endtag(self, tag: str) -> None:
        self.tags.append((f"/{tag}", []))

    def handle_comment(self, data: str) -> None:
        self.tags.append(("comment", []))

    def handle_data(self, data: str) -> None:
        self.seen += data


def unprintable(text: str, allowed: str = "\n\t") -> set[str]:
    return {c for c in text if unicodedata.category(c)[0] == "C" and c not in allowed}


# The HTML report


@pytest.mark.parametrize("text", [*HOSTILE, ALL], ids=[*(f"text{n}" for n in range(len(HOSTILE))), "all"])
def test_hostile_text_adds_no_markup_to_the_report(
    trained: tuple[RunDirectory, list[Event]], tmp_path: Path, text: str
) -> None:
    clean = Tags(report_with(trained[0], tmp_path / "clean", HARMLESS))
    page = report_with(trained[0], tmp_path / "hostile", text)
    hostile = Tags(page)
    assert hostile.tags == clean.tags
    assert printable(text) in hostile.seen
    assert not unprintable(page)


def test_the_report_holds_no_script_and_nothing_from_elsewhere(
    trained: tuple[RunDirectory, list[Event]], tmp_path: Path
) -> None:
    page = report_with(trained[0], tmp_path / "run", ALL)
    names = {tag for tag, _ in Tags(page).tags}
    assert not names & {"script", "img", "iframe", "object", "embed", "link", "form", "base"}
    assert not [attr for _, attrs in Tags(page).tags for attr in attrs if attr.startswith("on")]
    assert all(link and link.startswith("#") for link in Tags(page).links)
    assert "default-src 'none'" in page
    assert "@import" not in page
    assert "url(" not in page


def test_plots_are_well_formed_whatever_the_run_says(trained: tuple[RunDirectory, list[Event]], tmp_path: Path) -> None:
    from xml.etree import ElementTree

    report_with(trained[0], tmp_path / "run", ALL)
    plots = sorted((tmp_path / "run" / "plots").glob("*.svg"))
    assert plots
    for plot in plots:
        assert ElementTree.parse(plot).getroot().tag.endswith("svg")


def test_a_report_of_an_unfinished_run_can_be_written(
    trained: tuple[RunDirectory, list[Event]], tmp_path: Path
) -> None:
    shutil.copytree(trained[0].root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    write_json(run.history, [])
    summary = read_json(run.summary)
    for side in ("initial", "best"):
        summary[side]["test"] = None
    write_json(run.summary, {**summary, "status": "stopped", "stop_reason": "interrupted"})
    write_report(run)
    assert "stopped (interrupted)" in Tags(run.report.read_text(encoding="utf-8")).seen


def test_a_report_of_an_altered_run_says_so_and_shows_the_rest(
    trained: tuple[RunDirectory, list[Event]], tmp_path: Path
) -> None:
    shutil.copytree(trained[0].root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    log = bytearray(run.patch_log.path.read_bytes())
    log[len(log) // 2] ^= 1
    run.patch_log.path.write_bytes(log)
    write_report(run)
    seen = Tags(run.report.read_text(encoding="utf-8")).seen
    assert "cannot show which edit wrote each line" in seen
    assert "All steps" in seen


def test_the_report_holds_the_required_figures(trained: tuple[RunDirectory, list[Event]], tmp_path: Path) -> None:
    shutil.copytree(trained[0].root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    write_report(run)
    summary = read_json(run.summary)
    best, stuck = summary["best"], summary["persistent_failures"]
    for text in (Tags(run.report.read_text(encoding="utf-8")).seen, run.report_md.read_text(encoding="utf-8")):
        for figure in (score(best["val"]), score(best["test"]), str(best["tokens"])):
            assert figure in text
        assert f"{summary['edit_acceptance_rate']:.0%}" in text
        assert all(item in text.replace("\\", "") for item in stuck)


def test_the_report_names_no_rejected_step_as_the_best(tmp_path: Path) -> None:
    """The last step is rejected, and the guidance after it gives the best version."""
    result = train_sim(
        tmp_path,
        "train.num_epochs=2",
        "optimizer.learning_rate=2",
        "env.options={rules: 8, train: 24, val: 16, test: 6}",
        "models.optimizer_model=sim:world?duds=0.8&seed=5",
    )
    assert [record["verdict"] for record in result.history][-1] == "reject"
    assert result.history[-1]["epoch_end"]["slow_update"]["decision"] == "accept"
    run = RunDirectory(result.path)
    write_report(run)
    seen = Tags(run.report.read_text(encoding="utf-8")).seen
    named = [int(step) for step in re.findall(r"best at step (\d+)", seen)]
    assert [step for step in named if result.history[step - 1]["verdict"] != "accept"] == [], "a rejected step"
    assert "best by the guidance after epoch 2" in seen


def test_two_runs_in_which_everything_fails_count_the_same_persistent_failures(tmp_path: Path) -> None:
    """In one no candidate could be made, in the other many were tried."""
    small = ("env.options={rules: 8, train: 24, val: 12, test: 6}", "train.init_skill=", "train.num_epochs=1")
    counts = {}
    for name, batch in (("malformed=1", 12), ("duds=1", 6)):
        optimizer = f"models.optimizer_model=sim:world?{name}"
        result = train_sim(tmp_path / name, *small, f"train.batch_size={batch}", optimizer, "gradient.analysts=[llm]")
        assert result.scores["best_val"] == 0
        counts[name] = len(result.summary["persistent_failures"])
    assert counts == {"malformed=1": 36, "duds=1": 36}


def test_what_an_agent_scores_that_does_nothing_cannot_be_taken_for_the_initial_skill(
    trained: tuple[RunDirectory, list[Event]], tmp_path: Path
) -> None:
    shutil.copytree(trained[0].root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    summary = read_json(run.summary)
    scores = {"val": 0.25, "val_interval": [0.1, 0.5], "test": 0.25, "test_interval": [0.1, 0.5]}
    for baseline, shown in ((dict.fromkeys(scores, 0.0), False), (scores, True)):
        baseline |= {f"{split}_interval": [0.0, 0.5] for split in ("val", "test")}
        changed = summary | {"baselines": {**summary["baselines"], "do_nothing": baseline}}
        write_json(run.summary, changed)
        write_report(run)
        measured = re.search(r'class="measured".*?</table>', run.report.read_text(encoding="utf-8"), re.DOTALL)
        assert measured
        names = re.findall(r"<tr><td>(.*?)</td>", measured[0])
        assert any("does nothing" in name for name in names) is shown, names
        assert ("does nothing" in "\n".join(result_table(Summary.model_validate(changed)))) is shown


def test_markdown_in_texts_stays_text_in_the_markdown_report(
    trained: tuple[RunDirectory, list[Event]], tmp_path: Path
) -> None:
    tricks = "**bold** [link](http://x) | cell | `code` <b>tag</b> # head ![i](x) ~~gone~~ $x$"
    report_with(trained[0], tmp_path / "run", tricks)
    said = (tmp_path / "run" / "report.md").read_text(encoding="utf-8")
    assert plain(tricks) in said
    assert tricks not in said
    assert fenced("a\n````\nb").startswith("`````\n")


# The console


def told(events: list[Event], *, terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=400, color_system="truecolor" if terminal else None)
    with watching(console) as listener:
        for event in events:
            listener(event)
    return out.getvalue()


@pytest.mark.parametrize("text", [*HOSTILE, ALL], ids=[*(f"text{n}" for n in range(len(HOSTILE))), "all"])
@pytest.mark.parametrize("terminal", [False, True], ids=["plain", "terminal"])
def test_hostile_text_is_inert_on_the_console(
    trained: tuple[RunDirectory, list[Event]], text: str, terminal: bool
) -> None:
    events = [type(e).model_validate({**inject(e.row(), text), "step": e.step, "epoch": e.epoch}) for e in trained[1]]
    shown = told(events, terminal=terminal)
    assert printable(text) in shown
    assert not unprintable(shown, allowed="\n\t\r\x1b" if terminal else "\n\t")
    if terminal:
        for escape in ("\x1b[31mred", "\x1b[2J", "\x1b]0;", "\x1b]8;"):
            assert escape not in shown


def test_a_wrong_command_line_is_repeated_without_its_escapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text("train: {}")
    with pytest.raises(SystemExit) as ended:
        main(["train", "--config", str(tmp_path / "c.yaml"), "train.\x1b[2J[red]\u202e=1"])
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert "unknown key 'train.\\u001b[2J[red]\\u202e'" in said
    assert not unprintable(said)


def test_the_result_can_be_printed_whatever_the_items_are_called(trained: tuple[RunDirectory, list[Event]]) -> None:
    lines = result_lines(Summary.model_validate(inject(read_json(trained[0].summary), ALL)))
    assert not unprintable(printable("\n".join(lines)))


# Text


@given(st.text())
def test_printable_text_hides_nothing_and_is_left_alone_the_second_time(text: str) -> None:
    shown = printable(text)
    assert not unprintable(shown)
    assert printable(shown) == shown
    if not unprintable(text):
        assert shown == text


def test_what_is_made_visible_can_be_told_apart() -> None:
    assert printable("a\x1bb\u202ec\ud800\n\t\u00e9\u4e2d") == "a\\u001bb\\u202ec\\ud800\n\t\u00e9\u4e2d"


def test_numbers_are_short() -> None:
    assert [score(None), score(0.654), score(1)] == ["–", "0.65", "1.00"]
    assert [dollars(None), dollars(0), dollars(0.0042), dollars(12.3)] == ["unknown", "$0.00", "$0.0042", "$12.30"]


def test_records_keep_their_text_as_it_is(trained: tuple[RunDirectory, list[Event]], tmp_path: Path) -> None:
    report_with(trained[0], tmp_path / "run", ALL)
    history = json.loads((tmp_path / "run" / "history.json").read_text(encoding="utf-8"))
    texts = [edit["text"] for record in history for edit in record["applied"]]
    assert texts
    assert set(texts) == {ALL}
