"""What belongs to a model lives with the model: another target on the same config is safe."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.inputs import configure
from skillopt.preflight.plan import is_deterministic
from skillopt.provider_table import local_processes
from support import REPO, train_sim

QUICKSTART = REPO / "configs/quickstart/default.yaml"


def test_another_target_on_the_quickstart_takes_over_nothing_of_the_small_model() -> None:
    ours, other = Config.load(QUICKSTART), Config.load(QUICKSTART, ["models.target_model=openai:gpt-4o"])
    assert (ours.role("target").max_tokens, ours.role("target").workers) == (20, local_processes())
    assert (ours.role("target").call_timeout, is_deterministic(ours, "target")) == (300, True)
    assert (other.role("target").max_tokens, other.role("target").workers) == (1024, 8)
    assert (other.role("target").call_timeout, is_deterministic(other, "target")) == (120, False)
    assert other.evaluation.gate == "paired"  # which takes fresh samples where the target is noisy


def test_a_larger_optimizer_on_the_llm_quickstart_may_write_long_replies() -> None:
    config = Config.load(REPO / "configs/quickstart/llm.yaml", ["models.optimizer_model=openai:gpt-4o"])
    assert config.role("optimizer").max_tokens == 12_000


def test_a_model_comes_before_its_provider_and_the_command_line_before_both() -> None:
    tree = {
        "models": {
            "target_model": "vllm:a",
            "target_max_tokens": 300,
            "targets": {"vllm": {"max_tokens": 50, "deterministic": True}, "vllm:a": {"max_tokens": 70}},
        },
        "hardware": {"workers": 3},
    }
    assert (Config.parse(tree).role("target").max_tokens, Config.parse(tree).role("target").deterministic) == (70, True)
    assert configure(tree, {"target_model": "vllm:b"}).role("target").max_tokens == 50
    assert configure(tree, {"target_model": "openai:b"}).role("target").max_tokens == 300
    assert configure(tree, {"target_max_tokens": 90}).role("target").max_tokens == 90
    assert configure(tree, {"models": {"target_max_tokens": 90}}).role("target").max_tokens == 90
    assert configure(tree, overrides=["models.target_max_tokens=90"]).role("target").max_tokens == 90
    assert tree["models"]["targets"] == {
        "vllm": {"max_tokens": 50, "deterministic": True},
        "vllm:a": {"max_tokens": 70},
    }


def test_the_table_makes_the_run_that_the_plain_keys_made() -> None:
    """An unfinished run of the old file is found by the new one."""
    plain = Config.parse({"models": {"target_model": "local:x", "target_max_tokens": 20}})
    table = Config.parse({"models": {"target_model": "local:x", "targets": {"local": {"max_tokens": 20}}}})
    assert plain.identity() == table.identity() == {"models.target_model": "local:x", "models.target_max_tokens": 20}
    assert Config.parse({"models": {"targets": {"local": {"max_tokens": 20}}}}).identity() == {}
    assert Config().flat()["models.target_max_tokens"] == 1024


def test_the_config_that_a_run_leaves_is_safe_too(tmp_path: Path) -> None:
    result = train_sim(tmp_path, "train.num_epochs=1", "models.targets={sim: {max_tokens: 33, workers: 2}}")
    left = result.path / "config.yaml"
    assert Config.load(left).role("target").max_tokens == 33
    other = Config.load(left, ["models.target_model=openai:x"]).role("target")
    assert (other.max_tokens, other.workers) == (1024, 8)


@pytest.mark.parametrize("wrong", ["{local: {max_token: 3}}", "{local: 3}", "{local: {max_tokens: 0}}"])
def test_a_wrong_entry_is_named(wrong: str) -> None:
    from skillopt.errors import UserError

    with pytest.raises(UserError, match=r"models\.targets\.local"):
        Config.load(QUICKSTART, [f"models.targets={wrong}"])


NESTED = {"target": {"max_tokens": 33, "url": "http://a/v1", "rpm": 5}, "optimizer": {"temperature": 0.5}}
FLAT = {"target_max_tokens": 33, "target_url": "http://a/v1", "target_rpm": 5, "optimizer_temperature": 0.5}


def test_a_roles_keys_may_be_nested_and_mean_the_same_run(tmp_path: Path) -> None:
    flat = Config.parse({"models": FLAT})
    assert Config.parse({"models": NESTED}) == flat
    assert Config.parse({"models": NESTED}).identity() == flat.identity()
    base, file = tmp_path / "base.yaml", tmp_path / "config.yaml"
    base.write_text("models: {target: {max_tokens: 7, rpm: 5, url: 'http://a/v1'}}")
    file.write_text("_base_: base.yaml\nmodels: {target_max_tokens: 33}")
    assert Config.load(file, ["models.optimizer.temperature=0.5"]) == flat
    assert configure({"models": NESTED}) == flat
    assert configure(keys={"models": NESTED}) == flat
    assert configure({"models": NESTED}, {"target_max_tokens": 8}).role("target").max_tokens == 8
    with pytest.raises(UserError, match=r"unknown key 'models\.target_max_token'; did you mean 'target_max_tokens'"):
        Config.parse({"models": {"target": {"max_token": 3}}})
