"""Who uses a group, and which of its users share one instance."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Literal, Protocol

from msgspec import Struct

from dynamic_mcp.config.principal import LOCAL, Principal
from dynamic_mcp.config.resolved import Share
from dynamic_mcp.config.workspace import Workspace
from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.mcp.revisions import MODERN
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.upstream.call import Caller
from dynamic_mcp.upstream.handshake import ClientHello

__all__ = [
    "ID_BYTES",
    "LOCAL",
    "LOCAL_USER",
    "Authentication",
    "Client",
    "Peers",
    "Principal",
    "Running",
    "Transport",
    "User",
    "audience_of",
    "find_joinable",
    "hello_for",
]

# How long the id of a client is: enough that no two in one log are the same.
ID_BYTES = 8
_EVERYBODY = "everybody"
# A command uses an instance in one of these states, the first if it can, rather than start another one.
_JOINABLE = (State.READY, State.CONNECTING)


class Authentication(Struct, frozen=True):
    """What a client has shown of itself: who it acts for, and what its rights follow from.

    `provider` is the kind of credential; `roles` are those that the credential itself gives. `claims` are pairs of a
    claim's name and its texts. `scopes` None is a credential that knows no scopes, and so lacks none.
    """

    principal: Principal
    provider: str
    roles: tuple[str, ...] = ()
    claims: tuple[tuple[str, tuple[str, ...]], ...] = ()
    scopes: frozenset[str] | None = None

    @property
    def is_local(self) -> bool:
        """Whether this is the local user, who needs no credential."""
        return self.principal == LOCAL

    def claim(self, name: str) -> tuple[str, ...]:
        """Return the texts of a claim; none if there is no such claim."""
        return next((texts for claim, texts in self.claims if claim == name), ())


LOCAL_USER = Authentication(LOCAL, "local")


class Peers(Struct, frozen=True):
    """The clients of one principal that an upstream cannot tell from one another."""

    principal: Principal
    identity: Hashable


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


def audience_of(client: Client, share: Share, *, asks: bool, common: ClientHello | None = None) -> Hashable:
    """Return what all clients of one instance have in common.

    `asks` tells that the server has asked a client something. Over stdio nothing says whose call a question belongs
    to, so such a server is not shared by itself. `common` is what the server is told instead of the client's own
    hello, if it makes no difference between kinds of clients.
    """
    match share:
        case Share.SESSION:
            return client
        case Share.USER:
            return client.principal
        case Share.ALL:
            return _EVERYBODY
        case Share.AUTO:
            return client if asks else Peers(client.principal, (common or client.hello).identity)


class Running(Protocol):
    """An instance."""

    @property
    def state(self) -> State:
        """Where the instance is in its life."""
        ...


def find_joinable(own: Hashable, instances: Mapping[Hashable, Running]) -> Hashable:
    """Return the audience of an instance that a command can use, or its `own`.

    That is an instance which several clients of the same principal may share, however they call themselves; never one
    that belongs to one session.
    """
    joinable = [
        audience
        for audience, instance in instances.items()
        if isinstance(audience, Peers) and isinstance(own, Peers) and audience.principal == own.principal
        if instance.state in _JOINABLE
    ]
    return min(joinable, key=lambda each: _JOINABLE.index(instances[each].state), default=own)


def hello_for(client: Client, share: Share, common: ClientHello | None = None) -> ClientHello:
    """Return how an instance is greeted: as its client, or as ourselves, in the newest way, if it is everybody's.

    `common` is how it is greeted if its server makes no difference between kinds of clients.
    """
    return ClientHello(MODERN) if share is Share.ALL else common or client.hello
