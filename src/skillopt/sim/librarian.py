"""`sim:librarian`: a simulated agent that chooses skills by the words of their descriptions, and the optimizer that
improves a description.

The agent loads the skill with the most points. A description gets a point for each word that it shares with the
request, and loses a point for each shared word in a sentence that begins with "Not for". The optimizer reads the
requests that failed and adds their words to the description.
"""

from __future__ import annotations

import re
from collections import Counter

from skillopt.models.base import ChatRequest
from skillopt.sim.model import SimulatedModel
from skillopt.sim.optimizer import SimEdit, SimReply, _block, _rows, _turned_down, most_edits, patterns_of

_LISTED = re.compile(r"<name>(.*?)</name>\n<description>(.*?)</description>", re.DOTALL)
_SMALL_WORDS = """
about also and any anything are can could find for from have help her him his how into its let make may more much my
need not now off one only our out please put she some than that the them then they this too use was what when which
who will with would you your requests
"""
_SMALL = frozenset(_SMALL_WORDS.split())
_KINDS = {
    "the skill is for this request": ("Use it for", "left out"),
    "the skill is not for this request": ("Not for", "picked wrongly"),
}
"""Maps the beginning of the scorer's feedback to the beginning of the added sentence and to the failure's cause."""


class SimulatedLibrarian(SimulatedModel):
    def target_text(self, request: ChatRequest, sample: str) -> str:
        wanted = _words(str(request.messages[-1]["content"]))
        skills = _LISTED.findall(str(request.messages[0]["content"]))
        points = {name: _points(wanted, description) for name, description in skills}
        best = max(points.values(), default=0)
        return next((name for name in points if points[name] == best), "none") if best > 0 else "none"

    def optimizer_json(self, request: ChatRequest, key: str) -> SimReply:
        assert request.schema is not None
        prompt = "\n".join(str(m["content"]) for m in request.messages if m["role"] != "system")
        if request.schema.name in {"slow_update", "meta_skill"}:
            return {"reason": "Descriptions have no guidance.", "lines": [], "memory": ""}
        known, rejected = _words(_block(prompt, "skill")), _turned_down(prompt)
        edits: list[SimEdit] = []
        for feedback, (begin, cause) in _KINDS.items():
            rows = [row for row in _rows(prompt, "failures") if row.get("feedback", "").startswith(feedback)]
            counts = Counter(word for row in rows for word in sorted(_words(row["task"]) - known))
            for word in sorted(counts, key=lambda word: (-counts[word], word))[:4]:
                cited = [row["id"] for row in rows if word in _words(row["task"])]
                text = f"{begin} requests about {word}."
                edit: SimEdit = {"op": "add", "section": "", "anchor": "", "text": text, "trajectory_ids": cited}
                edits.append({**edit, "rationale": "Requests use this word.", "pattern": cause})
        edits = [edit for edit in edits if edit["text"] not in rejected][: most_edits(request.schema)]
        return {"job": "Name the requests in their words.", "patterns": patterns_of(edits, "words"), "edits": edits}


def _points(wanted: set[str], description: str) -> int:
    """Count the words that request and description share. Shared words in sentences that begin with "Not for" are
    subtracted."""
    sentences = re.split(r"(?<=\.)\s+", description)
    against = [each for each in sentences if each.startswith("Not for")]
    told = _words(" ".join(each for each in sentences if each not in against))
    return len(wanted & told) - len(wanted & _words(" ".join(against)))


def _words(text: str) -> set[str]:
    words = re.findall(r"[a-z]{3,}", text.lower())
    return {word.removesuffix("s") for word in words if word not in _SMALL}
