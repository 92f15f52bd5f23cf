"""A client at the other end of a stream of lines, of the era that its first request shows.

A request with the `_meta` of a modern revision makes it a modern client, any other one a legacy client, for as long
as the stream lasts. A revision that is not spoken here decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Any

from dynamic_mcp.mcp import envelope, revisions, wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.session.client_connection import ClientConnection
from dynamic_mcp.session.legacy import Session
from dynamic_mcp.session.server import ModernServer

Reply = Callable[[bytes], None]


class _Era(Enum):
    """What a client has shown of its era."""

    UNKNOWN = auto()
    LEGACY = auto()
    MODERN = auto()


# Reading a member from its class takes ten times as long.
_UNKNOWN, _LEGACY, _MODERN = _Era


class StreamSession:
    """Takes lines by `receive`, as a `Session` does, and is given the same."""

    def __init__(self, connection: ClientConnection, server: ModernServer) -> None:
        self.legacy = Session(connection, server)
        self._era = _UNKNOWN
        self._connection = connection
        self._server = server
        self._modern: Any = None  # a ModernSession, whose module comes with the first modern request

    def receive(self, line: bytes, reply: Reply | None = None) -> None:
        """Take one line, whatever it holds; `reply` gets its answer or, if it gets none, nothing."""
        if self._era is _LEGACY:
            self.legacy.receive(line, reply)
        elif self._era is _MODERN:
            self._modern.receive(line, reply or self._write)
        else:
            self._receive_first(line, reply)

    @property
    def is_command(self) -> bool:
        """Whether the client is a command."""
        return self.legacy.is_command

    @property
    def is_greeted(self) -> bool:
        """Whether a legacy client has said what it is."""
        return self.legacy.is_greeted

    def notify(self, frame: Frame) -> None:
        """Send a legacy client a notification."""
        self.legacy.notify(frame)

    def answer(self, frame: Frame) -> Awaitable[Frame]:
        """Answer a legacy request; from now on this is a legacy client. Raises DynamicMcpError and wire.Malformed."""
        self._era = _LEGACY
        return self.legacy.answer(frame)

    async def finish(self, within_s: float) -> None:
        """Let what is in flight end, within a bound; then cancel it."""
        await self._current.finish(within_s)

    async def stop(self, within_s: float) -> None:
        """Let what is in flight end, within a bound, and answer the rest with an error: it may have run."""
        await self._current.stop(within_s)

    def close(self) -> None:
        """End the session."""
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
    """Return the revision that a request names in its `_meta`; None if it names none, or a legacy one."""
    if frame.method == "initialize":
        return None
    version = wire.member(frame.params, "_meta", envelope.PROTOCOL_VERSION)
    if not len(version):
        return None
    name = wire.text(version) or ""
    revision = revisions.find(name)
    return None if revision is not None and not revision.is_stateless else name
