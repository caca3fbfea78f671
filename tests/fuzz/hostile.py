"""Input as nobody should send it: text, bytes and JSON values that have broken programs before."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

PIECES = [
    *(
        "",
        " ",
        "\n",
        "\r\n",
        "\r",
        "\t",
        "\x00",
        "\x0b",
        "\x1b[31m",
        "\x7f",
        "\x85",
        "\u2028",
        "\ufeff",
        "\ud800",
        "\udcff",
    ),
    *("é", "中", "\U0001f600", "²", "١", "ﬁ", "İ", "e\u0301", "\u202e"),
    *(
        "{",
        "}",
        "[",
        "]",
        '"',
        "'",
        "`",
        "\\",
        "/",
        ":",
        ",",
        ";",
        "=",
        "#",
        "-",
        "*",
        "&a ",
        "*a",
        "!!",
        "|",
        ">",
        "%",
    ),
    *("null", "true", "nan", "NaN", "Infinity", "-inf", "1e999", "-1", "0", "1_0", "0x_", "0b_", "9" * 5000),
    *(
        "2024-13-45",
        "2024-01-31",
        "../..",
        "/etc/passwd",
        "~",
        "C:\\",
        "%2e%2e",
        "%00",
        "a" * 300,
        "é" * 200,
        "[" * 3000,
    ),
    *("<think>", "</think>", "<answer>", "</answer>", "```", "```json", "<!--", "-->", "<script>", "${x}", "{{x}}"),
    *("error", "message", "train", "env", "models", "id", "the answer is", "word", "two words"),
]
"""Shards that parsers stumble over, and words that get further into them."""

texts = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join), st.text(st.characters(codec=None), max_size=20)
)
words = st.sampled_from([piece for piece in PIECES if len(piece) < 400])
raw = st.one_of(st.binary(max_size=60), texts.map(lambda text: text.encode("utf-8", "surrogatepass")))

numbers = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([0, -1, 1 << 63, 1 << 64, 10**400, -(10**30), float("nan"), float("inf"), -0.0, 1e308]),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, words, texts)


def values(keys: st.SearchStrategy[str] = words, leaves: st.SearchStrategy[Any] = scalars) -> st.SearchStrategy[Any]:
    """JSON values; dicts take their keys from `keys`, so that they get further than the first look."""
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=8
    )


json_values = values()


def deep(depth: int, inner: str = "", shape: str = "[]") -> str:
    """JSON or YAML nested so far that a reader's own stack is at stake."""
    opening = '{"a":' if shape == "{}" else shape[0]
    return opening * depth + inner + shape[1] * depth


depths = st.one_of(st.sampled_from([49, 50, 51, 480, 970, 990, 2000]), st.integers(1, 1200))


@st.composite
def mutated(draw: st.DrawFn, data: bytes, most: int = 4) -> bytes:
    """The bytes with some of them flipped, cut off, doubled, taken out or put in."""
    for _ in range(draw(st.integers(1, most))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.integers(0, 5))
        if kind == 0 and data:
            data = data[:at] + bytes([data[at] ^ (1 << draw(st.integers(0, 7)))]) + data[at + 1 :]
        elif kind == 1:
            data = data[:at]
        elif kind == 2:
            data = data[:at] + data[at : at + draw(st.integers(1, 60))] + data[at:]
        elif kind == 3:
            data = data[:at] + data[at + draw(st.integers(1, 60)) :]
        elif kind == 4:
            data = data[:at] + draw(raw) + data[at:]
        else:
            data = data[:at] + draw(raw)
    return data


def paths_of(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the parts of a JSON value stand."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(path for key, inner in below for path in paths_of(inner, (*here, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The value with another one at that place."""
    if not path:
        return new
    key, *rest = path
    if isinstance(value, dict):
        return {**value, key: replaced(value[key], tuple(rest), new)}
    return [replaced(inner, tuple(rest), new) if at == key else inner for at, inner in enumerate(value)]


@st.composite
def misshapen(draw: st.DrawFn, value: Any) -> Any:
    """A JSON value of which one or two parts are something else, or gone."""
    for _ in range(draw(st.integers(1, 2))):
        places = paths_of(value)
        path = places[draw(st.integers(0, len(places) - 1))]
        value = replaced(value, path, draw(json_values))
    return value


def as_json(value: Any) -> bytes:
    """As a lenient writer would put it: NaN and halves of characters included."""
    return json.dumps(value, ensure_ascii=True).encode()
