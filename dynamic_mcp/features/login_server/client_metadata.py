"""Client ID metadata documents: clients whose id is the URL of a document that describes them.

draft-ietf-oauth-client-id-metadata-document; MCP 2026-07-28, authorization. Any client can make us fetch one, so a
fetch is bounded, follows no redirects, and reaches no network that we are not in (`web/address_policy.py`), nor this
machine.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib import import_module
from urllib.parse import urlsplit

from msgspec import Struct

from dynamic_mcp.features.login_server import store
from dynamic_mcp.features.login_server.clients import ForbiddenClient, OAuthClient, make_client, read_metadata
from dynamic_mcp.features.login_server.state import LoginState
from dynamic_mcp.system.bounded import BoundedDict
from dynamic_mcp.web.address_policy import AddressPolicy, Resolver

log = logging.getLogger(__name__)

_MAX_URL_CHARS = 500
_MAX_DOCUMENT_BYTES = 32 << 10
_MAX_AT_ONCE = 8
_URL = re.compile(r"https://[a-zA-Z0-9.\-:\[\]]+/[!$%&'()*+,\-./0-9:;=@A-Z_a-z~?]+", re.ASCII)
# How long a document is cached: as its headers say, within these bounds, else the default.
_LEAST_S, _DEFAULT_S, _MOST_S = 60.0, 3600.0, 24 * 3600.0
# How long a failed fetch is cached.
_FAILED_S = 30.0


class FetchedDocument(Struct, frozen=True):
    """The response to a fetch."""

    status: int
    headers: Mapping[str, str]
    body: bytes


# Fetches an allowed URL. Raises FetchError.
Fetch = Callable[[str], Awaitable[FetchedDocument]]


class FetchError(Exception):
    """Raised if a document could not be fetched; the message continues a sentence that starts with the URL."""


def is_document_url(client_id: str) -> bool:
    """Return whether a client id is the URL of a document, with a normalised path."""
    if len(client_id) > _MAX_URL_CHARS or _URL.fullmatch(client_id) is None:
        return False
    try:
        parts = urlsplit(client_id)
        _ = parts.port
    except ValueError:
        return False
    segments = parts.path.lower().replace("%2e", ".").split("/")
    return bool(parts.hostname) and "@" not in parts.netloc and not {".", ".."} & set(segments)


class ClientDocuments:
    """The documents of clients. Concurrent requests for a document share one fetch."""

    def __init__(self, state: LoginState, fetch: Fetch, now: Callable[[], float]) -> None:
        self._state = state
        self._fetch = fetch
        self._now = now
        self._slots = asyncio.Semaphore(_MAX_AT_ONCE)
        self._fetching: dict[str, asyncio.Task[OAuthClient]] = {}
        self._failed: BoundedDict[str, tuple[float, ForbiddenClient]] = BoundedDict(store.MAX_DOCUMENTS)

    async def find_known(self, url: str) -> OAuthClient | None:
        """Return the client of a cached document. Raises ForbiddenClient if the last fetch failed."""
        failed = self._failed.get(url)
        if failed is not None and failed[0] > self._now():
            raise ForbiddenClient(failed[1].error, failed[1].why)
        return await self._state.find_document(url, self._now())

    async def fetch(self, url: str) -> OAuthClient:
        """Fetch a document, and return its client. Raises ForbiddenClient."""
        task = self._fetching.get(url)
        if task is None:
            task = self._fetching[url] = asyncio.create_task(self._fetch_one(url))
            task.add_done_callback(partial(self._forget, url))
        return await asyncio.shield(task)

    async def close(self) -> None:
        tasks = [*self._fetching.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, url: str, task: asyncio.Task[OAuthClient]) -> None:
        self._fetching.pop(url, None)
        if not task.cancelled():
            task.exception()  # retrieve it: the waiting request may have been cancelled

    async def _fetch_one(self, url: str) -> OAuthClient:
        try:
            async with self._slots:
                document = await self._fetch(url)
            client = _read(url, document)
        except FetchError as exc:
            log.info("the document of the client %s %s", ascii(url), exc)
            raise self._fail(url, f"the document of the client {exc}") from None
        except ForbiddenClient as exc:
            raise self._fail(url, exc.why) from None
        kept_s = lifetime_s(document.headers)
        if kept_s:
            await self._state.keep_document(client, kept_s, self._now())
        return client

    def _fail(self, url: str, why: str) -> ForbiddenClient:
        error = ForbiddenClient("invalid_client", why)
        self._failed[url] = (self._now() + _FAILED_S, error)
        return error


def _read(url: str, document: FetchedDocument) -> OAuthClient:
    """Return the client that a document describes. Raises ForbiddenClient and FetchError."""
    if document.status != 200:
        raise FetchError(f"was answered with the status {document.status}")
    if len(document.body) > _MAX_DOCUMENT_BYTES:
        raise FetchError(f"has more than {_MAX_DOCUMENT_BYTES >> 10} KiB")
    kind = document.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise FetchError("is not JSON")
    metadata = read_metadata(document.body)
    if metadata.client_id != url:
        raise ForbiddenClient("invalid_client", "the document of the client has a `client_id` that is not its URL")
    if metadata.client_secret is not None:
        raise ForbiddenClient("invalid_client", "the document of the client has a secret, which is public there")
    return make_client(url, metadata, has_document=True)


def lifetime_s(headers: Mapping[str, str]) -> float:
    """Return how long a document may be cached (RFC 9111, section 5.2.2); 0 means not at all."""
    parts = [each.strip().lower() for each in headers.get("cache-control", "").split(",")]
    if "no-store" in parts or "no-cache" in parts:
        return 0.0
    for part in parts:
        name, _, value = part.partition("=")
        if name == "max-age" and value.isdecimal() and len(value) < 12:
            return min(max(float(value), _LEAST_S), _MOST_S) if int(value) else 0.0
    return _DEFAULT_S


def guarded_fetch(public_url: str, resolver: Resolver | None = None, *, may_be_local: bool = False) -> Fetch:
    """Return the function that fetches documents for the server at this URL.

    With `may_be_local`, a server on this machine may fetch them from this machine and from private networks.
    """

    async def fetch(url: str) -> FetchedDocument:
        web = await asyncio.to_thread(import_module, "dynamic_mcp.web.guarded_client")
        policy = AddressPolicy(public_url, resolver, may_be_local=may_be_local)
        try:
            async with asyncio.timeout(web.TIMEOUT_S), web.create_client(policy) as client:
                response = await client.get(url, headers={"Accept": "application/json"})
                return FetchedDocument(response.status_code, dict(response.headers), response.content)
        except Exception as exc:
            raise FetchError(web.explain(exc)) from exc

    return fetch
