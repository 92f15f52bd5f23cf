"""A client at the other end of a stream of lines, of the era that its first request shows.

A request with the `_meta` of a modern revision makes it a modern client, any other one a legacy client, for as long
as the stream lasts. A revision that is not spoken here decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from dynamic_mcp.client import Transport
from dynamic_mcp.config.workspace import Workspace
from dynamic_mcp.identity import LOCAL_USER, Authentication
from dynamic_mcp.mcp import envelope, revisions, wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.session.legacy import Journal, Session
from dynamic_mcp.session.server import ModernServer

Reply = Callable[[bytes], None]


class StreamSession:
    """Takes lines by `receive`, as a `Session` does, and is given the same."""

    def __init__(
        self,
        send: Callable[[bytes], None],
        server: ModernServer,
        is_congested: Callable[[], bool] = lambda: False,
        authentication: Authentication = LOCAL_USER,
        *,
        journal: Journal | None = None,
        first_id: int = 1,
        is_command: bool = False,
        workspace: Workspace | None = None,
        only: str | None = None,
        profile: str | None = None,
        transport: Transport = "stdio",
    ) -> None:
        self.legacy = Session(
            send,
            server,
            is_congested,
            authentication,
            journal=journal,
            first_id=first_id,
            is_command=is_command,
            workspace=workspace,
            only=only,
            profile=profile,
            transport=transport,
        )
        self.receive: Callable[..., None] = self._receive_first
        self._send = send
        self._server = server
        self._is_congested = is_congested
        self._modern: Any = None  # a ModernSession, whose module comes with the first modern client

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
        self.receive = self.legacy.receive
        return self.legacy.answer(frame)

    async def finish(self, within_s: float) -> None:
        """Let what is in flight end, within a bound; then cancel it."""
        await (self._modern or self.legacy).finish(within_s)

    async def stop(self, within_s: float) -> None:
        """Let what is in flight end, within a bound, and answer the rest with an error: it may have run."""
        await (self._modern or self.legacy).stop(within_s)

    def close(self) -> None:
        """End the session."""
        if self._modern is not None:
            self._modern.close()
        self.legacy.close()

    # --- the first request -----------------------------------------------------------------------------

    def _receive_first(self, line: bytes, reply: Reply | None = None) -> None:
        try:
            frame = wire.parse(line)
        except wire.Malformed:
            self.legacy.receive(line, reply)
            return
        if not (frame.method and len(frame.id)):
            self.legacy.receive(line, reply)
        elif (version := _modern_version(frame)) is None:
            self.receive = self.legacy.receive
            self.legacy.receive(line, reply)
        else:
            modern = self._modern or self._open_modern()
            if revisions.find(version) is not None:
                self._modern, self.receive = modern, self._receive_modern
            modern.receive_frame(frame, reply or self._write)

    def _receive_modern(self, line: bytes, reply: Reply | None = None) -> None:
        self._modern.receive(line, reply or self._write)

    def _open_modern(self) -> Any:  # as above
        from dynamic_mcp.session.modern_client import Origin
        from dynamic_mcp.session.modern_session import ModernSession

        client = self.legacy
        origin = Origin(client.authentication, client.transport, client.only, client.workspace, client.profile)
        return ModernSession(self._send, self._server, self._is_congested, origin)

    def _write(self, line: bytes) -> None:
        if line:
            self._send(line)


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
