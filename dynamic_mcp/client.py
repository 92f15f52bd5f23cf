"""A connected client and its requests, as everything below the sessions knows them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Literal, Protocol

from msgspec import Raw, Struct, field

from dynamic_mcp import __version__
from dynamic_mcp.config.resolved import GroupConfig
from dynamic_mcp.config.workspace import Workspace
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.revisions import NEWEST, Revision
from dynamic_mcp.mcp.wire import Frame

# How long the id of a client is: enough that no two in one log are the same.
ID_BYTES = 8

OURSELVES = Raw(wire.encode({"name": "dynamic-mcp", "version": __version__}))


class Caller(Protocol):
    """Who a request is made for; receives what the upstream sends back because of it."""

    @property
    def client(self) -> Hashable:
        """The client behind the request: equal for all requests of one client, and for those only."""
        ...

    @property
    def recipient(self) -> Hashable:
        """Who gets what the upstream sends without saying for which request: the client, or this request alone."""
        ...

    @property
    def log_level(self) -> str:
        """The level of the log messages that this request asks for; empty if it says nothing of them."""
        ...

    @property
    def is_parked(self) -> bool:
        """Whether the request goes on without its client, which was asked something and is to come back."""
        ...

    def notify(self, frame: Frame) -> None:
        """Send the client a notification."""
        ...

    async def ask(self, frame: Frame, on_status: Callable[[Frame], None]) -> Frame:
        """Send the client a request and return its answer.

        `on_status` gets the client's progress on it, and the status of a task that it becomes.
        """
        ...


class ClientHello(Struct, frozen=True):
    """What an upstream is told of the client when a link opens, word for word.

    `is_common`: several kinds of clients use the link, and each request to a modern upstream has the capabilities of
    its own.
    """

    revision: Revision = NEWEST
    capabilities: Raw = field(default_factory=lambda: wire.EMPTY_OBJECT)
    client_info: Raw = field(default_factory=lambda: OURSELVES)
    is_common: bool = False

    @property
    def name(self) -> str:
        """The client's name for itself."""
        return wire.text(wire.member(self.client_info, "name")) or ""

    @property
    def version(self) -> str:
        """The client's version."""
        return wire.text(wire.member(self.client_info, "version")) or ""

    @property
    def identity(self) -> tuple[str, bytes, bytes]:
        """What two clients share if an upstream could not tell one from the other."""
        return self.revision.name, bytes(self.capabilities), bytes(self.client_info)

    def advice(self, config: GroupConfig) -> str:
        """Say which variables of a server are not set and what to do with this client; empty if all are set."""
        if not (config.unset or config.empty):
            return ""
        from dynamic_mcp.config.clients import advice

        return advice(config.unset, config.empty, self.name)


# Standard input and output, the socket of a daemon, streamable HTTP, and its predecessor HTTP+SSE.
Transport = Literal["stdio", "socket", "http", "sse"]


class Client(Caller, Hashable, Protocol):
    """A connected client. Its own `notify` and `ask` carry what no request has caused; its `client` is itself."""

    @property
    def client(self) -> Client:
        """The client."""
        ...

    @property
    def is_greeted(self) -> bool:
        """Whether the client has said what it is."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether the client has gone, so that nothing may hold on to it."""
        ...

    @property
    def is_command(self) -> bool:
        """Whether the client is a command, which uses what runs for others."""
        ...

    @property
    def principal(self) -> Principal:
        """Who the client acts for."""
        ...

    @property
    def authentication(self) -> Authentication:
        """What the client has shown of itself."""
        ...

    @property
    def profile(self) -> str | None:
        """The profile that the client has chosen."""
        ...

    @property
    def workspace(self) -> Workspace | None:
        """What servers are started with for the client; None is the proxy's own directory and environment."""
        ...

    @property
    def only(self) -> str | None:
        """The group that the client sees, alone and as if there were no proxy; None is all groups as one server."""
        ...

    @property
    def hello(self) -> ClientHello:
        """What the client said of itself; a default before it has."""
        ...

    @property
    def transport(self) -> Transport:
        """Over what the client came."""
        ...

    @property
    def id(self) -> str:
        """What names the client in records; it is no credential, and nobody has it twice."""
        ...

    @property
    def address(self) -> str:
        """The address that the client came from; empty where there is none, as over stdio."""
        ...

    @property
    def since(self) -> float:
        """When the client connected, in seconds since 1970."""
        ...

    @property
    def calls(self) -> int:
        """How many requests the client has made."""
        ...

    def has_room(self, frame: Frame) -> bool:
        """Tell whether a notification would be sent now, or dropped because the client does not read."""
        ...


class User(Caller, Protocol):
    """A request that is made for a client."""

    @property
    def client(self) -> Client:
        """The client."""
        ...
