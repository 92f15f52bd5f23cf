"""A collector on loopback: takes traces and metrics over OTLP/HTTP, as the protocol's own package reads them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from msgspec import Struct
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan

BOUND_S = 60.0
Value = str | int | float | bool


class Span(Struct, frozen=True):
    """A span that has come; ids are in hexadecimal, times in nanoseconds since 1970."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    state: str
    started: int
    ended: int
    attributes: Mapping[str, Value]
    events: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    status: str
    message: str
    service: str
    scope: str


class Receiver:
    """What has come. `behave` chooses what it does with a request: `take`, `ignore`, `refuse`, `close` or `hang`."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.resources: list[Mapping[str, Value]] = []
        self.headers: list[Mapping[str, str]] = []
        self.metrics: dict[str, list[HistogramDataPoint]] = {}
        self.requests = 0
        self.behaviour = "take"
        self.released = threading.Event()
        self._arrived = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def behave(self, behaviour: str) -> None:
        """Do this with what comes from now on."""
        self.behaviour = behaviour

    def wait_for(self, condition: Callable[[Receiver], bool]) -> None:
        """Wait until enough has come."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: condition(self), BOUND_S), [each.name for each in self.spans]

    def find(self, **wanted: str) -> Span:
        """Return the one span whose members are these."""
        [span] = [each for each in self.spans if all(getattr(each, name) == wanted[name] for name in wanted)]
        return span

    def close(self) -> None:
        """End it."""
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Take what a program has sent."""
        with self._arrived:
            self.requests += 1
            self.headers.append(headers)
            if self.behaviour == "take":
                (self._take_spans if path == "/v1/traces" else self._take_metrics)(body)
            self._arrived.notify_all()

    def _take_spans(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            about = _attributes(resource.resource.attributes)
            self.resources.append(about)
            for scope in resource.scope_spans:
                service = str(about.get("service.name"))
                self.spans += [_read_span(each, service, scope.scope.name) for each in scope.spans]

    def _take_metrics(self, body: bytes) -> None:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    self.metrics[metric.name] = list(metric.histogram.data_points)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.take(self.path, body, {name.lower(): value for name, value in self.headers.items()})
                if receiver.behaviour == "hang":
                    receiver.released.wait(BOUND_S)
                if receiver.behaviour in ("hang", "close"):
                    self.close_connection = True
                    return
                # a 500 would make the SDK before 1.45 try again
                self.send_response(400 if receiver.behaviour == "refuse" else 200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
                """Say nothing."""

        return Handler


def labels_of(point: HistogramDataPoint) -> Mapping[str, Value]:
    """Return the attributes of a point of a metric."""
    return _attributes(point.attributes)


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a receiver."""
    receiver = Receiver()
    try:
        yield receiver
    finally:
        receiver.close()


def _read_span(span: ProtoSpan, service: str, scope: str) -> Span:
    return Span(
        name=span.name,
        kind=ProtoSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        state=span.trace_state,
        started=span.start_time_unix_nano,
        ended=span.end_time_unix_nano,
        attributes=_attributes(span.attributes),
        events=tuple(event.name for event in span.events),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        status={0: "unset", 1: "ok", 2: "error"}[span.status.code],
        message=span.status.message,
        service=service,
        scope=scope,
    )


def _attributes(pairs: Iterable[KeyValue]) -> Mapping[str, Value]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value") for pair in pairs}
