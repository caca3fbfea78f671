"""Bad input gets a clear message that says what, where and how to fix it; exit code 2; nothing is paid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support import over_http, sim_server, skillopt

ITEMS = [{"id": f"q{n}", "question": f"What is {n}?", "answers": [str(n)]} for n in range(9)]


def write_splits(root: Path, **splits: list[dict[str, object]]) -> Path:
    for name, items in splits.items():
        (root / name).mkdir(parents=True)
        (root / name / "items.json").write_text(json.dumps(items))
    return root


def complaint(*arguments: str, config: str = "configs/sim/default.yaml") -> str:
    done = skillopt("train", "--config", config, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def qa(root: Path, out: Path) -> list[str]:
    return ["env.name=qa", "env.options={}", f"env.split_dir={root}", f"env.output_root={out}"]


def test_an_item_that_is_nested_too_deeply_is_named(tmp_path: Path) -> None:
    rows = [json.dumps({"id": f"i{n}", "question": f"What is {n}?", "answer": str(n)}) for n in range(12)]
    deep = '{"id": "deep", "question": "q", "answer": "a", "more": ' + "[" * 400 + "]" * 400 + "}"
    (tmp_path / "t.jsonl").write_text("\n".join([*rows, deep]))
    said = complaint("env.name=qa", "env.options={}", f"env.data={tmp_path / 't.jsonl'}", f"env.output_root={tmp_path}")
    assert "item 'deep'" in said
    assert "nested too deeply" in said


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.batchsize=3", "unknown key 'train.batchsize'; did you mean 'batch_size'?"),
        ("trian.batch_size=3", "unknown section 'trian'; did you mean 'train'?"),
        ("train.learning_rate=3", "unknown key 'train.learning_rate'; did you mean 'optimizer.learning_rate'?"),
        ("train.batch_size=many", "train.batch_size: Input should be a valid integer"),
        ("train.batch_size=0", "train.batch_size: Input should be greater than or equal to 1"),
        ("evaluation.use_gate=false", "evaluation.use_gate: a run without a gate"),
        ("optimizer.use_slow_update=false", "needs the slow update"),
        ("train.use_slow_update=false", "needs the slow update"),
        ("train.init_skill=missing.md", "train.init_skill: 'missing.md' does not exist"),
        ("env.name=qaa", "env.name: unknown 'qaa'; did you mean 'qa'?"),
        ("gradient.analysts=[oracle]", "gradient.analysts: unknown 'oracle'"),
        ("models.target_model=gpt", "models.target_model: 'gpt' must have the form provider:model"),
        (
            "models.target_model=gpt-4o-mini",
            "must have the form provider:model with a known provider; did you mean 'openai:gpt-4o-mini'?",
        ),
        ("models.optimizer_model=claude-sonnet-4-5", "did you mean 'anthropic:claude-sonnet-4-5'?"),
        ("models.target_model=gemini-2.5-flash", "did you mean 'google:gemini-2.5-flash'?"),
        ("models.target_model=openai/gpt-4o", "did you mean 'openai:gpt-4o'?"),
        ("models.target_model=vllm:x", "no URL; set hardware.vllm_url"),
        ("budget={max_usd: 1}", "form section.key=value"),
        ("env.options={rulez: 3}", "env.options.rulez"),
        ("models.target_model=sim:world?nois=1", "sim.nois: "),
        ("models.target_url=http://u:p@127.0.0.1", "contains a password"),
    ],
)
def test_bad_configs_are_refused_before_anything_happens(override: str, message: str, tmp_path: Path) -> None:
    assert message in complaint(override, f"env.output_root={tmp_path}")
    assert list(tmp_path.iterdir()) == []


def test_a_constant_rate_that_cannot_decay_is_refused(tmp_path: Path) -> None:
    told = complaint("optimizer.lr_scheduler=constant", "optimizer.reject_decay=1", f"env.output_root={tmp_path}")
    assert "the learning rate cannot change" in told


def test_an_unknown_price_under_a_money_limit_is_refused(tmp_path: Path) -> None:
    told = complaint(
        "budget.max_usd=1", "models.target_model=vllm:x", "hardware.vllm_url=http://127.0.0.1:9/v1",
        f"env.output_root={tmp_path}",
    )  # fmt: skip
    assert "the price of 'vllm:x' is unknown" in told


def test_a_missing_split_is_named(tmp_path: Path) -> None:
    root = write_splits(tmp_path / "data", train=ITEMS[:3], val=ITEMS[3:6])
    assert "has no test/ folder" in complaint(*qa(root, tmp_path / "out"))


def test_splits_that_share_an_id_are_refused(tmp_path: Path) -> None:
    root = write_splits(tmp_path / "data", train=ITEMS[:3], val=ITEMS[3:6], test=[*ITEMS[6:], ITEMS[0]])
    assert "id 'q0' is in train and test" in complaint(*qa(root, tmp_path / "out"))


def test_splits_that_share_a_task_under_another_id_are_refused(tmp_path: Path) -> None:
    copy = {**ITEMS[0], "id": "other", "question": " what IS 0? "}
    root = write_splits(tmp_path / "data", train=ITEMS[:3], val=[*ITEMS[3:6], copy], test=ITEMS[6:])
    assert "'q0' (train) and 'other' (val) are the same task" in complaint(*qa(root, tmp_path / "out"))


def test_an_endpoint_that_nobody_serves_is_given_up_long_before_the_last_retry(tmp_path: Path) -> None:
    told = complaint(*over_http("http://127.0.0.1:9/v1"), f"env.output_root={tmp_path}", "hardware.max_retries=1000")
    assert "cannot connect" in told
    assert "is the server running" in told


def test_a_wrong_key_ends_the_run_at_once_with_the_endpoints_words(tmp_path: Path) -> None:
    with sim_server(api_key="right") as (server, url):
        told = complaint(*over_http(url), f"env.output_root={tmp_path}", "hardware.workers=4")
        assert "401: Incorrect API key provided. (the key comes from VLLM_API_KEY)" in told
        assert told.count(" 401: ") == 1
        assert server.requests.total() == 0


def test_a_missing_key_is_named_before_anything_happens(tmp_path: Path) -> None:
    done = skillopt(
        "train", "--config", "configs/searchqa/default.yaml", f"env.split_dir={_three(tmp_path)}",
        f"env.output_root={tmp_path / 'out'}", env={"OPENAI_API_KEY": ""},
    )  # fmt: skip
    assert done.returncode == 2
    assert "set OPENAI_API_KEY in the environment or in .env" in done.stderr


def _three(tmp_path: Path) -> Path:
    return write_splits(tmp_path / "data", train=ITEMS[:3], val=ITEMS[3:6], test=ITEMS[6:])


def test_a_config_that_is_no_yaml_is_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("train: [")
    assert "not readable as YAML" in complaint(config=str(bad))
    assert "no such config file" in complaint(config=str(tmp_path / "none.yaml"))
