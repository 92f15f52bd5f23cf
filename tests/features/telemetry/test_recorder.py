"""The event loop never waits for telemetry, and what is measured before the SDK is there is not lost."""

from __future__ import annotations

import logging
import threading

import pytest

from dynamic_mcp.features.telemetry import recorder as module
from dynamic_mcp.features.telemetry.recorder import MAX_DURATIONS, Recorder
from dynamic_mcp.features.telemetry.records import TelemetrySettings, Trace
from dynamic_mcp.observe.trace_context import parse_context
from tests.features.telemetry.parties import FakeExporter, record_to, recorded
from tests.program import BOUND_S

SETTINGS = TelemetrySettings(None, traces=True, metrics=True, version="1")


def put(recorder: Recorder, seconds: float = 1.0) -> None:
    recorder.put_duration("m", seconds, {})


def test_what_comes_before_the_sdk_is_kept_in_its_order() -> None:
    exporter = FakeExporter()
    recorder = record_to(exporter)
    for number in range(5):
        put(recorder, number)
    assert [each.seconds for each in recorded(recorder, exporter).measurements] == [0, 1, 2, 3, 4]
    assert exporter.has_ended.is_set()


def test_what_does_not_fit_is_counted_and_dropped() -> None:
    exporter = FakeExporter()
    exporter.gate.clear()
    recorder = record_to(exporter)
    recorder.start()
    for number in range(MAX_DURATIONS + 10):
        put(recorder, number)
    assert recorder.dropped == 10
    exporter.gate.set()
    assert len(recorded(recorder, exporter).measurements) == MAX_DURATIONS


def test_an_exporter_that_hangs_does_not_keep_the_end_waiting() -> None:
    exporter = FakeExporter()
    exporter.gate.clear()
    recorder = record_to(exporter)
    put(recorder)
    recorder.close(within_s=0.05)
    put(recorder)
    assert recorder.dropped == 1
    exporter.gate.set()
    assert exporter.has_ended.wait(BOUND_S)


def test_an_sdk_that_cannot_be_loaded_costs_one_line(caplog: pytest.LogCaptureFixture) -> None:
    def load(settings: TelemetrySettings) -> FakeExporter:
        raise ValueError("the setting\nis wrong")

    recorder = Recorder(SETTINGS, load)
    with caplog.at_level(logging.INFO, module.__name__):
        put(recorder)
        recorder.close(BOUND_S)
        put(recorder)
    assert [record.getMessage() for record in caplog.records] == ["telemetry is off: the setting is wrong"]


def test_nothing_measured_is_nothing_loaded() -> None:
    loaded = threading.Event()

    def load(settings: TelemetrySettings) -> FakeExporter:
        loaded.set()
        return FakeExporter()

    Recorder(SETTINGS, load).close(BOUND_S)
    assert not loaded.is_set()


@pytest.mark.parametrize(("flags", "is_sampled"), [("01", True), ("00", False)])
def test_a_trace_is_recorded_as_its_parent_is(flags: str, *, is_sampled: bool) -> None:
    trace = Trace("1" * 32, parse_context(f"00-{'1' * 32}-{'2' * 16}-{flags}"), None)
    record_to(FakeExporter()).decide(trace, "tools/call")
    assert trace.is_sampled is is_sampled


def test_a_sampler_decides_once_it_is_there() -> None:
    exporter = FakeExporter(samples=False)
    recorder = record_to(exporter, has_sampler=True)
    early, late = Trace("1" * 32, None, None), Trace("2" * 32, None, None)
    recorder.decide(early, "tools/call")
    recorded(recorder, exporter)
    recorder.decide(late, "tools/call")
    assert (early.is_sampled, late.is_sampled) == (None, False)
