"""HTTP as a login uses it: checked addresses, no redirects, and bounds on size and time.

Only imported when there is something to ask of an authorization server.
"""

from __future__ import annotations

import urllib.request
from collections.abc import AsyncIterator

import httpx2

from dynamic_mcp.oauth.reach import Forbidden, Reach, is_address, parts

MAX_BYTES = 1 << 20
TIMEOUT_S = 15.0


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends a request only where the server may send us, to the very address that was looked at."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._direct = httpx2.AsyncHTTPTransport()
        self._proxies: dict[str, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises Forbidden and httpx2.HTTPError."""
        url = str(request.url)
        self._reach.check(url)
        # what is decoded must be what is counted
        request.headers["Accept-Encoding"] = "identity"
        proxy = None if is_address(url) else _proxy_for(url)
        if proxy is not None:  # it looks the name up, and decides what may be reached through it
            response = await self._through(proxy).handle_async_request(request)
        else:
            response = await self._to_one_of(await self._addresses(request), request)
        return _bounded(response)

    async def aclose(self) -> None:
        """Close the connections."""
        for transport in (self._direct, *self._proxies.values()):
            await transport.aclose()

    async def _addresses(self, request: httpx2.Request) -> list[str]:
        try:
            return await self._reach.addresses(str(request.url))
        except TimeoutError as exc:
            raise httpx2.ConnectTimeout("its name was not resolved in time", request=request) from exc
        except OSError as exc:
            raise httpx2.ConnectError(exc.strerror or str(exc), request=request) from exc

    async def _to_one_of(self, addresses: list[str], request: httpx2.Request) -> httpx2.Response:
        host = request.url.host
        error: httpx2.ConnectError | None = None
        for address in addresses:
            pinned = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,  # with the Host that was asked for
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                return await self._direct.handle_async_request(pinned)
            except httpx2.ConnectError as exc:
                error = exc
        raise error or httpx2.ConnectError("it has no address", request=request)

    def _through(self, proxy: str) -> httpx2.AsyncHTTPTransport:
        if proxy not in self._proxies:
            self._proxies[proxy] = httpx2.AsyncHTTPTransport(proxy=proxy)
        return self._proxies[proxy]


def web(reach: Reach) -> httpx2.AsyncClient:
    """Return a client for one login; use it as a context."""
    return httpx2.AsyncClient(transport=GuardedTransport(reach), timeout=TIMEOUT_S, follow_redirects=False)


def explained(exc: Exception) -> str:
    """Say in a few words why a request came to nothing, in words that follow the place."""
    match exc:
        case Forbidden():
            return str(exc)
        case TimeoutError() | httpx2.TimeoutException():
            return "did not answer in time"
        case TooLarge():
            return f"answered with more than {MAX_BYTES >> 20} MiB"
        case httpx2.HTTPError() if text := str(exc):
            return f"could not be reached: {text[:200]}"
        case _:
            return f"could not be reached: {type(exc).__name__}"


class TooLarge(httpx2.HTTPError):
    """An answer over the bound."""

    def __init__(self) -> None:
        super().__init__("the answer is too large")


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MAX_BYTES
        async for chunk in self._stream:
            left -= len(chunk)
            if left < 0:
                raise TooLarge
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def _bounded(response: httpx2.Response) -> httpx2.Response:
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    headers = [(name, value) for name, value in response.headers.raw if name.lower() != b"content-encoding"]
    return httpx2.Response(response.status_code, headers=headers, stream=_Bounded(response.stream))


def _proxy_for(url: str) -> str | None:
    """Return the proxy that the environment, or the system, names for a URL."""
    scheme, host, _ = parts(url)
    proxies = urllib.request.getproxies()
    if urllib.request.proxy_bypass(host):
        return None
    return proxies.get(scheme) or proxies.get("all")
