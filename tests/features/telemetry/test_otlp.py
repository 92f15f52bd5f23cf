"""What was measured reaches a collector over OTLP as it was, and a collector that fails costs one line in the log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from dynamic_mcp.features.telemetry.recorder import MAX_SPANS, Exporter, Recorder
from dynamic_mcp.features.telemetry.records import Span, SpanEvent, TelemetrySettings, Trace
from dynamic_mcp.observe import conventions as names
from dynamic_mcp.observe.trace_context import begin_span, begin_trace, parse_context
from tests.otlp_receiver import BOUND_S, Receiver, labels_of, receiving

PARENT = parse_context(f"00-{'a' * 32}-{'b' * 16}-01", "v=1")
NOW = 1_790_000_000_000_000_000


@pytest.fixture(name="receiver")
def _receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    with receiving() as receiver:
        yield receiver


def recorder_for(receiver: Receiver, *, has_sampler: bool = False) -> Recorder:
    return Recorder(
        TelemetrySettings(receiver.url, traces=True, metrics=True, version="9.9"), has_sampler=has_sampler
    )


def span(trace: Trace | None = None, name: str = "tools/call echo", **members: object) -> Span:
    own = {"attributes": {names.TOOL: "echo"}, **members}
    trace = trace or Trace(begin_trace(), None, is_sampled=True)
    return Span(trace, begin_span(), "server", name, NOW, NOW + 5, **own)  # type: ignore[arg-type]


def test_what_is_left_is_sent_also_when_that_takes_longer_than_the_end_waits(receiver: Receiver) -> None:
    may_load = threading.Event()

    def load(settings: TelemetrySettings) -> Exporter:
        from dynamic_mcp.features.telemetry.sdk import SdkExporter

        assert may_load.wait(BOUND_S)
        return SdkExporter(settings)

    settings = TelemetrySettings(receiver.url, traces=True, metrics=True, version="9.9")
    recorder = Recorder(settings, load)
    recorder.put_span(span())
    recorder.put_duration(names.SERVER_DURATION, 0.5, {names.METHOD: "tools/call"})
    recorder.close(within_s=0)
    may_load.set()
    receiver.wait_for(lambda each: bool(each.spans) and names.SERVER_DURATION in each.metrics)


def test_spans_arrive_with_their_ids_parents_times_and_links(receiver: Receiver) -> None:
    assert PARENT is not None
    trace = Trace(PARENT.trace_id, PARENT, is_sampled=True)
    link = parse_context(f"00-{'c' * 32}-{'d' * 16}-01")
    event = SpanEvent("dynamic_mcp.decision", NOW + 2, {"a": "b"})
    server = span(trace, link=link, events=(event,), error="broken", payloads=lambda: {names.ARGUMENTS: "{}"})
    client = Span(trace, begin_span(), "client", "tools/call", NOW + 1, NOW + 4, {}, parent_id=server.id)
    recorder = recorder_for(receiver)
    recorder.put_span(client)
    recorder.put_span(server)
    recorder.close(60)
    found = receiver.find(kind="server")
    assert (found.trace, found.id, found.parent, found.state) == ("a" * 32, server.id, "b" * 16, "v=1")
    assert (found.started, found.ended, found.name) == (NOW, NOW + 5, "tools/call echo")
    assert found.attributes == {names.TOOL: "echo", names.ARGUMENTS: "{}"}
    assert found.links == (("c" * 32, "d" * 16),)
    assert (found.events, found.status, found.message) == (("dynamic_mcp.decision",), "error", "broken")
    assert (found.service, found.scope) == ("dynamic-mcp", "dynamic-mcp")
    inner = receiver.find(kind="client")
    assert (inner.trace, inner.parent, inner.status) == ("a" * 32, server.id, "unset")
    assert receiver.resources[0]["service.version"] == "9.9"


def test_durations_arrive_in_the_buckets_of_the_conventions(receiver: Receiver) -> None:
    recorder = recorder_for(receiver)
    for seconds in (0.015, 3.0):
        recorder.put_duration(names.SERVER_DURATION, seconds, {names.METHOD: "tools/call"})
    recorder.close(60)
    [point] = receiver.metrics["mcp.server.operation.duration"]
    assert labels_of(point) == {"mcp.method.name": "tools/call"}
    assert point.count == 2
    bounds = list(point.explicit_bounds)
    assert bounds == [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300]
    assert [bound for bound, count in zip(bounds, point.bucket_counts, strict=False) if count] == [0.02, 5]


def test_the_variables_of_opentelemetry_count(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "ours")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    settings = TelemetrySettings(None, traces=True, metrics=False, version="1")
    recorder = Recorder(settings, has_sampler=True)
    assert PARENT is not None
    recorder.put_span(span(Trace(begin_trace(), None, is_sampled=None), "left out"))
    recorder.put_span(span(Trace(PARENT.trace_id, PARENT, is_sampled=None), "recorded by its parent"))
    recorder.close(60)
    assert [(each.service, each.name) for each in receiver.spans] == [("ours", "recorded by its parent")]
    assert receiver.resources[0]["deployment.environment"] == "test"
    assert {each.get("x-key") for each in receiver.headers} == {"secret"}


@pytest.mark.parametrize("behaviour", ["refuse", "close", "hang"])
def test_a_collector_that_fails_costs_nothing_but_one_line(
    behaviour: str, receiver: Receiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    receiver.behave(behaviour)
    recorder = recorder_for(receiver)
    with caplog.at_level(logging.INFO):
        recorder.start()
        for _ in range(2 * MAX_SPANS):
            recorder.put_span(span())
        receiver.wait_for(lambda receiver: receiver.requests >= 3)
        recorder.close()
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if "the collector does not accept" in line]) <= 1
    assert len([line for line in lines if "spans arrive faster than they can be sent" in line]) <= 1
    assert len(lines) <= 2, lines


def test_a_collector_that_comes_back_is_told_of(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    receiver.behave("refuse")
    recorder = recorder_for(receiver)
    with caplog.at_level(logging.INFO):
        recorder.start()
        recorder.put_span(span())
        receiver.wait_for(lambda receiver: receiver.requests >= 1)
        receiver.behave("take")
        recorder.put_span(span(name="later"))
        receiver.wait_for(lambda receiver: any(each.name == "later" for each in receiver.spans))
        recorder.close(60)
    said = [record.getMessage() for record in caplog.records]
    assert [line.split(":")[1].split(",")[0] for line in said] == [
        " the collector does not accept spans",
        " the collector accepts spans again",
    ]
