"""Seals an answer with the refresh token of its request, so that only that client can get it again.

Imports cryptography, which the first token needs in any case.
"""

from __future__ import annotations

import hmac
import secrets
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12
_PURPOSE = b"dynamic-mcp: the answer to a refresh token"


def seal(answer: bytes, token: str) -> bytes:
    """Return an answer that only this refresh token opens."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + _cipher(token).encrypt(nonce, answer, None)


def open_sealed(sealed: bytes, token: str) -> bytes | None:
    """Return the answer that was sealed with this refresh token; None if it was sealed with another."""
    from cryptography.exceptions import InvalidTag

    try:
        return _cipher(token).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None)
    except InvalidTag:
        return None


def _cipher(token: str) -> AESGCM:
    # the token has 256 random bits, and the database only has its plain hash, from which this key does not follow
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(hmac.new(token.encode(), _PURPOSE, sha256).digest())
