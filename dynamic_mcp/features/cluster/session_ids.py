"""The ids of sessions, which name their replica: `d1.<replica>.<random>.<MAC>`.

The MAC covers the principal and the path, so an id that was made up, or that another user presents, is none of ours
(HMAC-SHA-256, 128 bits of it). The number after `d` is the version of the form: an id of a version that this program
does not know is for the replica that it names, which judges it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

import msgspec

from dynamic_mcp.face.http.paths import Route
from dynamic_mcp.features.cluster.keys import KeyRing, encode
from dynamic_mcp.identity import Principal

_VERSION = "d1"
_RANDOM_BYTES, _MAC_BYTES = 16, 16
_MAX_BYTES = 160
_OTHER_VERSION = re.compile(r"d(?!1\.)[0-9]{1,3}\.([A-Za-z0-9][A-Za-z0-9-]{0,62})\.")


def find_owner(id: str) -> str | None:
    """Return the replica of an id of a version that this program does not know; None if it is not one."""
    found = _OTHER_VERSION.match(id)
    return None if found is None else found[1]


class SessionIds:
    """Makes ids of sessions of the replica `name`, and reads those of all replicas that share a key."""

    def __init__(self, name: str, keys: Sequence[str]) -> None:
        self._name = name
        self._keys = KeyRing(keys, b"session ids", size=_MAC_BYTES)

    def make(self, principal: Principal, route: Route, *, is_old: bool) -> str:
        """Return a new id; `is_old` is one of the transport of 2024-11-05, whose messages have one path."""
        begin = f"{_VERSION}.{self._name}.{encode(secrets.token_bytes(_RANDOM_BYTES)).decode()}"
        return f"{begin}.{self._keys.sign(_signed_part(begin, principal, route, is_old=is_old)).decode()}"

    def owner_of(self, id: bytes, principal: Principal, route: Route, *, is_old: bool) -> str | None:
        """Return the replica of an id; None if the id is invalid, or for another principal or path."""
        if len(id) > _MAX_BYTES or not id.isascii():
            return None
        text = id.decode()
        begin, _, mac = text.rpartition(".")
        version, *rest = begin.split(".")
        if version != _VERSION or len(rest) != 2:
            return find_owner(text)
        signed = _signed_part(begin, principal, route, is_old=is_old)
        return rest[0] if self._keys.accepts(signed, mac.encode()) else None


def _signed_part(begin: str, principal: Principal, route: Route, *, is_old: bool) -> bytes:
    path = ("sse",) if is_old else ("http", route.only, route.profile)
    return msgspec.json.encode([begin, principal.issuer, principal.subject, path])
