"""`sim:clerk`: a simulated agent that tidies files with a shell, and the optimizer that teaches the agent the house
rules.

The agent can do every kind of task in data/workspaces, but it follows a house rule only if the skill states the rule.
The optimizer reads the check's feedback on the files and states the rules that were broken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

from skillopt.chat_protocol import FunctionCall
from skillopt.models.base import ChatReply, ChatRequest
from skillopt.sim.model import SimulatedModel
from skillopt.sim.optimizer import SimEdit, SimReply, _block, _rows, guidance_line, most_edits, patterns_of

RULES = {
    "semicolons": "- Separate the columns of tables with semicolons.",
    "dates": "- Write dates as YYYY-MM-DD.",
    "amounts": "- Write amounts of money with two decimals and EUR behind them.",
    "sorted": "- Sort the rows of tables by their first column.",
    "names": "- Name files in lower case, with hyphens in place of spaces.",
    "results": "- Save what a repaired script prints to result.txt.",
}
_SAID = re.compile(r"(\S[^:;]*): (?:row|line) \d+ is '([^']*)', expected '([^']*)'")
_MISSING = re.compile(r"([^\s;:]+): is missing")
_CAUSE = "The expected files follow this rule, and the agent's do not."
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
WORK = r"""
import csv, pathlib, re, subprocess, sys, json

def cell(text):
    text = text.strip()
    day = re.fullmatch(r"(\d\d)/(\d\d)/(\d{4})", text)
    if day and "dates" in RULES:
        return f"{day[3]}-{day[2]}-{day[1]}"
    if re.fullmatch(r"\d+\.\d+", text) and "amounts" in RULES:
        return f"{float(text):.2f} EUR"
    return text

if found := re.search(r"Tidy the table (\S+)\.(?:\s|$)", TASK):
    file = pathlib.Path(found[1])
    lines = csv.reader(file.read_text().splitlines())
    rows = [[cell(each) for each in row] for row in lines if any(map(str.strip, row))]
    rows[1:] = sorted(rows[1:]) if "sorted" in RULES else rows[1:]
    between = ";" if "semicolons" in RULES else ","
    file.write_text("".join(between.join(row) + "\n" for row in rows))
elif found := re.search(r"files in (\S+) proper names", TASK):
    for file in sorted(pathlib.Path(found[1]).iterdir()):
        proper = re.sub(r"\s+", "-", file.name.lower()) if "names" in RULES else file.name.replace(" ", "_")
        file.rename(file.with_name(proper))
elif found := re.search(r"Fill in (\S+) from (\S+)\.(?:\s|$)", TASK):
    file, values = pathlib.Path(found[1]), json.loads(pathlib.Path(found[2]).read_text())
    file.write_text(re.sub(r"\{\{(\w+)\}\}", lambda field: cell(str(values[field[1]])), file.read_text()))
elif found := re.search(r"Repair (\S+) ", TASK):
    file = pathlib.Path(found[1])
    file.write_text(file.read_text().replace("pritn", "print").replace("imprt", "import"))
    said = subprocess.run([sys.executable, file], capture_output=True, text=True).stdout
    if "results" in RULES:
        pathlib.Path("result.txt").write_text(said)
"""


class SimulatedClerk(SimulatedModel):
    """Target and optimizer for tasks with files. It has the same options as `sim:world`, which answers questions."""

    async def chat(self, request: ChatRequest) -> ChatReply:
        reply = await super().chat(request)
        if request.schema is not None or not reply.text.startswith("python"):
            return reply
        function: FunctionCall = {"name": "run", "arguments": json.dumps({"command": reply.text})}
        return replace(reply, text="", tool_calls=({"id": "call_1", "type": "function", "function": function},))

    def target_text(self, request: ChatRequest, sample: str) -> str:
        if any(message["role"] == "tool" for message in request.messages):
            return "Done."
        skill = "\n".join(str(m["content"]) for m in request.messages if m["role"] == "system")
        task = next(str(m["content"]) for m in request.messages if m["role"] == "user")
        known = sorted(rules_in(skill))
        return f"python - <<'END'\nRULES = {known!r}\nTASK = {task!r}\n{WORK}END"

    def optimizer_json(self, request: ChatRequest, key: str) -> SimReply:
        assert request.schema is not None
        prompt = "\n".join(str(m["content"]) for m in request.messages if m["role"] != "system")
        if request.schema.name == "slow_update":
            lines = [guidance_line(RULES[name]) for name in sorted(_missing(prompt, "comparison"))]
            return {"reason": "These rules were broken.", "lines": lines}
        if request.schema.name == "meta_skill":
            return {"reason": "What was accepted states a rule.", "memory": "- State each house rule in one line."}
        if request.schema.name not in {"reflect", "deep_reflect"}:
            return super().optimizer_json(request, key)
        cited = _missing(prompt, "failures")
        names = sorted(cited, key=lambda name: (-len(cited[name]), name))
        edits = [_edit(name, cited[name]) for name in names[: most_edits(request.schema)]]
        patterns = patterns_of(edits, _CAUSE)
        return {"job": "Follow the house rules.", "patterns": patterns, "edits": edits}


def rules_in(skill: str) -> set[str]:
    return {name for name, rule in RULES.items() if rule.removeprefix("- ") in skill}


def _missing(prompt: str, tag: str) -> dict[str, list[str]]:
    """Return the rules that failures broke and that are not in the skill, each with the ids of these failures."""
    known = rules_in(_block(prompt, "skill"))
    cited: dict[str, list[str]] = {}
    for row in _rows(prompt, tag):
        for name in set(_shown(str(row.get("feedback", "")))) - known:
            cited.setdefault(name, []).append(row.get("id", ""))
    return cited


def _shown(feedback: str) -> Iterator[str]:
    """Yield the rules that a check's feedback shows as broken."""
    for _, got, want in _SAID.findall(feedback):
        found = {
            "semicolons": ";" in want and ";" not in got,
            "dates": bool(_DATE.search(want)) and not _DATE.search(got),
            "amounts": " EUR" in want and " EUR" not in got,
        }
        yield from (name for name, is_so in found.items() if is_so)
        if not any(found.values()) and ";" in want:
            yield "sorted"
    for path in _MISSING.findall(feedback):
        yield "results" if path == "result.txt" else "names"


def _edit(name: str, ids: list[str]) -> SimEdit:
    return {
        "op": "add",
        "section": "House rules",
        "anchor": "",
        "text": RULES[name],
        "rationale": _CAUSE,
        "pattern": f"house rule: {name}",
        "trajectory_ids": ids,
    }
