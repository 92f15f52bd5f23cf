"""The stdio face: one client on stdin and stdout, until stdin ends or a signal comes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator

from msgspec import Struct

from dynamic_mcp.mcp import lines
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.session.legacy import Session
from dynamic_mcp.system.pipes import Sink, Source, open_sink, open_source
from dynamic_mcp.upstream.process.child import terminate_all

# How long what is in flight may take to end, after the end of input and after a signal.
FINISH_WITHIN_S = 4.0
FINISH_AFTER_SIGNAL_S = 1.0
# From the end of input to the end of the last server, whatever it does, and how long that takes at least.
EXIT_WITHIN_S = 4.4
_LAST_CALL_S = 0.2
# Answers that the client has not read yet, beyond which no more is read from it.
_UNREAD_BYTES = 4 << 20
# Beyond this, log messages and progress are dropped: an answer must not queue behind a flood of them.
_FLOOD_BYTES = 256 << 10


class OnSignal(Struct, frozen=True):
    """What to do on SIGHUP, and when a second signal asks to end."""

    reload: Callable[[], None]
    exit_now: Callable[[], None]


async def serve(proxy: Proxy, stdin: int, stdout: int, max_message_bytes: int, on_signal: OnSignal) -> None:
    """Serve one client on two file descriptors; returns when it is gone and every child has ended."""
    face = StdioFace(max_message_bytes)
    loop = asyncio.get_running_loop()
    with _signals(face.ended, on_signal) as signalled:
        await face.open(proxy, stdin, stdout)
        await face.ended.wait()
        began = loop.time()
        await face.session.finish(FINISH_AFTER_SIGNAL_S if signalled() else FINISH_WITHIN_S)
        face.session.close()
        terminate_all(max(_LAST_CALL_S, EXIT_WITHIN_S - (loop.time() - began)))
        await proxy.close()
        await face.sink.close()


class StdioFace:
    """Lines from a source to a session, and from the session to a sink. `ended` is set when either is over."""

    def __init__(self, max_message_bytes: int) -> None:
        self.ended = asyncio.Event()
        self.session: Session
        self.sink: Sink
        self._source: Source | None = None
        self._lines = lines.Lines(max_message_bytes)

    async def open(self, proxy: Proxy, stdin: int, stdout: int) -> None:
        """Begin to serve."""
        self.sink = await open_sink(
            stdout, high=_UNREAD_BYTES, on_full=self._pause, on_drain=self._resume, on_end=self.ended.set
        )
        self.session = Session(self.sink.write, proxy, lambda: self.sink.buffered_bytes() > _FLOOD_BYTES)
        self._source = await open_source(stdin, self._receive, self._input_ended)

    def _receive(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            self.session.receive(line)

    def _input_ended(self) -> None:
        if rest := self._lines.take_rest():
            self.session.receive(rest)
        self.ended.set()

    def _pause(self) -> None:
        """While the client does not read its answers, read nothing from it either."""
        if self._source is not None and not self.ended.is_set():
            self._source.pause_reading()

    def _resume(self) -> None:
        if self._source is not None and not self.ended.is_set():
            self._source.resume_reading()


@contextlib.contextmanager
def _signals(ended: asyncio.Event, on_signal: OnSignal) -> Iterator[Callable[[], bool]]:
    """End on a signal as on the end of input, and at once on the next; tell whether one came."""
    came: list[signal.Signals] = []

    def end(number: signal.Signals) -> None:
        if came:
            on_signal.exit_now()
        came.append(number)
        ended.set()

    loop = asyncio.get_running_loop()
    numbers = [] if sys.platform == "win32" else [signal.SIGTERM, signal.SIGINT]
    for number in numbers:
        loop.add_signal_handler(number, end, number)
    if sys.platform != "win32":
        numbers.append(signal.SIGHUP)
        loop.add_signal_handler(signal.SIGHUP, on_signal.reload)
    try:
        yield lambda: bool(came)
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
