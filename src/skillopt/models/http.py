"""Decides what to do after an HTTP error: try again, set the item aside, or end the run."""

from __future__ import annotations

import email.utils
import html
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from skillopt.models.base import FatalError, FormRefusedError, ModelError, RefusedError, TransientError

_TRANSIENT = {408, 409, 425, 429}
_OVERLOADED = {429, 503, 529}
_ITEM_STATUS = {400, 422, 500}
"""HTTP statuses whose cause may be the item. Some versions of llama-server answer 500 if a prompt is too long."""
_ITEM_CODES = {
    "content_filter",
    "context_length_exceeded",
    "exceed_context_size_error",
    "request_too_large",
    "string_above_max_length",
}
_ITEM_WORDS = re.compile(
    r"context.?(?:length|limit|size|window)|(?:input|prompt|request) is too (?:large|long)|too many (?:input )?tokens|"
    r"(?:input|prompt) token(?: count|s exceed)|maximum (?:input|model|prompt) length|expected maxLength|"
    r".inputs. tokens|content management policy|content filter",
    re.I,
)
_FORM_WORDS = re.compile(r"response_format|json_schema|json_object|structured.?output|guided.?(json|decoding)", re.I)
_UNWANTED = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|not permitted|not allowed|unexpected|extra", re.I
)
_PAGE = re.compile(r"\s*(<!doctype html|<html|<head|<body)", re.I)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.I | re.S)
_UNSEEN = re.compile(r"<(script|style)\b.*?</\1>", re.I | re.S)
_TAG = re.compile(r"<[^>]*>")
_LONGEST = 86_400.0
"""The longest wait in seconds: one day. If an endpoint asks for more by mistake, the wait is one day."""
_MOST_TOKENS = 10**9
_SEARCHED = 2**16
"""The maximum number of characters of an error message that are searched for known words."""


class ParameterRefused(Exception):  # noqa: N818 - this package handles it
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def classify(
    status: int, headers: Mapping[str, str], body: Any, where: str, clean: Callable[[str], str] = str
) -> ModelError:
    """The error to raise for a response with this status. `body` is parsed JSON, or bytes if it is not JSON."""
    words, codes = complaint(body)
    words = words.strip().removeprefix(f"{status}: ")  # some bodies repeat the status
    text = f"{where}: {clean(words)[:500]}"  # redact before cutting: a key that is cut in two would not be found
    words = words[:_SEARCHED]
    if status == 429 and codes & {"insufficient_quota", "billing_error"}:
        return FatalError(text)
    if status == 413 or (status in _ITEM_STATUS and (codes & _ITEM_CODES or _ITEM_WORDS.search(words))):
        return RefusedError(text)
    if status in _TRANSIENT or status >= 500:
        return TransientError(text, retry_after=retry_after(headers), overloaded=status in _OVERLOADED)
    if status in {400, 404, 415, 422} and _FORM_WORDS.search(words):
        return FormRefusedError(text)
    return FatalError(text)


def complaint(body: Any) -> tuple[str, set[str]]:
    """The endpoint's error message and error codes."""
    raw = body.decode(errors="replace") if isinstance(body, bytes) else str(body)
    error = _error_of(body)
    detail = {key.lower(): value for key, value in error.items()} if isinstance(error, dict) else {}
    words = detail.get("message") or (error if isinstance(error, str) else web_page(raw) or raw)
    return str(words), {str(detail[key]) for key in ("code", "type") if detail.get(key)}


def _error_of(body: Any) -> Any:
    """The part of a body that describes the error. Google puts it into a list. Bedrock calls it `Error`, or puts its
    fields directly into the body."""
    body = body[0] if isinstance(body, list) and body else body
    return (body.get("error") or body.get("Error") or body) if isinstance(body, dict) else None


def web_page(text: str) -> str:
    """The title, or else the text, of a web page that came instead of a reply; empty if `text` is not a web page."""
    text = text[:10_000]  # cut first: the search for pairs of tags takes quadratic time
    if not _PAGE.match(text):
        return ""
    title = _TITLE.search(text)
    bare = html.unescape(_TAG.sub(" ", title[1] if title else _UNSEEN.sub(" ", text)))
    return f'a web page, "{" ".join(bare.split())[:200]}"'


def refused_parameter(status: int, content: Any, sent: Iterable[str]) -> str:
    """The name of the parameter in `sent` that the endpoint refuses; empty if the error has another cause."""
    words, codes = complaint(content)
    words = words[:_SEARCHED]
    if status not in {400, 422} or not _UNWANTED.search(f"{' '.join(sorted(codes))} {words}"):
        return ""
    error = _error_of(content)
    named = str(error.get("param") or "") if isinstance(error, dict) else ""
    if named:
        return next((name for name in sent if name == named), "")
    return next((name for name in sent if re.search(rf"\b{name}\b", words)), "")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the endpoint asks to wait, from `Retry-After-Ms` or `Retry-After` (seconds or a date)."""
    milliseconds, value = headers.get("Retry-After-Ms", ""), headers.get("Retry-After", "")
    for text, unit in ((milliseconds, 1000.0), (value, 1.0)):
        if (wait := _number(text)) is not None:
            return min(_LONGEST, max(0.0, wait / unit))
    then, now = _date(value), _date(headers.get("Date", ""))  # use the endpoint's clock, because ours may be wrong
    return None if then is None else min(_LONGEST, max(0.0, then - (time.time() if now is None else now)))


def _date(text: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def counted(tokens: Any) -> int:
    """A number of tokens as an endpoint reports it; 0 if the value makes no sense."""
    return int(tokens) if isinstance(tokens, int | float) and 0 <= tokens <= _MOST_TOKENS else 0


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
