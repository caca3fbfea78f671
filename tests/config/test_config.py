"""A config means what it says: types are checked, unknown keys named, runs that cannot be trusted refused."""

from __future__ import annotations

import ast
import os
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

import skillopt
from skillopt.config import Config, Price
from skillopt.config.config import defaults
from skillopt.config.identity import chosen
from skillopt.config.roles import RoleSettings
from skillopt.dotenv import load_dotenv
from skillopt.errors import UserError
from skillopt.processes.coding_agents import presets
from skillopt.provider_table import PROVIDERS
from skillopt.record.base import ROLES
from support import REPO, SIM
from support import skillopt as command

FOUR_LINES = """
train: {num_epochs: 4, batch_size: 40}
optimizer: {learning_rate: 4, lr_scheduler: cosine, use_slow_update: true, use_meta_skill: true}
gradient: {analyst_workers: 16}
evaluation: {use_gate: true}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "four.yaml").write_text(FOUR_LINES)
    return tmp_path


def write(path: Path, tree: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(tree))
    return path


def refusal(path: Path, *overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        Config.load(path, overrides)
    return str(caught.value)


def complaint(tree: Any) -> str:
    with pytest.raises(UserError) as caught:
        Config.parse(tree)
    return str(caught.value)


# Defaults


def test_the_four_line_file_works_as_it_is_and_differs_from_the_defaults_in_its_schedule_alone(folder: Path) -> None:
    assert Config.load(folder / "four.yaml") == Config.parse({"optimizer": {"lr_scheduler": "cosine"}})
    assert Config.load(write(folder / "empty.yaml", {})) == Config()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("train.num_epochs", 4),
        ("train.batch_size", 40),
        ("train.accumulation", 1),
        ("train.seed", 42),
        ("train.patience", 0),
        ("optimizer.learning_rate", 4),
        ("optimizer.min_learning_rate", 1),
        ("optimizer.lr_scheduler", "auto"),
        ("optimizer.reject_decay", 0.8),
        ("optimizer.use_slow_update", True),
        ("optimizer.slow_update_samples", 20),
        ("optimizer.use_meta_skill", True),
        ("gradient.minibatch_size", 0),
        ("gradient.analyst_workers", 16),
        ("evaluation.use_gate", True),
        ("budget.max_usd", None),
    ],
)
def test_defaults_are_those_of_the_contract(key: str, value: object) -> None:
    assert Config().flat()[key] == value


def test_every_key_has_a_docstring() -> None:
    for section, model in sections().items():
        assert not [f"{section}.{name}" for name in model.model_fields if not model.meanings().get(name)]


# _base_


def test_a_file_stands_above_its_bases_and_a_later_base_above_an_earlier_one(folder: Path) -> None:
    write(folder / "deep" / "root.yaml", {"train": {"seed": 1, "batch_size": 1, "num_epochs": 1, "patience": 1}})
    write(folder / "a.yaml", {"_base_": "deep/root.yaml", "train": {"seed": 2, "batch_size": 2, "num_epochs": 2}})
    write(folder / "b.yaml", {"train": {"seed": 3, "batch_size": 3}})
    top = write(folder / "top.yaml", {"_base_": ["a.yaml", "b.yaml"], "train": {"seed": 4}})
    train = Config.load(top).train
    assert (train.seed, train.batch_size, train.num_epochs, train.patience) == (4, 3, 2, 1)


def test_one_base_may_be_reached_on_two_ways(folder: Path) -> None:
    write(folder / "root.yaml", {"train": {"seed": 1}})
    for name in ("a", "b"):
        write(folder / f"{name}.yaml", {"_base_": "root.yaml"})
    assert Config.load(write(folder / "top.yaml", {"_base_": ["a.yaml", "b.yaml"]})).train.seed == 1


def test_free_form_keys_of_a_base_are_merged(folder: Path) -> None:
    write(folder / "a.yaml", {"env": {"options": {"rules": 3, "train": 5}}})
    top = write(folder / "top.yaml", {"_base_": "a.yaml", "env": {"options": {"rules": 4}}})
    assert Config.load(top, ["env.options.val=7"]).env.options == {"rules": 4, "train": 5, "val": 7}


@pytest.mark.parametrize(
    ("links", "named"), [({"a": "a.yaml"}, "a.yaml"), ({"a": "b.yaml", "b": ["c.yaml"], "c": "a.yaml"}, "a.yaml")]
)
def test_a_circle_of_bases_is_named(folder: Path, links: dict[str, Any], named: str) -> None:
    for name, base in links.items():
        write(folder / f"{name}.yaml", {"_base_": base})
    message = refusal(folder / "a.yaml")
    assert named in message
    assert "circle" in message


@pytest.mark.parametrize("base", [5, {"a": 1}, [1], [["x.yaml"]]])
def test_a_base_that_is_no_file_name_is_refused(folder: Path, base: Any) -> None:
    assert "_base_: must be a file name" in refusal(write(folder / "top.yaml", {"_base_": base}))


def test_a_missing_base_is_named(folder: Path) -> None:
    assert "gone.yaml: no such config file" in refusal(write(folder / "top.yaml", {"_base_": "gone.yaml"}))


@pytest.mark.parametrize(
    "content",
    [
        b"train: [",
        b"\xff\xfe",
        b"- a\n- b",
        b"train: 3",
        b"train:\n",
        b"just words",
        b"a: !!python/object:os.system {}",
    ],
)
def test_a_file_that_is_no_config_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.yaml").write_bytes(content)
    assert "bad.yaml" in refusal(tmp_path / "bad.yaml")


# Overrides


def test_overrides_are_typed_and_the_last_wins(folder: Path) -> None:
    config = Config.load(
        folder / "four.yaml",
        [
            "train.batch_size=20",
            "train.batch_size=21",
            "optimizer.learning_rate=2.5",
            "evaluation.metric=soft",
            "models.target_model=sim:world?noise=0.1",
            "models.target_temperature=null",
            "models.target_deterministic=true",
            "train.init_skill=",
            "gradient.analysts=[llm]",
            "env.options={rules: 3}",
            "notes.schedule=because a=b",
        ],
    )
    assert config.train.batch_size == 21
    assert config.optimizer.learning_rate == 2.5
    assert config.evaluation.metric == "soft"
    assert config.models.target_model == "sim:world?noise=0.1"
    assert config.models.target_temperature is None
    assert config.models.target_deterministic is True
    assert config.gradient.analysts == ("llm",)
    assert config.env.options == {"rules": 3}
    assert config.notes.schedule == "because a=b"


@pytest.mark.parametrize(
    "text", ["claude-code:", "Answer: in one word", "[a] or b", "2024-05-01", "12:30", "no", "null", "- a # b", "{x}"]
)
def test_a_key_whose_values_are_texts_takes_any_text(folder: Path, text: str) -> None:
    try:
        taken = Config.load(folder / "four.yaml", [f"env.task={text}"]).env.task
    except UserError as error:
        taken = str(error)
    assert taken == text


def test_a_text_may_be_quoted_and_a_command_may_be_a_list(folder: Path) -> None:
    written = {"'a b'": "a b", "[python, agent.py]": ["python", "agent.py"], 'say "a: b"': 'say "a: b"'}
    for raw, value in written.items():
        assert Config.load(folder / "four.yaml", [f"env.command={raw}"]).env.command == value


def test_the_model_of_a_coding_agent_may_be_left_empty() -> None:
    done = command("plan", "--config", str(SIM), "--optimizer_model", "claude-code:")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "form", ["train.batch_size", "batch_size=3", "=3", "train.=3", ".batch_size=3", "train..x=3", "", "train=3"]
)
def test_an_override_of_another_form_is_told_the_right_one(folder: Path, form: str) -> None:
    assert "section.key=value" in refusal(folder / "four.yaml", form)


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("train.batch_size=many", "train.batch_size"),
        ("train.batch_size=2.5", "train.batch_size"),
        ("train.batch_size=0", "train.batch_size"),
        ("train.batch_size=yes", "train.batch_size"),
        ("train.batch_size=", "train.batch_size"),
        ("train.batch_size=[1]", "train.batch_size"),
        ("optimizer.learning_rate=0.5", "optimizer.learning_rate"),
        ("optimizer.learning_rate=.nan", "optimizer.learning_rate"),
        ("optimizer.reject_decay=1.1", "optimizer.reject_decay"),
        ("optimizer.reject_decay=true", "optimizer.reject_decay"),
        ("optimizer.lr_scheduler=step", "optimizer.lr_scheduler"),
        ("evaluation.use_gate=perhaps", "evaluation.use_gate"),
        ("evaluation.metric=best", "evaluation.metric"),
        ("gradient.analysts=llm", "gradient.analysts"),
        ("budget.max_calls=on", "budget.max_calls"),
        ("budget.prices={m: {input: 1}}", "budget.prices.m.output"),
        ("train.batch_size.x=3", "batch_size"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_key(folder: Path, override: str, key: str) -> None:
    message = refusal(folder / "four.yaml", override)
    assert key in message


def test_an_unreadable_value_is_refused(folder: Path) -> None:
    assert "not readable" in refusal(folder / "four.yaml", "train.seed=[1")


def test_all_wrong_values_are_told_at_once() -> None:
    message = complaint({"train": {"batch_size": 0}, "gradient": {"minibatch_size": "x"}})
    assert "train.batch_size" in message
    assert "gradient.minibatch_size" in message


# Keys


@pytest.mark.parametrize(
    ("tree", "nearest"),
    [
        ({"train": {"batchsize": 3}}, "batch_size"),
        ({"train": {"epochs": 3}}, "num_epochs"),
        ({"trian": {"batch_size": 3}}, "train"),
        ({"train": {"learning_rate": 3}}, "optimizer.learning_rate"),
        ({"models": {"vllm_url": "http://x"}}, "hardware.vllm_url"),
        ({"optimizer": {"shedule": 3}}, "lr_scheduler"),
        ({"eval": {"use_gate": True}}, "evaluation"),
    ],
)
def test_an_unknown_key_names_the_nearest_right_one(tree: Any, nearest: str) -> None:
    message = complaint(tree)
    assert "unknown" in message
    assert f"did you mean '{nearest}'?" in message


@pytest.mark.parametrize("tree", [{1: {"a": 2}}, {"train": {1: 2}}, {"zzz": {}}, {"train": {"zzz": 1}}])
def test_a_key_without_a_near_one_is_told_the_known_ones(tree: Any) -> None:
    assert "known are: " in complaint(tree)


@pytest.mark.parametrize("key", ["lr_scheduler: linear", "use_slow_update: true", "use_meta_skill: false"])
def test_the_guides_names_in_train_mean_the_optimizers(folder: Path, key: str) -> None:
    name, value = key.split(": ")
    (folder / "moved.yaml").write_text(f"train: {{{key}}}")
    (folder / "own.yaml").write_text(f"optimizer: {{{key}}}")
    own = Config.load(folder / "own.yaml")
    assert Config.load(folder / "moved.yaml") == own
    empty = write(folder / "empty.yaml", {})
    assert Config.load(empty, [f"train.{name}={value}"]) == own
    assert Config.load(empty, [f"optimizer.{name}={value}"]) == own


def test_a_moved_key_in_a_file_stands_above_its_base(folder: Path) -> None:
    write(folder / "base.yaml", {"optimizer": {"lr_scheduler": "constant"}})
    top = write(folder / "top.yaml", {"_base_": "base.yaml", "train": {"lr_scheduler": "linear"}})
    assert Config.load(top).optimizer.lr_scheduler == "linear"
    assert Config.load(top, ["optimizer.lr_scheduler=cosine"]).optimizer.lr_scheduler == "cosine"


def test_a_lowest_rate_of_null_as_earlier_versions_wrote_it_is_one() -> None:
    assert Config.parse({"optimizer": {"min_learning_rate": None}}).optimizer.min_learning_rate == 1


# Refusals


@pytest.mark.parametrize(
    ("tree", "key", "fix"),
    [
        ({"evaluation": {"use_gate": False}}, "evaluation.use_gate", "set it to true"),
        ({"optimizer": {"use_slow_update": False}}, "optimizer.use_slow_update", "train.num_epochs to 1"),
        ({"train": {"use_slow_update": False, "num_epochs": 2}}, "optimizer.use_slow_update", "set it to true"),
        ({"optimizer": {"lr_scheduler": "constant", "reject_decay": 1}}, "optimizer.reject_decay", "choose cosine"),
        ({"optimizer": {"learning_rate": 1}}, "optimizer.min_learning_rate", "raise learning_rate"),
        ({"optimizer": {"learning_rate": 1, "lr_scheduler": "constant"}}, "cannot change", "raise learning_rate"),
        (
            {"optimizer": {"learning_rate": 4, "min_learning_rate": 4}},
            "optimizer.min_learning_rate",
            "lower min_learning_rate",
        ),
        ({"optimizer": {"min_learning_rate": 4, "lr_scheduler": "cosine"}}, "cannot change", "lower min_learning_rate"),
        (
            {"optimizer": {"learning_rate": 2, "min_learning_rate": 3}},
            "optimizer.min_learning_rate",
            "lower min_learning_rate",
        ),
        (
            {"optimizer": {"learning_rate": 2, "min_learning_rate": 1.6}},
            "both mean 2 edits per step",
            "raise learning_rate",
        ),
    ],
)
def test_a_run_that_cannot_be_trusted_is_refused_with_reason_and_fix(tree: Any, key: str, fix: str) -> None:
    message = complaint(tree)
    assert key in message
    assert fix in message


@pytest.mark.parametrize(
    "tree",
    [
        {"train": {"num_epochs": 1}, "optimizer": {"use_slow_update": False}},
        {"optimizer": {"lr_scheduler": "constant", "reject_decay": 0.9}},
        {"optimizer": {"lr_scheduler": "linear", "reject_decay": 1}},
        {"optimizer": {"lr_scheduler": "constant", "learning_rate": 2}},
        {"models": {"target_url": "http://127.0.0.1:8000/v1", "target_model": "vllm:org/model@main"}},
        {"notes": {"schedule": "ask me@example.org, see https://example.org/~me@home"}},
    ],
)
def test_what_only_looks_like_an_anti_pattern_is_accepted(tree: Any) -> None:
    Config.parse(tree)


@pytest.mark.parametrize("url", ["https://me:secret@host/v1", "http://:secret@host", "https://secret@host/v1"])
@pytest.mark.parametrize(
    "place",
    ["models.target_url", "models.optimizer_url", "hardware.vllm_url", "hardware.azure_endpoint", "env.options"],
)
def test_a_password_in_a_url_is_refused_and_not_repeated(url: str, place: str) -> None:
    section, key = place.split(".")
    message = complaint({section: {key: {"a": [url]} if key == "options" else url}})
    assert "password" in message
    assert "secret" not in message


# Paths


def test_a_relative_path_means_the_file_beside_the_config_that_names_it(folder: Path) -> None:
    (folder / "base" / "data").mkdir(parents=True)
    (folder / "base" / "skill.md").write_text("x")
    write(folder / "base" / "base.yaml", {"train": {"init_skill": "skill.md"}, "env": {"split_dir": "data"}})
    config = Config.load(write(folder / "top" / "top.yaml", {"_base_": "../base/base.yaml"}))
    assert Path(config.train.init_skill).resolve() == folder / "base" / "skill.md"
    assert Path(config.env.split_dir).resolve() == folder / "base" / "data"


def test_a_path_that_is_not_beside_the_config_means_the_working_folder(folder: Path) -> None:
    config = Config.load(
        write(folder / "top.yaml", {"env": {"split_dir": "data/here"}, "train": {"init_skill": "/abs.md"}})
    )
    assert (config.env.split_dir, config.train.init_skill) == ("data/here", "/abs.md")


# What makes another run


@pytest.mark.parametrize(
    ("override", "same"),
    [
        ("budget.max_calls=3", True),
        ("hardware.workers=3", True),
        ("gradient.analyst_workers=3", True),
        ("models.target_url=http://other/v1", True),
        ("env.output_root=elsewhere", True),
        ("notes.schedule=why", True),
        ("train.seed=7", False),
        ("train.batch_size=7", False),
        ("optimizer.reject_decay=0.7", False),
        ("models.target_model=sim:other", False),
        ("models.target_temperature=1", False),
        ("gradient.minibatch_size=3", False),
        ("evaluation.metric=soft", False),
        ("env.scoring=f1", False),
    ],
)
def test_only_what_changes_results_makes_another_run(folder: Path, override: str, same: bool) -> None:
    four = folder / "four.yaml"
    assert (Config.load(four, [override]).identity() == Config.load(four).identity()) is same


def test_a_written_config_reads_back_as_itself(folder: Path) -> None:
    config = Config.load(
        folder / "four.yaml", ["budget.prices={m: {input: 1, output: 2}}", "models.target_temperature=0.5"]
    )
    assert Config.load(write(folder / "again.yaml", config.model_dump(mode="json"))) == config


# No dead options


def sections() -> dict[str, type[BaseModel]]:
    found = {name: type(getattr(Config(), name)) for name in Config.model_fields}
    return {**found, "budget.prices": Price}


def read_names(source: Path) -> set[str]:
    """Attribute names, `getattr(x, f"{role}_model")` as target_model and optimizer_model, and sections read whole."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            names.add(node.attr)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            names |= for_each_role(node.args[1])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "startswith":
            whole = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            names |= {prefix for prefix in whole if prefix.removesuffix(".") in Config.model_fields and "." in prefix}
    return names


def for_each_role(name: ast.expr) -> set[str]:
    if isinstance(name, ast.JoinedStr) and len(name.values) == 2 and isinstance(name.values[1], ast.Constant):
        return {f"{role}{name.values[1].value}" for role in ("target", "optimizer")}
    return set()


def test_every_key_is_read_somewhere() -> None:
    root = Path(skillopt.__file__).parent
    files = [path for path in root.rglob("*.py") if path.parent != root / "config" or path.name == "roles.py"]
    read = set().union(*(read_names(path) for path in files))
    read |= {
        f"{role}_{field.name}" for field in fields(RoleSettings) if field.name in read for role in (*ROLES, "judge")
    }
    read |= {provider.url_setting.partition(".")[2] for provider in PROVIDERS.values()}
    dead = [
        f"{section}.{key}"
        for section, model in sections().items()
        for key in model.model_fields
        if key not in read and f"{section}." not in read
    ]
    # The gate cannot be switched off: the config itself reads this key, to refuse it.
    assert dead == ["evaluation.use_gate"]


def test_a_key_that_nothing_reads_would_be_found() -> None:
    source = Path(skillopt.__file__).parent / "training" / "schedule.py"
    assert "min_learning_rate" in read_names(source)
    assert "batch_size" not in read_names(source)
    assert for_each_role(ast.parse('f"{role}_url"', mode="eval").body) == {"target_url", "optimizer_url"}


# Shipped files and the environment


@pytest.mark.parametrize("path", sorted((REPO / "configs").rglob("*.yaml")), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_shipped_configs_load(path: Path) -> None:
    Config.load(path)


def test_dotenv_fills_what_the_environment_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SO_A", "SO_B", "SO_C", "SO_D"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SO_E", "from outside")
    lines = [
        "# SO_D=comment",
        "SO_A=plain",
        "export SO_B = 'quoted'",
        'SO_C="two words"',
        "SO_D=",
        "SO_E=from file",
        "no line",
    ]
    (tmp_path / ".env").write_text("\n".join(lines))
    load_dotenv(tmp_path / ".env")
    load_dotenv(tmp_path / "missing")
    assert [os.environ.get(f"SO_{c}") for c in "ABCDE"] == ["plain", "quoted", "two words", None, "from outside"]
    for name in ("SO_A", "SO_B", "SO_C"):
        monkeypatch.delenv(name)


def test_the_env_example_shows_every_key_that_is_asked_for() -> None:
    asked = {PROVIDERS[name].key_name for name in ("openai", "azure", "vllm", "anthropic", "google", "mistral", "groq")}
    asked |= {name for preset in presets().values() for name in preset.pass_env if name.endswith("_API_KEY")}
    shown = set(re.findall(r"^(?:# )?(?:export )?(\w+)=", (REPO / ".env.example").read_text(), re.MULTILINE))
    assert {"OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "VLLM_API_KEY", "CODEX_API_KEY"} <= asked
    assert asked <= shown


def test_a_key_that_is_added_later_makes_no_other_run() -> None:
    now = Config().flat()
    grown = {**defaults(), "train.later_key": True}
    assert chosen({**now, "train.later_key": True}, grown) == chosen(now, defaults()) == {}


def test_a_key_that_is_gone_is_accepted_where_it_says_nothing_and_refused_with_the_way_out() -> None:
    Config.parse({"budget": {"target": {"max_usd": None, "max_calls": None}, "max_usd": 1}})
    with pytest.raises(UserError, match=r"budget\.optimizer: is no longer a key; set budget\.max_usd"):
        Config.parse({"budget": {"optimizer": {"max_usd": 3}}})


def test_vetoes_are_found_by_their_earlier_name_and_make_the_same_run(folder: Path) -> None:
    (folder / "old.yaml").write_text("evaluation: {gates: [careful]}")
    with pytest.warns(FutureWarning, match="evaluation.gates is now evaluation.vetoes"):
        old = Config.load(folder / "old.yaml")
    with pytest.warns(FutureWarning):
        assert Config.load(folder / "old.yaml", ["evaluation.gates=[other]"]).evaluation.vetoes == ("other",)
    assert old == Config.parse({"evaluation": {"vetoes": ["careful"]}})
    assert old.identity() == {"evaluation.gates": ["careful"]}, "as before it was renamed"
