"""Sends a run to an MLflow server; if the config names no server, writes MLflow's files into the run's folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from skillopt.errors import UserError
from skillopt.view.trackers.base import About

os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions write plain files only with this setting

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

_LONGEST = 500
"""The maximum number of characters of a parameter; every store of MLflow accepts this length."""


class MLflow:
    """Sends the metrics of each step to MLflow, and every version and the report as artifacts."""

    def begin(self, about: About) -> None:
        self._client = client = MlflowClient(tracking_uri=about.settings.mlflow_uri or about.folder.resolve().as_uri())
        experiment = client.get_experiment_by_name(about.settings.project)
        place = experiment.experiment_id if experiment else client.create_experiment(about.settings.project)
        earlier = client.search_runs([place], f"tags.skillopt_id = '{about.id}'", max_results=1)
        run = earlier[0] if earlier else client.create_run(place, tags={"skillopt_id": about.id}, run_name=about.name)
        self._id, artifacts = run.info.run_id, urlsplit(run.info.artifact_uri)
        inside = Path(unquote(artifacts.path)).resolve().is_relative_to(about.folder.resolve())
        if not about.settings.mlflow_uri and not (artifacts.scheme in {"", "file"} and inside):
            # a file in the run's folder, perhaps from a different person, names the folder of the artifacts
            raise UserError(
                f"{about.folder}: a file in this folder makes MLflow write outside of the run; remove the folder"
            )
        if earlier:
            client.update_run(self._id, status="RUNNING")
        else:
            params = [Param(key, str(value)[:_LONGEST]) for key, value in about.config.items()]
            client.log_batch(self._id, params=params[:100])
            client.log_dict(self._id, dict(about.config), "config.json")

    def step(self, step: int, scalars: Mapping[str, float], began: float, ended: float) -> None:
        when = int(ended * 1000)
        self._client.log_batch(self._id, metrics=[Metric(name, value, when, step) for name, value in scalars.items()])

    def skill(self, version: int, step: int, text: str) -> None:
        self._client.log_text(self._id, text, f"skills/skill_v{version:04d}.md")

    def finish(self, status: str, figures: Mapping[str, float], files: Sequence[Path]) -> None:
        self._client.log_batch(self._id, metrics=[Metric(name, value, 0, 0) for name, value in figures.items()])
        for path in files:
            self._client.log_artifact(self._id, str(path))
        self._client.set_terminated(self._id, "FINISHED" if status == "finished" else "KILLED")

    def close(self) -> None:
        """Does nothing: MLflow writes each call before it returns."""
