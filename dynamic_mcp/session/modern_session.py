"""A modern client at the other end of a stream of lines, such as stdin and stdout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dynamic_mcp.errors import INVALID_REQUEST
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import NULL, Frame
from dynamic_mcp.session.answers import duplicate_id, error_line, refuse_line
from dynamic_mcp.session.client_connection import ClientConnection
from dynamic_mcp.session.legacy import MAY_BE_MISSED
from dynamic_mcp.session.modern import ModernDispatcher
from dynamic_mcp.session.modern_client import ModernCall
from dynamic_mcp.session.server import ModernServer

Reply = Callable[[bytes], None]


class ModernSession:
    """Handles lines by `receive`, and writes over its connection; `reply` gets each answer, or nothing."""

    def __init__(self, connection: ClientConnection, server: ModernServer) -> None:
        self._send = connection.send
        self._is_congested = connection.is_congested
        self._origin = connection.origin
        self._dispatcher = ModernDispatcher(server)
        self._channels: dict[bytes, LineChannel] = {}

    def receive(self, line: bytes, reply: Reply) -> None:
        try:
            frame = wire.parse(line)
        except wire.Malformed as exc:
            reply(refuse_line(line, exc))
        else:
            self.receive_frame(frame, reply)

    def receive_frame(self, frame: Frame, reply: Reply) -> None:
        if frame.method and len(frame.id):
            self._begin(frame, reply)
            return
        if frame.method == "notifications/cancelled":
            self._cancel(frame)
        reply(b"" if frame.method else error_line(NULL, INVALID_REQUEST, "not a request or notification"))

    async def finish(self, within_s: float) -> None:
        """Wait for requests in flight, within a bound."""
        calls = self._calls()
        if calls:
            await asyncio.gather(*(call.wait(within_s) for call in calls))

    async def drain(self, within_s: float) -> None:
        """Wait for requests in flight, within a bound, and answer the rest with an error: they may have run."""
        await self._dispatcher.drain(within_s)

    def close(self) -> None:
        self._dispatcher.close()
        self._channels.clear()

    def _begin(self, frame: Frame, reply: Reply) -> None:
        key = bytes(frame.id)
        if key in self._channels:
            reply(wire.answer_line(frame.id, duplicate_id()))
            return
        channel = self._channels[key] = LineChannel(self, frame, reply)
        channel.call = self._dispatcher.begin(frame, channel, self._origin)

    def _cancel(self, frame: Frame) -> None:
        channel = self._channels.pop(bytes(wire.member(frame.params, "requestId")), None)
        if channel is not None:
            reason = wire.text(wire.member(frame.params, "reason")) or "the client has cancelled the request"
            channel.cancel(reason)

    def _calls(self) -> list[ModernCall]:
        calls = (channel.call for channel in self._channels.values() if not channel.is_stream)
        return [call for call in calls if call is not None]

    # --- for channels ----------------------------------------------------------------------------------

    def end(self, channel: LineChannel) -> None:
        """Called when a request is answered."""
        key = bytes(channel.frame.id)
        if self._channels.get(key) is channel:
            del self._channels[key]

    def notify(self, frame: Frame) -> None:
        """Write a notification; log messages and progress are dropped while the client does not read."""
        if frame.method not in MAY_BE_MISSED or not self._is_congested():
            self._send(wire.notification_line(frame.method, frame.params))


class LineChannel:
    """The channel of one request, until it is answered or cancelled."""

    address, port = "", 0

    def __init__(self, session: ModernSession, frame: Frame, reply: Reply) -> None:
        self.frame = frame
        self.call: ModernCall | None = None
        self._session = session
        self._reply = reply

    @property
    def is_stream(self) -> bool:
        """True if the request is a stream, which is answered when it ends."""
        return self.frame.method == "subscriptions/listen"

    def notify(self, frame: Frame) -> None:
        self._session.notify(frame)

    def answer(self, frame: Frame) -> None:
        self._session.end(self)
        self._reply(wire.answer_line(wire.id_for_answer(self.frame), frame))

    def cancel(self, reason: str) -> None:
        """End the request without an answer."""
        if self.call is not None:
            self.call.cancel(reason)
        self._reply(b"")
