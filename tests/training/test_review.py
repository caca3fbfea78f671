"""Opposite edits end in review, not in the skill; a person's choice is tried at the next step, through the gate."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from skillopt.errors import Stopped, UserError
from skillopt.record.directory import RunDirectory
from skillopt.record.edits import Decision, Patch
from skillopt.record.files import read_json, read_jsonl
from skillopt.record.run import Run
from skillopt.sim.optimizer import OPPOSITES
from skillopt.skill import Edit, Skill
from skillopt.training.edits.review import checked_decision, file_conflicts, review, write_decisions
from skillopt.training.edits.select import select
from skillopt.view.review_dialog import review_run, status
from support import REPO, aggregate_locally, context, differing, essence, only_run, train_sim

PLANTED = "models.optimizer_model=sim:world?opposites=1"
SMALL = ("train.num_epochs=1", "train.batch_size=10", "env.options={rules: 20, train: 40, val: 20, test: 4}")
A, B = OPPOSITES


def choose(run: RunDirectory, *choices: str, write: Sequence[str] = ()) -> None:
    """What `skillopt review RUN --choose … --write …` does."""
    review_run(run, choices, write, lambda text: None, None)


def stopped_run(out: Path) -> RunDirectory:
    """A run with a conflict that stands after its first steps."""
    with pytest.raises(Stopped):
        train_sim(out, PLANTED, *SMALL, "budget.max_calls=70")
    run = only_run(out)
    assert read_json(run.state)["step"] >= 1
    return run


def go_on(out: Path) -> RunDirectory:
    return RunDirectory(train_sim(out, PLANTED, *SMALL, "budget.max_calls=5000").path)


def decided(run: RunDirectory) -> list[dict[str, str]]:
    """Without the lines' checksums."""
    return [{key: value for key, value in row.items() if key != "check"} for row in read_jsonl(run.decisions)]


def used_in(run: RunDirectory) -> dict[str, object]:
    (record,) = [record for record in read_json(run.history) if record["review"]]
    return record


def test_two_opposite_edits_end_in_review_and_not_in_the_skill(tmp_path: Path) -> None:
    run = RunDirectory(train_sim(tmp_path, PLANTED, *SMALL, "optimizer.lr_scheduler=constant").path)
    (conflict,) = (each for each in Run(run).conflicts if each.b)
    assert {conflict.a.text, conflict.b.text} == {A, B}
    assert conflict.a.trajectory_ids
    assert conflict.b.trajectory_ids
    assert "capital" not in run.best_skill.read_text()
    assert read_json(run.history)[0]["edits"]["conflicting"] == 2


@pytest.mark.parametrize(("choice", "kept"), [("a", [A]), ("b", [B]), ("both", [A, B]), ("neither", [])])
def test_a_choice_is_tried_at_the_next_step_and_the_log_names_it(tmp_path: Path, choice: str, kept: list[str]) -> None:
    run = stopped_run(tmp_path)
    before = read_json(run.state)["step"]
    choose(run, f"1-1={choice}")
    run = go_on(tmp_path)
    record = used_in(run)
    assert record["step"] == before + 1
    assert record["review"] == [{"conflict": "1-1", "choice": choice, "text": ""}]
    assert record["verdict"] == "accept"
    text = run.best_skill.read_text()
    assert [side for side in OPPOSITES if side in text] == kept
    entries = [entry for entry in run.patch_log.entries() if entry.edit.source == "review/1-1"]
    assert [entry.step for entry in entries] == [before + 1] * len(kept)
    assert all(entry.edit.trajectory_ids for entry in entries)
    assert len(Run(run).conflicts) == 1, "a question that was decided is not asked again"
    assert status(run, Run(run).conflicts[0]) == f"used in step {before + 1}: {choice} (accept)"
    if choice == "neither":
        rows = [row for path in run.steps.glob("*/selected.json") for row in read_json(path)["ranked"]]
        reasons = {row["reason"] for row in rows if "capital" in row["edit"]["text"]}
        assert reasons
        assert all("decided against in review, conflict 1-1" in reason for reason in reasons)


def test_an_own_edit_is_tried_with_the_evidence_of_both_sides(tmp_path: Path) -> None:
    run = stopped_run(tmp_path)
    choose(run, write=["1-1=- Write the letters of a code as they stand."])
    run = go_on(tmp_path)
    (entry,) = [entry for entry in run.patch_log.entries() if entry.edit.source == "review/1-1"]
    assert entry.edit.text == "- Write the letters of a code as they stand."
    (conflict,) = Run(run).conflicts
    assert set(entry.edit.trajectory_ids) == {*conflict.a.trajectory_ids, *conflict.b.trajectory_ids}
    assert entry.edit.text in run.best_skill.read_text()


def test_the_gate_has_the_last_word_on_a_choice(tmp_path: Path) -> None:
    run = stopped_run(tmp_path)
    harmful = "- For maple, answer ZZ-00.\\n- For cedar, answer ZZ-00.\\n- For amber, answer ZZ-00.".replace(
        "\\n", "\n"
    )
    choose(run, write=[f"1-1={harmful}"])
    run = go_on(tmp_path)
    step = used_in(run)
    kept = [edit["text"] for edit in step["applied"]] if step["verdict"] == "accept" else []
    assert not any("ZZ-00" in text for text in kept), "rejected, or accepted without the harm"
    assert "ZZ-00" not in run.best_skill.read_text()


@pytest.mark.slow
def test_a_run_that_was_stopped_after_the_decision_ends_like_one_that_was_not(tmp_path: Path) -> None:
    for name in ("calm", "rough"):
        choose(stopped_run(tmp_path / name), "1-1=a")
    calm = go_on(tmp_path / "calm")
    for calls in (85, 110, 130, 150):
        with pytest.raises(Stopped):
            train_sim(tmp_path / "rough", PLANTED, *SMALL, f"budget.max_calls={calls}")
    rough = go_on(tmp_path / "rough")
    assert used_in(calm)["step"] == used_in(rough)["step"]
    assert differing(essence(calm), essence(rough)) == []


def test_a_decision_wins_over_the_side_that_the_evidence_was_for(tmp_path: Path) -> None:
    """A side with three times the support is tried at once; whoever decides against it gets the other."""
    sides = [
        Edit(id=name, op="add", text=text, trajectory_ids=cited, source="llm/mixed")
        for name, text, cited in (("e1", A, ("t1", "t2", "t3")), ("e2", B, ("t4",)))
    ]
    patch = Patch(id="p", source="llm/mixed", trajectory_ids=(), edits=tuple(sides))
    pool = aggregate_locally([patch])
    assert ([p.edit.id for p in pool.edits], pool.conflicts[0].applied) == (["e1"], "a")
    run = RunDirectory(tmp_path)
    run.conflicts.parent.mkdir()
    run.conflicts.write_text("")
    file_conflicts(run, 1, pool.conflicts)
    assert [conflict.id for conflict in Run(run).conflicts] == ["1-1"], "it stays a question"
    assert review(pool, run, 2, {}).pool == pool, "undecided, the stronger side is tried again"
    write_decisions(run, [Decision(conflict="1-1", choice="b")])
    reviewed = review(pool, run, 2, {})
    assert [p.edit.text for p in reviewed.pool.edits] == [B, A]
    assert reviewed.turned_down == {"e1": "1-1"}
    rows = select(reviewed.pool, 4, Skill(""), context(), turned_down=reviewed.turned_down)
    assert [row.edit.text for row in rows if row.selected] == [B]


def test_a_decision_whose_step_was_undone_is_used_again(tmp_path: Path) -> None:
    run = stopped_run(tmp_path)
    choose(run, "1-1=b")
    state = run.state.read_bytes()
    first = used_in(go_on(tmp_path))
    run.state.write_bytes(state)  # as if it had been killed before that step was finished
    again = used_in(go_on(tmp_path))
    assert first["step"] == again["step"]
    assert first["skill_hash"] == again["skill_hash"]


BAD = [
    (["--choose", "9-9=a"], "has no conflict '9-9'; the conflicts are: 1-1"),
    (["--choose", "1-1=c"], "'c' is not a choice for 1-1; choose one of: a, b, both, neither"),
    (["--choose", "1-1"], "does not have the form ID=CHOICE"),
    (["--write", "1-1= "], "does not have the form ID=TEXT"),
    (["--write", "1-1=<!-- skillopt:protected x -->"], "protected-region marker"),
    (["--write", f"1-1={'word ' * 2500}"], "longer than 2000 tokens"),
    (["--choose", "1-1=a", "--choose", "1-2=b"], "has no conflict '1-2'"),
]


def test_bad_decisions_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    run = stopped_run(tmp_path)
    for arguments, message in BAD:
        chosen = [text for flag, text in zip(arguments[::2], arguments[1::2], strict=True) if flag == "--choose"]
        with pytest.raises(UserError, match=re.escape(message)):
            choose(run, *chosen, write=[] if chosen else arguments[1:])
    assert not run.decisions.exists()


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a run's folder"):
        choose(RunDirectory(tmp_path))


def test_before_a_step_uses_it_the_last_decision_holds_and_then_it_cannot_be_changed(tmp_path: Path) -> None:
    run = stopped_run(tmp_path)
    for choice in ("a", "b"):
        choose(run, f"1-1={choice}")
    run = go_on(tmp_path)
    assert used_in(run)["review"] == [{"conflict": "1-1", "choice": "b", "text": ""}]
    with pytest.raises(UserError, match="was used in step"):
        checked_decision(run, "1-1", "a")


def at_terminal(run: RunDirectory, answers: list[str]) -> str:
    """`skillopt review` on a real pseudo-terminal: each answer is typed when the next question stands there."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "skillopt.cli", "review", str(run.root)]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=REPO, close_fds=True)
    os.close(theirs)
    screen, asked = "", 0
    while True:
        try:
            piece = os.read(ours, 65536).decode(errors="replace")
        except OSError:  # the other side is gone
            break
        screen += piece
        questions = screen.count("quit (q)?") + screen.count("Your edit:")
        if questions > asked and answers:
            asked = questions
            os.write(ours, f"{answers.pop(0)}\n".encode())
    os.close(ours)
    assert process.wait() == 0, screen
    return screen


def test_a_person_decides_on_a_terminal(tmp_path: Path) -> None:
    run = stopped_run(tmp_path)
    screen = at_terminal(run, ["x", "w", "- Write codes as the rules have them."])
    assert A in screen
    assert B in screen
    assert "'x' is not a choice for 1-1" in screen
    assert "The next step tries the choice" in screen
    assert decided(run) == [{"conflict": "1-1", "choice": "own", "text": "- Write codes as the rules have them."}]
    assert "- Write codes as the rules have them." in go_on(tmp_path).best_skill.read_text()


@pytest.mark.slow
def test_skipping_and_quitting_decide_nothing(tmp_path: Path) -> None:
    run = stopped_run(tmp_path)
    at_terminal(run, ["s"])
    at_terminal(run, ["q"])
    assert not run.decisions.exists()
