"""The simulated world's optimizer: it reads the prompts as they are and states the rules that were missing."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from skillopt.models.base import ChatRequest, Schema

if TYPE_CHECKING:
    from skillopt.models.simulated import SimOptions

ASKED = re.compile(r"codes? for: ([a-z, ]+)\.")
SEALED = "It is sealed."
"""Stands in the tasks of a planted systemic failure: their answer must end with the word SEALED."""
SEALED_RULE = "- Close sealed tickets with the word SEALED."
OPPOSITES = ("- Write the codes in capital letters.", "- Never write the codes in capital letters.")
_SEALED_PATTERN = "sealed tickets are left open"
_RULE = re.compile(r"For ([a-z]+), answer ([A-Z]{2}-\d{2})\.")
_SPELLED_OUT = re.compile(r'It must fit this JSON schema, "(\w+)":\n(\{.*\})\s*\Z', re.DOTALL)
_WORDINGS = ("{}", "{} Always.", "{} This holds for every ticket.")
"""Three ways to put one rule, where the optimizer repeats itself."""
_LESSON = "State the code in every rule; general advice was of no use."


def chance(*parts: object) -> float:
    """A number from 0 to 1 that depends on `parts` alone."""
    digest = hashlib.sha256(json.dumps([str(part) for part in parts]).encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64


def rules_in(text: str) -> dict[str, str]:
    """The rules that a skill states; of two for one topic the last holds."""
    return dict(_RULE.findall(text))


def optimizer_reply(request: ChatRequest, options: SimOptions, key: str) -> dict[str, Any]:
    assert request.schema is not None
    prompt = "\n".join(str(m["content"]) for m in request.messages)
    stage = request.schema.name
    if stage == "slow_update":
        return {"reason": "Rules were lost or never stated.", "guidance": _guidance(prompt)}
    if stage == "meta_skill":
        return {"reason": "What was accepted states a code.", "memory": _notes(prompt)}
    if stage == "merge":
        return {"edits": _merge(_rows(prompt, "edits")), "conflicts": []}
    if stage == "rank":
        rows = sorted(_rows(prompt, "edits"), key=lambda row: (not rules_in(row["text"]), row["id"]))
        return {"reason": "Rules come before advice.", "order": [row["id"] for row in rows]}
    if stage == "deep_reflect" and _SEALED_PATTERN in prompt:
        return _systemic(prompt)
    return _reflect(prompt, request.schema.body, options, key)


def _reflect(prompt: str, schema: dict[str, Any], options: SimOptions, key: str) -> dict[str, Any]:
    """One edit for each topic whose rule is missing or wrong, most cited first."""
    skill = _block(prompt, "skill")
    rules = rules_in(skill)
    rejected = _turned_down(prompt)
    hopeless = options.duds >= 1
    duds = options.duds / 2 if _LESSON in _block(prompt, "notes") and not hopeless else options.duds
    cited: dict[str, list[str]] = {}
    wanted: dict[str, str] = {}
    for row in _rows(prompt, "failures"):
        for topic, code in _lessons(row):
            if rules.get(topic) != code:
                wanted[topic] = code
                cited.setdefault(topic, []).append(row["id"])
    edits = []
    for topic in sorted(wanted, key=lambda t: (-len(cited[t]), t)):
        edit = _edit(topic, wanted[topic], rules)
        if chance("dud", options.seed, key, topic) < duds:
            dud = _dud(topic, rules, chance("dud kind", options.seed, key, topic))
            edit = edit if dud["text"] in rejected and not hopeless else dud
        pattern = f"no rule for {topic}"
        extra = {"rationale": f"The tasks ask for {topic}.", "pattern": pattern, "trajectory_ids": cited[topic]}
        wordings = _WORDINGS if options.paraphrase else ("{}",)
        edits += [{**extra, **edit, "text": wording.format(edit["text"])} for wording in wordings]
    most = schema["properties"]["edits"].get("maxItems", 4)
    patterns = [{"name": e["pattern"], "cause": "not stated", "trajectory_ids": e["trajectory_ids"]} for e in edits]
    if options.opposites:
        edits = [*_opposites(prompt, skill), *edits]
    return {"job": "Give the code of each topic.", "patterns": [*patterns, *_left_open(prompt)], "edits": edits[:most]}


def _opposites(prompt: str, skill: str) -> list[dict[str, Any]]:
    """Both sides of a question that only a person can settle, as long as the skill settles it neither way."""
    cited = [row["id"] for row in _rows(prompt, "failures")]
    if not cited or any(side in skill for side in OPPOSITES):
        return []
    shared = {"op": "add", "section": "Form", "anchor": "", "pattern": "form of the codes"}
    return [{**shared, "text": side, "rationale": "How codes look.", "trajectory_ids": cited} for side in OPPOSITES]


def _left_open(prompt: str) -> list[dict[str, Any]]:
    """A cause that no single task shows: only many of them side by side tell what sealed tickets want."""
    ids = _open_ids(prompt)
    cause = "the answer lacks its last word"
    return [{"name": _SEALED_PATTERN, "cause": cause, "trajectory_ids": ids}] if ids else []


def _open_ids(prompt: str) -> list[str]:
    rows = [row for row in _rows(prompt, "failures") if SEALED in row["task"]]
    return [row["id"] for row in rows if "SEALED" not in row["output"]]


def _systemic(prompt: str) -> dict[str, Any]:
    """One fix for all sealed tickets, with all that speaks for it."""
    ids = _open_ids(prompt)
    edit = {"op": "add", "section": "Form", "anchor": "", "text": SEALED_RULE, "pattern": _SEALED_PATTERN}
    extra = {"rationale": "All sealed tickets lack it, no other does.", "trajectory_ids": ids}
    pattern = {"name": _SEALED_PATTERN, "cause": "they must end with SEALED", "trajectory_ids": ids}
    return {"job": "Sealed tickets end with a word.", "patterns": [pattern], "edits": [edit | extra]}


def _merge(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Edits that state the same rules become one."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if rules := rules_in(row["text"]):
            groups.setdefault(json.dumps([rules, row["anchor"]], sort_keys=True), []).append(row)
    merged = []
    for group in groups.values():
        fields = {**group[0], "ids": [row["id"] for row in group]}
        if len(group) > 1:
            merged.append(fields)
    return merged


def spelled_out_schema(request: ChatRequest) -> Schema | None:
    """The schema that stands in the words of a request, where an endpoint takes it no other way."""
    found = _SPELLED_OUT.search(str(request.messages[-1]["content"]))
    earlier = _SPELLED_OUT.search(str(request.messages[-2]["content"])) if len(request.messages) > 1 else None
    match = found or earlier
    return Schema(name=match[1], body=json.loads(match[2]), form="text") if match else None


def _edit(topic: str, code: str, rules: dict[str, str]) -> dict[str, Any]:
    text = f"- For {topic}, answer {code}."
    if topic in rules:
        anchor = f"- For {topic}, answer {rules[topic]}."
        return {"op": "modify", "section": "Rules", "anchor": anchor, "text": text}
    return {"op": "add", "section": "Rules", "anchor": "", "text": text}


def _dud(topic: str, rules: dict[str, str], kind: float) -> dict[str, Any]:
    """Advice of no use, or a good rule made wrong."""
    if kind < 0.5 or not rules:
        return {"op": "add", "section": "Advice", "anchor": "", "text": f"- Take care with {topic}."}
    victim = sorted(rules)[int(kind * 1000) % len(rules)]
    anchor = f"- For {victim}, answer {rules[victim]}."
    return {"op": "modify", "section": "Rules", "anchor": anchor, "text": f"- For {victim}, answer ZZ-00."}


def _guidance(prompt: str) -> str:
    """What was won must stay: the rules behind items that fell back or never worked, three at most."""
    rules = rules_in(_block(prompt, "skill"))
    lines = ["Give codes exactly as the rules state them."]
    for row in _rows(prompt, "comparison"):
        fell_back = row["change"] == "regressed" and row["output_before"] != row["output_now"]
        if fell_back or row["change"] == "persistent_fail":
            lines += [f"- For {t}, answer {c}." for t, c in _lessons(row) if rules.get(t) != c]
    return "\n".join(dict.fromkeys(lines[:4]))


def _notes(prompt: str) -> str:
    """What the epoch's edits and their fates teach; without them, nothing new."""
    edits = [edit for row in _rows(prompt, "epoch") for edit in row["edits"]]
    vague = any(edit["section"] == "Advice" for edit in edits)
    old = _block(prompt, "notes")
    lessons = [f"- {_LESSON}"] if vague and _LESSON not in old else []
    return "\n".join([*([old] if old else []), *lessons]) or "- Missing rules are the main cause of failure."


def _turned_down(prompt: str) -> set[str]:
    """The texts of edits that the history shows as rejected."""
    return {
        edit["text"]
        for row in _rows(prompt, "history")
        for edit in row["edits"]
        if edit["fate"].startswith("rejected") or (row["verdict"], edit["fate"]) == ("reject", "applied")
    }


def _lessons(row: dict[str, Any]) -> list[tuple[str, str]]:
    """What a failed row shows: topic and code, pair by pair."""
    asked, expected = ASKED.search(row.get("task", "")), row.get("expected", "")
    if not asked or not expected:
        return []
    topics = [topic.strip() for topic in asked[1].split(",")]
    return list(zip(topics, expected.split(), strict=False))


def _block(prompt: str, tag: str) -> str:
    found = re.search(rf"<{tag}>\n(.*?)\n?</{tag}>", prompt, re.DOTALL)
    return found[1] if found else ""


def _rows(prompt: str, tag: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _block(prompt, tag).splitlines() if line.startswith("{")]
