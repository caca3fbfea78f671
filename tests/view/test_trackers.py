"""Trackers are told what a run does, are read back with their own libraries, and can never hurt it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from skillopt.api import train, train_config
from skillopt.config import Config
from skillopt.errors import Stopped, UserError
from skillopt.record.directory import RunDirectory
from skillopt.record.events import Event, Listener
from skillopt.record.files import read_json
from skillopt.training.trainer import Result
from skillopt.view.trackers import About, check_trackers
from support import SIM, differing, essence, only_run, skillopt_process, train_sim

CANARY = "canary-7f3a91-of-the-environment"
SMALL = (
    "train.num_epochs=2",
    "train.batch_size=6",
    "optimizer.learning_rate=1.6",
    "env.options={rules: 8, train: 12, val: 8, test: 6}",
)


def tracked(out: Path, *names: str, listeners: Sequence[Any] = ()) -> Result:
    use = f"trackers.use=[{', '.join(names)}]"
    return asyncio.run(train_config(Config.load(SIM, [f"env.output_root={out}", *SMALL, use]), listeners=listeners))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """One real run with all trackers."""
    for module in ("tensorboard", "mlflow", "wandb", "opentelemetry.sdk"):
        pytest.importorskip(module)
    out = tmp_path_factory.mktemp("trackers")
    failures: list[Event] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", CANARY)
        result = tracked(out, "tensorboard", "mlflow", "wandb", "otel", listeners=[failed_into(failures)])
    assert not failures
    return RunDirectory(result.path)


def failed_into(failures: list[Event]) -> Listener:
    return lambda event: failures.append(event) if event.kind == "tracker_failed" else None


def expected(run: RunDirectory) -> list[float]:
    """The validation score after each step."""
    history = read_json(run.history)
    return [r["val_after"] if r["verdict"] == "accept" else r["val_before"] for r in history]


@pytest.mark.extras
def test_tensorboard_reads_back_scalars_versions_config_and_report(told: RunDirectory) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(told.trackers / "tensorboard"))
    events.Reload()
    scores = events.Scalars("score/validation")
    assert [event.step for event in scores] == [1, 2, 3, 4]
    assert [event.value for event in scores] == pytest.approx(expected(told))
    assert events.Scalars("final/test")[0].value == pytest.approx(read_json(told.summary)["best"]["test"])
    texts = {
        tag: [e.tensor_proto.string_val[0].decode() for e in events.Tensors(tag)] for tag in events.Tags()["tensors"]
    }
    assert len(texts["skill"]) == len(list(told.skills.glob("skill_v*.md")))
    assert told.best_skill.read_text().strip() in texts["skill"][-1]
    assert "train.batch_size" in texts["config"][0]
    assert "## Best skill" in texts["report"][0]


@pytest.mark.extras
def test_mlflow_reads_back_metrics_params_and_artifacts(told: RunDirectory) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=(told.trackers / "mlflow").resolve().as_uri())
    experiment = client.get_experiment_by_name("skillopt")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["train.batch_size"] == "6"
    history = sorted(client.get_metric_history(run.info.run_id, "score/validation"), key=lambda metric: metric.step)
    assert [metric.value for metric in history] == pytest.approx(expected(told))
    names = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert {"report.html", "report.md", "summary.json", "best_skill.md", "skills"} <= names
    skills = client.list_artifacts(run.info.run_id, "skills")
    assert len(skills) == len(list(told.skills.glob("skill_v*.md")))
    assert run.data.metrics["final/validation"] == read_json(told.summary)["best"]["val"]


@pytest.mark.extras
def test_wandb_offline_holds_the_curve(told: RunDirectory) -> None:
    from wandb.proto import wandb_internal_pb2

    (path,) = (told.trackers / "wandb").rglob("*.wandb")
    scores = []
    for data in wandb_records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        found = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
        if "score/validation" in found:
            scores.append(json.loads(found["score/validation"]))
    assert scores == pytest.approx(expected(told))


@pytest.mark.extras
def test_no_tracker_writes_a_key_of_the_environment(told: RunDirectory) -> None:
    files = [path for path in told.root.rglob("*") if path.is_file()]
    assert {path.relative_to(told.trackers).parts[0] for path in files if path.is_relative_to(told.trackers)} >= {
        "tensorboard", "mlflow", "wandb", "otel",
    }  # fmt: skip
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []


def wandb_records(data: bytes) -> Iterator[bytes]:
    """The transaction log of wandb's offline mode: blocks of 32 KiB, records of checksum, length and type."""
    at, begun = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        begun += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in {1, 4}:  # whole, or the last part of one
            yield begun
            begun = b""


@pytest.mark.extras
def test_otel_spans_stand_under_the_run(told: RunDirectory) -> None:
    spans = [json.loads(line) for line in (told.trackers / "otel" / "spans.jsonl").read_text().splitlines()]
    root = next(span for span in spans if span["name"] == "train")
    steps = [span for span in spans if span["name"] == "step"]
    assert [span["attributes"]["score/validation"] for span in steps] == pytest.approx(expected(told))
    assert all(span["parent_id"] == root["context"]["span_id"] for span in steps)
    assert root["attributes"]["status"] == "finished"
    assert {span["attributes"]["openinference.span.kind"] for span in spans} == {"CHAIN"}
    assert root["attributes"]["output.value"].startswith(root["attributes"]["input.value"].splitlines()[0])
    assert json.loads(steps[0]["attributes"]["metadata"])["score/validation"] == expected(told)[0]
    assert [event["name"] for event in root["events"]].count("skill") == len(list(told.skills.glob("skill_v*.md")))


@pytest.mark.extras
def test_trackers_change_nothing_in_the_run(told: RunDirectory, tmp_path: Path) -> None:
    plain = RunDirectory(train_sim(tmp_path, *SMALL).path)
    assert plain.root.name.partition("_seed")[2] == told.root.name.partition("_seed")[2]
    assert not differing(essence(plain), essence(told))


HOSTILE = "# T\0 \x1b[2J\x1b]0;owned\x07 \u202e <script>alert(1)</script> ```\n- " + "y" * 200_000 + "\n|---|\n" * 500


@pytest.mark.extras
def test_hostile_text_and_names_reach_every_tracker_and_hurt_none(told: RunDirectory, tmp_path: Path) -> None:
    skill = tmp_path / "skill.md"
    skill.write_text(HOSTILE)
    failures: list[Event] = []
    own = [f"train.init_skill={skill}", "env.benchmark=../../e\u202e<b>il", "train.num_epochs=1"]
    use = "trackers.use=[tensorboard, mlflow, wandb, otel]"
    config = Config.load(SIM, [f"env.output_root={tmp_path / 'out'}", *SMALL, *own, use])
    result = asyncio.run(train_config(config, listeners=[failed_into(failures)]))
    assert failures == []
    assert result.path.is_relative_to(tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "skill.md"]


def stopped(out: Path, tracker: str) -> RunDirectory:
    """A run that stopped with this tracker, and may have gone through other hands since."""
    with pytest.raises(Stopped):
        train(Config.load(SIM, [f"env.output_root={out}", *SMALL, f"trackers.use=[{tracker}]", "budget.max_calls=60"]))
    (run,) = (out / "sim").iterdir()
    return RunDirectory(run)


@pytest.mark.extras
def test_a_tracker_does_not_write_into_a_linked_folder(told: RunDirectory, tmp_path: Path) -> None:
    run, outside = stopped(tmp_path / "out", "tensorboard"), tmp_path / "outside"
    outside.mkdir()
    shutil.rmtree(run.trackers / "tensorboard")
    (run.trackers / "tensorboard").symlink_to(outside)
    with contextlib.suppress(UserError):
        tracked(tmp_path / "out", "tensorboard")
    assert list(outside.iterdir()) == []


@pytest.mark.extras
def test_mlflows_files_in_a_run_do_not_lead_its_artifacts_elsewhere(told: RunDirectory, tmp_path: Path) -> None:
    run, outside = stopped(tmp_path / "out", "mlflow"), tmp_path / "outside"
    (about,) = run.trackers.glob("mlflow/*/*/meta.yaml")
    lines = [line for line in about.read_text().splitlines() if not line.startswith("artifact_uri")]
    about.write_text("\n".join([*lines, f"artifact_uri: {outside.as_uri()}"]) + "\n")
    words = [f"env.output_root={tmp_path / 'out'}", *SMALL, "trackers.use=[mlflow]"]
    done = skillopt_process("train", "--config", str(SIM), *words)  # a client remembers places over its process's life
    assert done.returncode == 0, done.stderr
    assert [str(path.relative_to(outside)) for path in outside.rglob("*")] == []
    assert "outside of the run" in done.stdout + done.stderr


class Recorder:
    """A tracker that remembers; `at` names the call in which it fails."""

    def __init__(self, at: str = "") -> None:
        self.at = at
        self.calls: list[tuple[str, Any]] = []

    def _call(self, name: str, value: Any = None) -> None:
        self.calls.append((name, value))
        if name == self.at:
            raise RuntimeError("the tracker's server is on fire")

    def begin(self, about: About) -> None:
        self._call("begin", about.id)

    def step(self, step: int, scalars: Mapping[str, float], began: float, ended: float) -> None:
        self._call("step", step)

    def skill(self, version: int, step: int, text: str) -> None:
        self._call("skill", version)

    def finish(self, status: str, figures: Mapping[str, float], files: Sequence[Path]) -> None:
        self._call("finish", status)

    def close(self) -> None:
        self._call("close")

    def seen(self, name: str) -> list[Any]:
        return [value for call, value in self.calls if call == name]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    own = Recorder()
    monkeypatch.setattr("skillopt.view.trackers.open_tracker", lambda name: own)
    monkeypatch.setattr("skillopt.view.trackers._importable", lambda module: True)
    return own


@pytest.mark.parametrize("at", ["begin", "step", "skill", "finish", "close"])
def test_a_tracker_that_fails_never_hurts_the_run(tmp_path: Path, recorder: Recorder, at: str) -> None:
    recorder.at = at
    failures: list[Event] = []
    result = tracked(tmp_path, "mlflow", listeners=[failed_into(failures)])
    assert result.summary["status"] == "finished"
    assert RunDirectory(result.path).report.exists()
    assert [event["name"] for event in failures] == ["mlflow"]
    assert "on fire" in failures[0]["error"]


def test_a_resumed_run_goes_on_in_the_same_place_and_repeats_nothing(tmp_path: Path, recorder: Recorder) -> None:
    out = tmp_path / "out"
    with pytest.raises(BaseException, match="max_calls"):
        train(Config.load(SIM, [f"env.output_root={out}", *SMALL, "trackers.use=[mlflow]", "budget.max_calls=30"]))
    assert recorder.seen("finish") == ["stopped"]
    first = recorder.seen("step")
    tracked(out, "mlflow")
    assert recorder.seen("step") == [1, 2, 3, 4]
    assert len(first) < 4
    assert len(recorder.seen("begin")) == 2
    assert len(set(recorder.seen("begin"))) == 1
    versions = recorder.seen("skill")
    assert versions == sorted(set(versions))


def test_a_tracker_that_joins_late_is_told_what_follows(tmp_path: Path, recorder: Recorder) -> None:
    out = tmp_path / "out"
    with pytest.raises(BaseException, match="max_calls"):
        train(Config.load(SIM, [f"env.output_root={out}", *SMALL, "budget.max_calls=60"]))
    assert not recorder.calls
    done = len(read_json(only_run(out).history))
    assert done
    tracked(out, "otel")
    assert recorder.seen("step") == [1, 2, 3, 4][done:]


def test_a_tracker_that_is_not_installed_is_refused_before_anything_is_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *more: None)
    with pytest.raises(UserError, match=r"pip install 'skillopt\[wandb\]'"):
        check_trackers(Config.parse({"trackers": ["wandb"]}).trackers)


def test_the_short_form_and_unknown_names(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("trackers: [tensorboard, otel]\n")
    assert Config.load(tmp_path / "c.yaml").trackers.use == ("tensorboard", "otel")
    assert Config.load(tmp_path / "c.yaml").identity() == Config().identity()
    with pytest.raises(UserError, match=r"trackers\.use"):
        Config.parse({"trackers": ["excel"]})
