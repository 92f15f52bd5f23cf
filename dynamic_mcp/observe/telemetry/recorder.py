"""The way of spans and durations out of the event loop: a bounded queue, which a thread of its own empties.

Whatever the collector does, the loop does not wait: what does not fit is counted and dropped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from dynamic_mcp.observe.telemetry.records import Measurement, Span, TelemetrySettings, Trace

log = logging.getLogger(__name__)

# Also what is kept until the SDK is there.
MAX_QUEUED = 2048
FLUSH_WITHIN_S = 1.0
# What comes within this time of the first is taken together.
_GATHER_S = 0.2


class Exporter(Protocol):
    """Makes spans and metrics of what was measured, and sends them from threads of its own."""

    def take(self, item: Span | Measurement) -> None:
        """Take what was measured, without waiting."""
        ...

    def decides(self, trace: Trace, name: str) -> bool:
        """Tell whether a trace is recorded."""
        ...

    def flush(self, within_s: float) -> None:
        """Send all that there is, within a bound, and end."""
        ...


class Recorder:
    """Takes what the event loop has measured, from the beginning; `load` returns the exporter, in a thread.

    `start` it when there is time for that, and `close` it at the end.
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
        self._queue: deque[Span | Measurement] = deque()
        self._exporter: Exporter | None = None
        self._work, self._end, self._is_done = threading.Event(), threading.Event(), threading.Event()
        self._flush_until = 0.0
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<Recorder {len(self._queue)} queued, {self.dropped} dropped>"

    def start(self) -> None:
        """Load the SDK and begin to send."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
            self._thread.start()

    def put(self, item: Span | Measurement) -> None:
        """Queue what was measured, or drop it."""
        queue = self._queue
        if len(queue) >= MAX_QUEUED or self._is_done.is_set():
            self.dropped += 1
            return
        queue.append(item)
        if len(queue) == 1:
            self._work.set()

    def decide(self, trace: Trace, name: str) -> None:
        """Decide whether a new trace is recorded: as its parent is, or as the sampler of the environment says."""
        if not self._has_sampler:
            trace.is_sampled = trace.parent is None or trace.parent.is_sampled
        elif self._exporter is not None:
            trace.is_sampled = self._exporter.decides(trace, name)

    def close(self, within_s: float = FLUSH_WITHIN_S) -> None:
        """Send what is left, for at most `within_s`; to be called in a thread."""
        self._flush_until = time.monotonic() + within_s
        if self._queue:
            self.start()
        self._end.set()
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
        self._queue.clear()

    def _serve(self, exporter: Exporter) -> None:
        while not self._end.is_set():
            self._work.wait()
            self._end.wait(_GATHER_S)
            self._work.clear()
            self._drain(exporter)
        self._drain(exporter)
        exporter.flush(max(0.0, self._flush_until - time.monotonic()))

    def _drain(self, exporter: Exporter) -> None:
        while self._queue:
            try:
                exporter.take(self._queue.popleft())
            except Exception:
                log.exception("a bug: something measured is lost")


def _load_sdk(settings: TelemetrySettings) -> Exporter:
    from dynamic_mcp.observe.telemetry.sdk import SdkExporter  # imports the SDK, which takes a while

    return SdkExporter(settings)
