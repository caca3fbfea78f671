"""Summaries and paraphrases are not edits: a `modify` of several lines keeps each line, or names it as dropped."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt.models.base import ChatReply, ChatRequest
from skillopt.record.directory import RunDirectory
from skillopt.record.edits import Patch
from skillopt.record.files import read_json
from skillopt.skill import Edit, SizeLimits, Skill
from skillopt.training.analysts.base import Minibatch
from skillopt.training.analysts.llm import LLMAnalyst
from skillopt.training.edits.aggregate import aggregate
from skillopt.training.edits.losses import lost_lines, unnamed_losses
from skillopt.training.requests.context import EditLimits, OptimizerContext
from skillopt.training.requests.replies import reflect_schema
from skillopt.view.html import write_report
from support import REPO, Scripted, Spy, context, train_short, trajectory

sys.path.insert(0, str(REPO / "bench"))

from learning.recording import EARLIER, Recording, Replayed

BODY = """\
- A kettle is filed under kitchen.
- Amounts over 500 get the code "H7".
- Never round.

Task: kettle, 620
Reply: kitchen H7
"""
SKILL = Skill(f"# Job\n\n## Codes\n\n{BODY}")


def modify(text: str, anchor: str = BODY, **fields: Any) -> Edit:
    return Edit(op="modify", anchor=anchor, text=text, trajectory_ids=("t1",), **fields)


@pytest.mark.parametrize(
    "text",
    [
        BODY,
        "\n".join(reversed(BODY.split("\n\n"))),
        BODY.replace("- ", "1. "),
        BODY.replace("- Never round.", "Besides: never round anything up or down."),
        BODY.replace(
            "- A kettle is filed under kitchen.", "- kitchen: a kettle, for example, is filed there, or under this"
        ),
        BODY.replace('- Amounts over 500 get the code "H7".', '- Amounts:\n- over 500, get the code "H7"'),
        BODY.replace("Reply: kitchen H7", "Reply: 620 is over 500: kitchen H7"),
    ],
    ids=["the same", "moved", "other marks", "longer", "reworded", "split", "example with steps"],
)
def test_a_line_that_is_moved_split_or_lightly_reworded_is_not_lost(text: str) -> None:
    assert lost_lines(modify(text)) == {}


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        ("- Never round.\n", "", "Never round."),
        ("- Never round.", "- Always round.", "Never round."),
        ("over 500", "over 50", 'Amounts over 500 get the code "H7".'),
        ('"H7"', "from the list", 'Amounts over 500 get the code "H7".'),
        ("- A kettle is filed under kitchen.", "- Things are filed by room.", "A kettle is filed under kitchen."),
        ("Task: kettle, 620\nReply: kitchen H7", "", "Task: kettle, 620 Reply: kitchen H7"),
        ("Task: kettle, 620", "Task: kettle, 710", "Task: kettle, 620 Reply: kitchen H7"),
    ],
    ids=["a line", "a negation", "a number", "a quoted string", "a paraphrase", "an example", "another example"],
)
def test_what_a_modify_leaves_out_is_noticed(old: str, new: str, lost: str) -> None:
    assert unnamed_losses(modify(BODY.replace(old, new))) == [lost]


WORDS = st.text("abcdefgh", min_size=1, max_size=5)
LINES = st.lists(st.lists(WORDS | st.integers(0, 99).map(str), min_size=1, max_size=6).map(" ".join), min_size=2)


@given(LINES, st.lists(WORDS.map("Also {}.".format)), st.randoms(use_true_random=False))
def test_an_edit_that_keeps_every_line_is_never_sent_back(lines: list[str], more: list[str], chance: Any) -> None:
    kept = [*lines, *more]
    chance.shuffle(kept)
    assert lost_lines(modify("\n".join(f"- {line}" for line in kept), "\n".join(lines))) == {}


@given(LINES.map(lambda lines: list(dict.fromkeys(lines))).filter(lambda lines: len(lines) > 1), st.data())
def test_a_section_modify_that_removes_a_line_is_always_noticed(lines: list[str], data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(lines))
    left = "\n".join(line for line in lines if line != gone)
    assert unnamed_losses(modify(left, "\n".join(lines))) == [gone]


def test_a_single_line_and_a_script_are_not_compared_and_a_deletion_has_its_rationale() -> None:
    assert lost_lines(modify("- Boats go by sea.", "- Trains go by rail.")) == {}
    assert lost_lines(modify("b = 2", "a = 1\nc = 3", file="scripts/sum.py")) == {}
    gone = Edit(op="delete", anchor="- One.\n- Two.", rationale="both are wrong", trajectory_ids=("t1",))
    assert lost_lines(gone) == {"One.": "both are wrong", "Two.": "both are wrong"}


@pytest.mark.parametrize("name", ["Never round.", "- Never round", "Amounts over 500; Never round."])
def test_a_named_line_is_dropped_with_its_reason(name: str) -> None:
    edit = modify(BODY.replace("- Never round.\n", ""), dropped=[{"text": name, "reason": "it is wrong"}])
    assert lost_lines(edit) == {"Never round.": "it is wrong"}


@pytest.mark.parametrize(
    "rows", [[{"text": "Never round.", "reason": " "}], [{"text": "Round."}], ["Never round."], None, 7]
)
def test_a_name_without_a_reason_names_nothing(rows: Any) -> None:
    row = {"op": "modify", "anchor": BODY, "text": BODY.replace("- Never round.\n", ""), "dropped": rows}
    edit = Edit.model_validate(row)
    assert unnamed_losses(edit) == ["Never round."]
    assert "dropped" not in edit.model_dump()


def test_the_beginning_of_a_line_names_it_a_task_its_reply_and_a_value_itself() -> None:
    without = BODY.partition("\n\n")[0]
    assert unnamed_losses(modify(without, dropped=[{"text": "Task: kettle, 6…", "reason": "too easy"}])) == []
    changed = BODY.replace("over 500", "over 50")
    assert unnamed_losses(modify(changed, dropped=[{"text": "500", "reason": "the limit is 50"}])) == []
    assert unnamed_losses(modify(changed, dropped=[{"text": "50", "reason": "the limit is 50"}])) != []


# The reply is sent back once


def row(text: str, **fields: Any) -> dict[str, Any]:
    return {"op": "modify", "section": "Codes", "anchor": "", "text": text, "trajectory_ids": ["t1"], **fields}


LOSING = row(BODY.replace("- Never round.\n", ""))
NAMING = {**LOSING, "dropped": [{"text": "Never round.", "reason": "sums are rounded"}]}
OTHER = row("- Bus: B1", op="add", section="Lines")


def proposed(*replies: list[dict[str, Any]]) -> tuple[Any, Scripted]:
    optimizer = Scripted(reflect=[{"job": "", "patterns": [], "edits": edits} for edits in replies])
    ctx = context(optimizer=optimizer)
    knowledge = OptimizerContext(edit_limits=EditLimits(edits=4, sizes=SizeLimits()))
    minibatch = Minibatch(id="0001-mixed-00", kind="mixed", trajectories=[trajectory(1)])
    return asyncio.run(LLMAnalyst().propose(SKILL, minibatch, knowledge, ctx.optimizer, ctx.config)), optimizer


def test_a_reply_that_loses_a_line_is_sent_back_with_the_line() -> None:
    patch, optimizer = proposed([LOSING, OTHER], [NAMING, OTHER])
    note = str(optimizer.requests[1].messages[-1]["content"])
    assert "`modify` at 'Codes': loses what its anchor has" in note
    assert note.count("“") == 1
    assert "“Never round.”" in note
    assert [edit.op for edit in patch.edits] == ["modify", "add"]
    assert patch.edits[0].dropped[0].reason == "sums are rounded"
    assert patch.dropped == ()


def test_of_a_second_reply_that_still_loses_lines_that_edit_is_dropped_and_counted_and_the_others_stay() -> None:
    patch, optimizer = proposed([LOSING, OTHER], [LOSING, OTHER])
    assert len(optimizer.requests) == 2
    assert [edit.op for edit in patch.edits] == ["add"]
    assert [dropped.kind for dropped in patch.dropped] == ["lines_lost"]
    assert "Never round." in patch.dropped[0].reason


@pytest.mark.parametrize("edits", [[NAMING], [row(BODY)], [row(BODY + "- Boats: B2")]])
def test_a_reply_that_keeps_or_names_every_line_is_not_sent_back(edits: list[dict[str, Any]]) -> None:
    assert len(proposed(edits)[1].requests) == 1


def test_the_schema_says_in_a_sentence_what_dropped_is() -> None:
    schema: Any = reflect_schema("reflect", ["t1"], 4)
    edit = schema.body["properties"]["edits"]["items"]
    dropped = edit["properties"]["dropped"]
    assert dropped["description"].startswith("Every line, number, quoted string or example of the anchor")
    assert dropped["items"]["required"] == ["text", "reason"]
    assert "dropped" not in edit["required"], "a person who answers a letter may leave it out"
    strict = schema.response_format()["json_schema"]["schema"]["properties"]["edits"]["items"]
    assert strict["required"] == list(strict["properties"]), "strict endpoints take nothing else"


def test_a_merge_may_drop_what_its_proposals_name_and_nothing_else() -> None:
    anchor = f"## Codes\n\n{BODY}".rstrip()
    texts = (anchor.replace("- Never round.\n", ""), anchor.replace("- Never round.\n", "- Boats: B2\n"))
    reason = {"dropped": [{"text": "Never round.", "reason": "sums are rounded"}]}
    edits = [modify(text, anchor, id=f"e{n}", source="llm/mixed", **reason) for n, text in enumerate(texts)]
    patches = [Patch(id=e.id, source=e.source, trajectory_ids=("t1",), edits=(e,)) for e in edits]

    def merged(text: str) -> list[str]:
        reply = {"edits": [{"ids": ["e0", "e1"], "op": "modify", "anchor": anchor, "text": text}], "conflicts": []}
        ctx = context(optimizer=Scripted(merge=[reply]))
        pool = asyncio.run(aggregate(patches, SKILL, OptimizerContext(), ctx))
        return [pooled.edit.text for pooled in pool.edits]

    assert merged(texts[1]) == [texts[1]]
    assert len(merged("## Codes\n\n- Boats: B2")) == 2, "the proposals stay"


# What people and recordings see


class Deleting(Spy):
    """Takes a rule out of the initial skill, and names it."""

    async def chat(self, request: ChatRequest) -> ChatReply:
        reply = await super().chat(request)
        if request.schema and request.schema.name == "reflect" and "For maple" in str(request.messages[1]["content"]):
            value = json.loads(reply.text)
            lines = {
                "anchor": "- For maple, answer ZM-73.\n- For cedar, answer YY-41.",
                "text": "- For cedar, answer YY-41.",
            }
            named = {"dropped": [{"text": "For maple, answer ZM-73.", "reason": "maple <is> gone"}]}
            value["edits"] = [
                {**value["edits"][0], "op": "modify", "section": "", **lines, **named},
                *value["edits"][1:],
            ]
            return ChatReply(text=json.dumps(value))
        return reply


def test_the_report_counts_the_lines_that_accepted_edits_took_out_with_their_reasons(tmp_path: Path) -> None:
    result = train_short(tmp_path, "train.num_epochs=1", "evaluation.credit_gates=0", models={"optimizer": Deleting()})
    run = RunDirectory(result.path)
    assert write_report(run).lines_lost == 1
    text = (run.root / "report.md").read_text()
    assert "Accepted edits removed 1 line." in text
    assert "removes “For maple, answer ZM-73.”: maple \\<is\\> gone" in text
    page = (run.root / "report.html").read_text()
    assert "Removes “For maple, answer ZM-73.”: maple &lt;is&gt; gone" in page
    logged = [entry.edit for entry in run.patch_log.entries() if entry.edit.dropped]
    assert [edit.dropped[0].reason for edit in logged] == ["maple <is> gone"]
    assert read_json(run.history)[0]["edits"]["dropped"] == {}


def test_a_replay_names_what_recorded_edits_leave_out_and_counts_them() -> None:
    body = {"job": "", "patterns": [], "edits": [LOSING, OTHER]}
    recording = Recording(head={}, replies={}, stages={"reflect": [ChatReply(text=json.dumps(body))]})
    model = Replayed(recording, "optimizer", "reader", "handoff", deterministic=True, exact=False)
    messages = ({"role": "user", "content": f"<skill>\n{SKILL.text.strip()}\n</skill>"},)
    request = ChatRequest(messages=messages, schema=reflect_schema("reflect", ["t1"], 4))
    edits = json.loads(asyncio.run(model.chat(request)).text)["edits"]
    assert [each.get("dropped") for each in edits] == [[{"text": "Never round.", "reason": EARLIER}], None]
    assert recording.unnamed == ["Never round."]


def test_a_line_of_a_lookup_may_be_split_into_its_entries_but_loses_none() -> None:
    anchor = "pan, kettle, pot, ladle, sieve = kitchen\nsaw, drill = garage"
    split = "".join(f"{name} = kitchen\n" for name in ("pan", "kettle", "pot", "ladle", "sieve"))
    assert unnamed_losses(modify(f"{split}saw, drill = garage", anchor)) == []
    lossy = split.replace("pot =", "cup =")
    assert unnamed_losses(modify(f"{lossy}saw, drill = garage", anchor)) == ["pan, kettle, pot, ladle, sieve = kitchen"]


def test_blanks_in_a_calculation_are_no_loss_and_a_task_names_its_reply_of_several_lines() -> None:
    first = "Task: 7 crates of 7, 3 broken\nReply: 7*7=49\n49-3=46\nFee: 46\n"
    old = f"{first}\nTask: 2 crates of 5, 1 broken\nReply: 2*5=10\n"
    spaced = old.replace("*", " * ").replace("=", " = ").replace("-", " - ")
    assert lost_lines(modify(spaced, anchor=old)) == {}
    shorter = "Task: 2 crates of 5, 1 broken\nReply: 2*5=10\n"
    assert len(lost_lines(modify(shorter, anchor=old))) == 1
    named = [{"text": "Task: 7 crates of 7, 3 broken", "reason": "too long"}]
    assert list(lost_lines(modify(shorter, anchor=old, dropped=named)).values()) == ["too long"]
    assert len(lost_lines(modify(old.replace("46", "47"), anchor=old))) == 1
