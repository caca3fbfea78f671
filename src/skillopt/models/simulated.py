"""A small deterministic world that plays both target and optimizer, for tests, demos and fault drills.

Tasks ask for the secret codes of topics. The target knows none: it follows rules such as "For maple, answer KX-42." in
the skill. The optimizer reads failures and states the rule that was missing, now and then badly (`duds`). All chance is
drawn from the request's content, so that replies do not depend on the order of requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import parse_qsl

from skillopt.errors import UserError
from skillopt.models.base import ChatReply, ChatRequest, TransientError, Usage
from skillopt.skill.document import count_tokens

_TOPIC_WORDS = """
maple cedar amber basalt cobalt dahlia ember falcon garnet harbor indigo jasper kestrel lagoon marble nectar onyx pebble
quartz raven saffron tundra umber velvet willow yarrow zephyr acorn birch coral drift elm fern glade heron iris juniper
kelp lotus mango nettle olive pine quail reed sable thistle urchin violet walnut
"""
TOPICS = tuple(_TOPIC_WORDS.split())
_ASKED = re.compile(r"codes? for: ([a-z, ]+)\.")
_RULE = re.compile(r"For ([a-z]+), answer ([A-Z]{2}-\d{2})\.")
_EXPECTED = re.compile(r'expected "([^"]+)"')
_LESSON = "State the code in every rule; general advice was of no use."


@dataclass(frozen=True, kw_only=True)
class SimOptions:
    """The world and its weather. Shares are of all requests, 0 to 1."""

    world: int = 0
    """Which secret codes hold."""
    seed: int = 0
    """Fixes noise and faults."""
    duds: float = 0.0
    """Share of the optimizer's edits that are of no use or harmful. Below 1 it learns from rejections and notes."""
    noise: float = 0.0
    """Share of the target's outcomes that are flipped."""
    latency: float = 0.0
    """Seconds a target call takes."""
    optimizer_latency: float = 0.0
    jitter: float = 0.0
    """Up to this share is added to the latency."""
    rate_limit: float = 0.0
    """Share answered 429 with Retry-After."""
    rate_limit_every: int = 0
    """Each so manieth request is answered 429 with Retry-After; 0 for none."""
    most_in_flight: int = 0
    """More at once are answered 429, without Retry-After; 0 for any number."""
    retry_after: float = 1.0
    reset: float = 0.0
    """Share whose connection is cut."""
    server_error: float = 0.0
    """Share answered 500."""
    hang: float = 0.0
    """Share never answered."""
    cut_off: float = 0.0
    """Share of optimizer replies cut off in the middle."""
    malformed: float = 0.0
    """Share of optimizer replies that are no JSON."""


_WHOLE = {"world", "seed", "rate_limit_every", "most_in_flight"}


class ConnectionCut(TransientError):
    """The connection ends in the middle of a request."""


def parse_options(query: str) -> SimOptions:
    """`noise=0.1&duds=0.3` as it stands behind the `?` of a model's name."""
    known = {f.name for f in fields(SimOptions)}
    values: dict[str, Any] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in known:
            raise UserError(f"sim: unknown option '{key}'; known are: {', '.join(sorted(known))}")
        try:
            values[key] = int(value) if key in _WHOLE else float(value)
        except ValueError:
            raise UserError(f"sim: option {key}: '{value}' is not a number") from None
    return SimOptions(**values)


def chance(*parts: object) -> float:
    """A number from 0 to 1 that depends on `parts` alone."""
    digest = hashlib.sha256(json.dumps([str(part) for part in parts]).encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64


def code_for(topic: str, world: int) -> str:
    """The world's secret."""
    number = int(chance("code", topic, world) * 26 * 26 * 90)
    return f"{chr(65 + number % 26)}{chr(65 + number // 26 % 26)}-{10 + number // 676 % 90}"


class SimulatedModel:
    """`sim:world`, or `sim:world?noise=0.1&duds=0.3`. A request with a schema is the optimizer's."""

    endpoint = "sim"

    def __init__(self, name: str, options: SimOptions | None = None) -> None:
        self.name = name
        self.options = options or parse_options(name.partition("?")[2])
        self.deterministic = self.options.noise == 0
        self.calls = 0
        self.in_flight = 0
        self._arrivals: Counter[str] = Counter()

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.calls += 1
        options = self.options
        content = json.dumps([self._seen(request), request.schema.name if request.schema else ""])
        key = hashlib.sha256(content.encode()).hexdigest()
        sample = f"{key}/{request.seed}"
        self._arrivals[sample] += 1
        draw = Draw(options.seed, sample, self._arrivals[sample])
        await self._weather(draw, options.optimizer_latency if request.schema else options.latency)
        if request.schema is None:
            text = _target(request, options, sample)
        else:
            text = json.dumps(_optimizer(request, options, key))
        finish = "stop"
        if request.schema and draw.happens("cut_off", options.cut_off):
            text, finish = text[: len(text) // 2], "length"
        elif request.schema and draw.happens("malformed", options.malformed):
            text = f"Sure, here it is: {text[1:]}"
        prompt = sum(count_tokens(str(message["content"])) for message in request.messages)
        return ChatReply(text=text, finish_reason=finish, usage=Usage(prompt=prompt, completion=count_tokens(text)))

    @staticmethod
    def _seen(request: ChatRequest) -> list[Any]:
        """What chance is drawn from. An optimizer's luck does not hang on the wording of its instructions."""
        return [m for m in request.messages if request.schema is None or m["role"] != "system"]

    async def _weather(self, draw: Draw, latency: float) -> None:
        options = self.options
        self._turn_away(draw)
        self.in_flight += 1
        try:
            if draw.happens("hang", options.hang):
                await asyncio.sleep(3600)
            seconds = latency * (1 + options.jitter * draw.chance("jitter"))
            if seconds:
                await asyncio.sleep(seconds)
        finally:
            self.in_flight -= 1
        if draw.happens("reset", options.reset):
            raise ConnectionCut("the connection was reset")
        if draw.happens("server_error", options.server_error):
            raise TransientError("500: the server stumbled")

    def _turn_away(self, draw: Draw) -> None:
        """Too many requests are turned away at once, before any work."""
        options = self.options
        every = options.rate_limit_every
        if (every and self.calls % every == 0) or draw.happens("rate_limit", options.rate_limit):
            raise TransientError("429: too many requests", retry_after=options.retry_after)
        if options.most_in_flight and self.in_flight >= options.most_in_flight:
            raise TransientError("429: too many requests at once", overloaded=True)

    async def close(self) -> None:
        return


@dataclass(frozen=True)
class Draw:
    """The fate of one arrival of one request: the same request sent again has another."""

    seed: int
    key: str
    arrival: int

    def chance(self, what: str) -> float:
        return chance(what, self.seed, self.key, self.arrival)

    def happens(self, what: str, share: float) -> bool:
        return share > 0 and self.chance(what) < share


def rules_in(text: str) -> dict[str, str]:
    """The rules that a skill states; of two for one topic the last holds."""
    return dict(_RULE.findall(text))


def _target(request: ChatRequest, options: SimOptions, sample: str) -> str:
    system = "\n".join(str(m["content"]) for m in request.messages if m["role"] == "system")
    task = str(request.messages[-1]["content"])
    asked = _ASKED.search(task)
    if not asked:
        return "I do not know what is asked."
    topics = [topic.strip() for topic in asked[1].split(",")]
    rules = rules_in(system)
    answers = [rules.get(topic, "unknown") for topic in topics]
    truth = [code_for(topic, options.world) for topic in topics]
    if options.noise and chance("noise", options.seed, sample) < options.noise:
        answers = ["unknown" for _ in topics] if answers == truth else truth
    return " ".join(answers)


def _optimizer(request: ChatRequest, options: SimOptions, key: str) -> dict[str, Any]:
    assert request.schema is not None
    prompt = "\n".join(str(m["content"]) for m in request.messages)
    stage = request.schema.name
    if stage == "slow_update":
        return {"guidance": _guidance(prompt)}
    if stage == "meta_skill":
        return {"memory": f"- {_LESSON}\n- Missing rules are the main cause of failure."}
    return _reflect(prompt, request.schema.body, options, key)


def _reflect(prompt: str, schema: dict[str, Any], options: SimOptions, key: str) -> dict[str, Any]:
    """One edit for each topic whose rule is missing or wrong, most cited first."""
    skill = _block(prompt, "skill")
    rules = rules_in(skill)
    rejected = _block(prompt, "rejected")
    hopeless = options.duds >= 1
    duds = options.duds / 2 if _LESSON in _block(prompt, "memory") and not hopeless else options.duds
    cited: dict[str, list[str]] = {}
    wanted: dict[str, str] = {}
    for row in _rows(prompt, "trajectories"):
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
        extra = {"rationale": f"The tasks ask for {topic}.", "pattern": pattern, "impact": 0.5}
        edits.append({**edit, **extra, "trajectory_ids": cited[topic]})
    most = schema["properties"]["edits"].get("maxItems", 4)
    patterns = [{"name": e["pattern"], "cause": "not stated", "trajectory_ids": e["trajectory_ids"]} for e in edits]
    return {"patterns": patterns, "edits": edits[:most]}


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
        if row.get("class") in {"regressed", "persistent_fail"}:
            lines += [f"- For {t}, answer {c}." for t, c in _lessons(row) if rules.get(t) != c]
    return "\n".join(dict.fromkeys(lines[:4]))


def _lessons(row: dict[str, Any]) -> list[tuple[str, str]]:
    """What a failed row tells: topic and code, pair by pair."""
    asked, expected = _ASKED.search(row.get("task", "")), _EXPECTED.search(row.get("feedback", ""))
    if not asked or not expected:
        return []
    topics = [topic.strip() for topic in asked[1].split(",")]
    return list(zip(topics, expected[1].split(), strict=False))


def _block(prompt: str, tag: str) -> str:
    found = re.search(rf"<{tag}>\n(.*?)\n?</{tag}>", prompt, re.DOTALL)
    return found[1] if found else ""


def _rows(prompt: str, tag: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _block(prompt, tag).splitlines() if line.startswith("{")]
