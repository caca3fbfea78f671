"""Formats the data of a request: blocks between tags, and lines of JSON. The middle of long texts is cut out."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from skillopt.models.base import Message
from skillopt.skill import Skill
from skillopt.skill.tokens import count_tokens
from skillopt.tasks.base import Trajectory
from skillopt.tasks.failure_kinds import output_tokens, was_cut_off
from skillopt.tasks.scoring import expected_feedback
from skillopt.training.requests.shared import NOTHING_SHARED, SharedText

EMPTY = Skill("")
LEAST = 60
"""The minimum number of tokens that a request uses for each trajectory, even if there are many trajectories."""
NEAR = 0.8
"""A request shows the length of an output if this length is at least this share of the token limit for replies."""
LOW_LIMIT = 128
"""If the token limit for replies is at most this, a request shows the length of every output, because steps before an
answer hardly fit."""
MOST_ANSWERS = 3
"""The maximum number of expected answers of one task in a request."""


MARKER = 12
"""The number of tokens of the note that replaces cut text. If a text is too long by at most this number, it is not
cut."""
_CLOSES = re.compile(r"<(?=\s*/)")
"""The beginning of a closing tag."""
LEFT_OUT = "tokens left out …]"
"""The end of the note that `trim_middle` writes in place of the text that it cuts out."""


def block(tag: str, text: str, name: str = "") -> str:
    """A text between tags; nothing in the text can close the tag."""
    inner = re.sub(rf"<(?=\s*/\s*{tag}\s*>)", r"<\\", text.strip("\n"), flags=re.IGNORECASE)
    start = f"{tag} name={name}" if name else tag
    return f"<{start}>\n{inner}\n</{tag}>" if text.strip() else ""


def blocks_in(text: str, tag: str) -> list[tuple[str, str]]:
    """The name and the text of every block with this tag in a request. The text is the one that `block` got, without
    line breaks at its start and end."""
    matches = re.findall(rf"^<{tag}(?: name=([^\n]*))?>\n(.*?)\n</{tag}>$", text, re.DOTALL | re.MULTILINE)
    escaped = re.compile(rf"<\\(?=\s*/\s*{tag}\s*>)", re.IGNORECASE)
    return [(name, escaped.sub("<", inner)) for name, inner in matches]


def data_line(row: object) -> str:
    """One line of JSON; no text in it can close the block around it."""
    return _CLOSES.sub(r"\\u003c", json.dumps(row, ensure_ascii=False))


@dataclass(frozen=True, kw_only=True)
class Shown:
    """How one request shows trajectories."""

    skill: Skill = EMPTY
    shared: SharedText = NOTHING_SHARED
    reply_tokens: int = 0
    """The length at which the target's reply is cut off; 0 if unknown."""
    guessable: bool = False
    """True if so few answers are possible that a right answer may be luck."""


PLAIN = Shown()


def trajectory_lines(trajectories: Sequence[Trajectory], budget: int, shown: Shown = PLAIN) -> str:
    """Format all trajectories within a budget of tokens. Short trajectories stay whole; the longest ones lose the most
    text."""
    texts = [_texts(trajectory, shown.shared) for trajectory in trajectories]
    sizes = [sum(count_tokens(text) for text in parts.values()) for parts in texts]
    shares = fair_shares(sizes, max(budget, LEAST * len(texts)))
    return "\n".join(
        _line(trajectory, parts, share, shown)
        for trajectory, parts, share in zip(trajectories, texts, shares, strict=True)
    )


def shown_tokens(trajectory: Trajectory, shared: SharedText = NOTHING_SHARED) -> int:
    """The tokens of a trajectory in a request if nothing is left out."""
    return LEAST + sum(count_tokens(text) for text in _texts(trajectory, shared).values())


def _texts(trajectory: Trajectory, shared: SharedText) -> dict[str, str]:
    turns = [message for message in trajectory.messages if message.get("role") != "system"]
    texts = {"task": shared.rest(trajectory.input)}
    if len(turns) > 2:
        texts["transcript"] = "\n".join(f"{m.get('role')}: {_message_text(m)}" for m in turns[1:])
    if trajectory.changes:
        texts["files"] = "\n".join(f"{each.kind} {each.path}\n{each.shown}".strip() for each in trajectory.changes)
    texts["output"] = trajectory.output
    solved = trajectory.score.hard >= 1
    if trajectory.answers and not (solved and trajectory.output.strip() in trajectory.answers):
        texts["expected"] = " | ".join(trajectory.answers[:MOST_ANSWERS])
    repeats = trajectory.score.feedback == expected_feedback(trajectory.answers)
    return texts | {"feedback": "" if repeats else trajectory.score.feedback}


def _message_text(message: Message) -> str:
    """A message as text: images are named, tool calls are written out."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = " ".join(str(part["text"]) if part.get("type") == "text" else "[image]" for part in content)
    functions = [call["function"] for call in message.get("tool_calls", ())]
    return " ".join([str(content), *(f"[calls {each['name']}({each['arguments']})]" for each in functions)]).strip()


def _line(trajectory: Trajectory, texts: dict[str, str], share: int, how: Shown) -> str:
    shares = fair_shares([count_tokens(text) for text in texts.values()], share)
    shown = {name: trim_middle(text, most) for (name, text), most in zip(texts.items(), shares, strict=True)}
    feedback = shown.pop("feedback")
    kind = {"type": trajectory.type} if trajectory.type else {}
    row: dict[str, object] = {"id": trajectory.id, **kind, **shown}
    row |= {"opened": list(trajectory.opened)} if trajectory.opened else {}
    row |= {"ran": list(trajectory.ran)} if trajectory.ran else {}
    row |= {"output_tokens": tokens} if (tokens := _length(trajectory, how.reply_tokens)) else {}
    row |= {"in_skill": "yes"} if how.shared.is_example(trajectory.input, how.skill) else {}
    row |= {"score": round(trajectory.score.soft, 3)} if trajectory.score.hard < 1 and trajectory.score.soft else {}
    return data_line(row | ({"feedback": feedback} if feedback else {}))


def _length(trajectory: Trajectory, limit: int) -> str:
    """The length of an output, if the output was cut off or nearly cut off, or if the limit is low; else empty. If an
    output is longer than the limit, the endpoint ignores the limit, so the output was not nearly cut off."""
    tokens, cut = output_tokens(trajectory), was_cut_off(trajectory)
    close = NEAR * limit <= tokens <= limit
    if not cut and not close and not (tokens and 0 < limit <= LOW_LIMIT):
        return ""
    return f"{tokens}{f' of {limit}' * bool(limit)}{', cut off' * cut}"


def fair_shares(sizes: Sequence[int], total: int) -> list[int]:
    """Divide a total among parts of these sizes. No part gets more than its size; what small parts do not need goes to
    large parts."""
    shares = [0] * len(sizes)
    left = total
    for rank, (size, number) in enumerate(sorted((size, number) for number, size in enumerate(sizes))):
        shares[number] = min(size, left // (len(sizes) - rank))
        left -= shares[number]
    return shares


def ends(text: str, most: int) -> str:
    """The text, or if it has more than `most` characters, its beginning and its end."""
    return text if len(text) <= most else f"{text[: most // 2]}\n[…]\n{text[-most // 2 :]}"


def trim_middle(text: str, most: int) -> str:
    """Cut the middle out of a text of more than `most` tokens, and note how many tokens are left out. A text that is
    only a little longer stays whole, because the note would need as many tokens as it saves."""
    size = count_tokens(text)
    if size <= most + MARKER:
        return text
    kept = max(2, int(len(text) * most / size))
    while kept > 2 and count_tokens(text[: kept // 2]) + count_tokens(text[-(kept // 2) :]) > most:
        kept = kept * 9 // 10
    half = kept // 2
    gone = count_tokens(text[half:-half])
    return f"{text[:half]}\n[… {gone} {LEFT_OUT}\n{text[-half:]}"
