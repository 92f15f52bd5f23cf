"""The public keys of one issuer, fetched when they are needed.

Concurrent callers share one fetch, and unknown key ids cause at most one fetch a minute.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING

from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.web.address_policy import AddressPolicy
from dynamic_mcp.web.metadata import MetadataError, fetch_metadata
from dynamic_mcp.web.signed_token import SignedToken

if TYPE_CHECKING:
    from dynamic_mcp.web.documents import Documents
    from dynamic_mcp.web.jwk import VerificationKey

log = logging.getLogger(__name__)

PAUSE_S = 60.0  # between two fetches, while there are keys
RETRY_S = 5.0  # between two fetches, while there are none
FRESH_S = 3600.0  # older keys are fetched again when they are used
FETCH_S = 20.0  # the time limit of a fetch
KEPT_S = 24 * 3600.0  # older keys are invalid
_MAX_TRIED = 8  # keys, for a token without a key id


class KeySetError(Exception):
    """Raised for an unusable key set."""


class KeysUnavailable(Exception):
    """Raised if the issuer's keys could not be fetched, and none are cached."""


class KeyDirectory:
    """The keys of an issuer. Without `jwks_url`, its metadata has the URL."""

    def __init__(
        self,
        issuer: str,
        jwks_url: str | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
        fetch_s: float = FETCH_S,
    ) -> None:
        self.issuer = issuer
        self._jwks_url = jwks_url
        self._now = now
        self._fetch_s = fetch_s
        self._keys: tuple[VerificationKey, ...] = ()
        self._fetched_at = self._tried_at = -KEPT_S
        self._fetch: asyncio.Task[None] | None = None
        self._tasks = TaskSet()

    def has_signed(self, token: SignedToken) -> bool | None:
        """Return whether one of the cached keys has signed a token; None if a new key may have.

        Starts to fetch the keys again if they are old.
        """
        keys = self._find(token.kid, token.algorithm)
        is_signed = any(key.has_signed(token.algorithm, token.signed, token.signature) for key in keys)
        return None if not is_signed and (token.kid is None or not keys) else is_signed

    async def verify(self, token: SignedToken) -> bool:
        """Return whether the issuer has signed a token; fetches its keys if needed. Raises KeysUnavailable."""
        is_signed = self.has_signed(token)
        if is_signed is None and self.may_fetch():
            await asyncio.shield(self._start_fetch())
            is_signed = self.has_signed(token)
        if is_signed is None and not self.has_keys():
            raise KeysUnavailable
        return is_signed is True

    def may_fetch(self) -> bool:
        """Return whether `verify` may fetch keys: a fetch is running, or the last one is long enough ago."""
        if self._fetch is not None:
            return True
        return self._now() - self._tried_at >= (PAUSE_S if self.has_keys() else RETRY_S)

    def has_keys(self) -> bool:
        """Return whether there are valid keys, so that a token signed by none of them is invalid."""
        return bool(self._keys) and self._now() - self._fetched_at < KEPT_S

    async def close(self) -> None:
        self._tasks.cancel_all()
        await self._tasks.wait()

    def _find(self, kid: str | None, algorithm: str) -> tuple[VerificationKey, ...]:
        if not self.has_keys():
            return ()
        fitting = (key for key in self._keys if algorithm in key.algorithms and (kid is None or key.kid == kid))
        keys = tuple(islice(fitting, _MAX_TRIED))
        if keys and self._now() - self._fetched_at >= FRESH_S and self.may_fetch():
            self._start_fetch()
        return keys

    def _start_fetch(self) -> asyncio.Task[None]:
        if self._fetch is None:
            self._fetch = self._tasks.create(self._replace_keys(), name=f"keys of {self.issuer}")
        return self._fetch

    async def _replace_keys(self) -> None:
        self._tried_at = self._now()
        try:
            async with asyncio.timeout(self._fetch_s):
                self._keys = await fetch_keys(self.issuer, self._jwks_url)
            self._fetched_at = self._now()
            log.debug("issuer %s has %d keys", self.issuer, len(self._keys))
        except (KeySetError, TimeoutError) as exc:
            why = str(exc) or "timed out"
            log.warning("could not fetch the keys of the issuer %s: %s", self.issuer, why)
        finally:
            self._fetch = None


async def fetch_keys(issuer: str, jwks_url: str | None) -> tuple[VerificationKey, ...]:
    """Return the keys of an issuer. Raises KeySetError."""
    documents = await asyncio.to_thread(import_module, "dynamic_mcp.web.documents")
    jwk = await asyncio.to_thread(import_module, "dynamic_mcp.web.jwk")
    try:
        async with documents.open_documents(AddressPolicy(jwks_url or issuer)) as server:
            document = await server.fetch(jwks_url or await _find_key_set(server, issuer))
    except (documents.DocumentError, MetadataError) as exc:
        raise KeySetError(str(exc)) from exc
    try:
        keys: tuple[VerificationKey, ...] = await asyncio.to_thread(jwk.import_keys, document)
    except ValueError as exc:
        raise KeySetError(f"the key set of `{issuer}` {exc}") from exc
    return keys


async def _find_key_set(server: Documents, issuer: str) -> str:
    """Return the URL of the keys in an issuer's metadata. Raises MetadataError and DocumentError."""
    url = (await fetch_metadata(server, issuer)).get("jwks_uri")
    if not isinstance(url, str):
        raise MetadataError(f"the metadata of `{issuer}` has no `jwks_uri`")
    return url
