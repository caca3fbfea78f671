"""What `prune` takes out of a skill, what it puts back, and that nothing else changes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from skillopt.record.directory import RunDirectory
from skillopt.record.pruning import Pruning
from skillopt.record.run import Run, read_record
from skillopt.sim.model import TOPICS, code_for
from support import skillopt as command
from support import train_sim

RULES = 4
GOOD = [f"- For {topic}, answer {code_for(topic, 0)}." for topic in TOPICS[:RULES]]
USELESS = "- When you meet a ticket about zephyr, be polite, be thorough and take all the time that you need."
HARMFUL = f"- For {TOPICS[1]}, answer ZZ-00."


def trained(folder: Path, lines: list[str], noise: str = "") -> RunDirectory:
    """A run whose best skill is this document."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "seed.md").write_text("\n".join(["# Codes", "", "## Rules", "", *lines]) + "\n")
    result = train_sim(
        folder,
        f"train.init_skill={folder / 'seed.md'}",
        "train.num_epochs=1",
        "optimizer.use_meta_skill=false",
        "gradient.analysts=[exemplar]",
        f"models.target_model=sim:world{noise}",
        f"env.options={{rules: {RULES}, train: 6, val: 30, test: 6}}",
    )
    return RunDirectory(result.path)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Four good rules, one of them twice, and a useless one."""
    return trained(tmp_path_factory.mktemp("prune"), [*GOOD, USELESS, GOOD[0]])


def copied(run: RunDirectory, to: Path) -> RunDirectory:
    shutil.copytree(run.root, to / "run", ignore=shutil.ignore_patterns("pruned"))
    return RunDirectory(to / "run")


def record(run: RunDirectory) -> Pruning:
    return read_record(Pruning, run.pruned / "prune.json")


def test_a_rule_that_earns_nothing_is_removed_and_the_best_skill_stays(tmp_path: Path) -> None:
    run = trained(tmp_path, [*GOOD, USELESS])
    before = run.best_skill.read_bytes()
    done = command("prune", str(run.root))
    assert done.returncode == 0, done.stdout + done.stderr
    pruned = (run.pruned / "skill.md").read_text()
    assert pruned == before.decode().replace(f"{USELESS}\n", "")
    assert run.best_skill.read_bytes() == before
    found = record(run)
    sentence = f"Pruned: {found.tokens} → {found.pruned_tokens} tokens, no worse: 1.00 against 1.00, margin 0.05."
    assert found.verdict.startswith(sentence)
    assert sentence in done.stdout
    assert found.tokens > found.pruned_tokens
    assert not Run(run).test_reads[1:], "the test split is not read again"


def test_a_harmful_rule_goes_and_rules_that_earn_something_stay(tmp_path: Path) -> None:
    run = trained(tmp_path, [*GOOD, HARMFUL])
    assert command("prune", str(run.root)).returncode == 0
    pruned = (run.pruned / "skill.md").read_text()
    assert HARMFUL not in pruned
    assert all(rule in pruned for rule in GOOD if TOPICS[1] not in rule)


def test_of_two_rules_that_say_the_same_one_is_put_back(planted: RunDirectory, tmp_path: Path) -> None:
    run = copied(planted, tmp_path)
    done = command("prune", str(run.root))
    assert done.returncode == 0, done.stdout + done.stderr
    pruned = (run.pruned / "skill.md").read_text().splitlines()
    assert pruned.count(GOOD[0]) == 1
    assert USELESS not in pruned
    found = record(run)
    assert [trial.verdict for trial in found.trials] == ["worse", "no worse"]
    assert len(found.put_back) == 1


def test_of_a_package_a_rule_of_a_reference_is_removed_and_the_rest_is_the_same(tmp_path: Path) -> None:
    package = tmp_path / "codes"
    (package / "references").mkdir(parents=True)
    front = "---\nname: codes\ndescription: Codes of tickets.\n---\n"
    (package / "SKILL.md").write_text(f"{front}# Codes\n\n- Read references/codes.md first.\n{GOOD[0]}\n")
    (package / "references" / "codes.md").write_text("\n".join([*GOOD[1:], USELESS]) + "\n")
    options = f"env.options={{rules: {RULES}, train: 6, val: 20, test: 6}}"
    own = (f"train.init_skill={package}", "train.num_epochs=1", "optimizer.use_meta_skill=false", options)
    run = RunDirectory(train_sim(tmp_path, *own).path)
    assert command("prune", str(run.root)).returncode == 0
    pruned = run.pruned / "skill"
    assert (pruned / "references" / "codes.md").read_text() == "\n".join(GOOD[1:]) + "\n"
    assert (pruned / "SKILL.md").read_bytes() == (run.best_package / "SKILL.md").read_bytes()
    assert USELESS in (run.best_package / "references" / "codes.md").read_text()


def test_if_no_shorter_skill_holds_nothing_is_written_and_it_says_so(planted: RunDirectory, tmp_path: Path) -> None:
    run = copied(planted, tmp_path)
    assert command("prune", str(run.root)).returncode == 0
    done = command("prune", str(run.root), "--trials", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Nothing was pruned: one shorter skill was measured, and the last one" in done.stdout
    assert sorted(path.name for path in run.pruned.iterdir()) == ["prune.json"]


def test_every_call_is_in_the_journal_and_a_budget_only_interrupts(planted: RunDirectory, tmp_path: Path) -> None:
    run = copied(planted, tmp_path)
    stopped = command("prune", str(run.root), "--max-calls", "250")
    assert stopped.returncode == 3, stopped.stdout + stopped.stderr
    assert not run.pruned.exists()
    assert command("prune", str(run.root)).returncode == 0
    first = record(run)
    assert command("prune", str(run.root), "--max-calls", str(first.spent.calls)).returncode == 0
    assert record(run) == first


def test_a_dry_run_says_how_much_it_would_ask_and_asks_nothing(planted: RunDirectory, tmp_path: Path) -> None:
    run = copied(planted, tmp_path)
    done = command("prune", str(run.root), "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "Ablation: 6 rules on 30 validation items, at most 270 rollouts." in done.stdout
    assert not run.pruned.exists()
    assert not list(run.ablation.glob("rule_*.json"))


@pytest.mark.slow
def test_with_a_noisy_target_no_good_rule_is_lost(tmp_path: Path) -> None:
    run = trained(tmp_path, [*GOOD, USELESS], "?noise=0.05")
    done = command("prune", str(run.root))
    assert done.returncode in {0, 4}, done.stdout + done.stderr
    if record(run).outcome == "pruned":
        assert all(rule in (run.pruned / "skill.md").read_text() for rule in GOOD)
