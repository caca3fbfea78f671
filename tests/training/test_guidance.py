"""Guidance of the slow update: protected inside the run, and plain text for the target and in what a run hands out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from skillopt.models.base import ChatReply, ChatRequest
from skillopt.models.structured import FlawedReplyError
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json
from skillopt.record.step import ItemEvidence
from skillopt.skill import Applied, Edit, Skill, apply_edits
from skillopt.skill.document import CLOSE_MARKER, OPEN_MARKER
from skillopt.training import epoch_end
from skillopt.training.gates import Verdict
from skillopt.training.requests.guidance import guidance_reply
from skillopt.training.requests.replies import says_nothing
from skillopt.view.blame import blame_run
from support import SMALL, Spy, skillopt, train_short
from support.packages import FRONT, write_package

GUIDED = ("train.num_epochs=2", "optimizer.learning_rate=2")
"""A run of the simulated world in which guidance is accepted."""
MARK = "skillopt:"


def prompts(spy: Spy) -> list[str]:
    """The system prompts of all requests, in order."""
    return [str(m["content"]) for request in spy.requests for m in request.messages if m["role"] == "system"]


def kinds(run: RunDirectory) -> list[str]:
    return [entry.kind for entry in run.patch_log.entries()]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, Spy, Skill]:
    """The run, what its target was asked, and the skill that a caller is given."""
    spy = Spy()
    result = train_short(tmp_path_factory.mktemp("guided"), *GUIDED, models={"target": spy})
    run = RunDirectory(result.path)
    assert kinds(run)[-1] == "guidance"
    return run, spy, result.best_skill


def test_the_target_reads_best_skill_md_byte_for_byte_and_neither_has_markers(
    trained: tuple[RunDirectory, Spy, Skill],
) -> None:
    run, spy, best = trained
    text = run.best_skill.read_bytes().decode()
    assert MARK not in text
    assert not [prompt for prompt in prompts(spy) if MARK in prompt]
    assert prompts(spy)[-1] == text == best.text == (run.skills / "best_skill.md").read_text()
    version = run.read_skill(read_json(run.state)["best"]["version"])
    assert version.guidance
    assert text.endswith(f"\n\n{version.guidance}\n")


def test_steps_cannot_change_guidance_that_has_no_markers_for_the_target(
    trained: tuple[RunDirectory, Spy, Skill],
) -> None:
    run, _, _ = trained
    version = run.read_skill(read_json(run.state)["best"]["version"])
    edit = Edit(op="delete", anchor=version.guidance.splitlines()[0], trajectory_ids=("t",))
    (skip,) = apply_edits(version, [edit]).skipped
    assert skip.kind == "protected"


def test_every_command_takes_the_version_with_markers_and_the_file_without_for_the_same_skill(
    trained: tuple[RunDirectory, Spy, Skill], tmp_path: Path
) -> None:
    run, _, best = trained
    root, version = str(run.root), read_json(run.state)["best"]["version"]
    verified = skillopt("verify", root)
    assert verified.returncode == 0, verified.stdout
    assert "The skills are equal." in skillopt("diff", f"{root}@{version}", root).stdout
    assert MARK not in skillopt("diff", f"{root}@{version - 1}", root).stdout
    blamed = skillopt("blame", root).stdout
    assert MARK not in blamed
    assert "guidance" in skillopt("blame", root, "--line", str(len(best.text.splitlines()))).stdout
    by_rule = read_json(Path(skillopt("ablate", root).stdout.rpartition("Written: ")[2].strip()))
    lines = best.text.splitlines()
    assert all(lines[row["lines"][0] - 1] in row["text"] for row in by_rule["rows"])
    done = skillopt("export", root, "--to", str(tmp_path / "codes"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "codes" / "SKILL.md").read_text().endswith(best.text)
    run.best_skill.write_text(best.text.replace("- For", "- Fro", 1))
    assert skillopt("verify", root).returncode == 1
    run.best_skill.write_text(best.text)


def test_a_skill_with_markers_can_begin_a_run_and_its_guidance_is_protected(tmp_path: Path) -> None:
    seed = tmp_path / "seed.md"
    seed.write_text(f"# Codes\n\n- Be brief.\n\n{OPEN_MARKER}\n- Mind the order.\n{CLOSE_MARKER}\n")
    spy = Spy()
    result = train_short(tmp_path / "out", f"train.init_skill={seed}", "train.num_epochs=1", models={"target": spy})
    run = RunDirectory(result.path)
    assert prompts(spy)[0] == "# Codes\n\n- Be brief.\n\n- Mind the order.\n"
    assert not [prompt for prompt in prompts(spy) if MARK in prompt]
    assert run.read_skill(0).guidance == "- Mind the order."
    assert prompts(spy)[-1] == run.best_skill.read_text()


def test_a_package_and_a_second_training_get_the_text_without_markers(
    trained: tuple[RunDirectory, Spy, Skill], tmp_path: Path
) -> None:
    body = f"# Codes\n\n{OPEN_MARKER}\n- Mind the order.\n{CLOSE_MARKER}\n"
    package = write_package(tmp_path / "house-codes")
    (package / "SKILL.md").write_text(FRONT + body)
    result = train_short(tmp_path / "out", f"train.init_skill={package}", *SMALL)
    run = RunDirectory(result.path)
    text = (run.best_package / "SKILL.md").read_text()
    assert MARK not in text
    assert "- Mind the order." in text
    assert skillopt("verify", str(run.root)).returncode == 0
    spy = Spy()
    start = f"train.init_skill={trained[0].best_skill}"
    again = train_short(tmp_path / "again", start, "train.num_epochs=1", models={"target": spy})
    assert prompts(spy)[0] == trained[2].text
    assert RunDirectory(again.path).read_skill(0).text == trained[2].text


class Guide(Spy):
    """An optimizer whose guidance is always the same text."""

    def __init__(self, guidance: str) -> None:
        super().__init__()
        self.guidance, self.asked_for = guidance, 0

    async def chat(self, request: ChatRequest) -> ChatReply:
        reply = await super().chat(request)
        if request.schema and request.schema.name == "slow_update":
            self.asked_for += 1
            value: dict[str, Any] = {"reason": "Nothing to say.", "guidance": self.guidance}
            return ChatReply(text=json.dumps(value), usage=reply.usage)
        return reply


def test_texts_without_content_say_nothing() -> None:
    empty = ("ok", " \n\t", "## Guidance", "None.", "## Guidance\n\n- No further changes needed at this time.")
    assert [text for text in (*empty, "Keep it short.") if not says_nothing(text)] == ["Keep it short."]


@pytest.mark.parametrize(("guidance", "accepted"), [("None.", False), ("Keep it short.", True)])
def test_guidance_without_content_is_not_accepted(guidance: str, accepted: bool, tmp_path: Path) -> None:
    optimizer = Guide(guidance)
    result = train_short(tmp_path, *GUIDED, models={"optimizer": optimizer})
    assert optimizer.asked_for
    assert ("guidance" in kinds(RunDirectory(result.path))) is accepted
    assert result.best_skill.text.endswith(f"\n{guidance.strip()}\n") is accepted


# Lines of the guidance: what a reply may do to them

LINES = Skill("# Codes\n").with_guidance("- One.\n- Two.\n- Three.")


def changed(*rows: dict[str, str], skill: Skill = LINES, refused: Any = lambda edit: "") -> Applied:
    return guidance_reply(skill, "guidance-03", ["t1"], refused)({"reason": "r", "lines": list(rows)})


def line(op: str, anchor: str = "", text: str = "", rationale: str = "They show it.") -> dict[str, str]:
    return {"op": op, "anchor": anchor, "text": text, "rationale": rationale}


def test_a_reply_adds_revises_and_removes_lines_and_all_others_stay() -> None:
    result = changed(
        line("modify", "- Two.", "- Two, always."), line("delete", "- Three."), line("add", text="- Four.")
    )
    assert result.skill.guidance == "- One.\n- Two, always.\n- Four."
    assert result.skill.text.startswith("# Codes\n")
    assert [edit.id for edit in result.applied] == ["guidance-03-1", "guidance-03-2", "guidance-03-3"]
    assert {edit.trajectory_ids for edit in result.applied} == {("t1",)}
    assert changed().skill is LINES


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (line("delete", "- Two.", rationale=" "), "line 1: `delete` of a line needs a reason in `rationale`"),
        (line("modify", "- Two.", "- 2.", rationale=""), "line 1: `modify` of a line needs a reason"),
        (line("delete", "Two."), "line 1: its anchor is not a whole line of the guidance"),
        (line("delete", "- Nine."), "line 1: its anchor is not a whole line of the guidance"),
        (line("delete"), "line 1: its anchor is not a whole line of the guidance"),
        (line("rewrite", "- Two.", "x"), "line 1: Input should be"),
        (line("add", text="word " * 700), "line 1: is longer than 600 tokens"),
        (line("add", text=f"a {OPEN_MARKER} b"), "line 1: contains a protected-region marker"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_and_the_rest_of_the_reply_holds(row: dict[str, str], problem: str) -> None:
    with pytest.raises(FlawedReplyError) as flawed:
        changed(row, line("add", text="- Four."))
    assert problem in str(flawed.value)
    result = flawed.value.value
    assert isinstance(result, Applied)
    assert result.skill.guidance == "- One.\n- Two.\n- Three.\n- Four."
    assert len(result.skipped) == 1


def test_guidance_that_grows_too_long_is_sent_back_with_what_to_do() -> None:
    long = Skill("").with_guidance("\n".join(f"- word {number} and more words" for number in range(140)))
    with pytest.raises(FlawedReplyError, match="longer than 1200 tokens; shorten or remove lines"):
        changed(*(line("add", text="- new words " * 90) for _ in range(3)), skill=long)


def test_a_plain_text_adds_the_lines_that_are_not_there_and_removes_none() -> None:
    read = guidance_reply(LINES, "guidance-03", ["t1"], lambda edit: "")
    assert read({"guidance": "- Four.\n- Two.\n"}).skill.guidance == "- One.\n- Two.\n- Three.\n- Four."
    text = "Look twice:\n\nTask: a\nReply: b"
    first = guidance_reply(Skill("# Codes\n"), "g", ["t1"], lambda edit: "")({"guidance": f"\n{text}\n"})
    assert first.skill == Skill("# Codes\n").with_guidance(text)
    with pytest.raises(ValueError, match="is not an object with the list lines"):
        read({"text": "x"})


class Editor(Spy):
    """The simulated optimizer, whose guidance of one epoch another writes."""

    def __init__(self, epoch: int, *replies: Any) -> None:
        super().__init__("sim:world?duds=0.5")
        self.epoch, self.replies, self.updates = epoch, list(replies), 1

    async def chat(self, request: ChatRequest) -> ChatReply:
        reply = await super().chat(request)
        if not request.schema or request.schema.name != "slow_update":
            return reply
        self.updates += len(request.messages) == 2
        if self.updates != self.epoch:
            return reply
        write = self.replies.pop(0)
        lines = write(str(request.messages[1]["content"]), json.loads(reply.text)["lines"])
        return ChatReply(text=json.dumps({"reason": "r", "lines": lines}), usage=reply.usage)


def remove_first(rationale: str) -> Any:
    def write(request: str, lines: list[Any]) -> list[Any]:
        first = request.partition("<guidance>\n")[2].splitlines()[0]
        return [line("delete", first, rationale=rationale), *lines]

    return write


THREE = ("train.num_epochs=3", "train.seed=2", "optimizer.learning_rate=2")


def test_a_line_goes_only_with_a_reason_and_the_reply_is_sent_back_once(tmp_path: Path) -> None:
    optimizer = Editor(3, remove_first(""), remove_first(""))
    run = RunDirectory(train_short(tmp_path, *THREE, models={"optimizer": optimizer}).path)
    problem = optimizer.asked("slow_update")[-1]
    assert "line 1: `delete` of a line needs a reason in `rationale`" in problem
    assert not optimizer.replies
    comparison = read_json(run.slow_update(3) / "comparison.json")
    assert [skip["kind"] for skip in comparison["skipped"]] == ["refused"]
    assert {edit["op"] for edit in comparison["edits"]} == {"add"}, "the rest of the reply is used"
    assert read_json(run.slow_update(3) / "gate.json")["decision"] == "accept"


def test_guidance_that_loses_what_earlier_guidance_won_is_rejected_although_the_score_rises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gate(out: Path) -> dict[str, Any]:
        optimizer = Editor(3, remove_first("It is stated better elsewhere."))
        run = RunDirectory(train_short(out, *THREE, models={"optimizer": optimizer}).path)
        value: dict[str, Any] = read_json(run.slow_update(3) / "gate.json")
        return value

    decided = gate(tmp_path / "a")
    assert decided["after"] > decided["before"]
    assert decided["decision"] == "reject"
    assert re.fullmatch(r"loses \d+ of \d+ items that earlier guidance won", decided["reason"])
    monkeypatch.setattr(epoch_end, "holding", lambda verdict, won: verdict)
    assert gate(tmp_path / "b")["decision"] == "accept"


def test_with_a_noisy_target_the_fresh_samples_of_the_items_that_were_won_must_not_fall_together() -> None:
    def decided(*pairs: tuple[float, float]) -> str:
        rows = tuple(
            ItemEvidence(item_id=f"i{n}", before=1, after=after, hard=after, repeats=5, compared=(before, after))
            for n, (before, after) in enumerate(pairs)
        )
        figures = {"before": 0.5, "after": 0.6, "at_most": 0.6, "items": 9, "measured": 9}
        verdict = Verdict(decision="accept", gate="paired", rule="keep", metric="hard", evidence=rows, **figures)
        return epoch_end.holding(verdict, {"i0", "i1", "i9"}).decision

    assert decided((0.8, 0.6), (0.6, 0.8), (1, 0)) == "accept", "one more, one less; the third was not won by guidance"
    assert decided((0.8, 0.6), (0.8, 0.8)) == "reject"


def test_blame_leads_from_each_line_of_the_guidance_to_the_epoch_that_wrote_it(tmp_path: Path) -> None:
    run = RunDirectory(train_short(tmp_path, *THREE, "models.optimizer_model=sim:world?duds=0.5").path)
    lines = [line for line in blame_run(run) if line.entry and line.entry.kind == "guidance" and line.text]
    for blamed in lines:
        assert blamed.entry
        written = read_json(run.slow_update(blamed.entry.epoch) / "comparison.json")["edits"]
        assert blamed.text in [edit["text"] for edit in written if edit["id"] == blamed.entry.edit.id]
    assert {line.entry.epoch for line in lines if line.entry} == {2, 3}
    assert len({line.entry.edit.id for line in lines if line.entry}) == len(lines) > 3
    assert skillopt("verify", str(run.root)).returncode == 0


def test_guidance_is_asked_for_if_tasks_have_only_improved(tmp_path: Path) -> None:
    spy = Spy("sim:world?duds=0.5")
    only = ("train.num_epochs=3", "train.seed=2", "optimizer.learning_rate=3")
    run = RunDirectory(train_short(tmp_path, *only, models={"optimizer": spy}).path)
    counts = read_json(run.slow_update(3) / "comparison.json")["counts"]
    assert set(counts) == {"improved", "stable_success"}
    assert len(spy.asked("slow_update")) == 2
