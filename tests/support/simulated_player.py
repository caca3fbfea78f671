"""A simulated player of text games, and the optimizer that teaches it.

The player follows the goal's instructions one by one, but uses a verb only when a rule in the skill says so; at an
instruction that it has no rule for it looks around until its time is up. The optimizer reads lost games, with a way to
win them in the scorer's feedback, and states the rules that were missing.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from skillopt.models.base import ChatRequest
from skillopt.sim.model import SimulatedModel
from skillopt.sim.optimizer import _block, _rows, guidance_line

_RULE = re.compile(r'Use "(\w+)" when')
_POSSIBLE = re.compile(r"Possible actions: (.*)\nReply with one action\.\Z", re.DOTALL)
_WAY = re.compile(r"a way to win: (.+)")
_SPOKEN = {
    "unlock": "unlock unlocked",
    "lock": "lock locked",
    "go": "go venture travel head move trip walk journey run",
    "take": "take pick pick-up retrieve recover grab get lift",
    "open": "open opened ajar",
    "close": "close closed shut",
    "eat": "eat devour consume chomp",
    "drop": "drop ditch floor ground",
    "put": "put place rest sit",
    "insert": "insert put place rest sit deposit",
}
"""How the goals of TextWorld's games name each verb; of two that fit, the first is meant."""
_BETWEEN = re.compile(r" (?:from|with|into|on|in) ")


class SimulatedPlayer(SimulatedModel):
    """Target and optimizer for games, as `sim:world` is for questions. The same options hold."""

    def target_text(self, request: ChatRequest, sample: str) -> str:
        texts = [str(message["content"]) for message in request.messages]
        skill = "\n".join(str(m["content"]) for m in request.messages if m["role"] == "system")
        possible = _POSSIBLE.search(texts[-1])
        goal = next(str(m["content"]) for m in request.messages if m["role"] == "user").partition("\n\n")[0]
        done = [str(m["content"]) for m in request.messages if m["role"] == "assistant"]
        return next_action(goal, done, possible[1].split(", ") if possible else [], set(_RULE.findall(skill)))

    def optimizer_json(self, request: ChatRequest, key: str) -> dict[str, Any]:
        assert request.schema is not None
        prompt = "\n".join(str(m["content"]) for m in request.messages if m["role"] != "system")
        if request.schema.name == "slow_update":
            verbs = sorted(_missing(prompt, "comparison"))
            lines = [guidance_line(f'- Use "{verb}" when the goal asks for it.') for verb in verbs]
            return {"reason": "These verbs were never used.", "lines": lines}
        if request.schema.name == "meta_skill":
            kept = [row for row in _rows(prompt, "epoch") if row["verdict"] == "accept"]
            learned = {verb for row in kept for edit in row["edits"] for verb in _RULE.findall(edit["text"])}
            return {"reason": "What was accepted names a verb.", "memory": f"- Learned: {', '.join(sorted(learned))}."}
        if request.schema.name not in {"reflect", "deep_reflect"}:
            return super().optimizer_json(request, key)
        cited = _missing(prompt, "failures")
        verbs = sorted(cited, key=lambda verb: (-len(cited[verb]), verb))
        edits = [_edit(verb, cited[verb]) for verb in verbs[: request.schema.body["properties"]["edits"]["maxItems"]]]
        patterns = [
            {"name": e["pattern"], "cause": e["rationale"], "trajectory_ids": e["trajectory_ids"]} for e in edits
        ]
        return {"job": "Follow the goal with the verbs that it needs.", "patterns": patterns, "edits": edits}


def _missing(prompt: str, tag: str) -> dict[str, list[str]]:
    """The verbs of lost games' winning ways that the skill has no rule for, each with the games."""
    known = set(_RULE.findall(_block(prompt, "skill")))
    cited: dict[str, list[str]] = {}
    for row in _rows(prompt, tag):
        way = _WAY.search(str(row.get("feedback", "")))
        for verb in {command.split()[0] for command in way[1].split(" > ")} - known if way else ():
            cited.setdefault(verb, []).append(row.get("id", ""))
    return cited


def next_action(goal: str, done: list[str], possible: list[str], verbs: set[str]) -> str:
    """The action of the first instruction that is not carried out yet, if it is possible and its verb is known."""
    left = [part.lower() for part in re.split(r"[.;!?]", goal) if part.strip()]
    for action in done:
        match = next((n for n, part in enumerate(left) if _fit(action, part)), None)
        left = left if match is None else left[match + 1 :]
    for part in left:
        fitting = [action for action in possible if _fit(action, part)]
        if fitting:
            best = max(fitting, key=lambda action: (_fit(action, part), action))
            return best if best.split()[0] in verbs else "look"
    return "look"


def _fit(action: str, instruction: str) -> tuple[int, ...]:
    """How well an action is what the instruction asks for; empty where it is not.

    Its verb must be named, and so must the thing that it is done to; what it is done with or where may be left out.
    """
    words, verbs = _spoken(instruction)
    verb, _, rest = action.lower().partition(" ")
    if verb not in verbs:  # as with most
        return ()
    thing, *others = [part.split() for part in _BETWEEN.split(rest)]
    if not thing or not words >= set(thing):
        return ()
    named = len(thing) + sum(len(other) for other in others if words >= set(other))
    return named, -list(_SPOKEN).index(verb)


@lru_cache(maxsize=1024)
def _spoken(instruction: str) -> tuple[frozenset[str], frozenset[str]]:
    """An instruction's words, and the verbs that it may mean."""
    words = frozenset(re.findall(r"[\w-]+", instruction))
    return words, frozenset(verb for verb, ways in _SPOKEN.items() if not words.isdisjoint(ways.split()))


def _edit(verb: str, ids: list[str]) -> dict[str, Any]:
    return {
        "op": "add",
        "section": "Actions",
        "anchor": "",
        "text": f'- Use "{verb}" when the goal asks for it.',
        "rationale": f"The games need {verb}, and it was never used.",
        "pattern": f"no rule for {verb}",
        "trajectory_ids": ids,
    }
