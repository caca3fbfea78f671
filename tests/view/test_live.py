"""A run on the terminal: a calm display, plain lines elsewhere, JSON for machines."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from skillopt.cli import main
from skillopt.record.events import KINDS, Event, Progress
from skillopt.record.files import read_jsonl
from skillopt.training import heartbeat as pulse
from skillopt.view.live_display import View, sparkline
from support import SIM, only_run, train_sim

SMALL = ("train.num_epochs=2", "train.batch_size=6", "env.options={rules: 12, train: 12, val: 8, test: 6}")


def drawn(view: View) -> str:
    out = io.StringIO()
    Console(file=out, width=120, color_system=None).print(view.render())
    return out.getvalue()


@pytest.mark.usefixtures("virtual_time")
def test_the_display_tells_stage_progress_flight_course_budget_and_time_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "SECONDS", 0.01)  # many beats while calls of 0.05 s are under way
    view, seen = View(), []

    def listen(event: Event) -> None:
        view.update(event)
        if event.kind in {"pulse", "progress"} or event.step == 3:
            seen.append(drawn(view))

    train_sim(
        tmp_path, *SMALL, "models.target_model=sim:world?latency=0.05", "budget.max_calls=900", listeners=[listen]
    )
    everything = "\n".join(seen)
    assert "step 3/4 · epoch 2/2 · validation " in everything
    assert "Gate" in everything
    assert "Rollout" in everything
    assert "/8" in everything  # validation items done
    assert " in flight" in everything
    assert any(f"{n} in flight" in everything for n in range(2, 9))
    assert "of 900 calls" in everything
    assert " left" in everything
    assert any(bar in everything for bar in "▂▃▄▅▆▇█")


def test_text_in_events_cannot_move_the_display() -> None:
    view = View()
    view.update(Progress(stage="ga\x1b[2Jte\u202e", done=1, total=2))
    assert "\x1b" not in drawn(view)
    assert "\u202e" not in drawn(view)


def test_the_sparkline_rises_with_the_score() -> None:
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([0.5]) == "▁"
    assert len(sparkline([0.1] * 100)) == 40


def test_json_is_the_event_log_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "--config", str(SIM), f"env.output_root={tmp_path}", *SMALL, "--json"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert printed.isascii()
    rows = [json.loads(line) for line in printed.splitlines()]
    assert rows == read_jsonl(only_run(tmp_path).events)
    assert rows[-1]["kind"] == "run_finished"
    assert all(KINDS[row["kind"]].stored for row in rows)
