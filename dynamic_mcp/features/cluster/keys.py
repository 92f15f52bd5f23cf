"""The keys of a cluster, one for each purpose, derived from those that its replicas share."""

from __future__ import annotations

import hmac
from collections.abc import Sequence


def derive(keys: Sequence[str], purpose: bytes) -> tuple[bytes, ...]:
    """Return a key for this purpose of each shared one; the first signs, all verify."""
    return tuple(hmac.digest(key.encode(), purpose, "sha256") for key in keys)
