"""Counting tokens offline, in the o200k vocabulary. Loaded at the first count."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec


@lru_cache(maxsize=4096)
def count_tokens(text: str) -> int:
    """Tokens of `text`; half a surrogate pair counts as U+FFFD does."""
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    piece = 50_000  # a tokenizer may refuse a very long text
    return sum(_counter()(text[i : i + piece]) for i in range(0, len(text), piece))


@lru_cache(maxsize=1)
def _counter() -> Callable[[str], int]:
    """The compiled half of bpe-openai, whose vocabulary is built in. Importing the package itself would unpack three
    more vocabularies, which takes over a second."""
    package = find_spec("bpe_openai")
    compiled = PathFinder.find_spec("_bindings", package.submodule_search_locations if package else None)
    if compiled is not None and compiled.loader is not None:
        bindings = module_from_spec(compiled)
        compiled.loader.exec_module(bindings)
        count: Callable[[str], int] = bindings.tokenizer_for_encoding("o200k_base").count
        return count
    import bpe_openai

    encoding = bpe_openai.get_encoding("o200k_base")
    return lambda text: len(encoding.encode_ordinary(text))
