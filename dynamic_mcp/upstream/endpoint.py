"""One remote server as HTTP sees it: requests with its credentials, sent again where the server says so, in bounds.

Redirects are followed within the origin alone, so what is sent never leaves it.
"""

from __future__ import annotations

import asyncio
import random
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from urllib.parse import unquote, urlsplit

import httpx2

from dynamic_mcp import __version__
from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.errors import HttpError, ProtocolViolation, Unreachable
from dynamic_mcp.oauth.authorization import Authorization, Challenge
from dynamic_mcp.system.clock import delays
from dynamic_mcp.upstream import faults
from dynamic_mcp.upstream.connections import address, connections_to
from dynamic_mcp.upstream.mask import mask_of, mask_secrets

Headers = tuple[tuple[bytes, bytes], ...]

MAX_REDIRECTS = 3
MAX_CHALLENGES = 2
# How much of what comes with an error is read.
_ERROR_BYTES = 1 << 16
_ERROR_WITHIN_S = 2.0
# What the config may not set, because each request has its own.
_OURS = frozenset(
    ["accept", "content-type", "content-length", "host", "last-event-id", "mcp-protocol-version", "mcp-session-id"]
)


def _no_patience() -> float:
    return 0.0


@dataclass
class _Attempt:
    """One request, which may be sent several times; `patience` says for how many seconds more."""

    method: str
    url: httpx2.URL
    headers: Headers
    body: bytes
    patience: Callable[[], float]
    pauses: Iterator[float]
    redirects: int = 0
    challenges: int = 0
    sent: str | None = field(default=None, repr=False)


class HttpEndpoint:
    """Where one remote server is, and how it is asked."""

    def __init__(
        self,
        group: str,
        remote: Remote,
        *,
        connect_s: float,
        authorization: Authorization | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.group = group
        try:
            self.url = address(remote.url)
            self._connections = connections_to(remote.url)
        except (OSError, ValueError, ImportError, httpx2.InvalidURL) as exc:
            raise Unreachable(group, f"cannot be reached as things are: {exc}", final=True) from exc
        self.host = _shown(remote.url)
        self._mask = mask_of(remote)
        self._headers = _static(remote)
        self._is_authorized = any(name.lower() == b"authorization" for name, _ in self._headers)
        self._authorization = None if self._is_authorized else authorization
        self._secret = ""
        self._cookies = httpx2.Cookies()
        self._jitter = jitter
        self._left_alone_until = 0.0
        # reads are bounded by whoever waits for them
        self._extensions = {"timeout": {"connect": connect_s, "read": None, "write": None, "pool": None}}

    async def close(self) -> None:
        """Close all connections."""
        await self._connections.aclose()

    @asynccontextmanager
    async def exchange(
        self,
        method: str,
        headers: Headers,
        body: bytes = b"",
        *,
        url: httpx2.URL | None = None,
        patience: Callable[[], float] = _no_patience,
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request and hand over the response, whatever its status, as soon as it begins.

        Raises NotSent, LinkLost, HttpError, ProtocolViolation, Unreachable and LoginNeeded.
        """
        attempt = _Attempt(method, url or self.url, headers, body, patience, delays(0.2, 8.0, self._jitter))
        try:
            response = await self._answered(attempt)
            try:
                yield response
            finally:
                await response.aclose()
        except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
            raise faults.of_network(self.group, self.host, exc) from exc

    async def read(self, response: httpx2.Response, limit: int) -> bytes:
        """Return the body. Raises ProtocolViolation when it is longer than `limit` bytes, however it is packed."""
        read: list[bytes] = []
        size = 0
        async with chunks(response) as parts:
            async for part in parts:
                size += len(part)
                if size > limit:
                    why = f"`{self.host}` sent a message of more than {limit} bytes, over `max_message_bytes`"
                    raise ProtocolViolation(self.group, why, hint="it ran, but its answer was lost")
                read.append(part)
        return b"".join(read)

    async def refusal(self, response: httpx2.Response, body: bytes | None = None) -> HttpError:
        """Return what to raise for a response whose status is no answer."""
        credentials = self._is_authorized or self._authorization is not None
        if 300 <= response.status_code < 400:
            said = f"a redirect to `{self._target(response)}`, which is not followed"
        else:
            said = self.excerpt(await self.beginning(response) if body is None else body)
        return faults.of_status(self.group, self.host, response, said=said, has_credentials=credentials)

    async def beginning(self, response: httpx2.Response) -> bytes:
        """Return the first bytes of what came with an error, as far as they come soon."""
        read = bytearray()
        try:
            async with asyncio.timeout(_ERROR_WITHIN_S), chunks(response) as parts:
                async for part in parts:
                    read += part
                    if len(read) > _ERROR_BYTES:
                        break
        except (TimeoutError, httpx2.HTTPError):  # the status says enough
            pass
        return bytes(read[:_ERROR_BYTES])

    def excerpt(self, body: bytes) -> str:
        """Return the beginning of what the server said, fit to be shown."""
        return faults.excerpt(body, lambda text: mask_secrets([self._secret])(self._mask(text)))

    # --- sending -----------------------------------------------------------------------------------------

    async def _answered(self, attempt: _Attempt) -> httpx2.Response:
        while True:
            await self._turn(attempt)
            response = await self._sent(attempt)
            try:
                if not await self._is_sent_again(attempt, response):
                    return response
                await self.beginning(response)  # a connection is used again once all is read
            except BaseException:
                await response.aclose()
                raise
            await response.aclose()

    async def _sent(self, attempt: _Attempt) -> httpx2.Response:
        headers = [*attempt.headers, *self._headers]
        if self._authorization is not None:
            attempt.sent = await self._authorization.header()
            if attempt.sent is not None:
                headers.append((b"authorization", attempt.sent.encode()))
                self._secret = attempt.sent
        request = httpx2.Request(
            attempt.method, attempt.url, headers=headers, content=attempt.body, extensions=self._extensions
        )
        if self._cookies.jar:
            self._cookies.set_cookie_header(request)
        response = await self._connections.handle_async_request(request)
        response.request = request
        if "set-cookie" in response.headers:  # balancers keep a session at one server by these
            self._cookies.extract_cookies(response)
        return response

    async def _is_sent_again(self, attempt: _Attempt, response: httpx2.Response) -> bool:
        match response.status_code:
            case 307 | 308:
                attempt.redirects += 1
                attempt.url = await self._redirected(attempt, response)
                return True
            case 401 | 403 if self._authorization is not None and attempt.challenges < MAX_CHALLENGES:
                attempt.challenges += 1
                said = tuple(response.headers.get_list("www-authenticate"))
                return await self._authorization.challenged(Challenge(response.status_code, said, attempt.sent))
            case 429 | 503:
                return self._is_worth_waiting(attempt, response)
        return False

    async def _redirected(self, attempt: _Attempt, response: httpx2.Response) -> httpx2.URL:
        try:
            target = attempt.url.join(response.headers.get("location", ""))
        except httpx2.InvalidURL:
            target = httpx2.URL("")
        if attempt.redirects > MAX_REDIRECTS or _origin(target) != _origin(attempt.url):
            raise await self.refusal(response)
        return target

    def _is_worth_waiting(self, attempt: _Attempt, response: httpx2.Response) -> bool:
        """Tell whether the request can be sent again in its time; every other one waits as long."""
        asked_s = _retry_after_s(response)
        if asked_s is None:
            return False
        pause_s = max(asked_s * (1 + 0.1 * self._jitter()), next(attempt.pauses))
        self._left_alone_until = max(self._left_alone_until, time.monotonic() + pause_s)
        return pause_s < attempt.patience()

    async def _turn(self, attempt: _Attempt) -> None:
        """Wait while the server wants to be left alone."""
        pause_s = self._left_alone_until - time.monotonic()
        if pause_s <= 0:
            return
        if pause_s >= attempt.patience():
            why = f"`{self.host}` asks to wait {pause_s:.0f} s"
            raise HttpError(self.group, why, status=429, hint="try again later")
        await asyncio.sleep(pause_s)

    def _target(self, response: httpx2.Response) -> str:
        location = response.headers.get("location", "")
        return self.excerpt(location.partition("?")[0].encode())


def chunks(response: httpx2.Response) -> aclosing[AsyncGenerator[bytes, None]]:
    """Return the parts of a body as they come, unpacked, to be closed after use."""
    if "content-encoding" in response.headers:
        return aclosing(response.aiter_bytes())
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    stream = aiter(response.stream)  # as above, without a layer for what needs no unpacking
    assert isinstance(stream, AsyncGenerator)
    return aclosing(stream)


def media_type(response: httpx2.Response) -> str:
    """Return what a body says it is."""
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower()


def is_within(target: httpx2.URL, origin: httpx2.URL) -> bool:
    """Tell whether a URL has the origin of another one (RFC 6454)."""
    return _origin(target) == _origin(origin)


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)


def _static(remote: Remote) -> Headers:
    """Return the headers of every request: the config's, save those that are ours, and a password from the URL."""
    own = [(name, value.strip()) for name, value in remote.headers.items() if name.lower() not in _OURS]
    named = {name.lower() for name, value in own if value}
    own = [(name, value) for name, value in own if value or name.lower() != "authorization"]
    own += _missing(named, ("user-agent", f"dynamic-mcp/{__version__}"), ("accept-encoding", "gzip, deflate"))
    parts = urlsplit(remote.url)
    if parts.username and "authorization" not in named and parts.scheme != "http+unix":
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        own.append(("authorization", f"Basic {b64encode(pair).decode()}"))
    return tuple((name.encode(), value.encode()) for name, value in own)


def _missing(named: Iterable[str], *defaults: tuple[str, str]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in defaults if name not in named]


def _shown(url: str) -> str:
    parts = urlsplit(url)
    return unquote(parts.netloc.rpartition("@")[2])


def _retry_after_s(response: httpx2.Response) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110, 10.2.3)."""
    value: str = response.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit() and len(value) < 10:
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
