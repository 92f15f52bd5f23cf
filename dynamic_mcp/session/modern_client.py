"""A client of the modern revisions: nothing connects its requests but what each of them says of its sender.

Requests of one principal that name the same client and capabilities belong to one client here, so that legacy
servers, which know only sessions, have one to serve. It ends when nobody has used it for a while.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from dynamic_mcp.client import ID_BYTES, ClientHello, Transport
from dynamic_mcp.config.workspace import Workspace
from dynamic_mcp.errors import METHOD_NOT_FOUND
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.envelope import Envelope
from dynamic_mcp.mcp.revisions import MODERN
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.parked_calls import Channel
from dynamic_mcp.session.listening import Listening, streams_for
from dynamic_mcp.session.server import ModernServer
from dynamic_mcp.session.shares import Shares
from dynamic_mcp.upstream.handshake import complete_info

if TYPE_CHECKING:
    from dynamic_mcp.session.modern_call import ModernCall


class Origin(Struct, frozen=True):
    """Where requests come from, as far as it is not in them."""

    authentication: Authentication
    transport: Transport
    only: str | None = None
    workspace: Workspace | None = None
    profile: str | None = None


class ModernClient:
    """A client as groups see it. `calls_in_flight` and `listenings` are what it uses now."""

    is_greeted = True
    is_command = False
    log_level = ""
    is_parked = False

    def __init__(
        self,
        server: ModernServer,
        origin: Origin,
        hello: ClientHello,
        *,
        address: str,
        since: float,
        used_at: float,
    ) -> None:
        self.id = secrets.token_hex(ID_BYTES)
        self.address = address
        self.hello = hello
        self.authentication = origin.authentication
        self.transport: Transport = origin.transport
        self.only = origin.only
        self.workspace = origin.workspace
        self.profile = origin.profile
        self.since = since
        self.used_at = used_at
        self.calls = 0
        self.is_closed = False
        self.calls_in_flight: set[ModernCall] = set()
        self.listenings: set[Listening] = set()
        self._server = server

    def __repr__(self) -> str:
        return f"<ModernClient {self.hello.name}, {len(self.calls_in_flight)} in flight>"

    @property
    def client(self) -> ModernClient:
        """The client that a message is for that no request has caused."""
        return self

    @property
    def principal(self) -> Principal:
        """Who the client acts for."""
        return self.authentication.principal

    @property
    def recipient(self) -> Hashable:
        """The client."""
        return self

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight, parked calls included, and nobody listens."""
        return not self.calls_in_flight and not self.listenings

    @property
    def is_busy(self) -> bool:
        """Whether calls are in flight, apart from those that listen."""
        return len(self.calls_in_flight) > len(self.listenings)

    def has_room(self, frame: Frame) -> bool:
        """Tell whether a notification would be sent now."""
        return True

    def notify(self, frame: Frame) -> None:
        """Send a notification that no request has caused to those who listen for its kind."""
        for listening in streams_for(frame, self.listenings):
            listening.notify(frame)

    async def ask(self, frame: Frame, on_status: Callable[[Frame], None]) -> Frame:
        """Answer what no request has caused: there is nobody to ask, but the config may name roots."""
        roots = self._server.view_for(self).scope.roots
        if frame.method == "roots/list" and roots:
            return wire.result_frame({"roots": [{"uri": uri} for uri in roots]})
        return wire.error_frame(METHOD_NOT_FOUND, f"`{frame.method}` can only be asked in the middle of a call")

    def close(self) -> None:
        """End everything of the client, and let everybody forget it."""
        self.is_closed = True
        for call in [*self.calls_in_flight]:
            call.abandon("the client has gone")
        for listening in [*self.listenings]:
            listening.close()
        self._server.release(self)


class ModernClients:
    """The clients of a face, by what their requests say of them. `max_clients` bounds those that are remembered."""

    def __init__(
        self,
        server: ModernServer,
        *,
        max_clients: int,
        now: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self._server = server
        self.max_clients = max_clients
        self._now = now
        self._wall_clock = wall_clock
        self._clients: dict[Hashable, ModernClient] = {}
        self._shares = Shares()

    def __iter__(self) -> Iterator[ModernClient]:
        return iter([*self._clients.values()])

    def __len__(self) -> int:
        return len(self._clients)

    def find(self, origin: Origin, sender: Envelope, channel: Channel) -> ModernClient | None:
        """Return the client of a request; a new one where there is none. None: there are too many."""
        key = (origin, bytes(sender.client_info), bytes(sender.capabilities))
        client = self._clients.get(key)
        if client is None:
            if not self._make_room(origin.authentication):
                return None
            hello = ClientHello(MODERN, sender.capabilities, complete_info(sender.client_info))
            now, address = self._now(), channel.address
            since = self._wall_clock()
            client = ModernClient(self._server, origin, hello, address=address, since=since, used_at=now)
            self._clients[key] = client
            self._shares.add(client)
            self._server.admit(client)
        client.used_at = self._now()
        return client

    def drop_unused(self, before: float) -> None:
        """End the clients that nobody has used since then."""
        for client in self:
            if client.is_idle and client.used_at < before:
                self._drop(client)

    def close(self) -> None:
        """End all clients."""
        for client in self:
            self._drop(client)

    def _make_room(self, authentication: Authentication) -> bool:
        """End a client where there is no room for another one; return whether there is room now."""
        most, shares = self.max_clients, self._shares
        if len(self._clients) < most and not shares.is_used_up(authentication, most):
            return True
        ending = shares.choose_to_end(self, authentication, most, unused_since=math.inf)
        if ending is not None:
            self._drop(ending)
        return ending is not None

    def _drop(self, client: ModernClient) -> None:
        self._shares.remove(client)
        self._clients = {key: each for key, each in self._clients.items() if each is not client}
        client.close()
