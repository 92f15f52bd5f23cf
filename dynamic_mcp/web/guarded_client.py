"""The HTTP client for logins: checked addresses, no redirects, and limits on size and time.

Imported only when an authorization server is contacted.
"""

from __future__ import annotations

import socket
import ssl
import urllib.request
from collections.abc import AsyncIterator

import httpx2

from dynamic_mcp.system.exceptions import iter_causes
from dynamic_mcp.system.text import os_reason
from dynamic_mcp.web.address_policy import AddressPolicy, ForbiddenUrl, is_address, split_url

MAX_BYTES = 1 << 20
TIMEOUT_S = 15.0


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends requests only where the policy allows, to the same address that was checked."""

    def __init__(self, policy: AddressPolicy) -> None:
        self._policy = policy
        self._direct = httpx2.AsyncHTTPTransport()
        self._proxies: dict[str, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises ForbiddenUrl and httpx2.HTTPError."""
        url = str(request.url)
        self._policy.check(url)
        # the size limit must hold after decoding
        request.headers["Accept-Encoding"] = "identity"
        proxy = None if is_address(url) else _find_proxy(url)
        if proxy is not None:  # the proxy resolves the name, and decides what may be reached
            response = await self._proxy_transport(proxy).handle_async_request(request)
        else:
            response = await self._try_each(await self._resolve(request), request)
        return _limit_size(response)

    async def aclose(self) -> None:
        for transport in (self._direct, *self._proxies.values()):
            await transport.aclose()

    async def _resolve(self, request: httpx2.Request) -> list[str]:
        try:
            return await self._policy.resolve(str(request.url))
        except TimeoutError as exc:
            raise httpx2.ConnectTimeout("resolving its name timed out", request=request) from exc
        except OSError as exc:
            raise httpx2.ConnectError(os_reason(exc), request=request) from exc

    async def _try_each(self, addresses: list[str], request: httpx2.Request) -> httpx2.Response:
        host = request.url.host
        error: httpx2.ConnectError | None = None
        for address in addresses:
            pinned = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,  # with the original Host
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                return await self._direct.handle_async_request(pinned)
            except httpx2.ConnectError as exc:
                error = exc
        raise error or httpx2.ConnectError("its name has no address", request=request)

    def _proxy_transport(self, proxy: str) -> httpx2.AsyncHTTPTransport:
        if proxy not in self._proxies:
            self._proxies[proxy] = httpx2.AsyncHTTPTransport(proxy=proxy)
        return self._proxies[proxy]


def create_client(policy: AddressPolicy) -> httpx2.AsyncClient:
    """Return a client for one login; enter it as a context."""
    return httpx2.AsyncClient(transport=GuardedTransport(policy), timeout=TIMEOUT_S, follow_redirects=False)


def explain(exc: Exception) -> str:
    """Return why a request failed, as the rest of a sentence that starts with the URL."""
    match exc:
        case ForbiddenUrl():
            return str(exc)
        case TimeoutError() | httpx2.TimeoutException():
            return "did not answer in time"
        case TooLarge():
            return f"answered with more than {MAX_BYTES >> 20} MiB"
    for cause in iter_causes(exc):
        match cause:
            case socket.gaierror():
                return "could not be reached: its name cannot be resolved"
            case ConnectionRefusedError():
                return "refuses connections"
            case ssl.SSLCertVerificationError():
                return f"has a certificate that cannot be verified: {cause.verify_message}"
            case OSError(strerror=str(why)):
                return f"could not be reached: {why.lower()}"
    text = str(exc)[:200] if isinstance(exc, httpx2.HTTPError | httpx2.InvalidURL) else ""
    return f"could not be reached: {text or type(exc).__name__}"


class TooLarge(httpx2.HTTPError):
    """Raised for a response larger than `MAX_BYTES`."""

    def __init__(self) -> None:
        super().__init__("the answer is too large")


class _LimitedStream(httpx2.AsyncByteStream):
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


def _limit_size(response: httpx2.Response) -> httpx2.Response:
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    headers = [(name, value) for name, value in response.headers.raw if name.lower() != b"content-encoding"]
    return httpx2.Response(response.status_code, headers=headers, stream=_LimitedStream(response.stream))


def _find_proxy(url: str) -> str | None:
    """Return the proxy for a URL, from the environment or the system settings."""
    scheme, host, _ = split_url(url)
    proxies = urllib.request.getproxies()
    if urllib.request.proxy_bypass(host):
        return None
    return proxies.get(scheme) or proxies.get("all")
