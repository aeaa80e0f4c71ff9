"""Spans that a test reads: kept in memory, as trees of their names."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fsm_agent.runtime import instrument
from support.http_stub import HttpStubServer


class _Counting(SpanProcessor):
    """Counts the spans that have begun and not ended, and those that ended twice."""

    def __init__(self) -> None:
        self.open = 0
        self._lock = threading.Lock()

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        with self._lock:
            self.open += 1

    def on_end(self, span: Any) -> None:
        with self._lock:
            self.open -= 1


class Traces:
    """The recorded spans and metrics, with a tracer and a meter for recording."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._counting = _Counting()
        self._reader = InMemoryMetricReader()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.provider.add_span_processor(self._counting)
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.tracer = self.provider.get_tracer("a test")

    @contextmanager
    def recording(self, **options: Any) -> Iterator[Traces]:
        with instrument(tracer_provider=self.provider, meter_provider=self.meters, **options):
            yield self

    @property
    def open(self) -> int:
        """How many spans have begun and not ended."""
        return self._counting.open

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """The spans that have ended, by their beginnings."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def tree(self) -> list[Any]:
        """Return the names of the spans, each before the spans inside it: ``["a", ["b", ["c"]]]`` is c in b in a."""
        spans = self.spans
        known = {span.context.span_id for span in spans}

        def inside(parent: int | None) -> list[Any]:
            found: list[Any] = []
            for span in spans:
                own = span.parent.span_id if span.parent is not None and span.parent.span_id in known else None
                if own == parent:
                    below = inside(span.context.span_id)
                    found += [span.name, below] if below else [span.name]
            return found

        return inside(None)

    def clear(self) -> None:
        self._exporter.clear()

    def metrics(self) -> dict[str, list[Any]]:
        """The points of each metric, by its name."""
        data = self._reader.get_metrics_data()
        return {
            metric.name: [*metric.data.data_points]
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


class Receiver(HttpStubServer):
    """A receiver of OTLP over HTTP on loopback, which decodes what arrives.

    Attributes:
        bodies: The bodies that have arrived, unchanged.
        url: The address for spans.
    """

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.bodies.append(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

        super().__init__(Handler)
        self.url = f"{self.root}/v1/traces"

    @property
    def spans(self) -> list[Any]:
        """The spans that have arrived, as messages of the protocol, by their beginnings."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        found = []
        for body in self.bodies:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                found += [span for scope in resource.scope_spans for span in scope.spans]
        return sorted(found, key=lambda span: span.start_time_unix_nano)
