"""The line face: one client on two file descriptors, such as stdin and stdout, until either is over."""

from __future__ import annotations

import asyncio

from dynamic_mcp.mcp import lines
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.session.legacy import Session
from dynamic_mcp.system.pipes import Sink, Source, open_sink, open_source

# Answers that the client has not read yet, beyond which no more is read from it.
_UNREAD_BYTES = 4 << 20
# Beyond this, log messages and progress are dropped: an answer must not queue behind a flood of them.
_FLOOD_BYTES = 256 << 10


class LineFace:
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
