"""The public keys of one issuer, fetched when they are needed.

All who wait share one question, and who sends unknown keys' names causes no more than one a minute.
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
    from dynamic_mcp.web.jwk import PublicKey

log = logging.getLogger(__name__)

PAUSE_S = 60.0  # between two questions, while there are keys
RETRY_S = 5.0  # between two questions, while there are none
FRESH_S = 3600.0  # after this, keys are fetched again with their next use
FETCH_S = 20.0  # as long as those who wait may have to
KEPT_S = 24 * 3600.0  # as long as keys count that could not be fetched again
_MAX_TRIED = 8  # keys, for a token that names none


class KeySetError(Exception):
    """A key set that cannot be used."""


class KeysUnavailable(Exception):
    """The issuer's keys could not be fetched, and there are none from before."""


class KeyDirectory:
    """The keys of an issuer. `jwks_url` None is where its metadata says."""

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
        self._keys: tuple[PublicKey, ...] = ()
        self._fetched_at = self._asked_at = -KEPT_S
        self._question: asyncio.Task[None] | None = None
        self._tasks = TaskSet()

    def has_signed(self, token: SignedToken) -> bool | None:
        """Tell whether one of the known keys has signed a token; None if a key may have that is not known yet.

        Starts to fetch the keys again if they are old.
        """
        keys = self._find(token.kid, token.algorithm)
        is_signed = any(key.has_signed(token.algorithm, token.signed, token.signature) for key in keys)
        return None if not is_signed and (token.kid is None or not keys) else is_signed

    async def verify(self, token: SignedToken) -> bool:
        """Tell whether the issuer has signed a token; fetches its keys if need be. Raises KeysUnavailable."""
        verdict = self.has_signed(token)
        if verdict is None and self.may_ask():
            await asyncio.shield(self._ask())
            verdict = self.has_signed(token)
        if verdict is None and not self.has_keys():
            raise KeysUnavailable
        return verdict is True

    def may_ask(self) -> bool:
        """Tell whether `verify` may ask the issuer: somebody asks already, or nobody has asked of late."""
        if self._question is not None:
            return True
        return self._now() - self._asked_at >= (PAUSE_S if self.has_keys() else RETRY_S)

    def has_keys(self) -> bool:
        """Tell whether there are keys that count, so that a token which none of them has signed is wrong."""
        return bool(self._keys) and self._now() - self._fetched_at < KEPT_S

    async def close(self) -> None:
        """Ask nothing more."""
        self._tasks.cancel_all()
        await self._tasks.wait()

    def _find(self, kid: str | None, algorithm: str) -> tuple[PublicKey, ...]:
        if not self.has_keys():
            return ()
        fitting = (key for key in self._keys if algorithm in key.algorithms and (kid is None or key.kid == kid))
        found = tuple(islice(fitting, _MAX_TRIED))
        if found and self._now() - self._fetched_at >= FRESH_S and self.may_ask():
            self._ask()
        return found

    def _ask(self) -> asyncio.Task[None]:
        if self._question is None:
            self._question = self._tasks.create(self._replace_keys(), name=f"keys of {self.issuer}")
        return self._question

    async def _replace_keys(self) -> None:
        self._asked_at = self._now()
        try:
            async with asyncio.timeout(self._fetch_s):
                self._keys = await fetch_keys(self.issuer, self._jwks_url)
            self._fetched_at = self._now()
            log.debug("issuer %s has %d keys", self.issuer, len(self._keys))
        except (KeySetError, TimeoutError) as exc:
            why = str(exc) or "it did not answer in time"
            log.warning("the keys of the issuer %s could not be fetched: %s", self.issuer, why)
        finally:
            self._question = None


async def fetch_keys(issuer: str, jwks_url: str | None) -> tuple[PublicKey, ...]:
    """Return the keys of an issuer. Raises KeySetError."""
    documents = await asyncio.to_thread(import_module, "dynamic_mcp.web.documents")
    jwk = await asyncio.to_thread(import_module, "dynamic_mcp.web.jwk")
    try:
        async with documents.open_documents(AddressPolicy(jwks_url or issuer)) as server:
            document = await server.fetch(jwks_url or await _find_key_set(server, issuer))
    except (documents.DocumentError, MetadataError) as exc:
        raise KeySetError(str(exc)) from exc
    try:
        keys: tuple[PublicKey, ...] = await asyncio.to_thread(jwk.import_keys, document)
    except ValueError as exc:
        raise KeySetError(f"the key set of `{issuer}` {exc}") from exc
    return keys


async def _find_key_set(server: Documents, issuer: str) -> str:
    """Return where the metadata of an issuer says that its keys are. Raises MetadataError and DocumentError."""
    url = (await fetch_metadata(server, issuer)).get("jwks_uri")
    if not isinstance(url, str):
        raise MetadataError(f"the metadata of `{issuer}` has no `jwks_uri`")
    return url
