"""`env.scoring: by_task`: each task is scored in the way that it names."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from skillopt.config import EnvConfig
from skillopt.errors import UserError
from skillopt.tasks.base import Item, score_output
from skillopt.tasks.qa import QAEnv

ROWS = [
    {"scoring": "exact", "answers": ["yes"]},
    {"scoring": "regex", "answers": [r"\Apnpm"], "search": True},
    {"scoring": "contains", "answers": ["x", "y"], "every": True},
]


def env(tmp_path: Path, rows: list[dict[str, object]], **more: object) -> QAEnv:
    data = tmp_path / "tasks.jsonl"
    several = [
        {**row, "id": f"{n}-{copy}", "question": f"q {n} {copy}"} for n, row in enumerate(rows) for copy in range(4)
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in several))
    return QAEnv(EnvConfig.model_validate({"data": str(data), "scoring": "by_task", **more}))


def item(opened: QAEnv, name: str) -> Item:
    return next(each for split in ("train", "val", "test") for each in opened.items(split) if each.id == name)


def test_each_task_is_scored_as_it_says(tmp_path: Path) -> None:
    opened = env(tmp_path, ROWS)
    outputs = {"0-0": ("Yes.", "no"), "1-0": ("pnpm add", "npm add"), "2-0": ("y and x", "only x")}
    for name, (right, wrong) in outputs.items():
        task = item(opened, name)
        assert asyncio.run(score_output(opened, task, right)).hard == 1
        assert asyncio.run(score_output(opened, task, wrong)).hard == 0
    assert not opened.noisy
    opened.close()


def test_a_rubric_is_judged_and_the_others_are_not(tmp_path: Path) -> None:
    opened = env(tmp_path, [*ROWS, {"scoring": "judge", "rubric": "is polite"}])
    asked: list[str] = []

    async def judge(messages, schema, check):  # type: ignore[no-untyped-def]
        asked.append(messages[-1]["content"])
        from skillopt.models.structured import CheckedReply

        return CheckedReply(value=("good", 4))

    assert opened.judge is not None
    assert asyncio.run(score_output(opened, item(opened, "3-0"), "please", judge)).hard == 1
    assert "is polite" in asked[0]
    assert asyncio.run(score_output(opened, item(opened, "0-0"), "no", judge)).hard == 0
    assert len(asked) == 1
    assert "rubric" not in item(opened, "3-0").for_agent().model_dump()
    opened.close()


@pytest.mark.parametrize("row", [{"answers": ["x"]}, {"scoring": "exact"}, {"scoring": "nothing", "answers": ["x"]}])
def test_a_task_without_a_usable_scorer_is_refused_by_name(row: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"item '1-|unknown 'nothing'"):
        env(tmp_path, [ROWS[0], row])


def test_files_are_looked_at_wherever_the_tasks_come_from(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [*ROWS, {"scoring": "files", "expected": {"a.txt": "done"}, "workspace": {}}]
    for split in ("train", "val", "test"):
        (tmp_path / split).mkdir()
        items = ({**row, "id": f"{split}-{n}", "question": f"{split} {n}"} for n, row in enumerate(rows))
        (tmp_path / split / "items.json").write_text(json.dumps(list(items)))
    opened = QAEnv(EnvConfig(split_dir=str(tmp_path), scoring="by_task"))
    assert opened.scores_files
    assert asyncio.run(score_output(opened, item(opened, "train-0"), "yes")).hard == 1
    assert asyncio.run(score_output(opened, item(opened, "train-3"), "done")).feedback == "a.txt: is missing"
    opened.close()
