"""`skillopt check`: the verdict, its exit code, and what is paid for it."""

from __future__ import annotations

import json
import random
import re
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt.measure.sequential import Trial
from skillopt.record.files import read_json, read_jsonl
from skillopt.statistics import sign_test
from skillopt.view.check_files import github, junit, of_outcome
from skillopt.view.check_lines import changed_lines, summary
from skillopt.view.text import printable
from support import SIM, skillopt, train_sim
from support.checking import NO_KEYS, here, hostile_outcome, run_check, write_skill
from support.virtual import Clock

NOISE = "models.target_model=sim:world?noise={}"


def played(trial: Trial, sample: Any) -> tuple[str, int]:
    """The verdict and how many samples it took."""
    asked = 0
    steps = trial.play()
    try:
        asks = next(steps)
        while True:
            asked += len(asks)
            asks = steps.send([sample(ask) for ask in asks])
    except StopIteration as end:
        return end.value, asked


def world(items: int, change: int, flips: float, seed: int) -> tuple[Trial, Any]:
    """60 % are solved by the base; the skill solves `change` more, or fewer; every sample flips now and then."""
    draw = random.Random(seed)
    before = [n < round(0.6 * items) for n in range(items)]
    draw.shuffle(before)
    after = list(before)
    for item in draw.sample([n for n, solved in enumerate(before) if solved == (change < 0)], abs(change)):
        after[item] = not after[item]
    order = [f"{n:03d}" for n in range(items)]

    def sample(ask: Any) -> float:
        truth = (before if ask.side == "current" else after)[int(ask.item_id)]
        return float(truth != (draw.random() < flips))

    return Trial(order=order, noisy=flips > 0), sample


def verdicts(items: int, change: int, flips: float, trials: int) -> tuple[Counter[str], float]:
    """How often each verdict, and the mean cost in full passes of both."""
    outcomes = [played(*world(items, change, flips, seed)) for seed in range(trials)]
    return Counter(word for word, _ in outcomes), sum(asked for _, asked in outcomes) / trials / (2 * items)


@pytest.mark.parametrize(("items", "flips"), [(24, 0.2), (40, 0.1), (40, 0.02)])
def test_a_change_that_does_nothing_is_rarely_called_better_or_worse(items: int, flips: float) -> None:
    counts, _ = verdicts(items, 0, flips, 200)
    assert counts["better"] + counts["worse"] <= 0.05 * 200


def test_a_drop_of_ten_points_on_forty_items_is_found() -> None:
    counts, cost = verdicts(40, -4, 0.1, 100)
    assert counts["worse"] >= 75
    assert counts["better"] == 0
    assert cost < 2.5


def test_the_seconds_of_a_task_leave_out_the_waits_for_an_endpoint_that_turns_calls_away(
    tmp_path: Path, virtual_time: Clock
) -> None:
    """A call takes one second; every third is turned away for a minute."""
    first, second = write_skill(tmp_path / "first.md", 8), write_skill(tmp_path / "second.md", 12)
    weather = "models.target_model=sim:world?latency=1&rate_limit_every=3&retry_after=60"
    done = run_check(tmp_path, str(second), "--base", str(first), weather)
    assert "seconds" in done.stdout, done.stderr
    (found,) = (tmp_path / "out").rglob("check.json")
    for side, takes in read_json(found)["takes"].items():
        assert takes["telemetry"]["seconds"] == pytest.approx(1.0, abs=0.2), side


def test_a_clear_difference_ends_it_before_all_items_are_done() -> None:
    trial = Trial(order=[f"{n:03d}" for n in range(48)], noisy=False)
    word, asked = played(trial, lambda ask: float(ask.side == "candidate"))
    assert (word, asked) == ("better", 2 * 8)
    trial = Trial(order=[f"{n:03d}" for n in range(48)], noisy=True)
    assert played(trial, lambda ask: float(ask.side == "current"))[0] == "worse"


def test_a_deterministic_target_is_never_asked_twice() -> None:
    asks: list[Any] = []
    trial, sample = world(40, 2, 0.0, 1)
    played(trial, lambda ask: (asks.append(ask), sample(ask))[1])
    assert len({(ask.item_id, ask.side) for ask in asks}) == len(asks)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=2, max_size=60),
    st.sampled_from([0.0, 0.05, 0.2]),
)
def test_what_is_known_of_every_item_of_a_deterministic_target_is_its_verdict(
    outcomes: list[tuple[int, int]], margin: float
) -> None:
    """An early stop may only take another word than the full pass where chance could explain it; a full pass never."""
    trial = Trial(order=[str(n) for n in range(len(outcomes))], noisy=False, margin=margin)
    word, asked = played(trial, lambda ask: float(outcomes[int(ask.item_id)][ask.side == "candidate"]))
    net = sum(after - before for before, after in outcomes) / len(outcomes)
    wins, losses = (sum(pair == way for pair in outcomes) for way in ((0, 1), (1, 0)))
    if asked == 2 * len(outcomes):
        chance = sign_test(wins, losses)
        better = chance <= 0.05 or (net > margin + 1e-9 and not losses)
        worse = not wins or sign_test(losses, wins) <= 0.05
        assert word == (
            "better" if better else "no worse" if net >= -margin - 1e-9 else "worse" if worse else "cannot tell"
        )
    assert trial.difference == pytest.approx(net) or asked < 2 * len(outcomes)


@pytest.mark.parametrize("noisy", [False, True])
def test_items_that_change_both_ways_are_no_reason_for_a_verdict(noisy: bool) -> None:
    """Ten won and thirteen lost of 48, each for sure: other words would give other ones."""
    trial = Trial(order=[f"{n:03d}" for n in range(48)], noisy=noisy)

    def sample(ask: Any) -> float:
        lost, won = int(ask.item_id) % 48 in range(0, 26, 2), int(ask.item_id) in range(1, 21, 2)
        return float(lost if ask.side == "current" else won) if lost or won else 1.0

    assert played(trial, sample)[0] == "cannot tell"


def test_a_refused_item_counts_for_neither_side() -> None:
    trial = Trial(order=[f"{n:03d}" for n in range(20)], noisy=False)
    word, _ = played(trial, lambda ask: None if ask.item_id == "003" and ask.side == "candidate" else 1.0)
    assert word == "no worse"
    assert "003" not in trial.measured


@pytest.mark.parametrize(
    ("skill", "base", "extra", "code", "word"),
    [
        ((14, 0), "none", (), 0, "BETTER"),
        ((14, 0), (6, 0), (), 0, "BETTER"),
        ((6, 0), (14, 0), (), 1, "WORSE"),
        ((14, 3), (14, 0), (), 1, "WORSE"),
        ((14, 3), (14, 0), ("--margin", "1"), 0, "NO WORSE"),
        ((14, 0), (14, 0), (NOISE.format(0.3), "--max-items", "8"), 4, "CANNOT TELL"),
    ],
)
def test_the_verdict_in_words_and_its_exit_code(
    tmp_path: Path, skill: tuple[int, int], base: Any, extra: tuple[str, ...], code: int, word: str
) -> None:
    write_skill(tmp_path / "skill.md", *skill)
    if base != "none":
        write_skill(tmp_path / "base.md", *base, head="# Codes\n\n")
        base = "base.md"
    done = run_check(tmp_path, "skill.md", "--base", base, *extra)
    assert done.returncode == code, done.stdout + done.stderr
    assert f"{word}  skill.md: " in done.stdout


def checked(work: Path) -> dict[str, Any]:
    (path,) = work.glob("out/checks/sim/*/check.json")
    found: dict[str, Any] = read_json(path)
    return found


def test_what_each_side_takes_and_what_changed_is_shown(tmp_path: Path) -> None:
    write_skill(tmp_path / "skill.md", 6)
    write_skill(tmp_path / "base.md", 14)
    done = run_check(tmp_path, "skill.md", "--base", "base.md")
    found = checked(tmp_path)
    takes = found["takes"]
    assert takes["base"]["prompt_tokens"] > takes["skill"]["prompt_tokens"] > 50
    assert takes["skill"]["turns"] == 1
    assert takes["skill"]["usd"] == 0
    lost = [row for row in found["changed"] if row["change"] == "regressed"]
    assert lost[0]["base"]["output"] != lost[0]["skill"]["output"]
    assert lost[0]["item_id"] in done.stdout
    assert found["scores"]["skill"]["score"] < found["scores"]["base"]["score"]
    assert found["difference_interval"][0] < found["difference"] < found["difference_interval"][1] < 0


def test_a_runs_folder_is_its_best_skill_for_a_check_and_for_lint(tmp_path: Path) -> None:
    result = train_sim(tmp_path / "out", "train.num_epochs=1", "evaluation.baselines=false")
    seed = result.path / "skills" / "skill_v0000.md"
    done = run_check(tmp_path, str(result.path), "-c", str(SIM), "--base", str(seed), f"env.output_root={tmp_path}/out")
    assert done.returncode == 0, done.stderr
    assert f"{result.path}: Better than the base" in done.stdout
    done = run_check(tmp_path, str(seed), "-c", str(SIM), "--base", str(result.path), f"env.output_root={tmp_path}/out")
    assert done.returncode == 1, done.stderr
    assert skillopt("lint", str(result.path)).stdout.startswith(f"{result.path}: ")


def test_the_base_is_paid_for_once(tmp_path: Path) -> None:
    write_skill(tmp_path / "base.md", 10)
    paid = []
    for number, known in enumerate((4, 5, 4)):
        write_skill(tmp_path / f"skill{number}.md", known, head=f"# Version {known}\n\n")
        done = run_check(tmp_path, f"skill{number}.md", "--base", "base.md", NOISE.format(0.1), "--max-items", "12")
        paid.append(int(done.stdout.partition("It cost ")[2].split()[0]))
    rollouts = [read_json(path)["rollouts"]["asked"] for path in sorted(tmp_path.glob("out/checks/sim/*/check.json"))]
    assert paid[0] >= 24
    assert paid[1] < min(rollouts)
    assert paid[2] == 0  # the same text under another name


def test_a_skill_that_was_lucky_as_a_candidate_is_measured_afresh_as_the_base(tmp_path: Path) -> None:
    write_skill(tmp_path / "a.md", 10)
    write_skill(tmp_path / "b.md", 10, head="# Other words\n\n")
    for skill, base in (("a.md", "b.md"), ("b.md", "a.md")):
        run_check(tmp_path, skill, "--base", base, NOISE.format(0.3), "--max-items", "12")
    rows = [t for path in tmp_path.glob("out/checks/sim/*/trajectories.jsonl") for t in read_jsonl(path)]
    outputs: dict[str, dict[str, str]] = {"base": {}, "skill": {}}
    own = [t for t in rows if t["skill_hash"] == rows[0]["skill_hash"]]
    for t in own:
        label, side, name, *_ = t["id"].split("-")
        assert label == "check"
        outputs[side].setdefault(f"{name}/{t['item_id']}", t["output"])
    both = outputs["base"].keys() & outputs["skill"].keys()
    assert len(both) >= 12
    assert any(outputs["base"][key] != outputs["skill"][key] for key in both)


def test_what_a_budget_stops_is_no_verdict_and_can_go_on(tmp_path: Path) -> None:
    write_skill(tmp_path / "skill.md", 6)
    write_skill(tmp_path / "base.md", 14)
    done = run_check(tmp_path, "skill.md", "--base", "base.md", "budget.max_calls=9")
    assert done.returncode == 3
    assert "budget.max_calls" in done.stderr
    assert "run the same command again" in done.stderr
    assert not list(tmp_path.glob("out/checks/sim/*/check.json"))
    again = run_check(tmp_path, "skill.md", "--base", "base.md")
    assert again.returncode == 1
    assert int(again.stdout.partition("It cost ")[2].split()[0]) == checked(tmp_path)["rollouts"]["asked"] - 9


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nowhere.md",), 2, "no such file"),
        (("skill.md", "--base", "no-such-ref"), 2, "not in a git repository"),
        (("data/sim/seed_skill.md", "--base", "data/sim/nothing.md"), 2, "give an existing file"),
        (("skill.md", "--split", "dev"), 2, "is not one of"),
        (("skill.md", "models.target_model=openai:gpt-4o-mini"), 2, "no key; set OPENAI_API_KEY"),
        (
            ("skill.md", "models.target_model=vllm:x", "hardware.vllm_url=http://127.0.0.1:9/v1"),
            2,
            "is the server running",
        ),
        (
            ("skill.md", "models.target_model=sim:world?server_error=1", "hardware.max_retries=0"),
            3,
            "could not be measured",
        ),
        (
            ("skill.md", "--budget", "1", "models.target_model=vllm:x", "hardware.vllm_url=http://127.0.0.1:9"),
            2,
            "unknown",
        ),
        (("skill.md", "other.md"), 2, "the command takes only one skill"),
        (("skill.md", "env.name=qa", "env.options={}", "env.split_dir=halves"), 2, "val"),
        (("",), 2, "skillopt.toml: no such file"),
    ],
)
def test_bad_input_has_a_clear_message_and_is_never_worse(
    tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    write_skill(tmp_path / "skill.md", 6)
    for split in ("train", "test"):
        (tmp_path / "halves" / split).mkdir(parents=True)
        row = {"id": split, "question": split, "answers": ["x"]}
        (tmp_path / "halves" / split / "items.jsonl").write_text(json.dumps(row) + "\n")
    done = run_check(tmp_path, *filter(None, arguments), env=NO_KEYS)
    assert done.returncode == code, done.stdout + done.stderr
    assert message in done.stderr
    assert "WORSE" not in done.stdout
    assert not list(tmp_path.glob("**/check.json"))


def test_without_a_config_nothing_is_guessed(tmp_path: Path) -> None:
    write_skill(tmp_path / "skill.md", 6)
    done = here(tmp_path, "check", "skill.md")
    assert done.returncode == 2
    assert "--config" in done.stderr


def test_a_fork_without_a_key_gets_lint_and_is_told_so(tmp_path: Path) -> None:
    write_skill(tmp_path / "skill.md", 6)
    keyless = ("models.target_model=openai:gpt-4o-mini", "--skip-without-key", "--out", "found")
    done = run_check(tmp_path, "skill.md", *keyless, env=NO_KEYS)
    assert done.returncode == 0, done.stderr
    assert "Not measured, only linted" in done.stdout
    assert "Not measured, only linted" in (tmp_path / "found" / "summary.md").read_text()


def test_drift_is_a_table_with_a_row_for_each_target(tmp_path: Path) -> None:
    write_skill(tmp_path / "skill.md", 14)
    done = run_check(tmp_path, "skill.md", "--targets", "sim:world, sim:world?noise=0.5", "--out", "found")
    assert done.returncode in {0, 4}, done.stderr
    rows = read_json(tmp_path / "found" / "check.json")
    assert [row["status"] == "better" for row in rows] == [True, False]
    last = done.stdout.splitlines()[-5:-3]
    assert [line.split()[0] for line in last] == ["sim:world", "sim:world?noise=0.5"]


def test_the_same_check_gives_the_same_bytes_at_any_width(tmp_path: Path) -> None:
    found = []
    for workers in (1, 16):
        work = tmp_path / str(workers)
        write_skill(work / "skill.md", 8)
        write_skill(work / "base.md", 10)
        run_check(work, "skill.md", "--base", "base.md", NOISE.format(0.1), f"hardware.workers={workers}")
        result = checked(work)
        for place in (result, *result["takes"].values()):
            place.pop("telemetry")
        found.append(result)
    assert found[0] == found[1]


def test_the_settings_of_a_project_hold_for_a_skill_that_is_named(tmp_path: Path) -> None:
    write_skill(tmp_path / "skill.md", 12, 2)
    write_skill(tmp_path / "base.md", 12)
    listed = f'[skills."skill.md"]\nconfig = "{SIM}"\nmargin = 0.9\n'
    (tmp_path / "skillopt.toml").write_text(listed)
    out = f"env.output_root={tmp_path / 'out'}"
    assert here(tmp_path, "check", "skill.md", "--base", "base.md", out).returncode == 0
    assert here(tmp_path, "check", "skill.md", "--base", "base.md", "--margin", "0", out).returncode == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("skills = 3\n", "lists no skill"),
        ('[skills."a.md"]\n', "has no config"),
        ('[skills."a.md"]\nconfig = "c"\nmargn = 1\n', "margn: unknown key; known are: config, margin"),
        ('[skills."a.md"]\nconfig = "c"\nmargin = "x"\n', "margin"),
        ('[skills."../a.md"]\nconfig = "c"\n', "below the folder"),
        ("[checks]\n", "unknown table 'checks'"),
        ("[skills\n", "not readable as TOML"),
    ],
)
def test_what_is_wrong_in_a_project_file_is_said(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "skillopt.toml").write_text(text)
    done = here(tmp_path, "check")
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize("option", [("--budget", "0"), ("--margin", "nan"), ("--max-items", "0"), ("--margin", "2")])
def test_a_value_that_cannot_be_is_refused(tmp_path: Path, option: tuple[str, str]) -> None:
    write_skill(tmp_path / "skill.md", 6)
    assert run_check(tmp_path, "skill.md", *option).returncode == 2


def test_a_fault_in_a_users_code_does_not_end_with_the_code_of_worse(tmp_path: Path) -> None:
    write_skill(tmp_path / "skill.md", 6)
    (tmp_path / "faulty.py").write_text(
        "class Env:\n    def __init__(self, config):\n        raise ZeroDivisionError\n"
    )
    done = run_check(tmp_path, "skill.md", f"env.name={tmp_path}/faulty.py:Env", "env.options={}")
    assert done.returncode == 2, done.stdout + done.stderr


def test_a_hostile_output_stays_text_in_every_page(tmp_path: Path) -> None:
    outcome = hostile_outcome()
    page = summary([outcome])
    outside = re.sub(r"^(`{3,})\n.*?\n\1$", "", page, flags=re.DOTALL | re.MULTILINE)
    assert "<script>" not in outside
    assert "\n::" not in outside
    ET.fromstring(junit([outcome]))
    commands = github(of_outcome(outcome))
    assert len(commands) == len("\n".join(commands).splitlines()) == 1
    assert outcome.result
    assert "\x1b" not in "".join(map(printable, changed_lines(outcome.result)))
