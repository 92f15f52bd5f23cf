"""The line face: one client on two file descriptors, such as stdin and stdout, until either is closed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct

from dynamic_mcp.face import limits
from dynamic_mcp.mcp import lines
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.session.client_connection import ClientConnection, ClientOrigin
from dynamic_mcp.session.stream_session import StreamSession
from dynamic_mcp.system.pipes import PausableStream, Sink, burst_of, enlarge, open_sink, open_source

if TYPE_CHECKING:  # loaded where a daemon has left a session
    from dynamic_mcp.session.continuation import Continuation


class Streams(Struct, frozen=True):
    """A client's two file descriptors, and the state of its session in another process, if there was one.

    `only` is the one group that the client sees; None means all groups as one server. `profile` is the selected
    profile.
    """

    stdin: int
    stdout: int
    continuation: Continuation | None = None
    only: str | None = None
    profile: str | None = None


class LineFace:
    """Passes lines from a source to a session and back to a sink. `ended` is set when either is closed."""

    def __init__(self, max_message_bytes: int) -> None:
        self.ended = asyncio.Event()
        self.session: StreamSession
        self.sink: Sink
        self._source: PausableStream | None = None
        self._lines = lines.Lines(max_message_bytes)
        self._burst = burst_of(asyncio.get_running_loop())

    async def open(self, proxy: Proxy, streams: Streams) -> None:
        """Start serving, or continue the session of another process."""
        enlarge(streams.stdout)
        self.sink = await open_sink(
            streams.stdout,
            high=limits.UNREAD_BYTES,
            on_full=self._pause,
            on_drain=self._resume,
            on_end=self.ended.set,
        )
        connection = ClientConnection(
            self.sink.write,
            lambda: self.sink.buffered_bytes() > limits.FLOOD_BYTES,
            ClientOrigin(only=streams.only, profile=streams.profile),
            first_id=1 if streams.continuation is None else streams.continuation.first_id,
        )
        self.session = StreamSession(connection, proxy)
        if streams.continuation is not None and streams.continuation.generation:
            from dynamic_mcp.session.continuation import Resumption

            if streams.continuation.unwritten:
                self.sink.write(streams.continuation.unwritten)
            await Resumption(self.session, self.sink.write).resume(streams.continuation, self._reply)
            self._receive(streams.continuation.unread)
        self._source = await open_source(streams.stdin, self._receive, self._input_ended)

    def _reply(self, number: int, line: bytes) -> None:
        if line:
            self.sink.write(line)

    def _receive(self, data: bytes) -> None:
        self._burst.handle(self.session.receive, self._lines.feed(data))

    def _input_ended(self) -> None:
        if rest := self._lines.take_rest():
            self.session.receive(rest)
        self.ended.set()

    def _pause(self) -> None:
        """Stop reading from a client that does not read its answers."""
        if self._source is not None and not self.ended.is_set():
            self._source.pause_reading()

    def _resume(self) -> None:
        if self._source is not None and not self.ended.is_set():
            self._source.resume_reading()
