"""Guidance of the slow update: protected inside the run, and plain text for the target and in what a run hands out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skillopt.models.base import ChatReply, ChatRequest
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json
from skillopt.skill import Edit, Skill, apply_edits
from skillopt.skill.document import CLOSE_MARKER, OPEN_MARKER
from skillopt.training.requests.replies import says_nothing
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
