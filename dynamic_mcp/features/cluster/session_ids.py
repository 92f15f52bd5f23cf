"""The ids of sessions, which name their replica: `d1.<replica>.<random>.<MAC>`.

The MAC covers the principal and the path, so an id that was made up, or that another user presents, is none of ours
(HMAC-SHA-256, 128 bits of it). The number after `d` is the version of the form.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Sequence

import msgspec

from dynamic_mcp.face.http.paths import Route
from dynamic_mcp.features.cluster.keys import derive
from dynamic_mcp.identity import Principal

_VERSION = "d1"
_RANDOM_BYTES, _MAC_BYTES = 16, 16
_MAX_BYTES = 160


class SessionIds:
    """Makes ids of sessions of the replica `name`, and reads those of all replicas that share a key."""

    def __init__(self, name: str, keys: Sequence[str]) -> None:
        self._name = name
        self._keys = derive(keys, b"session ids")

    def make(self, principal: Principal, route: Route, *, is_old: bool) -> str:
        """Return a new id; `is_old` is one of the transport of 2024-11-05, whose messages have one path."""
        begin = f"{_VERSION}.{self._name}.{_encode(secrets.token_bytes(_RANDOM_BYTES))}"
        return f"{begin}.{_mac(self._keys[0], begin, principal, route, is_old=is_old)}"

    def owner_of(self, id: bytes, principal: Principal, route: Route, *, is_old: bool) -> str | None:
        """Return the replica of an id; None if the id is invalid, or for another principal or path."""
        if len(id) > _MAX_BYTES or not id.isascii():
            return None
        parts = id.decode().split(".")
        if len(parts) != 4 or parts[0] != _VERSION:
            return None
        begin, mac = id.decode().rsplit(".", 1)
        for key in self._keys:
            if hmac.compare_digest(mac, _mac(key, begin, principal, route, is_old=is_old)):
                return parts[1]
        return None


def _mac(key: bytes, begin: str, principal: Principal, route: Route, *, is_old: bool) -> str:
    path = ("sse",) if is_old else ("http", route.only, route.profile)
    covered = msgspec.json.encode([begin, principal.issuer, principal.subject, path])
    return _encode(hmac.digest(key, covered, "sha256")[:_MAC_BYTES])


def _encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
