"""The keys of a cluster, one for each purpose, derived from those that its replicas share."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Sequence


class KeyRing:
    """Signs with the first key, and accepts what any of them has signed (HMAC-SHA-256, its first `size` bytes)."""

    def __init__(self, keys: Sequence[str], purpose: bytes, *, size: int = 32) -> None:
        self._keys = [hmac.digest(key.encode(), purpose, "sha256") for key in keys]
        self._size = size

    def sign(self, data: bytes) -> bytes:
        """Return the signature of data, as base64url."""
        return self._mac(self._keys[0], data)

    def accepts(self, data: bytes, signature: bytes) -> bool:
        """Return whether this is the signature of data."""
        return any(hmac.compare_digest(signature, self._mac(key, data)) for key in self._keys)

    def _mac(self, key: bytes, data: bytes) -> bytes:
        return encode(hmac.digest(key, data, "sha256")[: self._size])


def encode(data: bytes) -> bytes:
    """Return data as base64url, without padding."""
    return urlsafe_b64encode(data).rstrip(b"=")
