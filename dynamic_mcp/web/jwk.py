"""Keys (RFC 7517): public keys of a key set, which verify signatures, and private keys, which sign.

The algorithms of a key follow from the key, never from a token alone: no key of a key set is a shared secret. Imports
joserfc: load this in a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from joserfc.errors import JoseError
from joserfc.jwa import JWSAlgModel
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey, import_key
from joserfc.jws import JWSRegistry, serialize_compact
from joserfc.util import base64_to_int
from msgspec import json

from dynamic_mcp.web.signed_token import ALGORITHMS, EDDSA

_MAX_KEYS = 100
_PUBLIC = ("kty", "crv", "n", "e", "x", "y")
_MAX_TEXT = 1500
_RSA_BITS = range(2048 - 7, 8192 + 1)  # a number may have a few bits less than its bytes
_MAX_EXPONENT = 1 << 32

_Key = RSAKey | ECKey | OKPKey


class VerificationKey:
    """A public key that verifies signatures by certain algorithms."""

    def __init__(self, key: _Key, algorithms: frozenset[str], kid: str | None) -> None:
        self.algorithms = algorithms
        self.kid = kid
        self.jose_key = key

    def has_signed(self, algorithm: str, content: bytes, signature: bytes) -> bool:
        """Return whether a signature is by this key's private half, with one of the key's algorithms."""
        if algorithm not in self.algorithms:
            return False
        try:
            return _find_model(algorithm, self.jose_key).verify(content, signature, self.jose_key)
        except (JoseError, ValueError):
            return False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.kid} for {', '.join(sorted(self.algorithms))}>"


class SigningKey(VerificationKey):
    """A private key that signs tokens with one algorithm, and verifies its signatures."""

    def __init__(self, key: _Key, algorithm: str | None = None, kid: str | None = None) -> None:
        """Raises ValueError if the key cannot be used with this algorithm, or with any supported one."""
        possible = _list_algorithms(key)
        self.algorithm = algorithm or next(iter(possible), "")
        if self.algorithm not in possible:
            raise ValueError(f"is for {', '.join(possible) or 'no supported algorithm'}")
        super().__init__(key, frozenset({self.algorithm}), kid)

    @classmethod
    def generate(cls) -> SigningKey:
        """Return a new key for ES256, whose id is its thumbprint (RFC 7638)."""
        key = ECKey.generate_key("P-256")
        return cls(key, kid=key.thumbprint())

    @classmethod
    def from_pem(cls, data: bytes, algorithm: str | None = None) -> SigningKey:
        """Return the private key in a PEM file. Raises ValueError."""
        for kind in ("RSA", "EC", "OKP"):
            try:
                key = import_key(data, kind)
            except (JoseError, ValueError, TypeError):
                continue
            if key.is_private:
                return cls(key, algorithm)
        raise ValueError("is not a private key in PEM format")

    @classmethod
    def from_jwk(cls, text: str, kid: str) -> SigningKey:
        """Return the key that `to_jwk` has encoded. Raises ValueError."""
        return cls(ECKey.import_key(json.decode(text)), kid=kid)

    def to_jwk(self) -> str:
        """Return the private key as a JWK, which is secret."""
        return json.encode(self.jose_key.as_dict(private=True)).decode()

    def public_jwk(self) -> Mapping[str, object]:
        return self.jose_key.as_dict(private=False, kid=self.kid, use="sig", alg=self.algorithm)

    def sign(self, claims: Mapping[str, object], kind: str = "JWT") -> str:
        """Return a signed token with this `typ`."""
        header = {"alg": self.algorithm, "typ": kind, **({} if self.kid is None else {"kid": self.kid})}
        return serialize_compact(header, json.encode(claims), self.jose_key, [self.algorithm])


def import_keys(document: Mapping[str, object]) -> tuple[VerificationKey, ...]:
    """Return the usable keys of a key set. Raises ValueError if there are none."""
    entries = document.get("keys")
    if not isinstance(entries, list):
        raise ValueError("is not a key set")  # noqa: TRY004 - it is a foreign document
    keys = tuple(key for entry in entries[:_MAX_KEYS] if isinstance(entry, dict) for key in _import_key(entry))
    if not keys:
        raise ValueError("has no usable key")
    return keys


def _import_key(entry: Mapping[str, object]) -> Iterator[VerificationKey]:
    kid, operations = entry.get("kid"), entry.get("key_ops")
    is_for_signatures = entry.get("use", "sig") == "sig" and (
        operations is None or (isinstance(operations, list) and "verify" in operations)
    )
    if not is_for_signatures or not isinstance(kid, str | None):
        return
    try:
        key = _import_public_half(entry)
    except (JoseError, ValueError, TypeError, KeyError, OverflowError):
        return
    algorithms = frozenset() if key is None else frozenset(_list_algorithms(key))
    algorithm = entry.get("alg")
    if algorithm is not None:
        algorithms = algorithms if algorithm in EDDSA & algorithms else algorithms & {str(algorithm)}
    if key is not None and algorithms:
        yield VerificationKey(key, algorithms, kid)


def _import_public_half(entry: Mapping[str, object]) -> _Key | None:
    """Return a key; None if it is unusable. Raises several errors for malformed members."""
    members = {name: str(entry[name]) for name in _PUBLIC if name in entry}
    if any(len(text) > _MAX_TEXT for text in members.values()):
        return None
    if members["kty"] == "RSA":
        n, e = (base64_to_int(members[name]) for name in "ne")
        if n.bit_length() not in _RSA_BITS or e >= _MAX_EXPONENT:
            return None
    key = import_key({**members})
    return None if isinstance(key, OctKey) else key


def _list_algorithms(key: _Key) -> tuple[str, ...]:
    return ALGORITHMS.get("RSA" if isinstance(key, RSAKey) else key.curve_name, ())


def _find_model(algorithm: str, key: _Key) -> JWSAlgModel:
    """Return the implementation of an algorithm of this key. Raises JoseError."""
    model = JWSRegistry.algorithms["Ed25519" if algorithm in EDDSA else algorithm]
    model.check_key(key)
    return model
