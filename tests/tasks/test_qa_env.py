"""Bad data is refused with its file, its place in it, the field and the fix; splits are disjoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from skillopt.config import EnvConfig
from skillopt.errors import UserError
from skillopt.models.base import ChatReply, Message
from skillopt.skill import Skill
from skillopt.tasks.base import check_splits, closed_set, data_hash
from skillopt.tasks.qa import QAEnv


def rows(split: str, count: int = 2) -> list[dict[str, Any]]:
    return [{"id": f"{split}-{n}", "question": f"{split} {n}?", "answers": [f"a{n}"]} for n in range(count)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for split in ("train", "val", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "items.json").write_text(json.dumps(rows(split)))
    return tmp_path


def open_env(data: Path, **fields: Any) -> QAEnv:
    env = QAEnv(EnvConfig(split_dir=str(data), **fields))
    check_splits(env)
    return env


def refusal(data: Path, **fields: Any) -> str:
    with pytest.raises(UserError) as caught:
        open_env(data, **fields)
    return str(caught.value)


def as_jsonl(data: Path, split: str, lines: Sequence[str]) -> None:
    (data / split / "items.json").unlink()
    (data / split / "items.jsonl").write_text("\n".join(lines), encoding="utf-8")


# Loading


def test_json_and_jsonl_give_the_same_items(data: Path) -> None:
    plain = open_env(data)
    for split in ("train", "val", "test"):
        as_jsonl(data, split, ["", *(json.dumps(row) for row in rows(split)), "  ", ""])
    again = open_env(data)
    assert [list(again.items(s)) for s in ("train", "val", "test")] == [
        list(plain.items(s)) for s in ("train", "val", "test")
    ]
    assert data_hash(again) == data_hash(plain)


def test_numbers_as_ids_one_answer_as_text_and_fields_of_ones_own_are_welcome(data: Path) -> None:
    item = {"id": 7, "question": "Q?", "answers": "yes", "context": "C", "type": "t", "source": {"page": 3}}
    (data / "train" / "items.json").write_text(json.dumps([item]))
    (loaded,) = open_env(data).items("train")
    assert (loaded.id, loaded.answers, loaded.context, loaded.type) == ("7", ("yes",), "C", "t")
    assert loaded.model_dump()["source"] == {"page": 3}


def test_a_byte_order_mark_windows_line_ends_and_line_separators_do_no_harm(data: Path) -> None:
    (data / "train" / "items.json").unlink()
    lines = [
        json.dumps({**row, "question": f"{row['question']}\u2028\x85x"}, ensure_ascii=False) for row in rows("train")
    ]
    (data / "train" / "items.jsonl").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    assert [item.id for item in open_env(data).items("train")] == ["train-0", "train-1"]


def test_the_skill_is_the_system_prompt_and_the_task_the_users_message(data: Path) -> None:
    item = {"id": "1", "question": "Q?", "answers": ["a"], "context": "C"}
    (data / "train" / "items.json").write_text(json.dumps([item]))
    env = open_env(data)

    async def chat(messages: Sequence[Message]) -> ChatReply:
        return ChatReply(text="B.")

    episode = asyncio.run(env.run(env.items("train")[0], Skill("Be brief."), chat))
    assert [(m["role"], m["content"]) for m in episode.messages] == [
        ("system", "Be brief."),
        ("user", "C\n\nQ?"),
        ("assistant", "B."),
    ]
    assert env.score(env.items("train")[0], episode.output).hard == 0
    bare = asyncio.run(env.run(env.items("train")[0], Skill(" \n"), chat))
    assert [m["role"] for m in bare.messages] == ["user", "assistant"]


def test_the_data_hash_sees_every_change(data: Path) -> None:
    seen = {data_hash(open_env(data))}
    for change in ({"answers": ["b"]}, {"question": "Other?"}, {"context": "C"}, {"id": "z"}, {"more": 1}):
        (data / "val" / "items.json").write_text(json.dumps([{**rows("val")[0], **change}, rows("val")[1]]))
        seen.add(data_hash(open_env(data)))
    assert len(seen) == 6


def test_a_small_closed_set_of_answers_is_seen_as_such(data: Path) -> None:
    many = [{"id": f"n{n}", "question": f"{n}?", "answers": [("yes", "no")[n % 2]]} for n in range(6)]
    (data / "train" / "items.json").write_text(json.dumps(many))
    env = open_env(data)
    assert closed_set(env.items("train")) == ("no", "yes")
    assert closed_set(env.items("val")) == ()


# Bad data


@pytest.mark.parametrize(
    ("row", "field", "fix"),
    [
        ({"question": "Q?", "answers": ["a"]}, "id", "an item has 'id', 'question' and 'answers'"),
        ({"id": "x", "answers": ["a"]}, "question", "an item has 'id', 'question' and 'answers'"),
        ({"id": "x", "question": "Q?"}, "answers", "needs at least one answer"),
        ({"id": "x", "question": "Q?", "answers": []}, "answers", "needs at least one answer"),
        ({"id": "x", "question": "Q?", "answers": ["a", " "]}, "answers", "none may be empty"),
        ({"id": "x", "question": "Q?", "answers": [None]}, "answers.0", "string"),
        ({"id": "x", "question": "Q?", "answers": {"a": 1}}, "answers", "an item has"),
        ({"id": "x", "question": ["Q?"], "answers": ["a"]}, "question", "string"),
        ({"id": "x", "question": " ", "answers": ["a"]}, "question", "must not be empty"),
        ({"id": "", "question": "Q?", "answers": ["a"]}, "id", "must not be empty"),
        ({"id": 1.5, "question": "Q?", "answers": ["a"]}, "id", "string"),
        ({"id": True, "question": "Q?", "answers": ["a"]}, "id", "string"),
        ({"id": None, "question": "Q?", "answers": ["a"]}, "id", "string"),
        ({"id": "x", "question": "Q?", "context": 3, "answers": ["a"]}, "context", "string"),
        ({"id": "\ud800", "question": "Q?", "answers": ["a"]}, "id", "repair or remove the field"),
        ({"id": "x", "question": "Q?", "answers": ["a \udfff"]}, "answers", "repair or remove the field"),
        ({"id": "x", "question": "Q?", "answers": ["a"], "own": {"\ud83d": 1}}, "own", "repair or remove the field"),
        (["x", "Q?", "a"], "object", "id, question and answers"),
        ("x", "object", "id, question and answers"),
        (None, "object", "id, question and answers"),
    ],
)
@pytest.mark.parametrize("lines", [False, True], ids=["json", "jsonl"])
def test_a_bad_item_is_named_by_file_place_field_and_fix(
    data: Path, row: Any, field: str, fix: str, lines: bool
) -> None:
    both = [rows("val")[0], row]
    if lines:
        as_jsonl(data, "val", [json.dumps(r) for r in both])
    else:
        (data / "val" / "items.json").write_text(json.dumps(both))
    message = refusal(data)
    place = data / "val" / ("items.jsonl:2" if lines else "items.json: item 2")
    assert message.startswith(f"{place}: ")
    assert field in message.removeprefix(f"{place}: ")
    assert fix in message


@pytest.mark.parametrize("lines", [False, True], ids=["json", "jsonl"])
def test_an_id_that_stands_twice_in_a_split_is_named_with_its_place(data: Path, lines: bool) -> None:
    three = [*rows("val"), {**rows("val")[0], "question": "Another?"}]
    if lines:
        as_jsonl(data, "val", [json.dumps(row) for row in three])
    else:
        (data / "val" / "items.json").write_text(json.dumps(three))
    message = refusal(data)
    assert str(data / "val" / ("items.jsonl:3" if lines else "items.json: item 3")) in message
    assert "'val-0'" in message
    assert "unique" in message


@pytest.mark.parametrize(("name", "content"), [("items.json", "[]"), ("items.jsonl", ""), ("items.jsonl", "\n \n")])
def test_an_empty_split_is_named(data: Path, name: str, content: str) -> None:
    (data / "test" / "items.json").unlink()
    (data / "test" / name).write_text(content)
    message = refusal(data)
    assert str(data / "test" / name) in message
    assert "every split needs at least one" in message


@pytest.mark.parametrize(("name", "before"), [("items.json", b'[{"id": "'), ("items.jsonl", b'{"id": "')])
def test_text_that_is_not_utf8_is_named_by_file_and_byte(data: Path, name: str, before: bytes) -> None:
    (data / "train" / "items.json").unlink()
    (data / "train" / name).write_bytes(before + "caf\u00e9".encode("latin-1") + b'"}')
    message = refusal(data)
    assert str(data / "train" / name) in message
    assert f"byte {len(before) + 3}" in message
    assert "save it as UTF-8" in message


@pytest.mark.parametrize("content", ['[\n{"id": 1,}\n]', "[\n{", '[\n"a" "b"]'])
def test_broken_json_is_named_by_file_and_line(data: Path, content: str) -> None:
    (data / "train" / "items.json").write_text(content)
    assert refusal(data).startswith(f"{data / 'train' / 'items.json'}:2: not JSON: ")


@pytest.mark.parametrize("line", ["{", "{'id': 1}", "[" * 100_000, "9" * 5000])
def test_a_broken_line_is_named_by_file_and_number(data: Path, line: str) -> None:
    as_jsonl(data, "train", [json.dumps(rows("train")[0]), "", line])
    assert refusal(data).startswith(f"{data / 'train' / 'items.jsonl'}:3: ")


@pytest.mark.parametrize("content", ['{"items": []}', '"x"', "3", "null", "[" * 100_000])
def test_json_that_is_no_array_is_refused_by_file(data: Path, content: str) -> None:
    (data / "train" / "items.json").write_text(content)
    assert str(data / "train" / "items.json") in refusal(data)


def test_a_missing_folder_split_or_file_is_named(data: Path, tmp_path: Path) -> None:
    (data / "val" / "items.json").unlink()
    assert f"{data / 'val'}: has neither items.json nor items.jsonl" in refusal(data)
    (data / "val").rmdir()
    assert f"'{data}' has no val/ folder" in refusal(data)
    assert "train/, val/ and test/" in refusal(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"env\.split_dir: is empty"):
        QAEnv(EnvConfig())


# Disjoint splits


@pytest.mark.parametrize(("first", "second"), [("train", "val"), ("train", "test"), ("val", "test")])
def test_an_id_in_two_splits_is_refused(data: Path, first: str, second: str) -> None:
    shared = {**rows(second)[1], "id": f"{first}-0"}
    (data / second / "items.json").write_text(json.dumps([rows(second)[0], shared]))
    message = refusal(data)
    assert f"id '{first}-0' is in {first} and {second}" in message
    assert "remove the item from one split" in message


@pytest.mark.parametrize("question", ["train 0?", "  TRAIN\n 0? "])
def test_the_same_task_under_another_id_is_refused(data: Path, question: str) -> None:
    (data / "test" / "items.json").write_text(json.dumps([{"id": "other", "question": question, "answers": ["b"]}]))
    message = refusal(data)
    assert "'train-0' (train) and 'other' (test) are the same task" in message
    assert "remove one" in message


def test_the_same_question_about_another_context_is_another_task(data: Path) -> None:
    other = {"id": "other", "question": "train 0?", "context": "Elsewhere.", "answers": ["b"]}
    (data / "test" / "items.json").write_text(json.dumps([other]))
    assert open_env(data)


# Options


def test_unknown_scoring_and_options_are_refused(data: Path) -> None:
    assert "known are: anls, choice, contains, exact, f1" in refusal(data, scoring="bleu")
    assert "env.options.rules" in refusal(data, options={"rules": 3})
    assert "unknown split 'dev'" in refusal(data, options={"limit": {"dev": 3}})


def test_a_limit_takes_the_same_number_of_each_type_in_the_old_order() -> None:
    from skillopt.tasks.base import Item
    from skillopt.tasks.qa import take

    items = [Item(id=str(n), question="q", type="ab"[n > 5]) for n in range(12)]
    assert [item.id for item in take(items, 4)] == ["0", "1", "6", "7"]
    assert take(items, None) == take(items, 99) == items
