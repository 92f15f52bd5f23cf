"""Public keys of a key set (RFC 7517), and what they have signed. Imports joserfc: load this in a thread.

Which algorithm a key is for follows from the key, never from the token alone: no key of a key set is a shared secret.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

_MAX_KEYS = 100
_RSA_BYTES = range(2048 // 8, 8192 // 8 + 1)
_MAX_EXPONENT_BYTES = 4
_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_RSA_ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
# `EdDSA` is the name of before RFC 9864, which names the curve.
EDDSA = frozenset({"EdDSA", "Ed25519"})


class PublicKey:
    """A key that checks signatures by some algorithms."""

    def __init__(self, key: RSAKey | ECKey | OKPKey, algorithms: frozenset[str], kid: str | None) -> None:
        self.algorithms = algorithms
        self.kid = kid
        self._key = key

    def has_signed(self, algorithm: str, content: bytes, signature: bytes) -> bool:
        """Tell whether a signature is by the private half of this key; never by an algorithm it is not for."""
        if algorithm not in self.algorithms:
            return False
        model = JWSRegistry.algorithms["Ed25519" if algorithm in EDDSA else algorithm]
        try:
            model.check_key(self._key)
            return model.verify(content, signature, self._key)
        except (JoseError, ValueError):
            return False

    def __repr__(self) -> str:
        return f"<PublicKey {self.kid} for {', '.join(sorted(self.algorithms))}>"


def import_keys(document: Mapping[str, object]) -> tuple[PublicKey, ...]:
    """Return the keys of a key set that check signatures; others are left out. Raises ValueError if none is left."""
    entries = document.get("keys")
    if not isinstance(entries, list):
        raise ValueError("is not a key set")  # noqa: TRY004 - of a document of others
    keys = tuple(key for entry in entries[:_MAX_KEYS] if isinstance(entry, dict) for key in _import_key(entry))
    if not keys:
        raise ValueError("has no key that could be used")
    return keys


def _import_key(entry: Mapping[str, object]) -> Iterator[PublicKey]:
    kid, operations = entry.get("kid"), entry.get("key_ops")
    is_for_signatures = entry.get("use", "sig") == "sig" and (
        operations is None or (isinstance(operations, list) and "verify" in operations)
    )
    if not is_for_signatures or not isinstance(kid, str | None):
        return
    try:
        found = _import_public_half(entry)
    except (JoseError, ValueError, TypeError, KeyError, OverflowError):
        return
    if found is None:
        return
    key, algorithms = found
    stated = entry.get("alg")
    if stated is not None:
        algorithms = algorithms if stated in EDDSA & algorithms else algorithms & {str(stated)}
    if algorithms:
        yield PublicKey(key, algorithms, kid)


def _import_public_half(entry: Mapping[str, object]) -> tuple[RSAKey | ECKey | OKPKey, frozenset[str]] | None:
    """Return a key and what it can be for; None if that is nothing here. Raises what wrong members lead to."""
    match entry.get("kty"):
        case "RSA":
            if _size(entry["n"]) not in _RSA_BYTES or _size(entry["e"]) > _MAX_EXPONENT_BYTES:
                return None
            return RSAKey.import_key({"kty": "RSA", "n": str(entry["n"]), "e": str(entry["e"])}), _RSA_ALGORITHMS
        case "EC" if (curve := str(entry.get("crv"))) in _CURVES:
            x, y = str(entry["x"]), str(entry["y"])
            return ECKey.import_key({"kty": "EC", "crv": curve, "x": x, "y": y}), frozenset({_CURVES[curve]})
        case "OKP" if entry.get("crv") == "Ed25519":
            return OKPKey.import_key({"kty": "OKP", "crv": "Ed25519", "x": str(entry["x"])}), EDDSA
    return None


def _size(number: object) -> int:
    """Return the bytes that a number in base64url has. Raises ValueError."""
    text = str(number)
    try:
        return len(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).lstrip(b"\0"))
    except binascii.Error as exc:
        raise ValueError("not a number") from exc
