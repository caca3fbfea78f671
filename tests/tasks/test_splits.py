"""One file becomes three splits: seeded, stratified, without copies, written down, and never changed in silence."""

from __future__ import annotations

import contextlib
import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt.cli import main
from skillopt.config import EnvConfig
from skillopt.errors import UserError
from skillopt.tasks.base import SPLITS, Item, check_splits
from skillopt.tasks.data import content_hash
from skillopt.tasks.qa import QAEnv
from skillopt.tasks.splits import RATIOS, divide, load_split, split_path
from support import skillopt

ROWS: list[dict[str, Any]] = [
    {"id": f"q{n:02d}", "question": f"Question {n}?", "answer": ("yes", "no")[n % 2], "type": "abc"[n % 3]}
    for n in range(36)
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def ids(split: dict[str, list[Item]]) -> dict[str, list[str]]:
    return {name: sorted(item.id for item in split[name]) for name in SPLITS}


def command(*arguments: str) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code in {0, None}


def refusal(file: Path, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        load_split(file, **options)
    return str(caught.value)


def test_every_type_is_divided_by_the_ratios_and_so_is_the_whole(tmp_path: Path) -> None:
    split = load_split(write(tmp_path / "t.jsonl", ROWS))
    assert {name: len(items) for name, items in split.items()} == {"train": 18, "val": 9, "test": 9}
    for name, share in RATIOS.items():
        assert Counter(item.type for item in split[name]) == dict.fromkeys("abc", 12 * share)


def test_without_types_a_closed_set_of_answers_is_divided_evenly(tmp_path: Path) -> None:
    rows = [{key: row[key] for key in ("id", "question", "answer")} for row in ROWS]
    split = load_split(write(tmp_path / "t.jsonl", rows))
    assert Counter(item.answers[0] for item in split["train"]) == {"yes": 9, "no": 9}


@given(
    st.lists(st.integers(0, 5), min_size=3, max_size=40),
    st.sampled_from([(2, 1, 1), (1, 1, 1), (7, 1, 2)]),
    st.integers(0, 9),
)
def test_no_split_is_further_from_its_share_than_the_strata_make_it(
    types: list[int], shares: tuple[int, int, int], seed: int
) -> None:
    items = [Item(id=f"i{n}", question=f"Q{n}", type=f"t{kind}") for n, kind in enumerate(types)]
    ratios = {name: share / sum(shares) for name, share in zip(SPLITS, shares, strict=True)}
    with contextlib.suppress(UserError):  # too few to divide
        check_shares(items, ratios, divide(items, ratios, seed))


def check_shares(items: list[Item], ratios: dict[str, float], found: dict[str, str]) -> None:
    assert set(found) == {content_hash(item) for item in items}
    for name in SPLITS:
        assert abs(sum(split == name for split in found.values()) - ratios[name] * len(items)) <= 2
        for kind in {item.type for item in items}:
            own = [item for item in items if item.type == kind]
            here = sum(found[content_hash(item)] == name for item in own)
            assert abs(here - ratios[name] * len(own)) <= 2


def test_the_split_depends_on_content_and_seed_and_not_on_the_files_order(tmp_path: Path) -> None:
    one = ids(load_split(write(tmp_path / "a.jsonl", ROWS)))
    assert ids(load_split(write(tmp_path / "b.jsonl", ROWS[::-1]))) == one
    assert ids(load_split(write(tmp_path / "c.jsonl", ROWS), seed=1)) != one


def test_all_formats_give_the_same_split(tmp_path: Path) -> None:
    one = ids(load_split(write(tmp_path / "a.jsonl", ROWS)))
    (tmp_path / "b.json").write_text(json.dumps(ROWS))
    with (tmp_path / "c.csv").open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, list(ROWS[0]))
        table.writeheader()
        table.writerows(ROWS)
    assert ids(load_split(tmp_path / "b.json")) == ids(load_split(tmp_path / "c.csv")) == one


def test_items_without_ids_are_named_by_their_content(tmp_path: Path) -> None:
    rows = [{"question": row["question"], "answer": row["answer"]} for row in ROWS]
    one = ids(load_split(write(tmp_path / "a.jsonl", rows)))
    assert ids(load_split(write(tmp_path / "b.jsonl", rows[::-1]))) == one


def test_copies_are_left_out_and_copies_that_disagree_are_refused(tmp_path: Path) -> None:
    copy = {**ROWS[0], "id": "copy", "question": " QUESTION  0? "}
    nameless = {"question": "Question 0?", "answer": "yes", "type": "a"}
    split = load_split(write(tmp_path / "a.jsonl", [*ROWS, copy, nameless, nameless]))
    assert sum(len(items) for items in split.values()) == 36
    told = refusal(write(tmp_path / "b.jsonl", [*ROWS, {**copy, "answer": "no"}]))
    assert "b.jsonl: lines 1 and 37 ask the same ('Question 0?') and want different answers ('yes'; 'no')" in told


def test_items_of_one_group_stay_together(tmp_path: Path) -> None:
    rows = [{**row, "type": "", "group": f"document {n // 4}"} for n, row in enumerate(ROWS)]
    split = load_split(write(tmp_path / "t.jsonl", rows))
    homes = {item.model_extra["group"]: set() for items in split.values() for item in items if item.model_extra}
    for name, items in split.items():
        for item in items:
            assert item.model_extra is not None
            homes[item.model_extra["group"]].add(name)
    assert len(homes) == 9
    assert all(len(home) == 1 for home in homes.values())


def test_the_split_is_written_down_and_used_again_whatever_the_config_says_later(tmp_path: Path) -> None:
    file = write(tmp_path / "t.jsonl", ROWS)
    one = ids(load_split(file))
    written = json.loads(split_path(file).read_text())
    assert {name: sorted(row["id"] for row in rows) for name, rows in written["items"].items()} == one
    assert (written["seed"], written["file"]) == (0, "t.jsonl")
    before = split_path(file).read_bytes()
    assert ids(load_split(file, seed=5, ratios={"train": 0.8, "val": 0.1, "test": 0.1})) == one
    assert split_path(file).read_bytes() == before


def test_corrected_answers_and_new_ids_do_not_move_an_item(tmp_path: Path) -> None:
    file = write(tmp_path / "t.jsonl", ROWS)
    one = load_split(file)
    home = {item.question: name for name, items in one.items() for item in items}
    write(file, [{**row, "id": f"new-{row['id']}", "answer": "maybe"} for row in ROWS])
    again = load_split(file)
    assert {item.question: name for name, items in again.items() for item in items} == home


def test_a_changed_file_is_refused_with_the_fix_and_extend_leaves_the_others_where_they_are(tmp_path: Path) -> None:
    file = write(tmp_path / "t.jsonl", ROWS)
    one = ids(load_split(file))
    more = [{**ROWS[0], "id": f"n{n}", "question": f"New {n}?"} for n in range(8)]
    write(file, [*ROWS[1:], *more])
    told = refusal(file)
    assert "8 tasks are new or changed (n0, n1, n2 …) and 1 are gone" in told
    assert f"`skillopt split {file} --extend`" in told
    command("split", str(file), "--extend")
    again = ids(load_split(file))
    for name in SPLITS:
        assert set(one[name]) - {"q00"} <= set(again[name])
    assert sum(len(items) for items in again.values()) == 43
    command("split", str(file), "--renew", "--ratios", "1:1:1")
    assert {len(items) for items in ids(load_split(file)).values()} <= {14, 15}


def test_too_few_items_and_a_split_file_that_is_none_are_named(tmp_path: Path) -> None:
    assert "split would be empty: 1 different tasks are too few" in refusal(write(tmp_path / "a.jsonl", ROWS[:1]))
    file = write(tmp_path / "b.jsonl", ROWS)
    split_path(file).write_text("{}")
    assert f"{split_path(file)}: cannot be read as a split" in refusal(file)


def test_a_file_in_a_folder_that_cannot_be_written_to_is_split_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from skillopt.tasks import splits

    def refuse(*_: Any) -> None:
        raise PermissionError

    file = write(tmp_path / "t.jsonl", ROWS)
    monkeypatch.setattr(splits, "write_json", refuse)
    assert ids(load_split(file)) == ids(load_split(file))


def test_the_env_uses_the_file_and_its_splits_are_disjoint(tmp_path: Path) -> None:
    env = QAEnv(EnvConfig(data=str(write(tmp_path / "t.jsonl", ROWS)), split={"train": 1, "val": 1, "test": 1}))
    check_splits(env)
    assert [len(env.items(name)) for name in SPLITS] == [12, 12, 12]
    with pytest.raises(UserError, match="exclude each other"):
        QAEnv(EnvConfig(data="a.jsonl", split_dir="b"))
    with pytest.raises(UserError, match=r"env\.split: needs a positive share for each of train, val, test"):
        QAEnv(EnvConfig(data=str(tmp_path / "t.jsonl"), split={"train": 1, "val": 1}))


def test_ratios_for_a_split_that_is_there_are_refused_and_not_said_to_be_written(tmp_path: Path) -> None:
    file = write(tmp_path / "t.jsonl", ROWS)
    command("split", str(file), "--ratios", "1:1:1")
    before = split_path(file).read_bytes()
    done = skillopt("split", str(file), "--ratios", "2:1:1")
    assert (done.returncode, "Written" in done.stdout) == (2, False), done.stdout
    assert "--renew to divide all tasks again" in done.stderr
    again = skillopt("split", str(file))
    assert "Written" not in again.stdout
    assert "Unchanged: " in again.stdout
    assert split_path(file).read_bytes() == before


def test_tasks_that_are_added_are_distributed_by_the_ratios_of_the_split_that_is_there(tmp_path: Path) -> None:
    file = write(tmp_path / "t.jsonl", ROWS)
    command("split", str(file), "--ratios", "1:1:1")
    write(file, [*ROWS, *({**row, "id": f"n{row['id']}", "question": f"New {row['question']}"} for row in ROWS)])
    command("split", str(file), "--extend")
    assert {name: len(items) for name, items in load_split(file).items()} == {"train": 24, "val": 24, "test": 24}
