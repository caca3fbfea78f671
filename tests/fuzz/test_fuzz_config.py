"""Config files, their bases, overrides and configs from code: a config, or a sentence that says what is wrong."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import strategies as st

import hostile
from campaign import holds_for
from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.inputs import configure

pytestmark = pytest.mark.fuzz

KEYS = [
    f"{section}.{key}" for section in Config.model_fields for key in getattr(Config(), section).__class__.model_fields
]
names = st.sampled_from([*{key.split(".")[1] for key in KEYS}, "lr_scheduler", "_base_", "", "x", "1"])
section_names = st.sampled_from([*Config.model_fields, "trainn", "", "1"])
odd = st.one_of(hostile.json_values, st.dates(), st.binary(max_size=5))
trees = st.dictionaries(section_names, st.one_of(st.dictionaries(names, odd, max_size=4), odd), max_size=4)
overrides = st.one_of(
    st.tuples(st.sampled_from([*KEYS, "train.lr_scheduler", "env.options.a.b", "x.y"]), hostile.texts).map("=".join),
    hostile.texts,
)


@st.composite
def shards(draw: st.DrawFn) -> str:
    """YAML put together from parts that mean something to its reader."""
    known = [*(f"{name}:" for name in Config.model_fields), *(f"  {key.split('.')[1]}: " for key in KEYS)]
    marks = [
        "\n",
        "\n  ",
        "\n- ",
        ": ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "&a ",
        "*a",
        "<<: *a",
        "!!binary ",
        "!!python/object:x ",
    ]
    parts = st.one_of(st.sampled_from([*known, *marks]), hostile.words)
    return "".join(draw(st.lists(parts, max_size=14)))


config_texts = st.one_of(shards(), trees.map(lambda tree: yaml.safe_dump(tree, allow_unicode=True)), hostile.texts)


def read(files: dict[str, bytes], *lines: str) -> Config | None:
    """The config in the first file, the others beside it; None where it is refused in words."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_bytes(text)
        try:
            return Config.load(Path(folder) / next(iter(files)), lines)
        except UserError as refusal:
            assert str(refusal).strip()  # noqa: PT017
            return None


def test_yaml_that_means_something_is_read_at_all() -> None:
    assert read({"c.yaml": b"train: {num_epochs: 2}"}, "train.batch_size=3") is not None


@holds_for(config_texts.map(lambda text: text.encode("utf-8", "surrogatepass")), st.lists(overrides, max_size=2))
def test_any_file_with_any_overrides_is_a_config_or_is_refused_in_words(text: bytes, lines: list[str]) -> None:
    read({"c.yaml": text}, *lines)


@holds_for(
    hostile.raw | hostile.mutated(b"_base_: b.yaml\ntrain: {num_epochs: 2}\nenv: {name: sim, options: {a: 1}}\n")
)
def test_any_bytes_are_a_config_or_are_refused_in_words(data: bytes) -> None:
    read({"c.yaml": data, "b.yaml": b"models: {target_model: 'sim:world'}\n"})


@holds_for(st.one_of(hostile.texts, st.sampled_from(["b.yaml", "c.yaml", "./c.yaml", ".", "..", ""])), config_texts)
def test_any_base_is_read_or_refused_in_words(base: str, text: str) -> None:
    first = f"_base_: {yaml.safe_dump(base, allow_unicode=True)}".encode("utf-8", "surrogatepass")
    read({"c.yaml": first, "b.yaml": text.encode("utf-8", "surrogatepass")})


@holds_for(hostile.depths, st.sampled_from(["[]", "{}"]), st.sampled_from(["x: %s", "env: {options: {a: %s}}", "%s"]))
def test_nesting_without_end_is_refused_in_words(depth: int, shape: str, form: str) -> None:
    read({"c.yaml": (form % hostile.deep(depth, "1", shape)).encode()})


@holds_for(trees, st.dictionaries(names, odd, max_size=3), st.lists(overrides, max_size=2))
def test_any_values_from_code_are_a_config_or_are_refused_in_words(
    tree: dict[str, Any], keys: dict[str, Any], lines: list[str]
) -> None:
    try:
        config = configure(tree, keys, lines)
    except UserError as refusal:
        assert str(refusal).strip()  # noqa: PT017
        return
    config.identity()
    assert Config.parse(config.model_dump(mode="json")) == config, "a config written down and read again is another"


@holds_for(st.sampled_from(KEYS), odd)
def test_a_single_key_with_any_value_is_taken_as_it_is_or_refused_by_its_name(dotted: str, value: Any) -> None:
    section, key = dotted.split(".")
    try:
        Config.parse({section: {key: value}})
    except UserError as refusal:
        assert str(refusal).strip()  # noqa: PT017
