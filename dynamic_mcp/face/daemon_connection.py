"""A command's connection to the daemon: requests out as lines, answers and notifications in as frames.

Unlike a window, a command does not continue with another daemon: if this one ends, its requests have failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

from msgspec import Raw

from dynamic_mcp import __version__
from dynamic_mcp.config.location import encoded_environment, working_directory
from dynamic_mcp.errors import DaemonError, DynamicMcpError, Interrupted
from dynamic_mcp.face import frames
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame

if sys.platform == "win32":
    from asyncio.windows_utils import PipeHandle

    from dynamic_mcp.face.pipe_listener import attach
if TYPE_CHECKING:
    from dynamic_mcp.system.private_socket import Socket

# How long the last writes may take.
_CLOSE_WITHIN_S = 0.5


class DaemonConnection(asyncio.Protocol):
    """Sends requests with `request`; `receive` gets the daemon's own. `path` is the path of the socket."""

    def __init__(self, receive: Callable[[Frame], None]) -> None:
        self.path = ""
        self._receive = receive
        self._transport: asyncio.Transport | None = None
        self._frames = FrameDecoder()
        self._ids = itertools.count(1)
        self._answers: dict[bytes, asyncio.Future[Frame | None]] = {}
        self._end_reason = ""
        self._welcomed = asyncio.Event()
        self._closed = asyncio.Event()
        self._is_closing = False

    async def open(self, connection: Socket, config: str, profile: str | None = None) -> None:
        """Send the hello over a socket that is connected to the config's daemon, and wait for its welcome.

        Raises OSError, and DynamicMcpError if the daemon does not serve this command.
        """
        if sys.platform == "win32":
            self.path = connection.getpeername()
            await attach(PipeHandle(connection.detach()), self)
        else:
            daemon = socket.socket(fileno=connection.detach())
            daemon.setblocking(False)  # noqa: FBT003 - takes no keyword
            try:
                self.path = os.fsdecode(daemon.getpeername())
            except OSError:  # already disconnected
                daemon.close()
                raise
            await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=daemon)
        self._write(_hello(config, profile))
        await self._welcomed.wait()
        if not self._is_open():
            raise self._loss("initialize")

    async def request(self, method: str, params: bytes) -> Frame:
        """Send a request and return its answer; `params` must be on one line.

        Cancelling the caller cancels the request. Raises DynamicMcpError if the daemon ends before it answers.
        """
        if not self._is_open():
            raise self._loss(method)
        id = next(self._ids)
        answer: asyncio.Future[Frame | None] = asyncio.get_running_loop().create_future()
        self._answers[b"%d" % id] = answer
        self._write(wire.request_line(id, method, Raw(params) if params else None))
        try:
            frame = await answer
        except asyncio.CancelledError as exc:
            self._cancel(id, exc)
            raise
        finally:
            del self._answers[b"%d" % id]
        if frame is None:
            raise self._loss(method)
        return frame

    def send(self, line: bytes) -> None:
        """Send the answer to a request from the daemon."""
        self._write(line)

    async def close(self) -> None:
        """Close the connection; the daemon cancels requests in flight.

        The daemon closes its end after it has read everything. Until then this end stays open, so that none of the
        daemon's writes fails and ends the session before its last lines are read.
        """
        if self._transport is None:
            return
        if self._is_open():
            self._is_closing = True
            # a pipe has no end of one direction
            self._transport.write_eof() if self._transport.can_write_eof() else self._transport.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN_S):
                await self._closed.wait()
        self._transport.abort()

    # --- asyncio.Protocol ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class has the methods, but is no subclass

    def data_received(self, data: bytes) -> None:
        for kind, payload in self._frames.feed(data):
            if kind == frames.OUTPUT and payload:
                self._take(wire.parse(payload))
            elif kind == frames.WELCOME:
                self._welcomed.set()
            elif kind == frames.END:
                self._end_reason = payload.decode(errors="replace")

    def connection_lost(self, exc: Exception | None) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(None)
        self._welcomed.set()
        self._closed.set()

    def _is_open(self) -> bool:
        """Return whether anything can be written; nothing can once this end is closing."""
        return self._transport is not None and not self._is_closing and not self._transport.is_closing()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and self._is_open():
            self._transport.write(data)

    # --- frames ----------------------------------------------------------------------------------------

    def _take(self, frame: Frame) -> None:
        answer = self._answers.get(bytes(frame.id))
        if frame.method:
            self._receive(frame)
        elif answer is not None and not answer.done():
            answer.set_result(frame)

    def _cancel(self, id: int, exc: asyncio.CancelledError) -> None:
        reason = {"reason": exc.args[0]} if exc.args else {}
        body = wire.encode({"requestId": id, **reason})
        self._write(wire.notification_line("notifications/cancelled", body))

    def _loss(self, method: str) -> DynamicMcpError:
        return DaemonError(self._end_reason) if self._end_reason else Interrupted(method)


class FrameDecoder:
    """Splits the bytes from a daemon into frames."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the kind and the payload of each frame that `data` completes."""
        self._data += data
        at = 0
        while len(self._data) - at >= frames.HEADER_BYTES:
            kind, _, end = frames.header(self._data, at)
            if end > len(self._data):
                break
            yield kind, bytes(self._data[at + frames.HEADER_BYTES : end])
            at = end
        del self._data[:at]


def _hello(config: str, profile: str | None) -> bytes:
    return frames.hello(
        b"command",
        os.fsencode(config),
        version=__version__.encode(),
        directory=os.fsencode(working_directory()),
        environment=frames.pack_pairs(encoded_environment()),
        profile=os.fsencode(profile or ""),
    )
