"""Seals what replicas write to a shared store (AES-256-GCM), with keys that follow from `settings.cluster.keys`.

What is sealed is `<form><key><nonce><ciphertext>`: the newest key seals, and each opens what it has sealed. It is
bound to its place in the store, so that it cannot be read in another.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_FORM = b"\x01"
_KEY_BYTES, _NONCE_BYTES, _TAG_BYTES = 4, 12, 16
# Its form, its key and its nonce: different for each writing.
HEAD_BYTES = len(_FORM) + _KEY_BYTES + _NONCE_BYTES
_PURPOSE = b"shared store"


class SealError(Exception):
    """What was sealed cannot be opened: it is of a missing key, of another form, or damaged."""


class StoreSeal:
    """Seals with the first key, and opens with each."""

    def __init__(self, keys: Sequence[str]) -> None:
        derived = [hmac.digest(each.encode(), _PURPOSE, "sha256") for each in keys]
        self._ciphers = {hashlib.sha256(each).digest()[:_KEY_BYTES]: AESGCM(each) for each in reversed(derived)}
        self._newest = hashlib.sha256(derived[0]).digest()[:_KEY_BYTES]
        self._cipher = self._ciphers[self._newest]

    def seal(self, data: bytes, place: bytes) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return b"".join((_FORM, self._newest, nonce, self._cipher.encrypt(nonce, data, place)))

    def open(self, sealed: bytes, place: bytes) -> bytes:
        """Return what was sealed for a place. Raises SealError."""
        if len(sealed) < HEAD_BYTES + _TAG_BYTES or not sealed.startswith(_FORM):
            raise SealError("it has another form")
        cipher = self._ciphers.get(sealed[1 : 1 + _KEY_BYTES])
        if cipher is None:
            raise SealError("it was sealed with a key that this replica does not have")
        try:
            return cipher.decrypt(sealed[HEAD_BYTES - _NONCE_BYTES : HEAD_BYTES], sealed[HEAD_BYTES:], place)
        except InvalidTag:
            raise SealError("it is damaged, or of another place") from None

    def is_newest(self, sealed: bytes) -> bool:
        """Return whether the key that seals now has sealed this."""
        return sealed[1 : 1 + _KEY_BYTES] == self._newest
