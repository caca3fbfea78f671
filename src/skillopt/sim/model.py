"""A small deterministic world with simulated models as target and optimizer, for tests (also of faults) and demos.

Tasks ask for the secret codes of topics. The target knows no code. It follows rules in the skill, such as "For maple,
answer KX-42." In a package, it also follows rules in the references that SKILL.md names. The optimizer reads failures
and states the missing rules. With the option `duds`, some of its edits are bad. All random choices depend on the
request's content, so replies do not depend on the order of requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl

from skillopt.chat_protocol import FunctionCall
from skillopt.config.options import Options
from skillopt.models.base import (
    ChatModel,
    ChatReply,
    ChatRequest,
    FormRefusedError,
    Message,
    ModelSpec,
    TransientError,
    Usage,
)
from skillopt.sim.optimizer import (
    ASKED,
    SEALED,
    SEALED_RULE,
    SimReply,
    chance,
    grade,
    optimizer_reply,
    rules_in,
    spelled_out_schema,
    what_it_reads,
)
from skillopt.skill.tokens import count_tokens

_TOPIC_WORDS = """
maple cedar amber basalt cobalt dahlia ember falcon garnet harbor indigo jasper kestrel lagoon marble nectar onyx pebble
quartz raven saffron tundra umber velvet willow yarrow zephyr acorn birch coral drift elm fern glade heron iris juniper
kelp lotus mango nettle olive pine quail reed sable thistle urchin violet walnut
"""
TOPICS = tuple(_TOPIC_WORDS.split())
READ = "read_skill_file"
"""The name of the tool with which a chat target reads the files of a package."""
_REFERENCE = re.compile(r"\breferences/[\w./-]+\.md\b")


class SimOptions(Options):
    """The options of the simulated world and its faults. Every share is from 0 to 1."""

    world: int = 0
    """The number that selects the secret codes."""
    seed: int = 0
    """The seed of noise and faults."""
    duds: float = 0.0
    """Share of the optimizer's edits that are useless or harmful. If it is below 1, the optimizer learns from rejected
    edits."""
    noise: float = 0.0
    """Share of the target's outcomes that are flipped."""
    latency: float = 0.0
    """Seconds that a target call takes."""
    optimizer_latency: float = 0.0
    jitter: float = 0.0
    """A random time is added to each latency: at most this share of the latency."""
    rate_limit: float = 0.0
    """Share of requests that are answered with 429 and Retry-After."""
    rate_limit_every: int = 0
    """Every n-th request is answered with 429 and Retry-After; 0 for no request."""
    most_in_flight: int = 0
    """The maximum number of requests at the same time; 0 for no limit. Further requests are answered with 429, without
    Retry-After."""
    retry_after: float = 1.0
    reset: float = 0.0
    """Share of requests whose connection is cut."""
    server_error: float = 0.0
    """Share of requests that are answered with 500."""
    hang: float = 0.0
    """Share of requests that are never answered."""
    garbled: float = 0.0
    """Share of requests that are answered with something other than a chat completion."""
    torn: float = 0.0
    """Share of requests whose answer breaks off in the middle."""
    cut_off: float = 0.0
    """Share of optimizer replies that are cut off in the middle, as if the token limit was reached."""
    malformed: float = 0.0
    """Share of optimizer replies that are not JSON."""
    empty: float = 0.0
    """Share of optimizer replies that are empty."""
    wrapped: float = 0.0
    """Share of optimizer replies with thoughts, prose and a code fence around the JSON. SkillOpt can read these
    replies."""
    no_schema: int = 0
    """1: requests with a JSON schema are refused. 2: requests with a JSON schema or in JSON mode are refused."""
    opposites: int = 0
    """1: the optimizer also proposes two opposite edits, for a person to decide between."""
    paraphrase: int = 0
    """1: the optimizer proposes each rule in three wordings."""


class ConnectionCut(TransientError):  # noqa: N818 - what happens to a request
    """Raised to cut the connection in the middle of a request."""


class Garbled(TransientError):  # noqa: N818
    """Raised to answer with something other than a chat completion."""


class Torn(TransientError):  # noqa: N818
    """Raised to end an answer in the middle."""


def parse_options(query: str) -> SimOptions:
    """Parse the options after the `?` in a model's name, such as `noise=0.1&duds=0.3`."""
    return SimOptions.read(dict(parse_qsl(query, keep_blank_values=True)), "sim")


def code_for(topic: str, world: int) -> str:
    number = int(chance("code", topic, world) * 26 * 26 * 90)
    return f"{chr(65 + number % 26)}{chr(65 + number // 26 % 26)}-{10 + number // 676 % 90}"


class SimulatedModel(ChatModel):
    """The model `sim:world`, or with options `sim:world?noise=0.1&duds=0.3`. It answers a request with a schema as the
    optimizer, and any other request as the target."""

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
        if request.schema is None and (schema := spelled_out_schema(request)):
            request = replace(request, schema=schema)
        refused = {"schema": options.no_schema >= 1, "json": options.no_schema >= 2}
        if request.schema and refused.get(request.schema.form):
            raise FormRefusedError(f"400: response_format of this type ({request.schema.form}) is not supported")
        content = json.dumps([self._seen(request), request.schema.name if request.schema else ""])
        key = hashlib.sha256(content.encode()).hexdigest()
        sample = f"{key}/{request.seed}"
        self._arrivals[sample] += 1
        draw = Draw(options.seed, sample, self._arrivals[sample])
        await self._weather(draw, options.optimizer_latency if request.schema else options.latency)
        if request.schema is None and (wanted := next_file(request)):
            call: FunctionCall = {"name": READ, "arguments": json.dumps({"path": wanted})}
            return ChatReply(
                text="",
                finish_reason="tool_calls",
                usage=self._usage(request, json.dumps(call)),
                tool_calls=({"id": f"call-{len(request.messages)}", "type": "function", "function": call},),
            )
        if request.schema is None:
            text = self.target_text(request, sample)
        else:
            text = json.dumps(self.optimizer_json(request, key))
        finish = "stop"
        if request.schema and draw.happens("cut_off", options.cut_off):
            text, finish = text[: len(text) // 2], "length"
        elif request.schema and draw.happens("malformed", options.malformed):
            text = f"Sure, here it is: {text[1:]}"
        elif request.schema and draw.happens("empty", options.empty):
            text = ""
        elif request.schema and draw.happens("wrapped", options.wrapped):
            text = f"<think>Is {{this}} right?</think>Sure, here it is:\n```json\n{text}\n```\nAnything else?"
        return ChatReply(text=text, finish_reason=finish, usage=self._usage(request, text))

    @staticmethod
    def _usage(request: ChatRequest, text: str) -> Usage:
        prompt = sum(count_tokens(str(message["content"])) for message in request.messages)
        return Usage(prompt=prompt, completion=count_tokens(text))

    def target_text(self, request: ChatRequest, sample: str) -> str:
        return _target(request, self.options, sample)

    def optimizer_json(self, request: ChatRequest, key: str) -> SimReply:
        stage = request.schema.name if request.schema else ""
        if stage in {"mine", "mine_group"}:
            from skillopt.sim.reader import mined

            return mined(request, stage)
        return grade(request) if stage == "judge" else optimizer_reply(request, self.options, key)

    @staticmethod
    def _seen(request: ChatRequest) -> list[Message]:
        """Return the part of a request on which the random choices for the reply depend. For the optimizer, this is the
        data in the request, without the instructions and without the target's name."""
        if request.schema is None:
            return list(request.messages)
        return [{**m, "content": what_it_reads(str(m["content"]))} for m in request.messages if m["role"] != "system"]

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
        if draw.happens("garbled", options.garbled):
            raise Garbled("the reply is not a chat completion")
        if draw.happens("torn", options.torn):
            raise Torn("the reply broke off")

    def _turn_away(self, draw: Draw) -> None:
        """Reject a request at once if the options say so: at random, every n-th request, or if too many are in
        flight."""
        options = self.options
        every = options.rate_limit_every
        if (every and self.calls % every == 0) or draw.happens("rate_limit", options.rate_limit):
            raise TransientError("429: too many requests", retry_after=options.retry_after, overloaded=True)
        if options.most_in_flight and self.in_flight >= options.most_in_flight:
            raise TransientError("429: too many requests at once", overloaded=True)


@dataclass(frozen=True)
class Draw:
    """Chooses the fault, if any, to simulate for a request. The same request may get a different fault when it is sent
    again."""

    seed: int
    key: str
    arrival: int

    def chance(self, what: str) -> float:
        return chance(what, self.seed, self.key, self.arrival)

    def happens(self, what: str, share: float) -> bool:
        return share > 0 and self.chance(what) < share


def open_sim(spec: ModelSpec) -> SimulatedModel:
    """Open `sim:world`, `sim:clerk` or `sim:librarian`, with its options."""
    name = spec.model.partition("?")[0]
    if name == "clerk":
        from skillopt.sim.clerk import SimulatedClerk

        return SimulatedClerk(spec.name)
    if name == "librarian":
        from skillopt.sim.librarian import SimulatedLibrarian

        return SimulatedLibrarian(spec.name)
    return SimulatedModel(spec.name)


def next_file(request: ChatRequest) -> str:
    """Return the next file to read: the first unread reference that is named in the skill or in a file that was read.
    Empty if there is none."""
    if not any(tool["function"]["name"] == READ for tool in request.tools):
        return ""
    calls = [call for message in request.messages for call in message.get("tool_calls", ())]
    read = {json.loads(call["function"]["arguments"]).get("path") for call in calls}
    return next((path for path in _REFERENCE.findall(_known(request)) if path not in read), "")


def _known(request: ChatRequest) -> str:
    """Return the instructions: the system prompt and the files that were read."""
    return "\n".join(str(m["content"]) for m in request.messages if m["role"] in {"system", "tool"})


def _target(request: ChatRequest, options: SimOptions, sample: str) -> str:
    system = _known(request)
    task = next(str(m["content"]) for m in reversed(request.messages) if m["role"] == "user")
    asked = ASKED.search(task)
    if not asked:
        return "I do not know what is asked."
    topics = [topic.strip() for topic in asked[1].split(",")]
    rules = rules_in(system)
    answers = [rules.get(topic, "unknown") for topic in topics]
    truth = [code_for(topic, options.world) for topic in topics]
    if SEALED in task:
        answers += ["SEALED"] if SEALED_RULE in system else []
        truth += ["SEALED"]
    if options.noise and chance("noise", options.seed, sample) < options.noise:
        answers = ["unknown" for _ in topics] if answers == truth else truth
    return " ".join(answers)
