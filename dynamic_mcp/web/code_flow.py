"""Proof key for code exchange (RFC 7636), for what does without the library that logs in to servers."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256


def challenge_of(verifier: str) -> str:
    """Return the challenge `S256` to a verifier (section 4.2)."""
    return urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
