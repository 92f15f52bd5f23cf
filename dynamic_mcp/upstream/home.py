"""The way to a program that another process of this service runs: lines over a private Unix socket.

The first line says which server is meant, and for whom. To its home, each link is a client of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from msgspec import Raw, Struct

from dynamic_mcp.config.resolved import Home
from dynamic_mcp.errors import ErrorAnswer, LinkLost, NotSent, Unreachable
from dynamic_mcp.identity import Principal
from dynamic_mcp.mcp import lines, wire
from dynamic_mcp.system.text import os_reason
from dynamic_mcp.upstream.stdio import LinePacer

T = TypeVar("T")

# A home with more unread input than this has stopped reading.
_UNREAD_BYTES = 16 << 20
# How long a home that was ended may take to be there again, and how often that is tried.
_BACK_WITHIN_S, _TRY_EVERY_S = 5.0, 0.1
# How long the end of a connection may take.
_CLOSE_WITHIN_S = 1.0
_LOST = "the process that runs this server has ended"


class LinkRequest(Struct, frozen=True):
    """The first line of a link: the server, a digest of how it is started, and the user whose clients use it."""

    server: str
    launch: str
    user: Principal


class HomeTransport(asyncio.Protocol):
    """The connection of one link. Set `receive`, which gets each line, and `lost`, before `connect`."""

    def __init__(self, group: str, max_message_bytes: int) -> None:
        self.group = group
        self.receive: Callable[[bytes], None]
        self.lost: Callable[[LinkLost], None]
        self._lines = lines.Lines(max_message_bytes)
        self._max_unread = max(_UNREAD_BYTES, 2 * max_message_bytes)
        self._transport: asyncio.Transport
        self._pacer: LinePacer
        self._is_ending = False
        self._ended = asyncio.Event()

    async def connect(self, home: Home) -> None:
        """Connect to the home of the server. Raises NotSent."""
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: self, home.socket)
        except OSError as exc:
            raise NotSent(
                self.group, f"the process that runs this server cannot be reached: {os_reason(exc)}"
            ) from exc
        self._transport.write(wire.encode(LinkRequest(self.group, home.launch, home.user)) + b"\n")

    # --- Transport -------------------------------------------------------------------------------------

    def send(self, line: bytes) -> None:
        """Write one line. Raises NotSent if the connection is ending, or its home has stopped reading."""
        if self._is_ending or self._transport.is_closing():
            raise NotSent(self.group, _LOST)
        if self._transport.get_write_buffer_size() > self._max_unread:
            raise NotSent(self.group, "the process that runs this server has stopped reading")
        self._transport.write(line)

    async def close(self) -> None:
        """Close the connection: the home ends the server if no other client uses it."""
        self._is_ending = True
        self._transport.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN_S):
                await self._ended.wait()
        self._transport.abort()

    # --- asyncio.Protocol ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = made = cast(asyncio.Transport, transport)
        self._pacer = LinePacer(self.receive, pause=made.pause_reading, resume=made.resume_reading)

    def data_received(self, data: bytes) -> None:
        self._pacer.take(self._lines.feed(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()
        self._pacer.finish()
        if not self._is_ending:
            self._is_ending = True
            self.lost(LinkLost(self.group, _LOST))


async def open_at_home(group: str, open_link: Callable[[], Awaitable[T]]) -> T:
    """Open a link to a server at its home, which may just be starting again.

    What the home says of a server that does not start is raised as if that had been tried here. Raises UpstreamError.
    """
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + _BACK_WITHIN_S
    while True:
        try:
            return await open_link()
        except ErrorAnswer as exc:
            said = wire.text(wire.member(Raw(exc.error), "message")) or str(exc)
            message, _, hint = said.removeprefix(f"group `{group}`: ").partition("\nhint: ")
            raise Unreachable(group, message, hint=hint) from exc
        except LinkLost:
            if loop.time() >= ends_at:
                raise
        await asyncio.sleep(_TRY_EVERY_S)
