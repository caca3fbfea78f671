"""What each part of a skill is worth: measured part by part, never removed."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt.config import Config
from skillopt.errors import Stopped
from skillopt.measure.ablate import ablate
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json
from skillopt.sim.model import TOPICS, code_for
from skillopt.skill import Skill
from skillopt.skill.document import CLOSE_MARKER, OPEN_MARKER
from skillopt.skill.parts import rules, without_lines
from support import Spy, train_sim
from support import skillopt as command

RULES = 6
USELESS = ["Always be polite and thorough.", "- Take care with onyx.", "- For zephyr, answer XX-11."]
SHADOWED = f"- For {TOPICS[2]}, answer {code_for(TOPICS[2], 0)}."
HARMFUL = f"- For {TOPICS[2]}, answer ZZ-00."
"""Stands below the right rule, and of two rules the later holds: so the right one earns nothing until this is gone."""


def planted() -> str:
    """Six good rules, one of them made wrong by a later one, and three that nothing asks for."""
    good = [f"- For {topic}, answer {code_for(topic, 0)}." for topic in TOPICS[:RULES]]
    lines = ["# Codes", "", USELESS[0], "", "## Rules", "", *good[:3], USELESS[1], *good[3:], HARMFUL, USELESS[2]]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("ablate")
    (folder / "seed.md").write_text(planted())
    result = train_sim(
        folder,
        f"train.init_skill={folder / 'seed.md'}",
        "train.num_epochs=1",
        "optimizer.use_meta_skill=false",
        "gradient.analysts=[exemplar]",
        f"env.options={{rules: {RULES}, train: 12, val: 60, test: 6}}",
    )
    return RunDirectory(result.path)


def run_ablation(run: RunDirectory, *overrides: str, **more: Any) -> dict[str, Any]:
    return asyncio.run(ablate(run, Config.load(run.config_yaml, list(overrides)), **more))


def test_planted_useless_and_harmful_rules_are_found_and_no_others(tmp_path: Path, trained: RunDirectory) -> None:
    before = trained.best_skill.read_bytes()
    result = run_ablation(trained)
    texts = {verdict: [row["text"] for row in result["rows"] if row["verdict"] == verdict] for verdict in VERDICTS}
    assert before.decode() == planted()
    assert sorted(texts["nothing"]) == sorted([*USELESS, SHADOWED])
    assert texts["harmful"] == [HARMFUL]
    assert len(texts["earns"]) == RULES - 1
    assert trained.best_skill.read_bytes() == before
    worth = [row["worth"] for row in result["rows"]]
    assert worth == sorted(worth, reverse=True)
    for row in result["rows"]:
        assert row["interval"][0] <= row["worth"] <= row["interval"][1]
    (idle,) = result["together"]
    assert (idle["worth"], idle["verdict"]) == (0, "nothing")
    assert idle["tokens"] > 0


VERDICTS = ("earns", "harmful", "nothing", "unclear", "together")


def test_the_same_ablation_again_costs_nothing(trained: RunDirectory) -> None:
    first = run_ablation(trained)
    spy = Spy()
    again = run_ablation(trained, models={"target": spy})
    assert not spy.requests
    assert again["rows"] == first["rows"]


def test_a_budget_ends_it_with_what_is_known_and_more_money_goes_on(trained: RunDirectory, tmp_path: Path) -> None:
    shutil.copytree(trained.root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    shutil.rmtree(run.ablation, ignore_errors=True)
    with pytest.raises(Stopped, match="max_calls"):
        run_ablation(run, "budget.max_calls=150", "hardware.workers=1")
    partly = read_json(next(run.ablation.glob("rule_*.json")))
    assert 0 < len(partly["rows"]) < len(rules(Skill(planted())))
    assert len(partly["rows"]) + len(partly["not_measured"]) == len(rules(Skill(planted())))
    spy = Spy()
    whole = run_ablation(run, models={"target": spy})
    assert not whole["not_measured"]
    assert whole["rows"] == run_ablation(trained)["rows"]
    assert len(spy.requests) < whole["paid"]["calls"]


@pytest.mark.slow
def test_noise_does_not_make_rules_useful_or_harmful(tmp_path: Path) -> None:
    (tmp_path / "seed.md").write_text(planted())
    result = train_sim(
        tmp_path,
        f"train.init_skill={tmp_path / 'seed.md'}",
        "train.num_epochs=1",
        "optimizer.use_meta_skill=false",
        "gradient.analysts=[exemplar]",
        "models.target_model=sim:world?noise=0.1",
        f"env.options={{rules: {RULES}, train: 6, val: 60, test: 6}}",
    )
    found = run_ablation(RunDirectory(result.path), repeats=3)
    assert not found["deterministic"]
    assert found["repeats"] == 3
    for row in found["rows"]:
        if row["text"] in USELESS:
            assert row["verdict"] not in {"earns", "harmful"}
        if row["text"].startswith(f"- For {TOPICS[0]},"):
            assert row["verdict"] == "earns"


def facts_and_junk(folder: Path, noise: float) -> RunDirectory:
    """A run whose skill has ten facts, each of use for one or two of 14 validation tasks, and one line of junk."""
    facts = [f"- For {topic}, answer {code_for(topic, 0)}." for topic in TOPICS[:10]]
    (folder / "seed.md").write_text("\n".join(["# Codes", "", *facts, USELESS[1]]) + "\n")
    result = train_sim(
        folder,
        f"train.init_skill={folder / 'seed.md'}",
        "train.num_epochs=1",
        "optimizer.use_meta_skill=false",
        "gradient.analysts=[exemplar]",
        f"models.target_model=sim:world{f'?noise={noise}' if noise else ''}",
        "env.options={rules: 10, train: 6, val: 14, test: 6}",
    )
    return RunDirectory(result.path)


@pytest.mark.parametrize("noise", [0, 0.1])
def test_a_verdict_follows_the_interval_that_stands_next_to_it(noise: float, tmp_path: Path) -> None:
    run = facts_and_junk(tmp_path, noise)
    seen = set()
    for row in run_ablation(run, repeats=3 if noise else 1)["rows"]:
        low, high = row["interval"]
        seen.add(row["verdict"])
        assert (row["verdict"] == "earns") is (low > 0), row
        assert (row["verdict"] == "harmful") is (high < 0), row
        if row["verdict"] == "nothing":
            assert (row["wins"], row["losses"]) == (0, 0), row
    assert seen


@pytest.mark.parametrize("noise", [0, 0.1])
def test_facts_that_matter_only_together_are_called_that_and_are_not_listed_as_without_effect(
    noise: float, tmp_path: Path
) -> None:
    run = facts_and_junk(tmp_path, noise)
    lines = command("ablate", str(run.root)).stdout.splitlines()
    idle = next(line for line in lines if line.startswith("No effect seen: "))
    assert idle == ("No effect seen: 0 rules" if noise else "No effect seen: 1 rule, 7 tokens (line 13)")
    group = next((line for line in lines if "ithout any" in line), "")
    assert group.startswith("Matter together: "), lines
    assert all(f"line {n};" in group or f"line {n})" in group for n in range(3, 13) if noise == 0)
    assert not any("earns" in line.split("rule")[0] for line in lines if "-0." in line and " to +" in line)


# The parts of a document

DOCUMENT = f"""# Title

First paragraph
of two lines.

## Rules

- one
- two
  with more
  - and below
1. three

```sh
# no heading

code
```

## Empty

## Last
Text.
{OPEN_MARKER}
Guided.
- Guided item.
{CLOSE_MARKER}
"""


def test_rules_are_list_items_and_paragraphs() -> None:
    assert [part.text for part in rules(Skill(DOCUMENT))] == [
        "First paragraph\nof two lines.",
        "- one",
        "- two\n  with more\n  - and below",
        "1. three",
        "```sh\n# no heading\n\ncode\n```",
        "Text.",
        "Guided.",
        "- Guided item.",
    ]


@given(st.lists(st.sampled_from(["- a", "- b", "para", "", "# H", "  more", "```", "1. x"]), max_size=12))
def test_what_is_left_lacks_the_part_and_nothing_else(lines: list[str]) -> None:
    skill = Skill("\n".join(lines))
    whole = skill.text.split("\n")
    for part in rules(skill):
        first, last = part.lines
        kept = whole[: first - 1] + whole[last:]
        assert words(part.without.text.split("\n")) == words(kept)
    everything = without_lines(skill, [part.lines for part in rules(skill)])
    assert all(line.startswith("#") for line in words(everything.text.split("\n")))


def words(lines: list[str]) -> list[str]:
    return [line for line in lines if line.strip()]
