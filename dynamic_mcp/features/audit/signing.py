"""Ed25519 signatures of seals (RFC 8032). Loaded only if a key is configured, or a signature is checked."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key


class SealSigningKey:
    """A private key; `fingerprint` is the SHA-256 of the 32 bytes of its public key, in hex."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.fingerprint = _fingerprint(key.public_key())

    def sign(self, data: bytes) -> bytes:
        """Return the signature of some bytes."""
        return self._key.sign(data)


class SealVerifyKey:
    """A public key; `fingerprint` is that of the private key."""

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        self.fingerprint = _fingerprint(key)

    def has_signed(self, data: bytes, signature: bytes) -> bool:
        """Return whether this is the signature of these bytes."""
        try:
            self._key.verify(signature, data)
        except InvalidSignature:
            return False
        return True


def load_signing_key(path: Path) -> SealSigningKey:
    """Read a PEM file with an Ed25519 private key, without a password. Raises OSError and ValueError."""
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (TypeError, UnsupportedAlgorithm) as exc:  # it has a password
        raise ValueError(str(exc)) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("not an Ed25519 key")  # noqa: TRY004 - the file is wrong, not the caller
    return SealSigningKey(key)


def load_verify_key(path: Path) -> SealVerifyKey:
    """Read the public key of a PEM file, which may have the private key. Raises OSError and ValueError."""
    data = path.read_bytes()
    try:
        key = load_pem_private_key(data, password=None) if b"PRIVATE" in data else load_pem_public_key(data)
    except (TypeError, UnsupportedAlgorithm) as exc:
        raise ValueError(str(exc)) from None
    public = key.public_key() if isinstance(key, Ed25519PrivateKey) else key
    if not isinstance(public, Ed25519PublicKey):
        raise ValueError("not an Ed25519 key")  # noqa: TRY004 - the file is wrong, not the caller
    return SealVerifyKey(public)


def _fingerprint(key: Ed25519PublicKey) -> str:
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()
