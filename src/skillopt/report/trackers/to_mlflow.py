"""MLflow: a tracking server, or files in the run's folder where none is named."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from skillopt.report.trackers.base import About

os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions ask for a word before they write plain files

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

_LONGEST = 500
"""Characters of a parameter that every store takes."""


class MLflow:
    """Metrics by step; every version and the report as artifacts."""

    def begin(self, about: About) -> str:
        uri = about.settings.mlflow_uri or about.folder.resolve().as_uri()
        self._client = MlflowClient(tracking_uri=uri)
        known = self._client.get_experiment_by_name(about.settings.project)
        experiment = known.experiment_id if known else self._client.create_experiment(about.settings.project)
        if about.earlier_id:
            self._id = about.earlier_id
            self._client.update_run(self._id, status="RUNNING")
            return self._id
        self._id = self._client.create_run(experiment, run_name=about.name).info.run_id
        params = [Param(key, str(value)[:_LONGEST]) for key, value in about.config.items()]
        self._client.log_batch(self._id, params=params[:100])
        self._client.log_dict(self._id, dict(about.config), "config.json")
        return self._id

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
        """Every call is written when it returns."""
