"""Measurements as plain values of the event loop; threads turn them into spans and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from dynamic_mcp.observe.conventions import Attributes
from dynamic_mcp.observe.trace_context import SAMPLED, TraceContext


class Trace(Struct):
    """The part of a trace that starts with a client's request, and the `parent` in another process.

    `is_sampled` None is decided by the sampler once it is loaded; until then the trace is propagated as recorded.
    """

    id: str
    parent: TraceContext | None
    is_sampled: bool | None

    def context(self, span_id: str) -> TraceContext:
        """Return the context of one of its spans, for propagation."""
        parent = self.parent
        flags = 0 if parent is None else parent.flags & ~SAMPLED
        if self.is_sampled is not False:
            flags |= SAMPLED
        return TraceContext(self.id, span_id, flags, "" if parent is None else parent.state)


class SpanEvent(Struct, frozen=True):
    """An event within a span; `at` is in nanoseconds since 1970."""

    name: str
    at: int
    attributes: Attributes


class Span(Struct):
    """A span that has ended. Times are in nanoseconds since 1970.

    `error` is the description of a failure, which may be empty; None means no failure. `payloads` return attributes
    that are slow to build.
    """

    trace: Trace
    id: str
    kind: Literal["server", "client"]
    name: str
    started: int
    ended: int
    attributes: Attributes
    parent_id: str = ""
    events: tuple[SpanEvent, ...] = ()
    link: TraceContext | None = None
    error: str | None = None
    payloads: Callable[[], Mapping[str, str]] | None = None


class Measurement(Struct, frozen=True):
    """A duration for one of the metrics."""

    metric: str
    seconds: float
    attributes: Attributes


class TelemetrySettings(Struct, frozen=True):
    """The signals to send and their collector; `endpoint` None uses the variables of OpenTelemetry."""

    endpoint: str | None
    traces: bool
    metrics: bool
    version: str
