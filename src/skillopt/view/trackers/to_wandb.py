"""Sends a run to Weights & Biases, or stores it in the run's folder, from where `wandb sync` sends it later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import wandb

from skillopt.view.trackers.base import About


class WandB:
    """Sends the values of each step to Weights & Biases as curves, and every version and the report as artifacts."""

    def begin(self, about: About) -> None:
        self._id = about.id
        self._run = wandb.init(
            project=about.settings.project,
            name=about.name,
            id=self._id,
            dir=str(about.folder),
            mode=about.settings.wandb_mode,
            resume="allow",
            config=dict(about.config),
            settings=wandb.Settings(
                silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True
            ),
        )

    def step(self, step: int, scalars: Mapping[str, float], began: float, ended: float) -> None:
        self._run.log(dict(scalars), step=step, commit=True)

    def skill(self, version: int, step: int, text: str) -> None:
        artifact = wandb.Artifact(f"skill-{self._id}", type="skill", metadata={"version": version, "step": step})
        with artifact.new_file(f"skill_v{version:04d}.md", encoding="utf-8") as file:
            file.write(text)
        self._run.log_artifact(artifact)

    def finish(self, status: str, figures: Mapping[str, float], files: Sequence[Path]) -> None:
        self._run.summary.update({**figures, "status": status})
        artifact = wandb.Artifact(f"report-{self._id}", type="report")
        for path in files:
            artifact.add_file(str(path))
        self._run.log_artifact(artifact)

    def close(self) -> None:
        self._run.finish()
