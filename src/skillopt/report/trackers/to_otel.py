"""OpenTelemetry: a span for the run and one for each step, over OTLP/HTTP or into a file of the run's folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter

from skillopt.report.trackers.base import About
from skillopt.version import __version__

_LONGEST = 16_000
"""Characters of a skill in a span; collectors refuse much longer ones."""


class OpenTelemetry:
    """Scalars are attributes of a step's span, versions are its events; the run's span has the final figures."""

    def begin(self, about: About) -> str:
        resource = Resource.create({"service.name": about.settings.project, "service.version": __version__})
        self._provider = TracerProvider(resource=resource)
        self._file: Any = None
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter(about)))
        tracer = self._provider.get_tracer("skillopt", __version__)
        self._tracer = tracer
        known = {f"config.{key}": _attribute(value) for key, value in about.config.items()}
        self._root = tracer.start_span("train", attributes={"run": about.name, **known})
        self._context = trace.set_span_in_context(self._root)
        return about.name

    def _exporter(self, about: About) -> SpanExporter:
        endpoint = about.settings.otel_endpoint
        if endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            return OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None)
        self._file = (about.folder / "spans.jsonl").open("a", encoding="utf-8")
        return ConsoleSpanExporter(out=self._file, formatter=lambda span: f"{span.to_json(indent=None)}\n")

    def step(self, step: int, scalars: Mapping[str, float], began: float, ended: float) -> None:
        now = time.time()
        start, end = (int((when or now) * 1e9) for when in (began, ended))
        span = self._tracer.start_span("step", context=self._context, start_time=start, attributes={"step": step})
        span.set_attributes(dict(scalars))
        span.end(end_time=max(start, end))

    def skill(self, version: int, step: int, text: str) -> None:
        self._root.add_event("skill", {"version": version, "step": step, "text": text[:_LONGEST]})

    def finish(self, status: str, figures: Mapping[str, float], files: Sequence[Path]) -> None:
        self._root.set_attributes({"status": status, **figures})
        for path in files:
            if path.name == "report.md":
                self._root.add_event("report", {"text": path.read_text(encoding="utf-8")[:_LONGEST]})

    def close(self) -> None:
        self._root.end()
        self._provider.shutdown()
        if self._file:
            self._file.close()


def _attribute(value: Any) -> str | bool | int | float:
    return value if isinstance(value, str | bool | int | float) else json.dumps(value, ensure_ascii=False)
