"""After a rejected step the next letter shows what the target made of it, on training tasks alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from skillopt.models.base import ChatReply, ChatRequest
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json, read_jsonl
from skillopt.training.optimizer_context import MOST_PROBED
from support import Spy, train_short

RULE = "- Greet people warmly."
BAD_FIRST = ("train.num_epochs=1", "gradient.minibatch_size=0")


class Useless(Spy):
    """The simulated optimizer, whose first proposals help nobody."""

    async def chat(self, request: ChatRequest) -> ChatReply:
        reply = await super().chat(request)
        if len(self.asked("reflect")) != 1 or not request.schema or request.schema.name != "reflect":
            return reply
        value = json.loads(reply.text)
        value["edits"] = [{**value["edits"][0], "text": RULE}]
        return replace(reply, text=json.dumps(value))


def test_the_letter_after_a_rejected_step_has_outputs_of_the_batch_under_it(tmp_path: Path) -> None:
    optimizer = Useless()
    result = train_short(tmp_path, *BAD_FIRST, models={"optimizer": optimizer})
    run = RunDirectory(result.path)
    assert read_json(run.history)[0]["verdict"] == "reject"
    (line,) = [row for row in optimizer.asked("reflect")[1].splitlines() if row.startswith('{"step": 1')]
    evidence = read_json(run.step(1) / "gate.json")["evidence"]
    failed = sum(row["before"] < 1 for row in evidence)
    known = f"{len(evidence)} tried, until enough was known ({failed} of them had failed before): 0 "
    assert json.loads(line)["of_the_validation_tasks"].startswith(known)
    seen = json.loads(line)["training_tasks_with_all_edits"]
    batch = {row["input"]: row for row in read_jsonl(run.step(1) / "trajectories.jsonl")}
    assert len(seen) == MOST_PROBED
    for row in seen:
        assert batch[row["task"]]["score"]["hard"] < 1
        assert batch[row["task"]]["answers"] == [row["expected"]]
        assert row["solved"] == "no"
        assert row["output"]
    assert read_json(run.summary)["calls_by_stage"]["target"]["second_look"] == MOST_PROBED


def test_without_an_analyst_that_reads_requests_no_task_is_done_again(tmp_path: Path) -> None:
    result = train_short(tmp_path, *BAD_FIRST, "gradient.analysts=[exemplar]", models={"optimizer": Useless()})
    assert "second_look" not in read_json(RunDirectory(result.path).summary)["calls_by_stage"]["target"]
