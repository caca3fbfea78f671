"""Makes OpenTelemetry spans for the run and for each step. Sends them over OTLP/HTTP, or writes them into a file.

The attributes for kind, input, output and metadata have OpenInference's names, so tools such as Phoenix show them.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter

from skillopt.skill.folder import open_regular
from skillopt.version import __version__
from skillopt.view.trackers.base import About

_KIND = "openinference.span.kind"
_LONGEST = 16_000
"""The maximum number of characters of a skill in a span; collectors refuse much longer texts."""


class OpenTelemetry:
    """Sends spans. The span of a step has the step's values as attributes; the span of the run has the versions and the
    final figures."""

    def begin(self, about: About) -> None:
        resource = Resource.create({"service.name": about.settings.project, "service.version": __version__})
        self._provider = TracerProvider(resource=resource)
        self._file: io.TextIOWrapper | None = None
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter(about)))
        tracer = self._provider.get_tracer("skillopt", __version__)
        self._tracer = tracer
        config = {f"config.{key}": _attribute(value) for key, value in about.config.items()}
        names = {"run": about.name, _KIND: "CHAIN", "session.id": about.name}
        self._root = tracer.start_span(
            "train", attributes={**names, "metadata": json.dumps(dict(about.config), default=str), **config}
        )
        self._context = trace.set_span_in_context(self._root)

    def _exporter(self, about: About) -> SpanExporter:
        endpoint = about.settings.otel_endpoint
        if endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            return OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None)
        self._file = io.TextIOWrapper(open_regular(about.folder / "spans.jsonl", "ab"), encoding="utf-8")
        return ConsoleSpanExporter(out=self._file, formatter=lambda span: f"{span.to_json(indent=None)}\n")

    def step(self, step: int, scalars: Mapping[str, float], began: float, ended: float) -> None:
        start, end = int(began * 1e9), int(ended * 1e9)
        span = self._tracer.start_span("step", context=self._context, start_time=start, attributes={"step": step})
        span.set_attributes({_KIND: "CHAIN", "metadata": json.dumps(dict(scalars)), **scalars})
        span.end(end_time=end)

    def skill(self, version: int, step: int, text: str) -> None:
        self._root.add_event("skill", {"version": version, "step": step, "text": text[:_LONGEST]})
        self._root.set_attribute("input.value" if step == 0 else "output.value", text[:_LONGEST])

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


def _attribute(value: object) -> str | bool | int | float:
    return value if isinstance(value, str | bool | int | float) else json.dumps(value, ensure_ascii=False)
