"""Client ID metadata documents: a client whose id is the URL of a document that says what it is.

draft-ietf-oauth-client-id-metadata-document; MCP 2026-07-28, authorization. Anybody can make us fetch one, so a fetch
is bounded, follows no redirects, and goes to no network that we are not in ourselves (`web/address_policy.py`), nor
to this machine.
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
from dynamic_mcp.features.login_server.database import Database
from dynamic_mcp.system.bounded import BoundedDict
from dynamic_mcp.web.address_policy import AddressPolicy, Resolver

log = logging.getLogger(__name__)

_MAX_URL_CHARS = 500
_MAX_DOCUMENT_BYTES = 32 << 10
_MAX_AT_ONCE = 8
_URL = re.compile(r"https://[a-zA-Z0-9.\-:\[\]]+/[!$%&'()*+,\-./0-9:;=@A-Z_a-z~?]+", re.ASCII)
# How long a document is kept: as its headers say, within these bounds, and without such headers the default.
_LEAST_S, _DEFAULT_S, _MOST_S = 60.0, 3600.0, 24 * 3600.0
# How long it counts that there was no good document.
_FAILED_S = 30.0


class FetchedDocument(Struct, frozen=True):
    """What was fetched."""

    status: int
    headers: Mapping[str, str]
    body: bytes


# Fetches a URL, as it is allowed to. Raises FetchError.
Fetch = Callable[[str], Awaitable[FetchedDocument]]


class FetchError(Exception):
    """A document that could not be fetched; the message is the rest of a sentence that begins with the URL."""


def is_document_url(client_id: str) -> bool:
    """Tell whether a client id is the URL of a document, which has a path that nothing has to resolve."""
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
    """The documents of clients, each fetched once at a time."""

    def __init__(self, database: Database, fetch: Fetch, now: Callable[[], float]) -> None:
        self._database = database
        self._fetch = fetch
        self._now = now
        self._places = asyncio.Semaphore(_MAX_AT_ONCE)
        self._fetching: dict[str, asyncio.Task[OAuthClient]] = {}
        self._failed: BoundedDict[str, tuple[float, ForbiddenClient]] = BoundedDict(store.MAX_DOCUMENTS)

    async def find_known(self, url: str) -> OAuthClient | None:
        """Return the client of a document that need not be fetched. Raises ForbiddenClient if it was no good."""
        failed = self._failed.get(url)
        if failed is not None and failed[0] > self._now():
            raise ForbiddenClient(failed[1].error, failed[1].why)
        return await self._database.run(lambda connection: store.find_document(connection, url, self._now()))

    async def fetch(self, url: str) -> OAuthClient:
        """Fetch a document, and return its client. Raises ForbiddenClient."""
        task = self._fetching.get(url)
        if task is None:
            task = self._fetching[url] = asyncio.create_task(self._fetch_one(url))
            task.add_done_callback(partial(self._forget, url))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Give up what is being fetched."""
        tasks = [*self._fetching.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, url: str, task: asyncio.Task[OAuthClient]) -> None:
        self._fetching.pop(url, None)
        if not task.cancelled():
            task.exception()  # whoever waited for it may have gone

    async def _fetch_one(self, url: str) -> OAuthClient:
        try:
            async with self._places:
                document = await self._fetch(url)
            client = _read(url, document)
        except FetchError as exc:
            log.info("the document of the client %s %s", ascii(url), exc)
            raise self._fail(url, f"the document of the client {exc}") from None
        except ForbiddenClient as exc:
            raise self._fail(url, exc.why) from None
        kept_s = lifetime_s(document.headers)
        if kept_s:
            now = self._now()
            await self._database.run(lambda connection: store.keep_document(connection, client, now + kept_s, now))
        return client

    def _fail(self, url: str, why: str) -> ForbiddenClient:
        error = ForbiddenClient("invalid_client", why)
        self._failed[url] = (self._now() + _FAILED_S, error)
        return error


def _read(url: str, document: FetchedDocument) -> OAuthClient:
    """Return the client that a document is about. Raises ForbiddenClient and FetchError."""
    if document.status != 200:
        raise FetchError(f"was answered with the status {document.status}")
    if len(document.body) > _MAX_DOCUMENT_BYTES:
        raise FetchError(f"has more than {_MAX_DOCUMENT_BYTES >> 10} KiB")
    kind = document.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise FetchError("is not JSON")
    metadata = read_metadata(document.body)
    if metadata.client_id != url:
        raise ForbiddenClient("invalid_client", "the document of the client has another `client_id` than its URL")
    if metadata.client_secret is not None:
        raise ForbiddenClient("invalid_client", "the document of the client has a secret, which is none any more")
    return make_client(url, metadata, has_document=True)


def lifetime_s(headers: Mapping[str, str]) -> float:
    """Return how long a document may be kept (RFC 9111, section 5.2.2); 0 is not at all."""
    parts = [each.strip().lower() for each in headers.get("cache-control", "").split(",")]
    if "no-store" in parts or "no-cache" in parts:
        return 0.0
    for part in parts:
        name, _, value = part.partition("=")
        if name == "max-age" and value.isdecimal() and len(value) < 12:
            return min(max(float(value), _LEAST_S), _MOST_S) if int(value) else 0.0
    return _DEFAULT_S


def guarded_fetch(public_url: str, resolver: Resolver | None = None, *, may_be_local: bool = False) -> Fetch:
    """Return what fetches documents for the server that is at this URL.

    `may_be_local` lets a server on this machine fetch them from there and from private networks too.
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
