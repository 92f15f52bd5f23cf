"""An answer that is read as a whole: bounded in size and time, uncompressed, and without redirects."""

from __future__ import annotations

from collections.abc import Mapping

import httpx2
from msgspec import Struct


class UnusableAnswer(Exception):
    """Raised for an answer that is too large or compressed; the message says which, of `it`."""


class SmallAnswer(Struct, frozen=True):
    """A status, the headers and the body."""

    status: int
    headers: httpx2.Headers
    body: bytes


async def fetch(
    pool: httpx2.AsyncHTTPTransport,
    url: str,
    headers: Mapping[str, str],
    *,
    most_bytes: int,
    timeout_s: float,
    method: str = "GET",
) -> SmallAnswer:
    """Return the answer to a request. Raises UnusableAnswer and REQUEST_ERRORS."""
    timeouts = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), timeout_s)}
    # without compression, the size limit bounds the memory
    request = httpx2.Request(method, url, headers={**headers, "accept-encoding": "identity"}, extensions=timeouts)
    response = await pool.handle_async_request(request)
    try:
        if "content-encoding" in response.headers:
            raise UnusableAnswer("it is compressed, for which nobody asked")
        body = bytearray()
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        async for chunk in response.stream:
            body += chunk
            if len(body) > most_bytes:
                raise UnusableAnswer(f"it has more than {most_bytes >> 20} MiB")
        return SmallAnswer(response.status_code, response.headers, bytes(body))
    finally:
        await response.aclose()
