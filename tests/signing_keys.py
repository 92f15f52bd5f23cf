"""Key pairs for tests, and the tokens that they sign. To make an RSA key takes its time, so each is kept."""

from __future__ import annotations

import base64
import functools
import hmac
import json
from typing import Any

from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

Key = RSAKey | ECKey | OKPKey
Json = Any  # whatever JSON a test writes down

_HASHES = {"HS256": "sha256", "HS384": "sha384", "HS512": "sha512"}
_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}


@functools.cache
def key_for(algorithm: str, generation: int = 1) -> Key:
    """Return the key pair that signs by this algorithm; each generation has others."""
    if algorithm in _CURVES:
        return ECKey.generate_key(_CURVES[algorithm])
    if algorithm in ("EdDSA", "Ed25519"):
        return _edwards_key(generation)
    return _rsa_key(generation)


@functools.cache
def _rsa_key(generation: int) -> RSAKey:
    return RSAKey.generate_key(2048)


@functools.cache
def _edwards_key(generation: int) -> OKPKey:
    return OKPKey.generate_key("Ed25519")


def public_jwk(key: Key, **members: Json) -> dict[str, Json]:
    """Return the public half of a key pair, as a key set has it (RFC 7517)."""
    return {**key.as_dict(private=False), **members}


def sign(header: Json, claims: Json, key: Key | bytes | None, *, by: str = "") -> str:
    """Return a token (RFC 7515, section 7.1), however wrong; the claims may be bytes.

    It is signed by the algorithm of its header, or by another one, or with bytes as a shared secret; without a key it
    is not signed.
    """
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    signed = f"{encode(json.dumps(header).encode())}.{encode(payload)}"
    if key is None:
        return f"{signed}."
    if isinstance(key, bytes):
        return f"{signed}.{encode(hmac.digest(key, signed.encode(), _HASHES[header['alg']]))}"
    return f"{signed}.{encode(JWSRegistry.algorithms[by or header['alg']].sign(signed.encode(), key))}"


def encode(data: bytes) -> str:
    """Return base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
