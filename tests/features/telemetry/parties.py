"""What stands where the SDK would be: it keeps what was measured."""

from __future__ import annotations

import threading

from msgspec import Struct

from dynamic_mcp.features.telemetry.recorder import Recorder
from dynamic_mcp.features.telemetry.records import Measurement, Span, TelemetrySettings, Trace
from dynamic_mcp.observe.conventions import Attributes
from tests.program import BOUND_S


class FakeExporter:
    """Keeps spans and measurements. Its sampler says `samples`; while `gate` is closed, loading it takes time."""

    def __init__(self, *, samples: bool = True) -> None:
        self.items: list[Span | Measurement] = []
        self.has_ended = threading.Event()
        self.gate = threading.Event()
        self.gate.set()
        self.samples = samples

    def load(self, settings: TelemetrySettings) -> FakeExporter:
        assert self.gate.wait(BOUND_S)
        return self

    def take(self, item: Span | Measurement) -> None:
        self.items.append(item)

    def decides(self, trace: Trace, name: str) -> bool:
        return self.samples

    def flush(self) -> None:
        self.has_ended.set()


class Recorded(Struct, frozen=True):
    """All that was recorded."""

    spans: list[Span]
    measurements: list[Measurement]

    def span(self, kind: str, name: str) -> Span:
        """Return the one span of this kind and name."""
        [span] = [each for each in self.spans if (each.kind, each.name) == (kind, name)]
        return span

    def labels(self, metric: str) -> list[Attributes]:
        """Return the labels of each measurement of a metric."""
        return [each.attributes for each in self.measurements if each.metric == metric]


def record_to(
    exporter: FakeExporter, *, traces: bool = True, metrics: bool = True, has_sampler: bool = False
) -> Recorder:
    """Return a recorder that hands all to this exporter."""
    settings = TelemetrySettings(None, traces, metrics, "1")
    return Recorder(settings, exporter.load, has_sampler=has_sampler)


def recorded(recorder: Recorder, exporter: FakeExporter) -> Recorded:
    """End a recorder, and return what it was given."""
    recorder.start()
    recorder.close(BOUND_S)
    return Recorded(
        [each for each in exporter.items if isinstance(each, Span)],
        [each for each in exporter.items if isinstance(each, Measurement)],
    )
