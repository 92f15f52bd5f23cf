"""JSON documents of authorization servers, with limits on size and time, and without redirects.

Imports httpx2: load this in a thread, and only when a server is contacted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx2

from dynamic_mcp.system.request_errors import REQUEST_ERRORS
from dynamic_mcp.system.text import replace_unprintable
from dynamic_mcp.web.address_policy import AddressPolicy, ForbiddenUrl
from dynamic_mcp.web.guarded_client import TIMEOUT_S, create_client, explain

Document = dict[str, object]


class DocumentError(Exception):
    """Raised if no document could be fetched; the message is the URL and `why`.

    `is_missing`: the server has no document at this URL, so another URL may have it.
    """

    def __init__(self, url: str, why: str, *, is_missing: bool = False) -> None:
        super().__init__(f"`{replace_unprintable(url[:200])}` {why}")
        self.why = why
        self.is_missing = is_missing


class Documents:
    """The documents of one server, and of servers that it refers to."""

    def __init__(self, web: httpx2.AsyncClient) -> None:
        self._web = web

    async def fetch(self, url: str, headers: Mapping[str, str] | None = None) -> Document:
        """Return the JSON object at a URL. Raises DocumentError."""
        response = await self._send("GET", url, headers or {})
        if response.status_code >= 500 or response.status_code == 429:
            raise DocumentError(url, f"answered with HTTP {response.status_code}; retry later")
        if response.status_code != 200:
            raise DocumentError(url, f"answered with HTTP {response.status_code}", is_missing=True)
        document = _parse(response)
        if document is None:
            raise DocumentError(url, "did not answer with a JSON object", is_missing=True)
        return document

    async def post(self, url: str, body: str, headers: Mapping[str, str]) -> tuple[int, Document | None]:
        """Send a body; return the status, and the JSON object of the response, if it is one.

        Raises DocumentError if there is no response.
        """
        response = await self._send("POST", url, headers, body)
        return response.status_code, _parse(response)

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: str | None = None
    ) -> httpx2.Response:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._web.request(
                    method, url, content=body, headers={"Accept": "application/json", **headers}
                )
        except (ForbiddenUrl, *REQUEST_ERRORS, TimeoutError, ValueError) as exc:
            raise DocumentError(url, explain(exc)) from exc


@asynccontextmanager
async def open_documents(policy: AddressPolicy) -> AsyncIterator[Documents]:
    """Connect to servers, as far as the policy allows."""
    # reads the certificates of all authorities
    async with await asyncio.to_thread(create_client, policy) as web:
        yield Documents(web)


def _parse(response: httpx2.Response) -> Document | None:
    try:
        document = json.loads(response.content)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
