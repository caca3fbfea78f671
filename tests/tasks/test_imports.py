"""The same tasks through every import give the same tasks file; what cannot be read is refused by name."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import skillopt
from skillopt.cli import main
from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.preflight.starter import InitOptions, write_folder
from skillopt.tasks.base import SPLITS
from skillopt.tasks.memory import read_tasks
from skillopt.tasks.qa import QAEnv, load_items
from skillopt.tasks.task_file import read_task_file

ROWS = [
    {"question": f"What is {n} and {n}?\nAnswer in “words”, please; é.", "answer": f"sum {2 * n}"} for n in range(200)
]


def dialog(row: dict[str, str]) -> list[dict[str, str]]:
    return [{"role": "user", "content": row["question"]}]


def _jsonl(file: Path, rows: list[Any]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _csv(file: Path) -> None:
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, ["question", "answer"])
        writer.writeheader()
        writer.writerows(ROWS)


def _promptfoo(file: Path) -> None:
    tests = [{"vars": {"q": row["question"]}, "assert": [{"type": "equals", "value": row["answer"]}]} for row in ROWS]
    file.write_text(yaml.safe_dump({"prompts": ["{{q}}"], "tests": tests}))


def _nested(file: Path) -> None:
    _jsonl(file, [{"inputs": {"question": row["question"]}, "outputs": {"answer": row["answer"]}} for row in ROWS])


def _table() -> Any:
    import pyarrow as pa

    return pa.Table.from_pylist([{**row, "note": None} for row in ROWS])


def _parquet(file: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(_table(), file, row_group_size=70)


def _arrow(file: Path) -> None:
    import pyarrow as pa

    new = pa.ipc.new_stream if file.suffix == ".arrow" else pa.ipc.new_file
    with new(file, _table().schema) as writer:
        writer.write_table(_table())


def _feather(file: Path) -> None:
    from pyarrow import feather

    feather.write_feather(_table(), file)


WRITERS: dict[str, Callable[[Path], None]] = {
    "tasks.csv": _csv,
    "tasks.jsonl": lambda file: _jsonl(file, ROWS),
    "tasks.json": lambda file: file.write_text(json.dumps(ROWS)) and None,
    "evals.jsonl": lambda file: _jsonl(file, [{"input": dialog(row), "ideal": row["answer"]} for row in ROWS]),
    "chat.jsonl": lambda file: _jsonl(
        file, [{"messages": [*dialog(row), {"role": "assistant", "content": row["answer"]}]} for row in ROWS]
    ),
    "promptfooconfig.yaml": _promptfoo,
    "nested.jsonl": _nested,
}
COLUMNAR: dict[str, Callable[[Path], None]] = {
    "tasks.parquet": _parquet,
    "tasks.arrow": _arrow,
    "tasks.ipc": _arrow,
    "tasks.feather": _feather,
}
NESTED = {"question": "inputs.question", "answer": "outputs.answer"}


def made(folder: Path, source: Path) -> bytes:
    """The tasks file and its split that `init` writes."""
    names = NESTED if source.name == "nested.jsonl" else {}
    write_folder(folder, InitOptions(source=source, **names))  # type: ignore[arg-type]
    split = json.loads((folder / "tasks.split.json").read_text())
    return (folder / "tasks.jsonl").read_bytes() + json.dumps(split["items"]).encode()


@pytest.fixture
def expected(tmp_path: Path) -> bytes:
    _csv(tmp_path / "first.csv")
    return made(tmp_path / "expected", tmp_path / "first.csv")


def check_import(tmp_path: Path, expected: bytes, name: str, write: Callable[[Path], None]) -> None:
    write(tmp_path / name)
    assert made(tmp_path / "own", tmp_path / name) == expected
    columns = NESTED if name == "nested.jsonl" else {}
    read = load_items(Config.parse({"env": {"data": str(tmp_path / name), "columns": columns}}).env)
    first = load_items(Config.parse({"env": {"data": str(tmp_path / "expected" / "tasks.jsonl")}}).env)
    assert read == first  # without init, too: the same items in the same splits


@pytest.mark.parametrize("name", WRITERS)
def test_the_same_200_tasks_through_every_text_format_give_the_same_tasks_file(
    tmp_path: Path, expected: bytes, name: str
) -> None:
    check_import(tmp_path, expected, name, WRITERS[name])


@pytest.mark.extras
@pytest.mark.parametrize("name", COLUMNAR)
def test_the_same_200_tasks_through_every_table_format_give_the_same_tasks_file(
    tmp_path: Path, expected: bytes, name: str
) -> None:
    check_import(tmp_path, expected, name, COLUMNAR[name])


@pytest.mark.extras
@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "datasets", "splits", "messages"])
def test_the_same_200_tasks_as_an_object_give_the_same_splits(tmp_path: Path, kind: str) -> None:
    _csv(tmp_path / "tasks.csv")
    expected = read_tasks(tmp_path / "tasks.csv", answers=True)
    tasks: Any
    if kind == "pandas":
        import pandas as pd

        tasks = pd.DataFrame([{**row, "note": None} for row in ROWS]).rename(columns={"question": "prompt"})
    elif kind == "pyarrow":
        tasks = _table()
    else:
        from datasets import Dataset, DatasetDict

        tasks = Dataset.from_list(ROWS)
        if kind == "splits":
            names = {"train": "train", "validation": "val", "test": "test"}
            parts = {name: [item.question for item in expected[split]] for name, split in names.items()}
            chosen = {name: [n for n, row in enumerate(ROWS) if row["question"] in parts[name]] for name in names}
            tasks = DatasetDict({name: tasks.select(numbers) for name, numbers in chosen.items()})
        if kind == "messages":
            rows = [{"messages": [*dialog(row), {"role": "assistant", "content": row["answer"]}]} for row in ROWS]
            tasks = Dataset.from_list(rows)
    assert read_tasks(tasks, answers=True) == expected


@pytest.mark.extras
def test_a_data_set_of_hugging_face_is_read_from_its_cache_without_a_network(tmp_path: Path, expected: bytes) -> None:
    """The cache is one that `datasets` wrote from a folder; only its folder's name is that of a data set of the hub."""
    folder = tmp_path / "qa200"
    folder.mkdir()
    _parquet(folder / "train.parquet")
    cache = tmp_path / "cache"
    environment = {**os.environ, "HF_DATASETS_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}
    program = "import datasets, sys; datasets.load_dataset(sys.argv[1])"
    subprocess.run([sys.executable, "-c", program, str(folder)], env=environment, check=True, capture_output=True)
    (cache / "qa200").rename(cache / "org___qa200")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "skillopt.cli", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    done = run("init", "own", "--from", "hf:org/qa200#train")
    assert done.returncode == 0, done.stderr
    tasks, split = tmp_path / "own" / "tasks.jsonl", tmp_path / "own" / "tasks.split.json"
    assert tasks.read_bytes() + json.dumps(json.loads(split.read_text())["items"]).encode() == expected
    divided = run("split", "hf:org/qa200")
    assert "Written: hf-org-qa200.split.json" in divided.stdout, divided.stderr
    part = run("init", "part", "--from", "hf:org/qa200#train[:40]")
    assert "part: 40 tasks" in part.stdout, part.stderr
    for wrong, told in {
        "hf:org/nowhere": "cannot be loaded",
        "hf:../x": "must have the form",
        "hf:org/qa200#dev": "dev",
    }.items():
        refused = run("init", "no", "--from", wrong)
        assert refused.returncode == 2
        assert told in refused.stderr
        assert not (tmp_path / "no").exists()


def test_without_the_extra_a_message_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "datasets", None)
    for source in (str(tmp_path / "a.parquet"), "hf:org/name"):
        with pytest.raises(UserError, match=r"pip install 'skillopt\[data\]'"):
            read_task_file(Path(source))


@pytest.mark.extras
def test_damaged_and_large_tables_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _parquet(tmp_path / "a.parquet")
    content = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(content[: len(content) // 2])
    (tmp_path / "cut.arrow").write_bytes(content[: len(content) // 2])
    for name in ("cut.parquet", "cut.arrow"):
        with pytest.raises(UserError, match="cannot be read as"):
            read_task_file(tmp_path / name)
    monkeypatch.setattr("skillopt.tasks.tables.MOST_ROWS", 199)
    with pytest.raises(UserError, match=r"has 200 rows; at most 199 rows"):
        read_task_file(tmp_path / "a.parquet")


@pytest.mark.extras
def test_every_bad_row_of_a_table_is_named_at_once(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{**row, "sound": None} for row in ROWS[:12]]
    rows[3] = {**rows[3], "answer": None}
    rows[7] = {**rows[7], "sound": b"RIFF"}  # type: ignore[dict-item]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    with pytest.raises(UserError) as caught:
        read_task_file(tmp_path / "a.parquet")
    assert "a.parquet: row 4: answers: needs at least one answer" in str(caught.value)
    assert "a.parquet: row 8: sound: holds bytes that are not an image" in str(caught.value)
    assert len(read_task_file(tmp_path / "a.parquet", skip_bad=True).items) == 10


def test_a_conversation_before_the_question_is_its_context(tmp_path: Path) -> None:
    few = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": [{"type": "text", "text": "3+3?"}]},
    ]
    rows = [
        {"input": few, "ideal": ["6", "six"], "type": "sum"},
        {"input": "7+7?", "ideal": "14"},
        {"messages": [few[0], *dialog({"question": "1+1?"}), {"role": "assistant", "content": "2"}]},
        {
            "messages": [
                *dialog({"question": "Weather?"}),
                {"role": "assistant", "content": None},
                {"role": "tool", "content": "sun"},
                {"role": "assistant", "content": "It is sunny."},
            ]
        },
    ]
    _jsonl(tmp_path / "a.jsonl", rows)
    several, plain, short, tool = read_task_file(tmp_path / "a.jsonl").items
    assert (several.question, several.answers, several.type) == ("3+3?", ("6", "six"), "sum")
    assert several.context == "system: Be brief.\n\nuser: 2+2?\n\nassistant: 4"
    assert (plain.question, plain.answers, plain.context) == ("7+7?", ("14",), "")
    assert (short.question, short.answers, short.context) == ("1+1?", ("2",), "Be brief.")
    assert (tool.question, tool.answers, tool.context) == ("Weather?", ("It is sunny.",), "sun")
    _jsonl(tmp_path / "b.jsonl", [{"input": [few[0]], "ideal": "no question"}])
    with pytest.raises(UserError, match=r"b\.jsonl:1: id and question must not be empty"):
        read_task_file(tmp_path / "b.jsonl")
    assert not any(name in item for item in (several, short) for name, _ in item if name in {"messages", "ideal"})


def test_an_answer_inside_of_another_field_does_not_reach_the_agent(tmp_path: Path) -> None:
    rows = [
        {"inputs": {"q": f"{n}?", "hint": "h"}, "out": [{"text": f"a{n}"}], "meta": {"gold": "x"}} for n in range(4)
    ]
    _jsonl(tmp_path / "a.jsonl", rows)
    items = read_task_file(tmp_path / "a.jsonl", columns={"question": "inputs.q", "answer": "out.0.text"}).items
    assert items[1].answers == ("a1",)
    assert items[1].for_agent().model_dump(exclude={"id"}) == {
        "question": "1?",
        "context": "",
        "type": "",
        "inputs": {"hint": "h"},
        "out": [{}],
        "meta": {"gold": "x"},
    }
    with pytest.raises(UserError, match=r"no column 'inputs.query'.* it has: inputs.q, inputs.hint, out, meta.gold"):
        read_task_file(tmp_path / "a.jsonl", columns={"question": "inputs.query"})


def test_promptfoo_checks_are_kept_and_its_code_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "promptfooconfig.yaml"
    tests = [
        {"vars": {"q": f"q{n}"}, "assert": [{"type": kind, "value": value}]}
        for n, (kind, value) in enumerate(
            [
                ("equals", "yes"),
                ("icontains", "yes"),
                ("llm-rubric", "is polite"),
                ("javascript", "process.exit(1)"),
                ("equals", "file://check.js"),
            ]
        )
    ]
    tests.append({"vars": {"q": "file://secret.txt"}, "assert": []})
    file.write_text(yaml.safe_dump({"prompts": ["Ask {{ q }}", "Tell {{q}}"], "tests": tests}))
    with pytest.raises(UserError) as caught:
        read_task_file(file)
    for told in (
        "assert javascript: is code, which is never run",
        "'file://check.js' is a file",
        "'file://secret.txt' is",
    ):
        assert told in str(caught.value)
    items = read_task_file(file, skip_bad=True).items
    assert [item.get("scoring") for item in items] == ["exact"] * 2 + ["contains"] * 2 + ["judge"] * 2
    assert [item.question for item in items[:2]] == ["Ask q0", "Tell q0"]
    assert items[0]["group"] == items[1]["group"] != items[2]["group"]  # or one prompt would be trained on, one tested
    file.write_text("prompts: ['{% if x %}a{% endif %} {{q | upper}}']\ntests: [{vars: {q: a}}]\n")
    with pytest.raises(UserError, match=r"only \{\{name\}\} is filled in"):
        read_task_file(file)
    file.write_text("prompts: ['Ask {{q}} of {{who}}']\ntests: [{vars: {q: a}, assert: [{type: equals, value: b}]}]\n")
    with pytest.raises(UserError, match=r"vars\.who: is missing; the prompt uses \{\{who\}\}"):
        read_task_file(file)
    talk = json.dumps([{"role": "system", "content": "Be {{how}}."}, {"role": "user", "content": "{{q}}"}])
    case = {"vars": {"q": 'Say "yes"', "how": "brief"}, "assert": [{"type": "equals", "value": "yes"}]}
    file.write_text(yaml.safe_dump({"prompts": [talk], "tests": [case]}))
    (spoken,) = read_task_file(file).items
    assert (spoken.question, spoken.context) == ('Say "yes"', "Be brief.")
    file.write_text("tests: file://tests.csv\n")
    with pytest.raises(UserError, match=r"'file://tests\.csv', and tests in other files are not read"):
        read_task_file(file)


def test_init_makes_promptfoo_tests_with_different_checks_trainable(tmp_path: Path) -> None:
    kinds = [("equals", "yes"), ("icontains", "yes"), ("regex", "y.s")]
    tests = [
        {"vars": {"q": f"Say yes, {n}"}, "assert": [{"type": kinds[n % 3][0], "value": kinds[n % 3][1]}]}
        for n in range(24)
    ]
    (tmp_path / "p.yaml").write_text(yaml.safe_dump({"prompts": ["{{q}}"], "tests": tests}))
    write_folder(tmp_path / "own", InitOptions(source=tmp_path / "p.yaml"))
    config = (tmp_path / "own" / "config.yaml").read_text()
    assert "scoring: by_task" in config
    with pytest.raises(UserError, match="names its own scorer"):
        QAEnv(Config.parse({"env": {"data": str(tmp_path / "p.yaml")}}).env)


def test_the_command_line_takes_paths_of_nested_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    _nested(tmp_path / "nested.jsonl")
    with pytest.raises(SystemExit) as left:
        main(["split", "nested.jsonl", "--question", "inputs.question", "--answer", "outputs.answer"])
    assert left.value.code in {0, None}
    assert "train: 100 items" in capsys.readouterr().out
    assert set(json.loads((tmp_path / "nested.split.json").read_text())["items"]) == set(SPLITS)
    (tmp_path / "skill.md").write_text("Be brief.")
    (tmp_path / "c.yaml").write_text("env: {data: nested.jsonl, columns: {answer: outputs.answer}}")
    keys = ["env.columns.question=inputs.question"]
    with pytest.raises(SystemExit) as left:
        main(["eval", "--config", "c.yaml", "--skill", "skill.md", "--target_model", "sim:world", *keys])
    assert left.value.code in {0, None}, capsys.readouterr()


def test_a_program_names_nested_fields_of_its_list(tmp_path: Path) -> None:
    rows = [{"inputs": {"question": row["question"]}, "outputs": {"answer": row["answer"]}} for row in ROWS]
    trainer = skillopt.Trainer(tasks=rows, columns=NESTED, output_root=str(tmp_path / "out"))
    assert trainer.env is not None
    _csv(tmp_path / "tasks.csv")
    assert {split: list(trainer.env.items(split)) for split in SPLITS} == read_tasks(
        tmp_path / "tasks.csv", answers=True
    )
    with pytest.raises(UserError, match=r"tasks\[5\]: answers: needs at least one answer"):
        read_tasks([*rows[:5], {"inputs": {"question": "Q?"}}, *rows[5:]], answers=True, columns=NESTED)
