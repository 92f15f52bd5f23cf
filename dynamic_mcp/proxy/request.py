"""One call of a client with its context: every use case takes one, and what it causes goes back through it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

from msgspec import Raw, Struct

from dynamic_mcp.client import Caller, Client
from dynamic_mcp.identity import Principal
from dynamic_mcp.mcp.revisions import Revision
from dynamic_mcp.mcp.wire import ABSENT, Frame
from dynamic_mcp.proxy.observation import Observation
from dynamic_mcp.proxy.view import View


class Channel(Caller, Protocol):
    """Where one request is answered, with the address and the port that it came from; empty and 0 if it has none."""

    @property
    def address(self) -> str:
        """The address of the client that has sent the request."""
        ...

    @property
    def port(self) -> int:
        """The port that the client has sent it from."""
        ...


class Request(Struct, frozen=True, gc=False):
    """A request or notification of a client: its method and params, who it is from, and what that client may see.

    `id` is that of the JSON-RPC request; a notification has none. `observation` is there while somebody observes.

    `notify` and `ask` reach the client where this request is answered: over its `channel`, if it has one. It is the
    caller of all that is sent to upstreams because of it.
    """

    method: str
    params: Raw
    client: Client
    view: View
    channel: Channel | None = None
    id: Raw = ABSENT
    observation: Observation | None = None

    @property
    def principal(self) -> Principal:
        """Who the client acts for."""
        return self.client.principal

    @property
    def address(self) -> str:
        """The address that this very request came from; empty where there is none, as over stdio."""
        return (self.channel or self.client).address

    @property
    def port(self) -> int:
        """The port that it came from; 0 where there is none, or a reverse proxy has another."""
        return 0 if self.channel is None else self.channel.port

    @property
    def recipient(self) -> Hashable:
        """Who gets what an upstream says while this request is in flight."""
        return (self.channel or self.client).recipient

    @property
    def log_level(self) -> str:
        """The level of the log messages that this request asks for; empty if it says nothing of them."""
        return (self.channel or self.client).log_level

    @property
    def is_parked(self) -> bool:
        """Whether the request goes on without its client, which is to come back."""
        return (self.channel or self.client).is_parked

    @property
    def revision(self) -> Revision:
        """The revision of the protocol that the client speaks."""
        return self.client.hello.revision

    def notify(self, frame: Frame) -> None:
        """Send the client a notification that this request has caused."""
        (self.channel or self.client).notify(frame)

    async def ask(self, frame: Frame, on_status: Callable[[Frame], None]) -> Frame:
        """Send the client a request that this request has caused, and return its answer."""
        return await (self.channel or self.client).ask(frame, on_status)
