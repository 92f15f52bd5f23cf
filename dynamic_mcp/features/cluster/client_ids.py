"""The ids of what one replica has for a client, such as a task: `d1.<replica>.<MAC>.<id>`.

The MAC covers the principal and the path, as in ids of sessions, so any replica knows whose it is. What follows
is the id as it would be without replicas, by which another replica may find it if the one that is named is gone.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dynamic_mcp.client import Client
from dynamic_mcp.face.http.paths import Route
from dynamic_mcp.features.cluster.keys import KeyRing
from dynamic_mcp.features.cluster.session_ids import find_owner
from dynamic_mcp.identity import Principal

_VERSION = "d1"
_MAC_BYTES = 16


class ClientIds:
    """Signs ids for one purpose at the replica `name`, and reads those of all replicas that share a key."""

    def __init__(self, name: str, keys: Sequence[str], purpose: bytes) -> None:
        self._name = name
        self._keys = KeyRing(keys, purpose, size=_MAC_BYTES)

    def sign(self, id: str, client: Client) -> str:
        begin = f"{_VERSION}.{self._name}"
        signed = _signed_part(begin, id, client.principal, client.only, client.profile)
        return f"{begin}.{self._keys.sign(signed).decode()}.{id}"

    def open(self, id: str, client: Client) -> str | None:
        found = self._read(id, client.principal, client.only, client.profile)
        return None if found is None else found[1]

    def owner_of(self, id: str, principal: Principal, route: Route) -> str | None:
        """Return the replica of an id; None if the id is invalid, or for another principal or path."""
        found = self._read(id, principal, route.only, route.profile)
        return find_owner(id) if found is None else found[0]

    def _read(self, id: str, principal: Principal, only: str | None, profile: str | None) -> tuple[str, str] | None:
        """Return the replica of an id, and what was signed."""
        version, *rest = id.split(".", 3)
        if version != _VERSION or len(rest) != 3:
            return None
        replica, mac, own_id = rest
        signed = _signed_part(f"{version}.{replica}", own_id, principal, only, profile)
        return (replica, own_id) if mac.isascii() and self._keys.accepts(signed, mac.encode()) else None


def _signed_part(begin: str, id: str, principal: Principal, only: str | None, profile: str | None) -> bytes:
    return msgspec.json.encode([begin, id, principal.issuer, principal.subject, only, profile])
