"""Writes TensorBoard event files into the run's folder: `tensorboard --logdir outputs` shows them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util.tensor_util import make_tensor_proto

from skillopt.view.markdown import fenced
from skillopt.view.trackers.base import About


class TensorBoard:
    """Writes the values of each step as curves, and the config, every version and the final report as text."""

    def begin(self, about: About) -> None:
        self._writer = EventFileWriter(str(about.folder))
        self._text("config", fenced(json.dumps(dict(about.config), indent=2, ensure_ascii=False), "json"), 0)

    def step(self, step: int, scalars: Mapping[str, float], began: float, ended: float) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
        self._add(Summary(value=values), step)
        self._writer.flush()

    def skill(self, version: int, step: int, text: str) -> None:
        self._text("skill", f"Version {version}\n\n{fenced(text)}", step)

    def finish(self, status: str, figures: Mapping[str, float], files: Sequence[Path]) -> None:
        self._add(Summary(value=[Summary.Value(tag=name, simple_value=v) for name, v in figures.items()]), 0)
        for path in files:
            if path.name == "report.md":
                self._text("report", path.read_text(encoding="utf-8"), 0)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _text(self, tag: str, text: str, step: int) -> None:
        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        tensor = make_tensor_proto([text.encode()])
        self._add(Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)]), step)

    def _add(self, summary: Any, step: int) -> None:
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))
