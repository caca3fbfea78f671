"""What a command prints can be read: nothing is cut, nothing is called by a hash, no figure says more than it knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skillopt.record.results import AblatedPart, Ablation
from skillopt.view.columns import table_lines
from skillopt.view.console import result_lines, result_table
from skillopt.view.measured_tables import ablation_lines, ablation_table
from skillopt.view.run_rows import list_runs
from skillopt.view.runs_table import runs_table
from skillopt.view.text import chance
from skillopt.view.traces import item_name
from support import SIM, skillopt, train_sim

SMALL = ("train.num_epochs=1", "env.options={rules: 6, train: 12, val: 12, test: 12}")


def test_no_table_is_cut_on_a_terminal_of_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = tmp_path / "a-folder-with-quite-a-long-name-that-says-what-is-in-it" / "and-another-long-one-below-that"
    config = ("--config", str(SIM), f"env.output_root={long}", *SMALL)
    train = skillopt("train", *config)
    assert train.returncode == 0, train.stderr
    (row,) = list_runs(long)
    listed = skillopt("runs", str(row.path)).stdout
    assert str(row.path) in listed
    table = [line for line in train.stdout.splitlines() if line.startswith(("skill ", "initial ", "best "))]
    assert "…" not in "".join(table) + listed
    assert len(table) == 3
    assert max(map(len, table)) <= 80


def test_every_row_has_its_columns_below_each_other_and_the_long_one_last(tmp_path: Path) -> None:
    lines = table_lines(("n", "score", "name"), [("1", "0.5", "x" * 200), ("10", "0.25", "北京")], left=(2,))
    assert lines == [" n  score  name", " 1    0.5  " + "x" * 200, "10   0.25  北京"]
    assert runs_table([], tmp_path) == [runs_table([], tmp_path)[0]]


@pytest.mark.parametrize(
    ("p", "said"), [(0.0, "p < 0.001"), (0.0004, "p < 0.001"), (0.034, "p = 0.034"), (1.0, "p = 1.000")]
)
def test_no_probability_is_shown_as_zero(p: float, said: str) -> None:
    assert chance(p) == said


def ablated(together: float, *single: float, verdict: str = "earns") -> str:
    shared = {"interval": (0.0, 0.1), "tokens": 5, "text": "a rule", "lines": None, "wins": 0, "losses": 0}
    rows = tuple(
        AblatedPart.model_validate({**shared, "name": f"line {n}", "worth": worth, "verdict": "unclear"})
        for n, worth in enumerate(single, 1)
    )
    names = tuple(row.name for row in rows)
    group = AblatedPart.model_validate(
        {**shared, "name": "unclear", "worth": together, "names": names, "verdict": verdict}
    )
    result = Ablation.model_construct(
        by="rule", version=1, score=0.5, items=20, repeats=1, rows=rows, together=(group,), deterministic=True,
        not_measured=(),
    )  # fmt: skip
    assert len(ablation_table(result)) == 1 + len(single)
    return next(line for line in ablation_lines(result) if "ithout any" in line)


def test_rules_say_the_same_only_where_no_single_one_explains_the_loss() -> None:
    assert ablated(0.3, 0.0, 0.0).endswith("so some may say the same: remove one at a time")
    assert ablated(0.1, 0.1, 0.0).endswith("; line 1 alone explains that (-0.10 without it)")
    assert ablated(0.1, 0.05, 0.05).endswith("; that is the sum of their single losses")
    assert ablated(0.1, 0.0, 0.0, verdict="unclear").endswith("; that may be chance")
    assert ablated(0.0, 0.0, 0.0, verdict="nothing").endswith("tokens fewer")


def test_nothing_is_said_of_a_winners_luck_where_nothing_won(tmp_path: Path) -> None:
    noisy = ("models.target_model=sim:world?noise=0.1", "evaluation.gate=paired")
    lost = train_sim(tmp_path / "lost", *SMALL, *noisy, "models.optimizer_model=sim:world?malformed=1").summary
    assert lost["best"]["version"] == 0
    assert lost["best"]["val_remeasured"] is None, "what did not change is not measured again"
    won = train_sim(tmp_path / "won", *SMALL, *noisy, "train.num_epochs=2").summary
    assert won["best"]["version"] > 0
    assert not any(line.startswith("Luck") for line in result_lines(lost))
    assert any(line.startswith("Best skill, measured again: ") for line in result_lines(won))
    assert any(line.startswith("best, re-measured ") for line in result_table(won))


def test_items_without_an_id_are_called_by_their_question(tmp_path: Path) -> None:
    rows = [{"question": f"What is the code of topic number {n}?", "answer": "never"} for n in range(12)]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "config.yaml").write_text(
        f"env: {{name: qa, data: {tmp_path}/tasks.jsonl, scoring: exact, output_root: {tmp_path}/out}}\n"
        "models: {target_model: 'sim:world', optimizer_model: 'sim:world'}\ntrain: {num_epochs: 1}\n"
    )
    trained = skillopt("train", "--config", str(tmp_path / "config.yaml"))
    assert trained.returncode == 0, trained.stderr
    stuck = next(line for line in trained.stdout.splitlines() if line.startswith("Persistent failures: "))
    assert "“What is the code of topic number " in stuck
    run = next((tmp_path / "out").glob("*/*_seed*"))
    best = str(run / "best_skill.md")
    compared = skillopt("compare", best, best, "--config", str(tmp_path / "config.yaml"))
    assert "neither solves: " in compared.stdout
    assert "(“What is the code of topic number " in compared.stdout
    failures = json.loads((run / "summary.json").read_text())["persistent_failures"]
    assert failures
    assert not any(item in trained.stdout + compared.stdout for item in failures)
    page = (run / "report.html").read_text()
    assert "“What is the code of topic number " in page.partition('id="failures"')[2]


def test_an_id_that_a_user_gave_stays() -> None:
    assert item_name("ticket-7", "What?") == "ticket-7"
    assert item_name("0123456789abcdef", "context\n\nWhat  is\nit?") == "“What is it?”"
    assert item_name("0123456789abcdef", "") == "0123456789abcdef"
