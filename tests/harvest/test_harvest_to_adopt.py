"""harvest → review → train → propose → adopt → undo, and blame leads from a learned line to a session's lines."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

from skillopt.cli import main
from skillopt.sim.model import TOPICS, code_for
from skillopt.tasks.check_fields import MinedCheck
from skillopt_harvest.adopt import read_proposal
from skillopt_harvest.records import TaskDecision
from skillopt_harvest.review import decide, finish, list_tasks
from support import transcripts


def run(*arguments: str, cwd: Path, code: int = 0) -> str:
    """The output of a command, in this process."""
    output = io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(cwd))
        stack.enter_context(contextlib.redirect_stdout(output))
        stack.enter_context(contextlib.redirect_stderr(output))
        ended = stack.enter_context(pytest.raises(SystemExit))
        main(arguments)
    assert (ended.value.code or 0) == code, output.getvalue()
    return output.getvalue()


def sessions() -> list[tuple[str, list[tuple[str, str]]]]:
    found = []
    for number in range(48):
        topic = TOPICS[number % 6]
        code = code_for(topic, 0)
        turns = [
            ("user", f"Ticket {number}. Say the code for: {topic}."),
            ("assistant", "unknown"),
            ("user", f"No. {topic} is {code}, remember that"),
            ("assistant", code),
        ]
        found.append((f"session-{number:02d}", turns))
    return found


@pytest.fixture
def work(tmp_path: Path) -> Path:
    transcripts.plain(tmp_path / "sessions.jsonl", sessions())
    skill = tmp_path / "installed" / "tickets"
    skill.mkdir(parents=True)
    front = "---\nname: tickets\ndescription: Codes of tickets. Use for tickets.\n---\n"
    (skill / "SKILL.md").write_text(f"{front}\n# Tickets\n\nAnswer with the code.\n")
    return tmp_path


def test_from_sessions_to_an_adopted_skill_and_back(work: Path) -> None:
    model = ("--optimizer_model", "sim:world")
    told = run("harvest", "--source", "plain", "--from", "sessions.jsonl", *model, cwd=work)
    assert "6 tasks to review" in told
    assert run("harvest", "--source", "plain", "--from", "sessions.jsonl", *model, cwd=work).startswith("Read 0 new")
    assert not (work / "harvest" / "skills").exists()  # nothing is trained on before review
    listed = run("harvest", "review", "harvest", cwd=work)
    first = re.match(r"(\w{8})  rule", listed)
    assert first
    told = run(
        "harvest", "review", "harvest", "--keep", "rules", "--drop", first[1], "--skill", "installed/tickets", cwd=work
    )
    assert "40 tasks" in told
    assert "right on 5" in told
    rows = [json.loads(line) for line in (work / "harvest/skills/default/tasks.jsonl").read_text().splitlines()]
    split = json.loads((work / "harvest/skills/default/tasks.split.json").read_text())
    group_of = {row["id"]: row["group"] for row in rows}
    parts = [{group_of[row["id"]] for row in split["items"][name]} for name in ("train", "val", "test")]
    assert sum(map(len, parts)) == len(set.union(*parts))

    config = "harvest/skills/default/config.yaml"
    run("train", "--config", config, "--target_model", "sim:world", *model, cwd=work)
    folder = max((work / "outputs" / "harvest").glob("*_seed*"))
    before = (work / "installed/tickets/SKILL.md").read_bytes()
    run("propose", str(folder), cwd=work)
    proposal = read_proposal(work / "proposal")
    assert proposal.outcome == "better"
    assert proposal.fixed
    learned = next(line for line in proposal.lines if "answer" in line.text and line.tasks)
    assert all(re.fullmatch(r"\w{8}@plain:session-\d\d:\d+-\d+", task) for task in learned.tasks)
    story = run("blame", str(folder), "--file", learned.file, "--line", str(learned.number), cwd=work)
    cited = re.search(r"tasks: \w+@plain:(session-\d\d):(\d+)-(\d+)", story)
    assert cited
    lines = (work / "sessions.jsonl").read_text().splitlines()[int(cited[2]) - 1 : int(cited[3])]
    assert {json.loads(line)["session"] for line in lines} == {cited[1]}
    topic = re.search(r"For (\w+), answer (\S+)\.", learned.text)
    assert topic
    assert any(f"{topic[1]} is {topic[2]}" in line for line in lines)

    run("adopt", "proposal", cwd=work)
    assert (work / "installed/tickets/SKILL.md").read_text().startswith("---\nname: tickets\n")
    assert learned.text in (work / "installed/tickets" / learned.file).read_text()
    assert "already has the new content" in run("adopt", "proposal", cwd=work, code=2)
    run("adopt", "proposal", "--undo", cwd=work)
    assert not (work / "installed/tickets/references").exists()
    assert (work / "installed/tickets/SKILL.md").read_bytes() == before
    assert not (work / "installed/tickets" / learned.file).exists()


def test_the_report_and_the_proposal_say_that_tasks_were_not_reviewed(work: Path) -> None:
    model = ("--optimizer_model", "sim:world")
    run("harvest", "--source", "plain", "--from", "sessions.jsonl", *model, cwd=work)
    assert "tasks.jsonl" not in run("harvest", "review", "harvest", cwd=work)
    run("harvest", "review", "harvest", "--unreviewed", "--skill", "installed/tickets", cwd=work)
    config = "harvest/skills/default/config.yaml"
    run("train", "--config", config, "--target_model", "sim:world", *model, cwd=work)
    folder = max((work / "outputs" / "harvest").glob("*_seed*"))
    run("propose", str(folder), cwd=work)
    for report in (folder / "report.md", folder / "report.html", work / "proposal" / "proposal.md"):
        assert "Some of the tasks were not reviewed by anybody." in report.read_text()


def test_new_sessions_add_tasks_and_old_splits_and_decisions_stay(work: Path) -> None:
    from skillopt_harvest.harvest import harvest, mining_config
    from skillopt_harvest.records import SourceSelection

    config = mining_config("sim:world", [], local=False)
    selection = SourceSelection(source="plain", path=work / "sessions.jsonl")
    out = work / "harvest"
    harvest(out, selection, config=config)
    decide(out, TaskDecision(task=list_tasks(out)[0].task.id, action="keep"))
    decide(out, TaskDecision(task=list_tasks(out)[1].task.id, action="keep"))
    finish(out)
    split_file = out / "skills/default/tasks.split.json"
    before = {row["id"]: name for name, rows in json.loads(split_file.read_text())["items"].items() for row in rows}
    with (work / "sessions.jsonl").open("a") as file:
        for role, text in sessions()[0][1]:
            row = {"session": "new", "role": role, "content": text.replace("Ticket 0", "Ticket 99")}
            file.write(json.dumps(row) + "\n")
    harvest(out, selection, config=config)
    finish(out)
    after = {row["id"]: name for name, rows in json.loads(split_file.read_text())["items"].items() for row in rows}
    assert after.items() >= before.items()


def test_decisions_edit_merge_and_mark_checks_that_cannot_tell(work: Path) -> None:
    from skillopt_harvest.harvest import harvest, mining_config
    from skillopt_harvest.records import SourceSelection

    out = work / "harvest"
    harvest(
        out,
        SourceSelection(source="plain", path=work / "sessions.jsonl"),
        config=mining_config("sim:world", [], local=False),
    )
    one, two = (each.task.id for each in list_tasks(out)[:2])
    decide(out, TaskDecision(task=two, action="merge", into=one))
    decide(out, TaskDecision(task=one, action="edit", rule="R", check=MinedCheck(kind="contains", values=("unknown",))))
    tasks = {each.task.id: each for each in list_tasks(out)}
    assert two not in tasks
    assert (tasks[one].status, tasks[one].task.rule, tasks[one].task.sessions) == ("kept", "R", 16)
    assert not any(trial.tells_apart for trial in tasks[one].trials)
    run("harvest", "review", "harvest", "--edit", "nonsense", cwd=work, code=2)
    run("harvest", "review", "harvest", "--keep", "00000000", cwd=work, code=2)
    run("harvest", "review", "elsewhere", cwd=work, code=2)
    for name in ("decisions.jsonl", "tasks.json"):
        (out / name).write_text("{half")
        assert f"{name}: is damaged" in run("harvest", "review", "harvest", cwd=work, code=2)


@pytest.mark.sandbox
def test_a_mined_command_runs_only_after_it_was_kept_and_in_the_sandbox(work: Path) -> None:
    from skillopt_harvest.harvest import harvest, mining_config
    from skillopt_harvest.records import SourceSelection

    out, trap = work / "harvest", work / "trap"
    harvest(
        out,
        SourceSelection(source="plain", path=work / "sessions.jsonl"),
        config=mining_config("sim:world", [], local=False),
    )
    name = list_tasks(out)[0].task.id
    tasks = json.loads((out / "tasks.json").read_text())
    words = ["sh", "-c", f"touch {trap}; grep -q '[A-Z]' $SKILLOPT_CHECK/output.txt"]
    for task in tasks["tasks"]:
        task["check"] = {"kind": "command", "values": words, "unwanted": []}
    (out / "tasks.json").write_text(json.dumps(tasks))
    assert all(trial.rejected_fails is None for each in list_tasks(out) for trial in each.trials)
    decide(out, TaskDecision(task=name, action="keep"))
    trials = next(each.trials for each in list_tasks(out) if each.task.id == name)
    assert trials[0].tells_apart, trials[0].reason
    assert not trap.exists()
