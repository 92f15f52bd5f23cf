"""JSON documents of an authorization server that the config names: bounded in size and time, without redirects.

Imports httpx2: load this in a thread, and only when a server must be asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx2

from dynamic_mcp.system.text import replace_unprintable
from dynamic_mcp.web.address_policy import AddressPolicy, ForbiddenUrl
from dynamic_mcp.web.guarded_client import TIMEOUT_S, create_client, explain

Document = dict[str, object]


class DocumentError(Exception):
    """A server has sent no document; the message begins with the URL. `is_missing` if it has none there."""

    def __init__(self, url: str, why: str, *, is_missing: bool = False) -> None:
        super().__init__(f"`{replace_unprintable(url[:200])}` {why}")
        self.is_missing = is_missing


class Documents:
    """The documents of one server, and of those that it leads to."""

    def __init__(self, web: httpx2.AsyncClient) -> None:
        self._web = web

    async def fetch(self, url: str, headers: Mapping[str, str] | None = None) -> Document:
        """Return the JSON object at a URL. Raises DocumentError."""
        answer = await self._send("GET", url, headers, None)
        if answer.status_code != 200:
            is_missing = 400 <= answer.status_code < 500 and answer.status_code != 429
            raise DocumentError(url, f"answered with HTTP {answer.status_code}", is_missing=is_missing)
        return _parse(url, answer)

    async def post(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> tuple[int, Document]:
        """Send a form; return the status and the JSON object of the answer. Raises DocumentError."""
        answer = await self._send("POST", url, headers, form)
        if answer.status_code >= 500 or 300 <= answer.status_code < 400:
            raise DocumentError(url, f"answered with HTTP {answer.status_code}")
        return answer.status_code, _parse(url, answer)

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str] | None, form: Mapping[str, str] | None
    ) -> httpx2.Response:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._web.request(
                    method, url, data=form, headers={"Accept": "application/json", **(headers or {})}
                )
        except (ForbiddenUrl, httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ValueError) as exc:
            raise DocumentError(url, explain(exc)) from exc


@asynccontextmanager
async def open_documents(server_url: str) -> AsyncIterator[Documents]:
    """Connect to a server, which leads into no network that it is not itself in."""
    # the certificates of all authorities are read for each client, while others are served
    async with await asyncio.to_thread(create_client, AddressPolicy(server_url)) as web:
        yield Documents(web)


def _parse(url: str, answer: httpx2.Response) -> Document:
    try:
        document = json.loads(answer.content)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise DocumentError(url, "did not answer with a JSON object")
    return document
