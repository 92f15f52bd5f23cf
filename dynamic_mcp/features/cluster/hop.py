"""The signed head of a request that one replica passes on to another, with what it has found out about the client.

The field is `<payload>.<MAC>`, base64url. The MAC covers the request too: its method, its target, its session. A
request is passed on once, and soon. Members of the payload that a replica does not know are ignored, so that two
versions work side by side.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dynamic_mcp.face.http.cluster import HOP_FIELD, PEER_PATH, PeerAuthentication, PeerRequest
from dynamic_mcp.face.http.exchange import HeadNotes, RequestHead
from dynamic_mcp.features.cluster.keys import KeyRing, encode
from dynamic_mcp.identity import Authentication
from dynamic_mcp.system.bounded import BoundedDict
from dynamic_mcp.system.decoding import decode_as

FIELD = HOP_FIELD
# How long a request may take to its owner, and how far the clocks of two replicas may differ.
_VALID_FOR_S, _CLOCKS_DIFFER_S = 30.0, 120.0
_MAX_BYTES = 48 << 10
# Heads that were read are kept for the next connection that they come over: so many, of fields so long.
_MOST_KEPT, _LONGEST_KEPT = 2048, 2048


class HopRefused(Exception):
    """A request of a peer is not accepted; the message is the reason."""


class Hop(Struct, frozen=True, omit_defaults=True):
    """What the first replica says: who it is, whom it means (empty is anyone), until when, and its client."""

    sender: str
    owner: str
    until: float  # seconds since the epoch
    authentication: Authentication
    address: str = ""
    port: int = 0
    is_secure: bool = False
    root_path: str = ""


class _ReadHop(Struct, frozen=True):
    """The result of reading a head, valid for the signer that has read it, until the hop is too old.

    It is as good for a head with another length of the body, whose request has the same notes.
    """

    signer: HopSigner
    hop: Hop
    head: RequestHead
    request: PeerRequest


class HopSigner:
    """Signs and reads the heads of requests between the replicas that share a key."""

    def __init__(self, name: str, keys: Sequence[str], wall_clock: Callable[[], float]) -> None:
        self._name = name
        self._keys = KeyRing(keys, b"hops")
        self._clock = wall_clock
        self._read: BoundedDict[bytes, _ReadHop] = BoundedDict(_MOST_KEPT)  # by the field

    def sign(
        self, head: RequestHead, owner: str, authentication: Authentication, *, address: str = "", port: int = 0
    ) -> bytes:
        """Return the field for a request of a client at an address."""
        hop = Hop(
            self._name,
            owner,
            self._clock() + _VALID_FOR_S,
            authentication,
            address=address,
            port=port,
            is_secure=head.is_secure,
            root_path=head.root_path,
        )
        payload = encode(msgspec.json.encode(hop))
        return b".".join((payload, self._keys.sign(_signed_part(payload, head, head.target))))

    def read(self, head: RequestHead) -> PeerRequest:
        """Return the request that a peer has passed on, as its client sent it. Raises HopRefused."""
        notes = head.notes
        checked = notes.checked if notes is not None else None
        kept = checked if isinstance(checked, _ReadHop) and checked.signer is self else self._find_kept(head)
        if kept is not None and self._is_current(kept.hop):
            if kept.head is head:
                return kept.request
            hop, plain = kept.hop, replace(kept.request.head, headers=_headers_of_client(head))
            request = PeerRequest(plain, kept.request.authentication)
        else:
            hop = self._verify(head)
            request = _request_of(head, hop)
        if notes is not None:
            notes.checked = self._keep(_ReadHop(self, hop, head, request))
        return request

    def _find_kept(self, head: RequestHead) -> _ReadHop | None:
        """Return what was read from the same head over another connection."""
        kept = self._read.get(head.headers.get(FIELD, b""))
        return kept if kept is not None and _differ_in_length_alone(kept.head, head) else None

    def _keep(self, read: _ReadHop) -> _ReadHop:
        field = read.head.headers[FIELD]
        if len(field) <= _LONGEST_KEPT:
            self._read[field] = read
        return read

    def _verify(self, head: RequestHead) -> Hop:
        field = head.headers.get(FIELD, b"")
        target = head.target.removeprefix(PEER_PATH)
        payload, dot, mac = field.partition(b".")
        if not dot or len(field) > _MAX_BYTES:
            raise HopRefused("the request of a peer is not signed")
        if not self._keys.accepts(_signed_part(payload, head, target), mac):
            raise HopRefused("the request of a peer has no valid signature: do the replicas have the same `keys`?")
        hop = _decode(payload)
        if not self._is_current(hop):
            raise HopRefused(f"the request of the replica `{hop.sender}` is too old, or its clock differs")
        if hop.owner and hop.owner != self._name:
            raise HopRefused(f"the request is for the replica `{hop.owner}`, and this one is `{self._name}`")
        return hop

    def _is_current(self, hop: Hop) -> bool:
        now = self._clock()
        return now - _CLOCKS_DIFFER_S <= hop.until <= now + _VALID_FOR_S + _CLOCKS_DIFFER_S


def _request_of(head: RequestHead, hop: Hop) -> PeerRequest:
    plain = replace(
        head,
        target=head.target.removeprefix(PEER_PATH),
        headers=_headers_of_client(head),
        peer=hop.address,
        port=hop.port,
        is_secure=hop.is_secure,
        root_path=hop.root_path,
        notes=HeadNotes(),
    )
    found = hop.authentication
    return PeerRequest(
        plain, PeerAuthentication(found.principal, found.provider, found.roles, found.claims, found.scopes)
    )


def _differ_in_length_alone(one: RequestHead, other: RequestHead) -> bool:
    """Return whether two heads are the same but for the length of the body, and where their connections end."""
    mine, others = one.headers, other.headers
    return (
        one.target == other.target
        and one.method == other.method
        and one.repeated == other.repeated
        and len(mine) == len(others)
        and all(others.get(name) == value or name == b"content-length" for name, value in mine.items())
        and (b"content-length" in mine) == (b"content-length" in others)
    )


def _headers_of_client(head: RequestHead) -> dict[bytes, bytes]:
    headers = dict(head.headers)
    headers.pop(FIELD, None)
    return headers


def _decode(payload: bytes) -> Hop:
    try:
        return decode_as(urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)), Hop)
    except (ValueError, msgspec.MsgspecError):
        raise HopRefused("the request of a peer is of another version") from None


def _signed_part(payload: bytes, head: RequestHead, target: bytes) -> bytes:
    return b"\0".join((payload, head.method.encode(), target, head.headers.get(b"mcp-session-id", b"")))
