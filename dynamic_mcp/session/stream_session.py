"""A client at the other end of a stream of lines. Its first request shows its era.

A request with the `_meta` of a modern revision makes it a modern client, any other request a legacy client, until the
stream ends. A request of an unsupported revision decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from dynamic_mcp.mcp import envelope, revisions, wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.session.client_connection import ClientConnection
from dynamic_mcp.session.legacy import Session

if TYPE_CHECKING:
    from dynamic_mcp.session.server import ModernServer

Reply = Callable[[bytes], None]


class _Era(Enum):
    """The era of a client."""

    UNKNOWN = auto()
    LEGACY = auto()
    MODERN = auto()


# Reading a member from its class takes ten times as long.
_UNKNOWN, _LEGACY, _MODERN = _Era


class StreamSession:
    """Handles lines by `receive`, as a `Session` does."""

    def __init__(self, connection: ClientConnection, server: ModernServer) -> None:
        self.legacy = Session(connection, server)
        self._era = _UNKNOWN
        self._connection = connection
        self._server = server
        self._modern: Any = None  # a ModernSession, whose module is imported for the first modern request

    def receive(self, line: bytes, reply: Reply | None = None) -> None:
        """Handle one line; `reply` gets its answer or, if it gets none, an empty line."""
        if self._era is _LEGACY:
            self.legacy.receive(line, reply)
        elif self._era is _MODERN:
            self._modern.receive(line, reply or self._write)
        else:
            self._receive_first(line, reply)

    @property
    def is_command(self) -> bool:
        return self.legacy.is_command

    @property
    def is_initialized(self) -> bool:
        """True if a legacy client has sent `initialize`."""
        return self.legacy.is_initialized

    def notify(self, frame: Frame) -> None:
        """Send a notification to a legacy client."""
        self.legacy.notify(frame)

    def answer(self, frame: Frame) -> Awaitable[Frame]:
        """Answer a request and fix the client's era as legacy. Raises DynamicMcpError and wire.Malformed."""
        self._era = _LEGACY
        return self.legacy.answer(frame)

    async def finish(self, within_s: float) -> None:
        """Wait for requests in flight, within a bound; then cancel them."""
        await self._current.finish(within_s)

    async def drain(self, within_s: float) -> None:
        """Wait for requests in flight, within a bound, and answer the rest with an error: they may have run."""
        await self._current.drain(within_s)

    def close(self) -> None:
        if self._modern is not None:
            self._modern.close()
        self.legacy.close()

    # --- the first request -----------------------------------------------------------------------------

    @property
    def _current(self) -> Any:  # as above
        return self._modern if self._era is _MODERN else self.legacy

    def _receive_first(self, line: bytes, reply: Reply | None) -> None:
        try:
            frame = wire.parse(line)
        except wire.Malformed:
            self.legacy.receive(line, reply)
            return
        if not (frame.method and len(frame.id)):
            self.legacy.receive(line, reply)
        elif (version := _modern_version(frame)) is None:
            self._era = _LEGACY
            self.legacy.receive(line, reply)
        else:
            if self._modern is None:
                self._modern = self._open_modern()
            if revisions.find(version) is not None:
                self._era = _MODERN
            self._modern.receive_frame(frame, reply or self._write)

    def _open_modern(self) -> Any:  # as above
        from dynamic_mcp.session.modern_session import ModernSession

        return ModernSession(self._connection, self._server)

    def _write(self, line: bytes) -> None:
        if line:
            self._connection.send(line)


def _modern_version(frame: Frame) -> str | None:
    """Return the revision in a request's `_meta`; None if there is none, or it is a legacy one."""
    if frame.method == "initialize":
        return None
    version = wire.member(frame.params, "_meta", envelope.PROTOCOL_VERSION)
    if not len(version):
        return None
    name = wire.text(version) or ""
    revision = revisions.find(name)
    return None if revision is not None and not revision.is_stateless else name
