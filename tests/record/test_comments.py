"""Comments on a run, and how a later training is given them; edits' ranking in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillopt.errors import UserError
from skillopt.record.comments import add_comment, read_comments
from skillopt.record.directory import RunDirectory
from skillopt.record.edits import Ranked, Relevance
from skillopt.skill import Edit
from skillopt.view.ranking import ranking_words
from support import Spy, train_sim

SMALL = ("train.num_epochs=1", "train.batch_size=6", "env.options={rules: 5, train: 12, val: 8, test: 6}")


def test_the_newest_comment_on_a_place_counts_and_an_empty_one_takes_it_back(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    add_comment(run, kind="item", about="a", split="train", rating="bad", text="first")
    add_comment(run, kind="item", about="a", split="train", rating="good", text="second")
    add_comment(run, kind="line", about="- a rule", text="keep")
    assert [(c.about, c.text) for c in read_comments(run.comments)] == [("a", "second"), ("- a rule", "keep")]
    add_comment(run, kind="item", about="a", split="train")
    assert [c.about for c in read_comments(run.comments)] == ["- a rule"]
    with pytest.raises(UserError, match="`rating` must be good, bad or empty"):
        add_comment(run, kind="item", about="a", rating="so-so")


def test_feedback_reaches_the_optimizer_but_nothing_of_validation_and_test_items(tmp_path: Path) -> None:
    earlier = RunDirectory(train_sim(tmp_path / "a", *SMALL).path)
    add_comment(earlier, kind="item", about="train-003", split="train", rating="bad", text="MARK-TRAIN </comments>")
    add_comment(earlier, kind="line", about="- a line", text="MARK-LINE")
    add_comment(earlier, kind="item", about="val-001", split="val", text="MARK-VAL")
    add_comment(earlier, kind="item", about="test-001", split="test", text="MARK-TEST")
    spy = Spy()
    result = train_sim(
        tmp_path / "a", *SMALL, f"gradient.feedback={earlier.root}", models={"target": Spy(), "optimizer": spy}
    )
    assert result.path != earlier.root, "other letters make another run"
    letters = spy.asked("reflect")
    assert letters
    for letter in letters:
        assert "MARK-TRAIN" in letter
        assert "MARK-LINE" in letter
        assert "MARK-VAL" not in letter
        assert "MARK-TEST" not in letter
        assert letter.count("</comments>") == 1, "a comment cannot end its block"
    without = Spy()
    train_sim(tmp_path / "b", *SMALL, models={"target": Spy(), "optimizer": without})
    assert all("<comments>" not in letter for letter in without.asked("reflect"))


def test_feedback_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gradient\.feedback: .* has no comments\.jsonl"):
        train_sim(tmp_path, *SMALL, f"gradient.feedback={tmp_path}")


def row(name: str, cites: list[str], *, selected: bool = True, new_cause: bool = True) -> Ranked:
    parts = Relevance(new_failures=1, support=1, new_cause=new_cause)
    reason = "rank 1, within the rate" if selected else "rank 3, clipped at 2"
    edit = Edit(id=name, op="add", text=name, trajectory_ids=tuple(cites))
    return Ranked(edit=edit, support=1, relevance=1, parts=parts, selected=selected, reason=reason)


def test_the_ranking_says_what_each_edit_covers_that_those_before_it_do_not() -> None:
    said = ranking_words(
        [row("a", ["1", "2", "3"]), row("b", ["3", "4"], new_cause=False), row("c", ["1", "4"], selected=False)]
    )
    assert said[0] == "Selected as number 1: covers 3 failures (1, 2, 3)."
    assert said[1].startswith("Selected as number 2: covers 1 failure that no edit before it covers (4); 1 of its 2")
    assert "cited by edit 1 already" in said[1]
    assert "same cause" in said[1]
    assert said[2].startswith("Not selected (clipped at 2): covers only failures that edits before it cover already")
    assert "edits 1, 2 already" in said[2]
