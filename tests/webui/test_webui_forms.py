"""The form made from the config's schema, and the YAML beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillopt.config import Config
from skillopt_webui import forms
from skillopt_webui.allowed import problems
from skillopt_webui.api_configs import CheckBody
from skillopt_webui.settings import make_settings
from support import REPO, skillopt
from support.webui import make_workspace, serving


def test_every_key_has_a_field_with_its_documentation_default_and_kind() -> None:
    fields = {field["key"]: field for section in forms.schema() for field in section["fields"]}
    for dotted, default in Config().flat().items():
        field = fields[dotted]
        assert field["doc"], dotted
        assert field["default"] == default
    epochs, heat, decay = (
        fields[key] for key in ("train.num_epochs", "models.target_temperature", "optimizer.reject_decay")
    )
    assert (epochs.kind, epochs.min) == ("integer", 1)
    assert fields["optimizer.slow_update_gate"]["choices"] == ["keep", "strict"]
    assert fields["env.command"]["kind"] == "yaml", "text or a list"
    assert (heat.nullable, heat.min, decay.max) == (True, 0, 1)


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"train.num_epochs": "many"}, "train.num_epochs", "valid integer"),
        ({"train.num_epochs": "0"}, "train.num_epochs", "greater than or equal to 1"),
        ({"optimizer.learning_rate": ""}, "optimizer.learning_rate", "number"),
        ({"evaluation.use_gate": "false"}, "evaluation.use_gate", "without a gate"),
        ({"optimizer.use_slow_update": "false"}, "optimizer.use_slow_update", "slow update"),
        ({"optimizer.min_learning_rate": "9"}, "optimizer.min_learning_rate", "not below learning_rate"),
        ({"budget.max_usd": "-1"}, "budget.max_usd", "greater than 0"),
        ({"gradient.analysts": "[]"}, "gradient.analysts", "at least 1"),
        ({"models.target_key_name": "sk-abcdefghijklmnop1234"}, "models.target_key_name", "environment variable"),
    ],
)
def test_a_bad_value_is_told_at_its_field(change: dict[str, str | None], field: str, says: str) -> None:
    checked = forms.check("", change)
    assert list(checked["errors"]) == [field]
    assert says in checked["errors"][field]
    assert not checked["valid"]


def test_form_and_yaml_stay_in_step() -> None:
    one = forms.check("", {"train.batch_size": "12", "env.options": "{rules: 4}", "budget.max_usd": "2.5"})
    assert Config.parse(
        {"train": {"batch_size": 12}, "env": {"options": {"rules": 4}}, "budget": {"max_usd": 2.5}}
    ) == forms.parse(one["yaml"])
    two = forms.check(one["yaml"].replace("12", "16"))
    assert two["values"]["train.batch_size"] == 16
    assert two["set"] == ["budget.max_usd", "env.options", "train.batch_size"]
    three = forms.check(two["yaml"], {"budget.max_usd": None, "train.batch_size": None, "env.options": None})
    assert three["yaml"] == ""
    assert three["valid"]


def test_the_first_template_runs_without_a_key_or_data(tmp_path: Path) -> None:
    from skillopt_webui.questions import plan

    simulated, questions = (forms.check(text) for text in forms.TEMPLATES.values())
    assert simulated["valid"]
    assert questions["valid"]
    assert plan(forms.parse(simulated["yaml"])).root["steps"] == 16


def test_a_text_that_looks_like_a_number_stays_text_in_a_text_field() -> None:
    checked = forms.check("", {"notes.schedule": "12: why", "env.benchmark": "2024"})
    assert checked["valid"], checked["errors"]
    assert forms.parse(checked["yaml"]).env.benchmark == "2024"


@pytest.mark.parametrize(
    "text", ["train: [", "- a", "_base_: x.yaml", "train: {num_epochs: 1}\n\ttrain:", "a: &a [*a]"]
)
def test_yaml_that_cannot_be_read_is_told_and_stays_as_it_is(text: str) -> None:
    checked = forms.check(text)
    assert checked["problem"]
    assert checked["yaml"] == text
    assert not checked["valid"]


@pytest.mark.parametrize("path", sorted((REPO / "configs").rglob("*.yaml")), ids=lambda path: path.parent.name)
def test_a_config_file_and_its_text_on_the_page_are_the_same_config_and_may_be_started(path: Path) -> None:
    ours, loaded = forms.parse(forms.load(path, make_settings(workspace=REPO))), Config.load(path)
    assert ours.identity() == loaded.identity()
    assert (REPO / ours.train.init_skill).resolve() == Path(loaded.train.init_skill or REPO).resolve()
    assert problems(ours, make_settings(workspace=REPO)) == {}


def test_the_page_finds_configs_below_the_working_folder_and_none_of_a_run(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "work")
    (workspace / "mine.csv").write_text("question,answer\n" + "".join(f"Q{n},a{n}\n" for n in range(12)))
    made = skillopt("init", "sub/mine", "--from", "mine.csv", "--scorer", "--target_model", "sim:world", cwd=workspace)
    assert made.returncode == 0, made.stderr
    hidden, elsewhere = workspace / ".cache" / "config.yaml", tmp_path / "config.yaml"
    run, other = workspace / "outputs/sim/seed1/config.yaml", workspace / "compose.yaml"
    for path in (hidden, elsewhere, run, other):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("services: {env: {}}\n" if path == other else "env: {name: sim}\n")
    (workspace / "link.yaml").symlink_to(elsewhere)
    trained = skillopt("train", "--config", "configs/sim/default.yaml", "env.output_root=other", *FEW, cwd=workspace)
    assert trained.returncode == 0, trained.stderr
    with serving(workspace) as ui:
        assert ui.get("/api/configs")["files"] == [
            "configs/sim/default.yaml", "configs/sim/rulebook.yaml", "sub/mine/config.yaml",
        ]  # fmt: skip
        loaded = ui.post("/api/configs/load", {"path": "sub/mine/config.yaml"})
        assert "--configs" in loaded["errors"]["env.scoring"], (
            "a listed config may come from elsewhere: it names no code"
        )
        for name in (".cache/config.yaml", "link.yaml", "compose.yaml", "../config.yaml"):
            assert ui.ask("/api/configs/load", {"path": name})[0] == 404, name
    with serving(workspace, "--configs", "configs") as ui:
        assert ui.get("/api/configs")["files"] == ["configs/sim/default.yaml", "configs/sim/rulebook.yaml"]
    with serving(workspace, "--configs", "sub/mine") as ui:
        loaded = ui.post("/api/configs/load", {"path": "sub/mine/config.yaml"})
        assert (loaded["valid"], loaded["errors"]) == (True, {}), loaded
        assert ui.post("/api/configs/plan", {"yaml": loaded["yaml"]})["steps"] > 0


FEW = ("train.num_epochs=1", "env.options={rules: 4, train: 8, val: 4, test: 4}")


def test_null_in_a_request_means_that_the_field_is_not_there() -> None:
    """The form sends null for no changes; null for one field of the form takes its key out."""
    assert CheckBody.model_validate_json('{"yaml": "a", "set": null}').set == {}
    assert CheckBody.model_validate_json('{"set": {"train.seed": null}}').set == {"train.seed": None}
    with pytest.raises(ValueError, match="set"):
        CheckBody.model_validate_json('{"set": []}')
