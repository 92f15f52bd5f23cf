"""Parses a signed token (RFC 7515, RFC 7519) and checks everything except its signature.

Anyone may have made a token until its signature is verified: it is limited in size, and parsed strictly. Messages
never repeat any part of it.
"""

from __future__ import annotations

import binascii
import math
import re
from collections.abc import Mapping
from typing import ClassVar

from dynamic_mcp.config.section import Private
from dynamic_mcp.mcp import strict_json

# The algorithms of each key type or curve, without shared secrets; the first is the default (RFC 7518, section 3.1).
# `EdDSA` is the name from before RFC 9864, which names the curve.
ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA", "Ed25519"),
}
EDDSA = frozenset(ALGORITHMS["Ed25519"])
MAX_BYTES = 16 << 10
_MAX_CLAIMS, _MAX_TEXTS, _MAX_NAME = 50, 200, 512
_SEGMENT = re.compile(r"[A-Za-z0-9_-]+")
_TO_STANDARD = str.maketrans("-_", "+/")
# Claims about one token, not about its user.
_OF_ONE_TOKEN = frozenset({"jti", "nonce", "at_hash", "c_hash", "s_hash"})


class TokenError(Exception):
    """Raised for a token that is not accepted; the message is the reason."""


class SignedToken(Private, frozen=True):
    """An unverified token: nothing in it can be trusted before its signature is verified."""

    shown: ClassVar = ("algorithm", "kind")
    algorithm: str
    kid: str | None
    kind: str | None
    """The `typ` of its header, in lower case and without `application/`; None if it has none."""
    claims: Mapping[str, object]
    signed: bytes
    """The signed part of the token."""
    signature: bytes

    @property
    def issuer(self) -> object:
        """The issuer; a text, if the token is valid."""
        return self.claims.get("iss")


def parse_token(token: str) -> SignedToken:
    """Return an unverified token. Raises TokenError.

    Refuses tokens that are unsigned or encrypted, that have critical extensions (RFC 7515, section 4.1.11), all of
    which are unsupported, or duplicate names in the header or claims.
    """
    if len(token) > MAX_BYTES:
        raise TokenError(f"the token is longer than {MAX_BYTES >> 10} kB")
    segments = token.split(".", 3)
    if len(segments) != 3 or not all(_SEGMENT.fullmatch(each) for each in segments):
        raise TokenError("the token is not a signed token")
    header, claims = (_parse_object(_decode(each)) for each in segments[:2])
    if "crit" in header:
        raise TokenError("the token has critical extensions, which are not supported")
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ")
    if not isinstance(algorithm, str) or not isinstance(kid, str | None) or not isinstance(kind, str | None):
        raise TokenError("the token has an invalid header")
    return SignedToken(
        algorithm=algorithm,
        kid=kid,
        kind=None if kind is None else kind.lower().removeprefix("application/"),
        claims=claims,
        signed=f"{segments[0]}.{segments[1]}".encode(),
        signature=_decode(segments[2]),
    )


def check_claims(claims: Mapping[str, object], *, issuer: str, now: float, leeway_s: float) -> float:
    """Check the issuer and the validity; return when the token expires, leeway included. Raises TokenError."""
    if claims.get("iss") != issuer:
        raise TokenError("the token is from another issuer")
    expires_at = _read_time(claims, "exp")
    if expires_at is None:
        raise TokenError("the token has no expiry")
    if now >= expires_at + leeway_s:
        raise TokenError("the token has expired")
    for name in ("nbf", "iat"):
        begins_at = _read_time(claims, name)
        if begins_at is not None and now < begins_at - leeway_s:
            raise TokenError("the token is not valid yet")
    if claims.get("cnf") is not None:  # without checking it, a stolen token could be used (RFC 7800, section 3)
        raise TokenError("the token is bound to a key of its client, which is not supported")
    return expires_at + leeway_s


def read_expiry(token: str) -> float:
    """Return when an accepted token expires, in seconds since 1970 and without any leeway."""
    expires_at = _read_time(parse_token(token).claims, "exp")
    assert expires_at is not None, "a token without an expiry is not accepted"
    return expires_at


def find_claim(claims: Mapping[str, object], name: str) -> object:
    """Return a claim by its name, or by a path such as `realm_access.roles`; None if it is missing."""
    if name in claims:
        return claims[name]
    value: object = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def read_name(claims: Mapping[str, object], claim: str) -> str | None:
    """Return a claim that names a user or program; None if it has no printable text."""
    name = find_claim(claims, claim)
    is_name = isinstance(name, str) and 0 < len(name) <= _MAX_NAME and name.isprintable() and name == name.strip()
    return name if isinstance(name, str) and is_name else None


def read_texts(value: object) -> tuple[str, ...]:
    """Return the texts of a claim that is a text or a list; other values are ignored."""
    if isinstance(value, str):
        return (value,)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def pair_claims(claims: Mapping[str, object]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the text claims, sorted by name, so that equal claims give equal pairs.

    A nested claim is named by its path, such as `realm_access.roles`. If there are too many, nested ones are dropped
    first.
    """
    about_user = {name: value for name, value in claims.items() if name not in _OF_ONE_TOKEN}
    outer = sorted(name for name, value in about_user.items() if isinstance(value, str | list))
    inner = sorted(
        f"{outer_name}.{name}"
        for outer_name, value in about_user.items()
        if isinstance(value, Mapping)
        for name, each in value.items()
        if isinstance(each, str | list)
    )
    names = list(dict.fromkeys((*outer, *inner)))[:_MAX_CLAIMS]
    return tuple((name, read_texts(find_claim(about_user, name))[:_MAX_TEXTS]) for name in sorted(names))


def _decode(segment: str) -> bytes:
    """Decode base64url. Raises TokenError, also for a second spelling of the same bytes."""
    padded = segment.translate(_TO_STANDARD) + "=" * (-len(segment) % 4)
    try:
        content = binascii.a2b_base64(padded, strict_mode=True)
    except binascii.Error:
        raise TokenError("the token is not a signed token") from None
    if binascii.b2a_base64(content, newline=False) != padded.encode():
        raise TokenError("the token is not a signed token")
    return content


def _parse_object(content: bytes) -> dict[str, object]:
    try:
        value = strict_json.loads(content.decode())
    except ValueError:
        raise TokenError("the token has invalid JSON objects or duplicate names") from None
    if not isinstance(value, dict):
        raise TokenError("the token has invalid JSON objects or duplicate names")
    return value


def _read_time(claims: Mapping[str, object], name: str) -> float | None:
    """Return a time in seconds since 1970; None if there is none. Raises TokenError."""
    value = claims.get(name)
    if value is None:
        return None
    try:
        seconds = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise TokenError(f"the `{name}` of the token is not a time")
    return seconds
