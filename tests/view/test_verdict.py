"""Every measurement ends with a sentence that a manager can read: better or not, by how much, why not, what it cost."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import pytest

from skillopt.measure.verdict import figures, say
from skillopt.record.base import ByRole
from skillopt.record.costs import TokenCounts
from skillopt.record.files import read_json
from skillopt.record.results import Spent
from skillopt.record.run import Run
from skillopt.record.summary import Baselines, BestScores, ConstantScores, Gain, Gains, MajorityScores, Summary
from skillopt.statistics import gain_interval
from skillopt.training.final_scores import paired
from skillopt.view.diagnosis import training_verdict
from skillopt_webui.runs import RunIndex
from skillopt_webui.settings import make_settings
from skillopt_webui.view import overview
from support import SIM, SMALL, Scripted, only_run, skillopt, train_sim

WORLD = ("env.options={rules: 6, train: 12, val: 24, test: 24}",)


def command(name: str, out: Path, *arguments: str) -> Any:
    done = skillopt(name, *arguments, "--config", str(SIM), f"env.output_root={out}")
    assert done.returncode == 0, done.stderr
    return done


def result_block(stdout: str) -> str:
    """The first line after the run's own lines."""
    return f"\n{stdout}".rpartition("\n\n")[2].splitlines()[0]


def test_a_training_ends_with_the_sentence_that_its_files_hold(tmp_path: Path) -> None:
    done = command("train", tmp_path, *SMALL, *WORLD)
    run = only_run(tmp_path)
    summary = read_json(run.summary)
    said = summary["verdict"]
    assert result_block(done.stdout) == said
    assert said in html.unescape(run.report.read_text())
    calls = summary["calls"]["target"] + summary["calls"]["optimizer"]
    assert said.startswith(
        f"Better: {summary['best']['test']:.2f} on 24 held-out tasks against {summary['initial']['test']:.2f} before "
        "(95 % interval of the gain: +"
    )
    assert f"It cost {calls:,} calls, " in said
    assert said.endswith("$0.00.")
    assert summary["outcome"] == "better"
    for next_command in ("report", "diff", "ablate"):
        assert f"skillopt {next_command} {run.root}" in done.stdout
    again = skillopt("report", str(run.root))
    assert again.returncode == 0
    assert said in html.unescape(run.report.read_text())


@pytest.mark.parametrize(
    ("overrides", "step", "why"),
    [
        (
            ("models.optimizer_model=sim:world?duds=1", "train.patience=3", "train.batch_size=6"),
            3,
            "no improvement in 3 steps",
        ),
        (
            ("optimizer.learning_rate=12", "gradient.analysts=[llm, exemplar]"),
            None,
            "all 12 validation tasks are right",
        ),
    ],
)
def test_a_run_that_ends_before_its_last_step_says_why_everywhere(
    tmp_path: Path, overrides: tuple[str, ...], step: int | None, why: str
) -> None:
    world = ("env.options={rules: 4, train: 24, val: 12, test: 12}", "train.num_epochs=3")
    done = command("train", tmp_path, *world, *overrides)
    run = only_run(tmp_path)
    summary = read_json(run.summary)
    steps, planned = summary["steps"]["run"], summary["plan"]["steps"]["planned"]
    assert steps < planned
    assert step in {None, steps}
    (said,) = {line for line in done.stdout.splitlines() if f"step {steps} of {planned}" in line} or {""}
    assert why in said, done.stdout
    assert said in run.report_md.read_text().replace("\\", "")
    reason = said.partition(": ")[2]
    header = html.unescape(run.report.read_text()).partition("</header>")[0]
    assert reason in header
    assert overview(Run(run)).reason == reason, "the page"
    assert "longer training" not in summary["verdict"]
    (row,) = RunIndex(make_settings(workspace=tmp_path, outputs=[tmp_path])).rows()
    assert (row.status, row.reason) == ("finished", reason)


def test_a_training_that_still_improves_at_its_end_says_how_to_train_longer(tmp_path: Path) -> None:
    """Both steps are accepted, and rules are still missing."""
    overrides = ("train.num_epochs=1", "train.batch_size=24", "models.optimizer_model=sim:world")
    result = train_sim(tmp_path, *overrides)
    assert [record["verdict"] for record in result.history] == ["accept", "accept"]
    assert (result.summary["outcome"], result.summary["stop_reason"]) == ("better", "")
    assert "train.num_epochs=2" in result.verdict
    assert "still improved" in result.verdict


def test_a_finished_run_says_how_to_train_again_and_how_to_train_on(tmp_path: Path) -> None:
    command("train", tmp_path, *SMALL)
    run = only_run(tmp_path)
    again = command("train", tmp_path, *SMALL)
    said = again.stdout.partition("\nItems:")[0]
    assert "already finished" in said
    assert "--fresh" in said
    assert f"train.init_skill={run.best_skill}" in said
    longer = command("train", tmp_path, *SMALL, f"train.init_skill={run.best_skill}")
    assert "(new run)" in longer.stdout


def test_a_new_run_says_what_differs_from_which_earlier_run(tmp_path: Path) -> None:
    first = command("train", tmp_path, *SMALL)
    earlier = only_run(tmp_path).root.name
    assert "differs" not in first.stdout, "there is no other run"
    changed = command("train", tmp_path, *SMALL, "train.batch_size=12").stdout.partition("\nItems:")[0]
    assert "(new run)" in changed
    assert earlier in changed, changed
    assert "train.batch_size 6 → 12" in changed
    assert "num_epochs" not in changed
    fresh = command("train", tmp_path, *SMALL, "--fresh").stdout.partition("\nItems:")[0]
    assert "differs" not in fresh


NOTHING: dict[str, list[Any]] = {"patterns": [], "edits": []}


def unlearned(out: Path, optimizer: Any, *overrides: str) -> tuple[dict[str, Any], str]:
    """The summary and the report of a run that accepted nothing."""
    result = train_sim(out, *SMALL, "train.init_skill=", *overrides, models=optimizer and {"optimizer": optimizer})
    assert skillopt("report", str(result.path)).returncode == 0
    return result.summary, html.unescape((result.path / "report.html").read_text())


def test_a_run_in_which_nothing_was_proposed_does_not_blame_the_tasks(tmp_path: Path) -> None:
    optimizer = Scripted(reflect=[NOTHING] * 9, deep_reflect=[NOTHING] * 9)
    summary, report = unlearned(tmp_path, optimizer)
    assert summary["verdict"].startswith(
        "No better: the skill is unchanged (0.00 on 12 held-out tasks), because no edit"
    )
    assert "no edit was proposed in 2 steps. Try another optimizer model" in summary["verdict"]
    assert summary["verdict"] in report
    assert "points to the task" not in report
    assert "the run had no other skill to try" in report


def test_replies_that_could_not_be_used_are_counted_and_one_is_shown(tmp_path: Path) -> None:
    optimizer = Scripted(reflect=["I'm afraid\nI cannot."] * 9)
    summary, report = unlearned(tmp_path, optimizer)
    said = summary["verdict"]
    assert (
        "because 2 replies of the optimizer could not be used (one of them: it is not valid JSON: “I'm afraid I" in said
    )
    assert "Try a stronger optimizer model" in said
    assert said in report
    assert "points to the task" not in report


def test_a_target_that_is_already_right_needs_harder_tasks(tmp_path: Path) -> None:
    trained = train_sim(tmp_path / "first", *SMALL, "train.num_epochs=3")
    assert trained.summary["best"]["val"] == 1
    again = train_sim(tmp_path / "second", *SMALL, f"train.init_skill={trained.path / 'best_skill.md'}")
    assert "because the initial skill already solves all 12 validation tasks" in again.verdict
    assert "Try harder tasks." in again.verdict


def test_candidates_that_were_all_rejected_are_counted_and_few_tasks_are_named(tmp_path: Path) -> None:
    summary = train_sim(tmp_path, *SMALL, "models.optimizer_model=sim:world?duds=1").summary
    assert summary["initial"]["val"] > 0
    few = "candidates was better on 12 validation tasks; with so few tasks, a gain below 0.08 cannot be seen"
    assert few in summary["verdict"]
    assert "Try at least 30 validation tasks: raise env.options.val." in summary["verdict"]


def test_a_stopped_run_says_what_it_has_so_far(tmp_path: Path) -> None:
    done = skillopt("train", "--config", str(SIM), f"env.output_root={tmp_path}", *SMALL, "budget.max_calls=40")
    assert done.returncode == 3
    said = read_json(only_run(tmp_path).summary)["verdict"]
    assert said.startswith("Not finished: so far ")
    assert "budget.max_calls: the limit of 40 is reached" in said


def test_seeds_that_agree_do_not_make_an_interval_of_no_width(tmp_path: Path) -> None:
    done = command("replicate", tmp_path, "--seeds", "2", *SMALL, "train.num_epochs=3")
    found = read_json(Path(done.stdout.rpartition("Written: ")[2].strip()))
    assert [row["best_test"] for row in found["rows"]] == [1.0, 1.0]
    for name in ("best_test", "gain_test", "best_val"):
        low, high = found["interval"][name]
        assert high - low > 0.1, name
    assert result_block(done.stdout) == found["verdict"]
    assert "the mean of 2 seeds, of which 2 improved. It cost " in found["verdict"]


def test_eval_transfer_and_check_begin_with_a_verdict(tmp_path: Path) -> None:
    run = train_sim(tmp_path, *SMALL, *WORLD).path
    best = str(run / "best_skill.md")
    measured = result_block(command("eval", tmp_path, "--skill", best, *SMALL, *WORLD).stdout)
    assert measured.startswith("Measured: ")
    assert "It cost 24 calls, " in measured
    goal = ("--to", str(SIM), f"env.output_root={tmp_path}", *SMALL, *WORLD)
    moved = skillopt("transfer", str(run), *goal, "--zero-shot")
    assert result_block(moved.stdout).startswith("Better: the skill as it is scores ")
    checked = command("check", tmp_path, best, *SMALL, *WORLD).stdout
    line = next(line for line in checked.splitlines() if line.startswith("BETTER"))
    assert "Better than no skill: " in line
    assert "95 % interval of the gain: +" in line
    assert "It cost " in line


def test_a_gain_that_could_be_chance_is_not_called_better() -> None:
    gain = paired({str(n): float(n < 5) for n in range(10)}, {str(n): float(n < 6) for n in range(10)})
    assert gain
    assert gain.word == "cannot tell"
    assert gain.tasks_needed is not None
    assert gain.tasks_needed > 10
    sure = paired({str(n): 0.0 for n in range(100)}, {str(n): float(n < 20) for n in range(100)})
    assert sure
    assert sure.word == "better"
    assert say("better", figures(sure), spent=Spent(calls=541, tokens=212000, usd=0.31)).text == (
        "Better: 0.20 on 100 held-out tasks against 0.00 before (95 % interval of the gain: +0.11 to +0.28). "
        "It cost 541 calls, 212,000 tokens, $0.31."
    )


@pytest.mark.parametrize("values", [[1.0] * 10, [0.0] * 10, [-1.0] * 3, [0.25] * 4, [1.0]])
def test_no_interval_of_a_gain_has_no_width(values: list[float]) -> None:
    bounds = gain_interval(values)
    assert bounds
    assert bounds[1] - bounds[0] > 0.1
    assert -1 <= bounds[0] < bounds[1] <= 1


def test_worse_is_said_where_it_is_sure() -> None:
    assert Gain(before=0.9, after=0.2, tasks=50, interval=(-0.8, -0.5)).word == "worse"
    assert Gain(before=0.5, after=0.5, tasks=50, interval=(-0.1, 0.1)).word == "no better"


NO_TOKENS = TokenCounts(prompt=0, completion=0, cached=0)


def judged(after: float, interval: tuple[float, float], **baselines: Any) -> str:
    """The verdict on a finished training with these baselines."""
    gain = Gain(before=0.0, after=after, tasks=40, interval=interval)
    summary = Summary.model_construct(
        status="finished",
        stop_reason="",
        gain=Gains(test=gain),
        best=BestScores.model_construct(version=1, val=0.5),
        baselines=Baselines(**baselines),
        calls=ByRole(target=0, optimizer=0),
        tokens=ByRole(target=NO_TOKENS, optimizer=NO_TOKENS),
        cost_usd=ByRole(target=0.0, optimizer=0.0),
        tokens_estimated=(),
    )
    return training_verdict(summary, [], {}).text


def test_a_gain_that_a_trivial_baseline_has_too_is_not_simply_better() -> None:
    sure, unsure = (0.3, 0.6), (-0.1, 0.6)
    letter = MajorityScores(answer="(A)", test=0.55)
    idle = ConstantScores(test=0.6)
    assert judged(0.45, sure).startswith("Better: 0.45 on 40")
    assert judged(0.6, sure, majority=letter).startswith("Better: 0.60 on 40")
    assert judged(0.45, sure, majority=letter).startswith(
        "Better than before, but worse than always answering '(A)' (0.55): 0.45 on 40 held-out tasks"
    )
    assert "no better than always answering '(A)' (0.55): " in judged(0.55, sure, majority=letter)
    assert "worse than doing nothing (0.60): " in judged(0.45, sure, majority=letter, do_nothing=idle)
    assert "Always answering '(A)' scores higher: 0.55." in judged(0.45, unsure, majority=letter)
