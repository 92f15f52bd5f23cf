"""The keys that sign access tokens. The worker that first needs one creates it; they are replaced regularly.

Imports joserfc, and so is imported with the first request that needs it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from dynamic_mcp.web.jwk import SigningKey
from dynamic_mcp.web.signed_token import SignedToken

_KIND = "at+jwt"
# How long a key signs; after that it is kept as long as any token that it has signed.
SIGNS_S = 90 * 24 * 3600.0

Claims = Mapping[str, Any]  # Any: the claims of a token are JSON that we have written ourselves


def current_key(connection: sqlite3.Connection, now: float, tokens_last_s: float) -> SigningKey:
    """Return the current signing key, after replacing an old one."""
    row = connection.execute("SELECT id, private, made FROM keys ORDER BY made DESC LIMIT 1").fetchone()
    if row is not None and now < row[2] + SIGNS_S:
        return SigningKey.from_jwk(row[1], row[0])
    connection.execute("DELETE FROM keys WHERE made < ?", (now - SIGNS_S - max(tokens_last_s, SIGNS_S),))
    key = SigningKey.generate()
    connection.execute("INSERT INTO keys VALUES (?, ?, ?)", (key.kid, key.to_jwk(), now))
    return key


def all_keys(connection: sqlite3.Connection) -> dict[str, SigningKey]:
    """Return the keys whose tokens are valid, by their ids."""
    rows = connection.execute("SELECT id, private FROM keys ORDER BY made DESC").fetchall()
    return {id: SigningKey.from_jwk(private, id) for id, private in rows}


def sign_claims(key: SigningKey, claims: Claims) -> str:
    """Return an access token (RFC 9068)."""
    return key.sign(claims, _KIND)


def read_claims(token: SignedToken, keys: Mapping[str, SigningKey]) -> Claims | None:
    """Return the claims of an access token signed by one of the keys; None if none has signed it.

    Dates are not checked.
    """
    key = None if token.kid is None else keys.get(token.kid)
    is_ours = key is not None and key.has_signed(token.algorithm, token.signed, token.signature)
    return token.claims if is_ours and token.kind == _KIND else None
