"""A connected client and its requests, as seen by the layers below the sessions."""

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

# The length of a client's id: enough to be unique within one log.
ID_BYTES = 8

OURSELVES = Raw(wire.encode({"name": "dynamic-mcp", "version": __version__}))


class Caller(Protocol):
    """The origin of a request. It receives the upstream messages that the request causes."""

    @property
    def client(self) -> Hashable:
        """The client of the request: equal for all requests of one client, and only for those."""
        ...

    @property
    def recipient(self) -> Caller:
        """The recipient of upstream messages without a request: the client, or this request alone. It is hashable."""
        ...

    @property
    def stream(self) -> Hashable:
        """What messages of this request go over: equal for requests of one recipient whose messages arrive as one."""
        ...

    @property
    def log_level(self) -> str:
        """The level of the log messages that this request asks for; empty if it sets none."""
        ...

    @property
    def is_parked(self) -> bool:
        """Return whether the request waits for its client to come back with an answer."""
        ...

    def notify(self, frame: Frame) -> None:
        """Send the client a notification."""
        ...

    async def ask(self, frame: Frame, on_status: Callable[[Frame], None]) -> Frame:
        """Send the client a request and return its answer.

        `on_status` gets the client's progress on it, and the status of a task that it becomes.
        """
        ...


class ClientInfo(Struct, frozen=True):
    """The client's `initialize` request, forwarded verbatim to an upstream when a link opens.

    `is_common`: several kinds of clients use the link, and each request to a modern upstream carries its own
    capabilities.
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
        return wire.text(wire.member(self.client_info, "version")) or ""

    @property
    def identity(self) -> tuple[str, bytes, bytes]:
        """A key that is equal for clients that an upstream cannot distinguish."""
        return self.revision.name, bytes(self.capabilities), bytes(self.client_info)

    def advice(self, config: GroupConfig) -> str:
        """Explain which variables of a server are not set, and the fix for this client; empty if all are set."""
        if not (config.unset or config.empty):
            return ""
        from dynamic_mcp.config.clients import advice

        return advice(config.unset, config.empty, self.name)


# Standard I/O, the socket of a daemon, streamable HTTP, and its predecessor HTTP+SSE.
Transport = Literal["stdio", "socket", "http", "sse"]


class Client(Caller, Hashable, Protocol):
    """A connected client. Its `notify` and `ask` carry messages without a request; its `client` is itself."""

    @property
    def client(self) -> Client: ...

    @property
    def is_initialized(self) -> bool:
        """Return whether the client has introduced itself."""
        ...

    @property
    def is_closed(self) -> bool:
        """Return whether the client has disconnected. References to it must then be dropped."""
        ...

    @property
    def is_command(self) -> bool:
        """Return whether the client is a command, which uses the instances of other clients."""
        ...

    @property
    def principal(self) -> Principal:
        """The principal that the client acts for."""
        ...

    @property
    def authentication(self) -> Authentication:
        """The authenticated identity of the client."""
        ...

    @property
    def profile(self) -> str | None: ...

    @property
    def workspace(self) -> Workspace | None:
        """The directory and environment of the client's servers; None is the proxy's own."""
        ...

    @property
    def only(self) -> str | None:
        """The only group that the client sees, as if directly connected; None is all groups as one server."""
        ...

    @property
    def hello(self) -> ClientInfo:
        """The client's greeting; a default before it arrives."""
        ...

    @property
    def transport(self) -> Transport:
        """The transport that the client connected over."""
        ...

    @property
    def id(self) -> str:
        """The id of the client in records. It is unique, and no credential."""
        ...

    @property
    def shared_id(self) -> str:
        """What the client is at all replicas, which is no secret there; empty if it is one of this process alone."""
        ...

    @property
    def address(self) -> str:
        """The network address of the client; empty if there is none, as over stdio."""
        ...

    @property
    def since(self) -> float:
        """The time of the connection, in seconds since 1970."""
        ...

    @property
    def requests(self) -> int:
        """The number of requests that the client has made."""
        ...

    calls: int
    """The number of its requests that went on to a server."""

    def has_room(self, frame: Frame) -> bool:
        """Return whether a notification would be sent now. It is dropped if the client does not read."""
        ...


class User(Caller, Protocol):
    """A request on behalf of a client."""

    @property
    def client(self) -> Client: ...
