"""What comes of sending: a collector that takes nothing is worth one line in the log, however often it is tried."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from dynamic_mcp.system.text import one_line

log = logging.getLogger(__name__)

# The loggers of what sends, which would write a line for each failure.
_NOISY = ("opentelemetry", "urllib3")
_LONGEST_REASON = 200
_thread = threading.local()


class Delivery:
    """Whether the collector takes what is sent; says so when that changes.

    What the SDK logs in our threads goes into these lines only. In other threads, which may be those of an
    application around us that has telemetry of its own, it is left alone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_failed = False
        names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _NOISY]
        for name in names:
            logging.getLogger(name).addFilter(_keep)

    def mute_this_thread(self) -> None:
        """Keep from the log what the SDK has to say in this thread."""
        _thread.is_muted = True

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Mute this thread while it sends."""
        before = getattr(_thread, "is_muted", False)
        _thread.is_muted, _thread.reason = True, ""
        try:
            yield
        finally:
            _thread.is_muted = before

    def note(self, what: str, *, is_delivered: bool) -> None:
        """Note what came of sending something."""
        with self._lock:
            if self._has_failed is not is_delivered:
                return
            self._has_failed = not is_delivered
        if is_delivered:
            log.info("telemetry: the collector takes %s again", what)
        else:
            reason = one_line(getattr(_thread, "reason", ""), _LONGEST_REASON)
            log.warning("telemetry: the collector does not take %s, which are lost: %s", what, reason or "no reason")


def _keep(record: logging.LogRecord) -> bool:
    if not getattr(_thread, "is_muted", False):
        return True
    _thread.reason = record.getMessage()
    return False


class SpanExporter(OTLPSpanExporter):
    """Sends spans, and notes what comes of it."""

    def __init__(self, delivery: Delivery, endpoint: str | None) -> None:
        super().__init__(endpoint)
        self._delivery = delivery

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans."""
        with self._delivery.sending():
            result = super().export(spans)
        self._delivery.note("spans", is_delivered=result is SpanExportResult.SUCCESS)
        return result


class MetricExporter(OTLPMetricExporter):
    """Sends metrics, and notes what comes of it."""

    def __init__(self, delivery: Delivery, endpoint: str | None) -> None:
        super().__init__(endpoint)
        self._delivery = delivery

    def export(
        self,
        metrics_data: MetricsData,
        timeout_millis: float | None = 10_000,
        **kwargs: Any,  # Any: as it is declared
    ) -> MetricExportResult:
        """Send metrics."""
        with self._delivery.sending():
            result = super().export(metrics_data, timeout_millis, **kwargs)
        self._delivery.note("metrics", is_delivered=result is MetricExportResult.SUCCESS)
        return result
