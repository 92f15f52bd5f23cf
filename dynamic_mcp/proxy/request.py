"""One call of a client with its context: every use case takes one, and what it causes goes back through it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Raw

from dynamic_mcp.groups.audience import Client, Principal
from dynamic_mcp.mcp.revisions import Revision
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.view import View
from dynamic_mcp.upstream.call import Caller


class Request:
    """A request or notification of a client: its method and params, who it is from, and what that client may see.

    `notify` and `ask` reach the client where this request can be answered. It is the caller of all that is sent to
    upstreams because of it.
    """

    __slots__ = ("_channel", "client", "method", "params", "view")

    def __init__(self, method: str, params: Raw, client: Client, view: View, channel: Caller | None = None) -> None:
        self.method = method
        self.params = params
        self.client = client
        self.view = view
        self._channel: Caller = channel or client

    @property
    def principal(self) -> Principal:
        """Who the client acts for."""
        return self.client.principal

    @property
    def revision(self) -> Revision:
        """The revision of the protocol that the client speaks."""
        return self.client.hello.revision

    def notify(self, frame: Frame) -> None:
        """Send the client a notification that this request has caused."""
        self._channel.notify(frame)

    async def ask(self, frame: Frame, on_status: Callable[[Frame], None]) -> Frame:
        """Send the client a request that this request has caused, and return its answer."""
        return await self._channel.ask(frame, on_status)
