"""Task files, `.env` files and scorers: items or a sentence, a score for any output, no value lost or invented."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import strategies as st

import hostile
from campaign import holds_for
from skillopt.config import EnvConfig
from skillopt.dotenv import load_dotenv
from skillopt.errors import UserError
from skillopt.tasks.base import Item
from skillopt.tasks.data import read_items
from skillopt.tasks.qa import load_items
from skillopt.tasks.scorers import NamedScorer
from skillopt.tasks.scoring import SCORERS, edit_distance, extract_answer

pytestmark = pytest.mark.fuzz

fields = st.sampled_from(["id", "question", "answers", "answer", "context", "type", "choices", "tolerance", "x"])
rows = st.dictionaries(fields, hostile.values(fields), max_size=5)
good = st.fixed_dictionaries(
    {"id": hostile.words, "question": st.just("How many?"), "answers": st.lists(hostile.words)}
)
lines = st.one_of(rows, good, hostile.json_values).map(hostile.as_json)
SUFFIXES = [".jsonl", ".json", ".csv", ".tsv", ".ndjson", ".txt", ""]
CSV = b'id,question,answer\n1,"How, many?",4\n2,"Two\nlines",5\n'
data = st.one_of(
    st.lists(lines, max_size=5).map(b"\n".join),
    st.lists(st.one_of(rows, good), max_size=4).map(hostile.as_json),
    hostile.mutated(CSV),
    hostile.raw,
    st.tuples(hostile.depths, st.sampled_from(["[]", "{}"])).map(lambda d: hostile.deep(d[0], "1", d[1]).encode()),
)
outputs = st.one_of(
    hostile.texts,
    st.sampled_from(
        ["<answer>4</answer>", "1e999", "5 x 10^999", "-1e-999 km", "(B)", '{"a": 1e999}', '{"a": [1]}', "1/0"]
    ),
    hostile.json_values.map(lambda value: hostile.as_json(value).decode()),
)


@holds_for(data, st.sampled_from(SUFFIXES))
def test_any_file_gives_items_or_a_sentence_that_names_it(content: bytes, suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"items{suffix}"
        file.write_bytes(content)
        try:
            items = read_items(file)
        except UserError as refusal:
            assert str(file) in str(refusal)  # noqa: PT017
            return
    assert items
    assert len({item.id for item in items}) == len(items)
    for item in items:
        assert item.question.strip()
        json.dumps(item.model_dump(mode="json"), ensure_ascii=False).encode()


@holds_for(data, st.sampled_from(["data", "split_dir"]))
def test_any_data_set_is_split_or_refused_in_words(content: bytes, key: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for split in ("train", "val", "test"):
            (root / split).mkdir()
            (root / split / "items.jsonl").write_bytes(content)
        (root / "all.jsonl").write_bytes(content)
        config = EnvConfig(data=str(root / "all.jsonl")) if key == "data" else EnvConfig(split_dir=folder)
        try:
            load_items(config)
        except UserError as refusal:
            assert str(refusal)  # noqa: PT017


@holds_for(st.lists(st.tuples(hostile.words, hostile.words), min_size=1, max_size=5))
def test_what_a_table_says_is_what_the_items_say(cells: list[tuple[str, str]]) -> None:
    clean = [(q, a) for q, a in cells if q.strip() and a.strip() and not set(q + a) & set("\x00\r\ud800\udcff\ufeff")]
    if not clean:
        return
    out = io.StringIO()
    csv.writer(out).writerows([("question", "answer"), *clean])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "items.csv"
        file.write_text(out.getvalue(), encoding="utf-8", newline="")
        items = read_items(file)
    assert [(item.question, *item.answers) for item in items] == clean


@holds_for(outputs, st.lists(outputs.filter(str.strip), min_size=1, max_size=3), st.sampled_from(sorted(SCORERS)), rows)
def test_any_output_gets_a_score_from_0_to_1_wherever_the_answers_can_be_scored(
    output: str, answers: list[str], name: str, extra: dict[str, Any]
) -> None:
    if name == "regex":  # a pattern may take for ever; it runs in a process of its own, with an end
        return
    options = {key: value for key, value in extra.items() if key in {"choices", "tolerance"}}
    item = Item(id="i", question="q", answers=tuple(answers), **options)
    scorer = NamedScorer(name, {})
    try:
        scorer.check({"train": [item], "val": [item], "test": [item]})
    except UserError as refusal:
        assert str(refusal)  # noqa: PT017
        return
    score: Any = scorer(item, output)
    assert 0 <= score.soft <= 1
    assert score.hard in (0, 1)
    least = {"f1": 0.5, "anls": 0.999}.get(name, 1)  # of an answer that counts as right
    assert not score.hard or score.soft >= least or math.isclose(score.soft, least)


@holds_for(hostile.texts.filter(str.strip), st.sampled_from(["exact", "contains", "f1", "anls"]))
def test_the_answer_itself_is_right(answer: str, name: str) -> None:
    if extract_answer(answer) == answer.strip():
        assert SCORERS[name](answer, [answer]).hard == 1


@holds_for(hostile.words.filter(lambda w: len(w) < 40), hostile.words.filter(lambda w: len(w) < 40))
def test_the_edit_distance_is_the_plain_one(a: str, b: str) -> None:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (x != y))
    assert edit_distance(a, b) == row[-1]


@holds_for(st.one_of(hostile.raw, st.lists(hostile.raw, max_size=5).map(b"\nA_KEY=".join)))
def test_any_env_file_sets_only_variables_that_it_names_and_none_that_is_there(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"THERE": "before"}, clear=True):
        file = Path(folder) / ".env"
        file.write_bytes(content + b"\nTHERE=after\nexport LAST='of all'\n")
        load_dotenv(file)
        assert os.environ["THERE"] == "before"
        assert os.environ["LAST"] == "of all"
        text = content.decode("utf-8", "replace")
        assert all(name in text for name in os.environ if name not in {"THERE", "LAST"})
