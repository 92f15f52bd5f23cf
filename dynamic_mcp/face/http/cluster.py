"""The interface between the HTTP face of a replica and the other replicas of its service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Struct

from dynamic_mcp.face.http.arrival import Arrival
from dynamic_mcp.face.http.exchange import BodyReceiver, Exchange, RequestHead, Response
from dynamic_mcp.face.http.responses import Headers, refusal
from dynamic_mcp.identity import Authentication
from dynamic_mcp.proxy.request import Replicas

# Other replicas send requests below this path, with what they have found out about the client in this field.
PEER_PATH = b"/cluster"
HOP_FIELD = b"x-dynamic-mcp-hop"
# The answer to a replica that has passed a request on to where its session is no longer.
MOVED = refusal(404, "the session is no longer here; start a new one with `initialize`", ((HOP_FIELD, b"moved"),))


class PeerAuthentication(Authentication, frozen=True):
    """The sender of a request as another replica has found out, which looks after its validity."""

    @property
    def of_client(self) -> Authentication:
        """The same of a request that came from the client itself."""
        return Authentication(self.principal, self.provider, self.roles, self.claims, self.scopes)


class PeerRequest(Struct, frozen=True):
    """A request that another replica has passed on: the head that its client sent, with the client's address."""

    head: RequestHead
    authentication: PeerAuthentication


class OwnReplica(Struct, frozen=True):
    """What others may ask this replica: its process, in states of calls that wait, and whose apps a client shows.

    `config` returns a digest of what all replicas should have in common. `recover` returns what takes a request of a
    session whose replica has ended, or the refusal; None if it is lost.
    """

    process: Callable[[], str] = str
    find_opened_apps: Callable[[str], list[str]] = lambda key: []
    recover: Callable[[Arrival], Awaitable[BodyReceiver | Response | None]] | None = None
    config: Callable[[], str] = str


class ReplicaSet(Replicas, Protocol):
    """The replicas as the HTTP face uses them."""

    def make_session_id(self, arrival: Arrival, *, is_old: bool) -> str:
        """Return the id of a new session of this replica; `is_old` is one of the transport of 2024-11-05."""
        ...

    def forward(
        self, arrival: Arrival, session_id: bytes, cors: Headers, *, is_old: bool = False
    ) -> BodyReceiver | None:
        """Return what passes a request on to the replica of its session; None if no other replica has the session.

        `cors` are headers of answers that are our own.
        """
        ...

    def is_own_id(self, arrival: Arrival, session_id: bytes) -> bool:
        """Return whether an id is one of a session of this sender and path, whatever replica it names."""
        ...

    def pass_on(self, arrival: Arrival, replica: str, cors: Headers, *, is_last: bool) -> BodyReceiver:
        """Return what passes a request on to the replica that has its session now.

        If that has ended, another one goes on with the session, unless this attempt `is_last`.
        """
        ...

    def hand_over(self, arrival: Arrival, cors: Headers) -> BodyReceiver | None:
        """Return what passes a request on to any other replica, which goes on with its session; None without any."""
        ...

    def watch(self, arrival: Arrival, receiver: BodyReceiver, cors: Headers) -> BodyReceiver:
        """Return what takes a request of a modern client, which is passed on if it is about something elsewhere.

        The retry of a call goes to where that waits, and a request about a task to where that was begun.
        """
        ...

    def watch_page(self, head: RequestHead, exchange: Exchange, receiver: BodyReceiver) -> BodyReceiver:
        """Return what takes a request for a page, which is passed on if it is of a login that began elsewhere."""
        ...

    def receive(self, head: RequestHead) -> PeerRequest | Response:
        """Read a request below `PEER_PATH`, or return the answer to it: to a question of a peer, or a refusal."""
        ...

    def tick(self, is_valid: Callable[[Authentication], bool]) -> None:
        """End streams whose client's credential is no longer valid, and requests to a replica that hangs."""
        ...

    async def drain(self, within_s: float) -> None:
        """Let calls that were passed on finish within a bound, then end the rest."""
        ...

    async def open(self) -> None:
        """Look for the other replicas, without waiting for them."""
        ...

    async def close(self) -> None:
        """End everything that is passed on."""
        ...
