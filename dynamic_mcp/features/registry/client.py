"""One registry over HTTP, with the API v0.1: bounded in size and time, and answered from the cache when offline.

https://github.com/modelcontextprotocol/registry/blob/main/docs/reference/api/generic-registry-api.md
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from urllib.parse import quote, urlencode, urlsplit

import httpx2
import msgspec
from msgspec import Struct

from dynamic_mcp import __version__
from dynamic_mcp.errors import NotSent, RegistryError
from dynamic_mcp.features.registry.cache import AnswerCache, CachedAnswer
from dynamic_mcp.features.registry.config import Registry
from dynamic_mcp.features.registry.document import FlawedDocument, ServerDocument, read_answer
from dynamic_mcp.system.request_errors import REQUEST_ERRORS
from dynamic_mcp.upstream.connections import create_pool, request_url
from dynamic_mcp.upstream.http_errors import network_error
from dynamic_mcp.upstream.small_answer import UnusableAnswer, fetch

MAX_BYTES = 5 << 20
MOST_PAGES = 5
PAGE_SIZE = 100
TIMEOUT_S = 15.0
LATEST = "latest"
# RFC 9110, section 8.8.3, without obs-text: a stored ETag is sent back, which needs ASCII.
_ETAG = re.compile(r'(W/)?"[!#-~]{0,500}"')
_OK, _NOT_MODIFIED, _NOT_FOUND = 200, 304, (404, 410)
_DENIED = (401, 403)


class Answer(Struct, frozen=True):
    """A registry's answer; `age_s` is its age if the registry could not be reached, for a `reason`."""

    value: object
    age_s: float | None = None
    reason: str = ""


class ServerListing(Struct, frozen=True):
    """Servers in the registry's order, whether there are more, and the number of invalid entries."""

    documents: tuple[ServerDocument, ...]
    is_cut: bool = False
    skipped: int = 0


class RegistryClient:
    """Queries one registry; use it as a context. `stale` lists its answers from the cache."""

    def __init__(self, registry: Registry, cache: AnswerCache, *, timeout_s: float = TIMEOUT_S) -> None:
        self.name = registry.name
        self.stale: Answer | None = None
        self._registry = registry
        self._cache = cache
        self._timeout_s = timeout_s
        try:
            self._pool = create_pool(registry.url)
            self._base = request_url(registry.url)
        except (OSError, ValueError, ImportError, httpx2.InvalidURL) as exc:
            raise RegistryError(self.name, f"it cannot be asked with the current settings: {exc}") from exc

    async def __aenter__(self) -> RegistryClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.aclose()

    async def search(self, word: str, *, most_pages: int = MOST_PAGES) -> ServerListing:
        """Return the newest versions of the servers with a word in their names. Raises RegistryError."""
        return await self._list("/servers", {"search": word, "version": LATEST}, most_pages)

    async def versions(self, name: str) -> ServerListing:
        """Return all versions of a server, none if it is unknown. Raises RegistryError."""
        return await self._list(f"/servers/{quote(name, safe='')}/versions", {"include_deleted": "true"}, MOST_PAGES)

    async def get(self, name: str, version: str = LATEST) -> ServerDocument | None:
        """Return a version of a server, None if there is none. Raises RegistryError."""
        answer = await self._ask(f"/servers/{quote(name, safe='')}/versions/{quote(version, safe='')}", {})
        if answer is None:
            return None
        try:
            document = read_answer(answer.value)
        except FlawedDocument as exc:
            raise RegistryError(self.name, f"it describes `{name}` wrongly: {exc}") from exc
        if document.name != name or version not in (LATEST, document.version):
            raise RegistryError(self.name, f"it answered with another server than `{name}`, or another version")
        return document

    async def _list(self, path: str, query: Mapping[str, str], most_pages: int) -> ServerListing:
        documents: dict[tuple[str, str], ServerDocument] = {}
        skipped, cursor, cursors = 0, "", set[str]()
        for _ in range(most_pages):
            page = {**query, "limit": str(PAGE_SIZE)} | ({"cursor": cursor} if cursor else {})
            answer = await self._ask(path, page)
            if answer is None:
                break
            entries, cursor = self._read_page(answer.value)
            for entry in entries:
                try:
                    document = read_answer(entry)
                except FlawedDocument:
                    skipped += 1
                else:
                    documents.setdefault((document.name, document.version), document)
            if not cursor or cursor in cursors:
                return ServerListing(tuple(documents.values()), skipped=skipped)
            cursors.add(cursor)
        return ServerListing(tuple(documents.values()), is_cut=bool(cursor), skipped=skipped)

    def _read_page(self, value: object) -> tuple[list[object], str]:
        servers = value.get("servers") if isinstance(value, dict) else None
        if servers is None and isinstance(value, dict):
            servers = []
        if not isinstance(value, dict) or not isinstance(servers, list):
            raise RegistryError(self.name, "it answered with something else than a list of servers")
        metadata = value.get("metadata")
        cursor = metadata.get("nextCursor", metadata.get("next_cursor")) if isinstance(metadata, dict) else None
        return servers[:PAGE_SIZE], cursor if isinstance(cursor, str) and len(cursor) <= 2000 else ""

    async def _ask(self, path: str, query: Mapping[str, str]) -> Answer | None:
        """Return an answer, from the cache if the registry cannot be reached; None if not found."""
        url = f"{str(self._base).rstrip('/')}/v0.1{path}" + (f"?{urlencode(query)}" if query else "")
        cached = self._cache.load(url, self._registry.headers)
        try:
            body = await self._fetch(url, cached)
        except _Unavailable as exc:
            if cached is None:
                raise RegistryError(self.name, exc.reason, hint=exc.hint) from exc
            self.stale = Answer(self._decode(cached.body), self._cache.age_s(cached), exc.reason)
            return self.stale
        return None if body is None else Answer(self._decode(body))

    async def _fetch(self, url: str, cached: CachedAnswer | None) -> str | None:
        """Return the body of an answer, None if not found. Raises _Unavailable and RegistryError."""
        headers = {
            "accept": "application/json",
            "user-agent": f"dynamic-mcp/{__version__}",
            **self._registry.headers,
        }
        if cached is not None and _ETAG.fullmatch(cached.etag):
            headers["if-none-match"] = cached.etag
        try:
            async with asyncio.timeout(self._timeout_s):
                status, etag, body = await self._exchange(url, headers)
        except TimeoutError as exc:
            raise _Unavailable(f"it did not answer within {self._timeout_s:g} s") from exc
        except REQUEST_ERRORS as exc:
            raise self._network_error(exc) from exc
        if status == _NOT_MODIFIED and cached is not None:
            body, etag = cached.body.encode(), cached.etag
        elif status in _NOT_FOUND:
            return None
        elif status != _OK:
            raise self._status_error(status)
        text = self._to_text(body)
        self._cache.store(url, self._registry.headers, text, etag)
        return text

    async def _exchange(self, url: str, headers: Mapping[str, str]) -> tuple[int, str, bytes]:
        try:
            answer = await fetch(self._pool, url, headers, most_bytes=MAX_BYTES, timeout_s=self._timeout_s)
        except UnusableAnswer as exc:
            raise RegistryError(self.name, f"its answer cannot be used: {exc}") from exc
        etag = answer.headers.get("etag", "")
        return answer.status, etag if _ETAG.fullmatch(etag) else "", answer.body

    def _to_text(self, body: bytes) -> str:
        try:
            text = body.decode()
        except UnicodeDecodeError as exc:
            raise RegistryError(self.name, "it answered with something else than JSON") from exc
        self._decode(text)
        return text

    def _decode(self, text: str) -> object:
        try:
            value: object = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as exc:
            hint = "is it a registry of MCP servers? its URL goes without `/v0.1`"
            raise RegistryError(self.name, "it answered with something else than JSON", hint=hint) from exc
        return value

    def _network_error(self, exc: Exception) -> _Unavailable:
        error = network_error(self.name, urlsplit(self._registry.url).hostname or self._registry.url, exc)
        return _Unavailable(error.reason, error.hint if isinstance(error, NotSent) else "")

    def _status_error(self, status: int) -> Exception:
        if status in _DENIED:
            hint = "check its `headers` in `settings.registries`"
            return RegistryError(self.name, f"it refuses access (status {status})", hint=hint)
        if status >= 500 or status == 429:
            return _Unavailable(f"it answers with status {status}", "try again later")
        if 300 <= status < 400:
            return RegistryError(
                self.name,
                f"it redirects (status {status}), which is not followed",
                hint="use the URL that it has now",
            )
        return RegistryError(self.name, f"it answers with status {status}")


class _Unavailable(Exception):
    """The registry is temporarily unavailable."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
