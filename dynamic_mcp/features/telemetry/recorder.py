"""Moves spans and durations out of the event loop: through a bounded queue that a thread empties.

The loop never waits for the collector: records that do not fit are counted and dropped.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

from dynamic_mcp.features.telemetry.records import Measurement, Span, TelemetrySettings, Trace
from dynamic_mcp.observe.conventions import Attributes

T = TypeVar("T")
log = logging.getLogger(__name__)

# Also bounds the queue until the SDK is imported. Durations are small, and metrics without some of them are wrong.
MAX_SPANS = 2048
MAX_DURATIONS = 8 * MAX_SPANS
FLUSH_WITHIN_S = 1.0
# Records that arrive within this time of the first are exported together, up to this number.
_GATHER_S = 0.2
_GATHER = MAX_SPANS // 4


class Exporter(Protocol):
    """Turns measurements into spans and metrics, and sends them from separate threads."""

    def take(self, item: Span | Measurement) -> None: ...

    def decides(self, trace: Trace, name: str) -> bool:
        """Return whether a trace is recorded."""
        ...

    def flush(self) -> None:
        """Send everything, and end."""
        ...


class Recorder:
    """Queues the measurements of the event loop from the start; `load` returns the exporter, in a thread.

    Call `start` when the program is idle, and `close` at the end.
    """

    def __init__(
        self,
        settings: TelemetrySettings,
        load: Callable[[TelemetrySettings], Exporter] | None = None,
        *,
        has_sampler: bool = False,
    ) -> None:
        self.settings = settings
        self.dropped = 0
        self._load = load or _load_sdk
        self._has_sampler = has_sampler
        self._spans: deque[Span] = deque()
        self._durations: deque[Measurement] = deque()
        self._exporter: Exporter | None = None
        self._work, self._hurry, self._is_done = threading.Event(), threading.Event(), threading.Event()
        self._is_ending = self._has_complained = False
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<Recorder {len(self._spans) + len(self._durations)} queued, {self.dropped} dropped>"

    def start(self) -> None:
        """Load the SDK and begin to send."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
            self._thread.start()

    def put_span(self, span: Span) -> None:
        """Queue a span, or drop it."""
        self._put(self._spans, span, MAX_SPANS)

    def put_duration(self, metric: str, seconds: float, attributes: Attributes) -> None:
        """Queue a duration for a metric, or drop it."""
        self._put(self._durations, Measurement(metric, seconds, attributes), MAX_DURATIONS)

    def _put(self, queue: deque[T], item: T, most: int) -> None:
        size = len(queue)
        if size >= most or self._is_done.is_set():
            self.dropped += 1
            return
        queue.append(item)
        if not self._work.is_set():
            self._work.set()
        if size == _GATHER:
            self._hurry.set()

    def decide(self, trace: Trace, name: str) -> None:
        """Decide whether a new trace is recorded: like its parent, or by the sampler of the environment."""
        if not self._has_sampler:
            trace.is_sampled = trace.parent is None or trace.parent.is_sampled
        elif self._exporter is not None:
            trace.is_sampled = self._exporter.decides(trace, name)

    def close(self, within_s: float = FLUSH_WITHIN_S) -> None:
        """Send the rest and wait for at most `within_s`; call it in a thread.

        Remaining work continues in the background until the process exits.
        """
        if self._spans or self._durations:
            self.start()
        self._is_ending = True
        self._hurry.set()
        self._work.set()
        if self._thread is not None:
            self._is_done.wait(within_s)
        self._is_done.set()

    # --- in the thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            exporter = self._exporter = self._load(self.settings)
        except Exception as exc:  # noqa: BLE001 - packages of others, with settings of others
            log.warning("telemetry is off: %s", " ".join(str(exc).split())[:500] or type(exc).__name__)
        else:
            self._serve(exporter)
        self._is_done.set()
        self._spans.clear()
        self._durations.clear()

    def _serve(self, exporter: Exporter) -> None:
        while not self._is_ending:
            self._work.wait()
            self._hurry.wait(_GATHER_S)
            self._work.clear()
            if not self._is_ending:
                self._hurry.clear()
            self._drain(exporter)
            self._complain()
        self._drain(exporter)
        exporter.flush()

    def _drain(self, exporter: Exporter) -> None:
        while self._spans or self._durations:
            try:
                exporter.take(self._durations.popleft() if self._durations else self._spans.popleft())
            except Exception:
                log.exception("a bug: a measurement was lost")

    def _complain(self) -> None:
        if self.dropped and not self._has_complained:
            self._has_complained = True
            log.warning("telemetry: spans arrive faster than they can be sent; some are lost")


def _load_sdk(settings: TelemetrySettings) -> Exporter:
    from dynamic_mcp.features.telemetry.sdk import SdkExporter  # imports the SDK, which takes a while

    return SdkExporter(settings)
