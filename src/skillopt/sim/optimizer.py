"""The simulated world's optimizer: it reads requests and states the rules that were missing.

The optimizer knows only the facts in a request. It finds a code in an expected answer or in an old output that was
right; it never reads the codes of the world. If the history in a request shows that an edit was rejected, the optimizer
does not propose this edit again. It writes notes and guidance from the results of edits and the outputs in the request.
So if a request leaves something out, the optimizer learns less from it (tests/training/test_requests.py).
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, NotRequired, TypedDict, cast

from skillopt.models.base import ChatRequest, JsonObject, Schema

if TYPE_CHECKING:
    from skillopt.sim.model import SimOptions

ASKED = re.compile(r"codes? for: ([a-z, ]+)\.")
SEALED = "It is sealed."
"""Marks tasks that fail for one common cause: their answer must end with the word SEALED."""
SEALED_RULE = "- Close sealed tickets with the word SEALED."
OPPOSITES = ("- Write the codes in capital letters.", "- Never write the codes in capital letters.")
_SEALED_PATTERN = "sealed tickets are left open"
_RULE = re.compile(r"For ([a-z]+), answer ([A-Z]{2}-\d{2})\.")
_SPELLED_OUT = re.compile(r'It must fit this JSON schema, "(\w+)":\n(\{.*\})\s*\Z', re.DOTALL)
_WORDINGS = ("{}", "{} Always.", "{} This holds for every ticket.")
"""Three wordings of one rule, for the option `paraphrase`."""
_FILE = re.compile(r'<file name=("[^"\n]*")>\n(.*?)\n</file>', re.DOTALL)
_TARGET = re.compile(r"The agent's model is \S+")
_DATA = ("skill", "guidance", "difference", "edits")
_ROWS = ("failures", "comparison")
_LIMIT = re.compile(r"at most (\d+) edits")
_CAUSE = f'Cause to look into: "{_SEALED_PATTERN}"'
_APPLIED = ("applied", "undone with the step")
_LESSON = "State the code in every rule; general advice was of no use."


class SimEdit(TypedDict):
    """An edit, as the optimizer proposes it or as a request shows it."""

    op: str
    file: NotRequired[str]
    section: str
    anchor: str
    text: str
    id: NotRequired[str]
    ids: NotRequired[list[str]]
    fate: NotRequired[str]
    rationale: NotRequired[str]
    pattern: NotRequired[str]
    trajectory_ids: NotRequired[list[str]]


class SimPattern(TypedDict):
    name: str
    cause: str
    trajectory_ids: list[str]


class SimFinding(TypedDict):
    number: int
    kind: str
    text: str
    supports: list[str]
    contradicts: list[str]


class SimConflict(TypedDict):
    reason: str
    a: str
    b: str


class SimRow(TypedDict, total=False):
    """A line of JSON in a request: a rollout, a comparison of two rollouts, or a step with its edits."""

    id: str
    task: str
    output: str
    expected: str
    feedback: str
    change: str
    output_before: str
    output_now: str
    verdict: str
    edits: list[SimEdit]


class SimLine(TypedDict):
    """An edit of a line of the guidance."""

    rationale: str
    op: str
    anchor: str
    text: str


class SimReply(TypedDict, total=False):
    """The fields of the replies in all stages, and of a judge's reply."""

    reason: str
    lines: list[SimLine]
    memory: str
    job: str
    patterns: list[SimPattern]
    edits: list[SimEdit]
    findings: list[SimFinding]
    conflicts: list[SimConflict]
    score: int
    scores: list[int]
    better: str
    corrections: list[JsonObject]
    groups: list[JsonObject]


def chance(*parts: object) -> float:
    """Return a random number from 0 to 1 that depends only on `parts`."""
    digest = hashlib.sha256(json.dumps([str(part) for part in parts]).encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64


def rules_in(text: str) -> dict[str, str]:
    """Return the rules in a skill: the code of each topic. If a topic has several rules, the last rule is used."""
    return dict(_RULE.findall(text))


def optimizer_reply(request: ChatRequest, options: SimOptions, key: str) -> SimReply:
    """Reply to a request. This code knows the form of requests and rules; every fact comes from the request."""
    assert request.schema is not None
    prompt = "\n".join(str(m["content"]) for m in request.messages if m["role"] != "system")
    stage = request.schema.name
    if stage == "slow_update":
        return {"reason": "Rules were lost or never stated.", "lines": _guidance(prompt)}
    if stage == "meta_skill":
        return {"reason": "What was accepted states a code.", "memory": _notes(prompt)}
    if stage == "merge":
        rows: list[SimEdit] = [json.loads(line) for line in _lines(prompt, "edits")]
        return {"edits": _merge(rows), "conflicts": _contradictions(rows)}
    if stage == "deep_reflect" and _CAUSE in prompt:
        return _systemic(prompt)
    reply = _reflect(prompt, most_edits(request.schema), options, key)
    asked = cast("dict[str, dict[str, object]]", request.schema.body)["properties"]
    if "findings" not in asked:
        reply.pop("findings")
    return reply


def grade(request: ChatRequest) -> SimReply:
    """Grade as a judge: full points if the answer contains a reference answer, else no points."""
    prompt = str(request.messages[-1]["content"])
    shown = {name: json.loads(value) for name, _, value in (line.partition(": ") for line in prompt.splitlines())}
    wanted, answer = shown.get("reference_answers", []), str(shown.get("answer", ""))
    right = any(each.casefold() in answer.casefold() for each in wanted)
    if "first_answer" in shown:
        return _better(str(shown["first_answer"]).casefold(), str(shown["second_answer"]).casefold())
    missing = f"the answer should have {' or '.join(map(repr, wanted))}" if wanted else "there is no reference answer"
    points = 4 if right else 0
    said: SimReply = {"reason": "good" if right else missing}
    return {**said, "scores": [points] * len(shown["criteria"])} if "criteria" in shown else {**said, "score": points}


def _better(first: str, second: str) -> SimReply:
    """Compare two answers as a judge: a tie if one contains the other, else the shorter answer is better."""
    shorter = "first" if len(first) < len(second) else "second"
    better = "tie" if first in second or second in first or len(first) == len(second) else shorter
    return {"reason": "the shorter answer is to the point", "better": better}


def _reflect(prompt: str, most: int, options: SimOptions, key: str) -> SimReply:
    """Propose an edit for each topic whose rule is missing or wrong, the most cited topic first. In a package, rules go
    to a reference file, and SKILL.md gets a line that names this file."""
    skill = _block(prompt, "skill")
    files = _files(prompt)
    home = _home(prompt, files)
    rules = rules_in("\n".join([skill, *files.values()]))
    rejected = _turned_down(prompt)
    hopeless = options.duds >= 1
    duds = options.duds / 2 if _LESSON in _block(prompt, "notes") and not hopeless else options.duds
    cited: dict[str, list[str]] = {}
    wanted: dict[str, str] = {}
    for row in _rows(prompt, "failures"):
        for topic, code in _codes(row, row.get("expected", "")):
            if rules.get(topic) != code:
                wanted[topic] = code
                cited.setdefault(topic, []).append(row["id"])
    edits: list[SimEdit] = []
    for topic in sorted(wanted, key=lambda t: (-len(cited[t]), t)):
        edit = _edit(topic, wanted[topic], rules, files, home)
        if chance("dud", options.seed, key, topic) < duds:
            dud = _dud(topic, rules, chance("dud kind", options.seed, key, topic))
            edit = edit if dud["text"] in rejected and not hopeless else dud
        pattern = f"no rule for {topic}"
        reason = f"The tasks ask for {topic}."
        wordings = _WORDINGS if options.paraphrase else ("{}",)
        edits += [_cited({**edit, "text": w.format(edit["text"])}, reason, pattern, cited[topic]) for w in wordings]
    if home and home not in skill and edits:
        cited_by_all = sorted({i for ids in cited.values() for i in ids})
        edits.insert(0, _pointer(home, cited_by_all))
    patterns = patterns_of(edits, "not stated")
    if options.opposites:
        edits = [*_opposites(prompt, skill), *edits]
    if not options.paraphrase:  # with `paraphrase`, the optimizer also ignores the limit
        most = min(most, _allowed(prompt))
    job = f"Give the code of each topic: {', '.join(sorted(wanted))}."
    findings: list[SimFinding] = [
        {
            "number": 0,
            "kind": "rule",
            "text": f"The code of {t} is {wanted[t]}.",
            "supports": cited[t],
            "contradicts": [],
        }
        for t in sorted(wanted)[:3]
    ]
    return {"job": job, "patterns": [*patterns, *_left_open(prompt)], "edits": edits[:most], "findings": findings}


def _allowed(prompt: str) -> int:
    """Return the maximum number of edits that the request names; 1 if it names none."""
    found = _LIMIT.search(_block(prompt, "limits"))
    return int(found[1]) if found else 1


def _opposites(prompt: str, skill: str) -> list[SimEdit]:
    """Propose two opposite edits, between which only a person can decide; none if the skill has one of them."""
    cited = [row["id"] for row in _rows(prompt, "failures")]
    if not cited or any(side in skill for side in OPPOSITES):
        return []
    return [_cited(_addition("Form", side), "How codes look.", "form of the codes", cited) for side in OPPOSITES]


def _left_open(prompt: str) -> list[SimPattern]:
    """Return the cause of failed sealed tickets, without an edit: a single ticket does not show what all of them need.
    Deep reflection, which reads several tickets, proposes the edit."""
    ids = _open_ids(prompt)
    cause = "the answer lacks its last word"
    return [{"name": _SEALED_PATTERN, "cause": cause, "trajectory_ids": ids}] if ids else []


def _open_ids(prompt: str) -> list[str]:
    rows = [row for row in _rows(prompt, "failures") if SEALED in row["task"]]
    return [row["id"] for row in rows if "SEALED" not in row["output"]]


def _systemic(prompt: str) -> SimReply:
    """Propose one edit for all sealed tickets: a rule that names the word at the end of their answers. All expected
    answers of these tickets must end with the word, and no passing output of another task may contain the word."""
    ids = _open_ids(prompt)
    last = {(row.get("expected", "").split() or [""])[-1] for row in _rows(prompt, "failures") if row["id"] in ids}
    others = {word for row in _rows(prompt, "passes") if SEALED not in row["task"] for word in row["output"].split()}
    word = last.pop() if len(last) == 1 else ""
    pattern: SimPattern = {"name": _SEALED_PATTERN, "cause": f"they must end with {word or '?'}", "trajectory_ids": ids}
    text = SEALED_RULE.replace("SEALED", word)
    edit = _cited(_addition("Form", text), "All sealed tickets lack it, no other does.", _SEALED_PATTERN, ids)
    edits = [edit] if word and word not in others else []
    return {"job": "Sealed tickets end with a word.", "patterns": [pattern], "edits": edits}


def _merge(rows: list[SimEdit]) -> list[SimEdit]:
    """Merge edits that state the same rules into one edit, which also replaces advice for the same cause."""
    groups: dict[str, list[SimEdit]] = {}
    for row in rows:
        if rules := rules_in(row["text"]):
            same = [rules, row["anchor"], row.get("file", "")]
            groups.setdefault(json.dumps(same, sort_keys=True), []).append(row)
    for row in rows:
        if row["section"] == "Advice":
            home = next((group for group in groups.values() if _answers(group[0], row["pattern"])), [])
            home.append(row)
    return [{**group[0], "ids": [row["id"] for row in group]} for group in groups.values() if len(group) > 1]


def _answers(row: SimEdit, pattern: str) -> bool:
    """Return True if an edit states the rule for the topic that a cause names."""
    return bool(row["pattern"] == pattern and rules_in(row["text"]).keys() & set(pattern.split()))


def _contradictions(rows: list[SimEdit]) -> list[SimConflict]:
    """Return the pairs of edits that state different codes for the same topic."""
    stated = [(row, rules_in(row["text"])) for row in rows]
    return [
        {"reason": f"two codes for {topic}", "a": a["id"], "b": b["id"]}
        for at, (a, left) in enumerate(stated)
        for b, right in stated[at + 1 :]
        for topic in sorted(left.keys() & right.keys())
        if left[topic] != right[topic] and a["anchor"] == b["anchor"]
    ]


def spelled_out_schema(request: ChatRequest) -> Schema | None:
    """Return the JSON schema in the text of a request, for an endpoint that accepts no schema field."""
    found = _SPELLED_OUT.search(str(request.messages[-1]["content"]))
    earlier = _SPELLED_OUT.search(str(request.messages[-2]["content"])) if len(request.messages) > 1 else None
    match = found or earlier
    return Schema(name=match[1], body=json.loads(match[2]), form="text") if match else None


def what_it_reads(letter: str) -> str:
    """Return the data on which the random choices for a request depend, such as the skill, and tasks with their
    outputs. The other words of the request are left out. A request without such data is returned whole, but without the
    target's name."""
    fields = ("id", "change", "task", "output", "output_now")
    data = [_block(letter, tag) for tag in _DATA]
    rows = [[str(row.get(name, "")) for name in fields] for tag in _ROWS for row in _rows(letter, tag)]
    cause = _CAUSE in letter
    return json.dumps([data, rows, cause]) if any(data) or rows else _TARGET.sub("", letter)


def _edit(topic: str, code: str, rules: dict[str, str], files: dict[str, str], home: str) -> SimEdit:
    text = f"- For {topic}, answer {code}."
    if topic in rules:
        anchor = f"- For {topic}, answer {rules[topic]}."
        holds = next((path for path, said in files.items() if anchor in said), "")
        return _in_file(holds, home, {"op": "modify", "section": "Rules", "anchor": anchor, "text": text})
    return _in_file(home, home, _addition("Rules", text))


def _in_file(path: str, home: str, edit: SimEdit) -> SimEdit:
    """Add the file to an edit of a package. An edit of a single document names no file."""
    return {**edit, "file": path or "SKILL.md"} if home else edit


def _addition(section: str, text: str) -> SimEdit:
    return {"op": "add", "section": section, "anchor": "", "text": text}


def _cited(edit: SimEdit, rationale: str, pattern: str, ids: list[str]) -> SimEdit:
    return {"rationale": rationale, "pattern": pattern, "trajectory_ids": ids, **edit}


def patterns_of(edits: list[SimEdit], cause: str) -> list[SimPattern]:
    """Return the causes that the edits name."""
    return [{"name": e["pattern"], "cause": cause, "trajectory_ids": e["trajectory_ids"]} for e in edits]


def most_edits(schema: Schema) -> int:
    """Return the maximum number of edits that the reply's schema allows."""
    return cast("dict[str, dict[str, dict[str, int]]]", schema.body)["properties"]["edits"]["maxItems"]


def _files(prompt: str) -> dict[str, str]:
    """Return the further files of a package that the request shows."""
    return {json.loads(name): text for name, text in _FILE.findall(prompt)}


def _home(prompt: str, files: dict[str, str]) -> str:
    """Return the file for new rules: the reference with the most rules, or a new reference; empty if the skill is a
    single document or no reference may be edited."""
    files_shown = map(json.loads, _lines(prompt, "files"))
    allowed = [row["file"] for row in files_shown if row["edits"] == "allowed"]
    known = [path for path in files if path in allowed and path.startswith("references/")]
    if known:
        return max(known, key=lambda path: len(rules_in(files[path])))
    return "references/codes.md" if allowed and "a new name such as references/" in prompt else ""


def _pointer(home: str, cited: list[str]) -> SimEdit:
    text = f"- Read {home} first: it has the codes."
    edit: SimEdit = {"op": "add", "file": "SKILL.md", "section": "", "anchor": "", "text": text}
    return _cited(edit, "Nothing sends the agent there.", "the codes are not read", cited)


def _dud(topic: str, rules: dict[str, str], kind: float) -> SimEdit:
    """Return a bad edit: useless advice, or a change that makes a good rule wrong."""
    if kind < 0.5 or not rules:
        return _addition("Advice", f"- Take care with {topic}.")
    victim = sorted(rules)[int(kind * 1000) % len(rules)]
    anchor = f"- For {victim}, answer {rules[victim]}."
    return {"op": "modify", "section": "Rules", "anchor": anchor, "text": f"- For {victim}, answer ZZ-00."}


def _guidance(prompt: str) -> list[SimLine]:
    """Return edits of the guidance for at most three rules that were lost or never stated. If a line of the guidance
    states a different code for the topic, the edit modifies that line; other lines are kept.

    A rule was lost if a task regressed and the difference of the skills shows that its rule was removed. The code is
    then in the old output, which passed. A rule was never stated if its task is a persistent failure. The code is then
    in the expected answer.
    """
    rules = rules_in("\n".join([_block(prompt, "skill"), *_files(prompt).values()]))
    removed = [line[1:] for line in _block(prompt, "difference").splitlines() if re.match(r"-(?!--)", line)]
    lost = rules_in("\n".join(removed))
    found: dict[str, str] = {}
    for row in _rows(prompt, "comparison"):
        now = row.get("output_now", "").split()
        shown = row.get("output_before", "") if row["change"] == "regressed" else row.get("expected", "")
        for (topic, code), said in zip(_codes(row, shown), now, strict=False):
            won = row["change"] == "persistent_fail" or lost.get(topic) == code
            if said != code and won and rules.get(topic) != code:
                found.setdefault(topic, code)
    stated = rules_in(_block(prompt, "guidance"))
    return [
        guidance_line(
            f"- For {topic}, answer {code}.", f"- For {topic}, answer {stated[topic]}." if topic in stated else ""
        )
        for topic, code in list(found.items())[:3]
    ]


def guidance_line(text: str, instead_of: str = "") -> SimLine:
    rationale = "The tasks show that this is right."
    return {"rationale": rationale, "op": "modify" if instead_of else "add", "anchor": instead_of, "text": text}


def _notes(prompt: str) -> str:
    """Return new notes: the old notes, and lessons from the epoch's edits and their results."""
    steps = _rows(prompt, "epoch")
    applied = [(row["verdict"], edit) for row in steps for edit in row["edits"] if edit["fate"] in _APPLIED]
    kept = sum(verdict == "accept" and bool(rules_in(edit["text"])) for verdict, edit in applied)
    useless = _useless(applied)
    lines = [line for line in _block(prompt, "notes").splitlines() if not line.startswith("- Last epoch: ")]
    lines += [f"- {_LESSON}"] if useless and f"- {_LESSON}" not in lines else []
    counts = f"- Last epoch: {kept} edits that state a code were accepted, {useless} with advice were of no use."
    return "\n".join([*lines, *([counts] if applied else [])])


def _useless(applied: list[tuple[str, SimEdit]]) -> int:
    """Count the edits that gave only advice and did not help: they were rejected, or a later edit had to state the rule
    for their topic."""
    advised: set[str] = set()
    count = 0
    for verdict, edit in applied:
        if edit.get("section") == "Advice":
            count += verdict == "reject"
            advised.add(edit["text"].rstrip(".").split()[-1])
        count += len(advised & rules_in(edit["text"]).keys())
        advised -= rules_in(edit["text"]).keys()
    return count


def _turned_down(prompt: str) -> set[str]:
    """Return the texts of the edits that the history shows as rejected."""
    return {
        edit["text"]
        for row in _rows(prompt, "history")
        for edit in row["edits"]
        if edit["fate"].startswith(("rejected", "pending"))
        or (row["verdict"] == "reject" and edit["fate"] == _APPLIED[1])
    }


def _codes(row: SimRow, answer: str) -> list[tuple[str, str]]:
    """Return the topics of a row, each with the code that an answer gives for it."""
    asked = ASKED.search(row.get("task", ""))
    topics = [topic.strip() for topic in asked[1].split(",")] if asked else []
    return list(zip(topics, answer.split(), strict=False))


def _block(prompt: str, tag: str) -> str:
    found = re.search(rf"<{tag}>\n(.*?)\n?</{tag}>", prompt, re.DOTALL)
    return found[1] if found else ""


def _rows(prompt: str, tag: str) -> list[SimRow]:
    return [json.loads(line) for line in _lines(prompt, tag)]


def _lines(prompt: str, tag: str) -> list[str]:
    return [line for line in _block(prompt, tag).splitlines() if line.startswith("{")]
