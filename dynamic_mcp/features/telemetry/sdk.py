"""The OpenTelemetry SDK: turns measurements into spans and metrics, and sends them over OTLP/HTTP.

Importing this takes half a second. Endpoints, headers, batches, samplers, limits and resources come from the
variables `OTEL_…`, as read by the SDK.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Histogram
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Decision
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from dynamic_mcp.features.telemetry.records import Measurement, Span, TelemetrySettings, Trace
from dynamic_mcp.observe.conventions import BUCKETS, METRICS
from dynamic_mcp.observe.trace_context import TraceContext
from dynamic_mcp.system.text import one_line

_SCOPE = "dynamic-mcp"
_KINDS = {"server": SpanKind.SERVER, "client": SpanKind.CLIENT}
log = logging.getLogger(__name__)
# The loggers of the senders, which would write a line for each failure.
_NOISY = ("opentelemetry", "urllib3")
_LONGEST_REASON = 200
_thread = threading.local()


class SdkExporter:
    """Sends spans and durations; used by one thread."""

    def __init__(self, settings: TelemetrySettings) -> None:
        resource, delivery = _resource(settings.version), _Delivery()
        delivery.mute_this_thread()
        self._ids = _Ids()
        self._sampler = TracerProvider(shutdown_on_exit=False).sampler  # the environment's sampler
        self._traces = self._metrics = None
        if settings.traces:
            self._traces = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False, id_generator=self._ids)
            spans = _SpanExporter(delivery, _url(settings.endpoint, "traces"))
            self._traces.add_span_processor(BatchSpanProcessor(spans))
            self._tracer = self._traces.get_tracer(_SCOPE, settings.version)
        self._histograms: dict[str, Histogram] = {}
        if settings.metrics:
            reader = PeriodicExportingMetricReader(_MetricExporter(delivery, _url(settings.endpoint, "metrics")))
            self._metrics = MeterProvider([reader], resource, shutdown_on_exit=False)
            meter = self._metrics.get_meter(_SCOPE, settings.version)
            for name, description in METRICS.items():
                self._histograms[name] = meter.create_histogram(
                    name, "s", description, explicit_bucket_boundaries_advisory=BUCKETS
                )

    def take(self, item: Span | Measurement) -> None:
        if isinstance(item, Span):
            self._take_span(item)
        elif (histogram := self._histograms.get(item.metric)) is not None:
            histogram.record(item.seconds, item.attributes)

    def decides(self, trace: Trace, name: str) -> bool:
        parent = Context() if trace.parent is None else _as_current(trace.parent)
        result = self._sampler.should_sample(parent, int(trace.id, 16), name, SpanKind.SERVER)
        return result.decision is Decision.RECORD_AND_SAMPLE

    def flush(self) -> None:
        """Send everything, and end, within the bounds of the SDK; callers set their own bound."""
        if self._traces is not None:
            self._traces.shutdown()
        if self._metrics is not None:
            self._metrics.shutdown()

    def _take_span(self, span: Span) -> None:
        trace = span.trace
        if trace.is_sampled is None:  # it began before the sampler was loaded
            trace.is_sampled = self.decides(trace, span.name)
        if not trace.is_sampled or self._traces is None:
            return
        self._ids.trace_id, self._ids.span_id = int(trace.id, 16), int(span.id, 16)
        context = trace.context(span.parent_id) if span.parent_id else trace.parent
        otel_span = self._tracer.start_span(
            span.name,
            Context() if context is None else _as_current(context, is_remote=not span.parent_id),
            _KINDS[span.kind],
            span.attributes,
            () if span.link is None else (Link(_span_context(span.link)),),
            span.started,
        )
        if span.payloads is not None:
            otel_span.set_attributes(span.payloads())
        for event in span.events:
            otel_span.add_event(event.name, event.attributes, event.at)
        if span.error is not None:
            otel_span.set_status(Status(StatusCode.ERROR, span.error or None))
        otel_span.end(span.ended)


class _Ids(IdGenerator):
    """Gives a span the ids that were already propagated."""

    trace_id = span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


def _as_current(context: TraceContext, *, is_remote: bool = True) -> Context:
    return api.set_span_in_context(NonRecordingSpan(_span_context(context, is_remote=is_remote)), Context())


def _span_context(context: TraceContext, *, is_remote: bool = True) -> SpanContext:
    return SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote,
        TraceFlags(context.flags),
        TraceState.from_header([context.state] if context.state else []),
    )


def _resource(version: str) -> Resource:
    """Return the resource: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` come first."""
    ours = {"service.name": "dynamic-mcp", "service.version": version, "service.instance.id": str(uuid.uuid4())}
    return Resource.create({**ours, **OTELResourceDetector().detect().attributes})


def _url(endpoint: str | None, signal: str) -> str | None:
    return None if endpoint is None else f"{endpoint.rstrip('/')}/v1/{signal}"


class _Delivery:
    """Tracks whether the collector accepts data, and logs each change.

    SDK logs from our threads go into these lines only. In other threads, which may belong to an embedding
    application with its own telemetry, they are unchanged.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_failed = False
        names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _NOISY]
        for name in names:
            logging.getLogger(name).addFilter(_keep)

    def mute_this_thread(self) -> None:
        """Suppress the SDK's log lines from this thread."""
        _thread.is_muted = True

    @contextmanager
    def sending(self) -> Iterator[None]:
        before = getattr(_thread, "is_muted", False)
        _thread.is_muted, _thread.reason = True, ""
        try:
            yield
        finally:
            _thread.is_muted = before

    def note(self, what: str, *, is_delivered: bool) -> None:
        """Record whether data was delivered, and log a change."""
        with self._lock:
            if self._has_failed is not is_delivered:
                return
            self._has_failed = not is_delivered
        if is_delivered:
            log.info("telemetry: the collector accepts %s again", what)
        else:
            reason = one_line(getattr(_thread, "reason", ""), _LONGEST_REASON) or "no reason"
            log.warning("telemetry: the collector does not accept %s, which are lost: %s", what, reason)


def _keep(record: logging.LogRecord) -> bool:
    if not getattr(_thread, "is_muted", False):
        return True
    _thread.reason = record.getMessage()
    return False


class _SpanExporter(OTLPSpanExporter):
    """Sends spans, and records the outcome."""

    def __init__(self, delivery: _Delivery, endpoint: str | None) -> None:
        super().__init__(endpoint)
        self._delivery = delivery

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self._delivery.sending():
            result = super().export(spans)
        self._delivery.note("spans", is_delivered=result is SpanExportResult.SUCCESS)
        return result


class _MetricExporter(OTLPMetricExporter):
    """Sends metrics, and records the outcome."""

    def __init__(self, delivery: _Delivery, endpoint: str | None) -> None:
        super().__init__(endpoint)
        self._delivery = delivery

    def export(
        self,
        metrics_data: MetricsData,
        timeout_millis: float | None = 10_000,
        **kwargs: Any,  # Any: as declared by the base class
    ) -> MetricExportResult:
        with self._delivery.sending():
            result = super().export(metrics_data, timeout_millis, **kwargs)
        self._delivery.note("metrics", is_delivered=result is MetricExportResult.SUCCESS)
        return result
