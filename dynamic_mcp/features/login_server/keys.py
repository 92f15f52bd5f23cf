"""The keys that sign access tokens: made by whichever worker needs one first, and replaced from time to time.

Imports joserfc, and so is imported with the first request that needs it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey
from msgspec import Struct

ALGORITHM = "ES256"
_TYPE = "at+jwt"
# A key signs for this long; then it stays as long as any token that it signed.
_SIGNS_S = 90 * 24 * 3600.0

Claims = dict[str, Any]  # Any: the claims of a token are JSON


class Key(Struct, frozen=True):
    """A key pair, and the id by which tokens name it."""

    id: str
    pair: ECKey

    def sign(self, claims: Claims) -> str:
        """Return a signed token (RFC 9068)."""
        return jwt.encode({"alg": ALGORITHM, "kid": self.id, "typ": _TYPE}, claims, self.pair)

    def public(self) -> Mapping[str, object]:
        """Return the half of the key that everybody may know, as a JWK."""
        return self.pair.as_dict(private=False, kid=self.id, use="sig", alg=ALGORITHM)


def current_key(connection: sqlite3.Connection, now: float, tokens_last_s: float) -> Key:
    """Return the key that signs now; one that has signed for long enough is replaced."""
    row = connection.execute("SELECT id, private, made FROM keys ORDER BY made DESC LIMIT 1").fetchone()
    if row is not None and now < row[2] + _SIGNS_S:
        return _load(row[0], row[1])
    connection.execute("DELETE FROM keys WHERE made < ?", (now - _SIGNS_S - max(tokens_last_s, _SIGNS_S),))
    pair = ECKey.generate_key("P-256")
    id = pair.thumbprint()
    private = json.dumps(pair.as_dict(private=True))
    connection.execute("INSERT INTO keys VALUES (?, ?, ?)", (id, private, now))
    return Key(id, pair)


def all_keys(connection: sqlite3.Connection) -> dict[str, Key]:
    """Return the keys whose tokens count, by their ids."""
    rows = connection.execute("SELECT id, private FROM keys ORDER BY made DESC").fetchall()
    return {id: _load(id, private) for id, private in rows}


def read_claims(token: str, keys: Mapping[str, Key], key_id: str) -> Claims | None:
    """Return the claims of a token that one of the keys has signed; None if none has. Dates are not looked at."""
    key = keys.get(key_id)
    if key is None:
        return None
    try:
        decoded = jwt.decode(token, key.pair, algorithms=[ALGORITHM])
    except (JoseError, ValueError):
        return None
    return dict(decoded.claims) if decoded.header.get("typ") == _TYPE else None


def _load(id: str, private: str) -> Key:
    return Key(id, ECKey.import_key(json.loads(private)))
