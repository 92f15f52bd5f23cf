"""Bounded HTTP requests to one remote server, with credentials, redirects, challenges and `Retry-After`.

Redirects are followed only within the origin, so nothing that is sent leaves it.
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
from dynamic_mcp.mcp.event_stream import EventStream, ServerSentEvent
from dynamic_mcp.oauth.authorization import Challenge, ServerCredentials
from dynamic_mcp.observe.current_request import outgoing_headers
from dynamic_mcp.system.clock import delays
from dynamic_mcp.system.request_errors import REQUEST_ERRORS
from dynamic_mcp.upstream import http_errors
from dynamic_mcp.upstream.connections import create_pool, request_url
from dynamic_mcp.upstream.mask import mask_of, mask_secrets

Headers = tuple[tuple[bytes, bytes], ...]

MAX_REDIRECTS = 3
MAX_CHALLENGES = 2
# Bytes of the body of an error that are read.
_ERROR_BYTES = 1 << 16
_ERROR_WITHIN_S = 2.0
# Headers that the config may not set, because they differ between requests.
_RESERVED_HEADERS = frozenset(
    (
        *("accept", "content-type", "content-length", "host", "last-event-id"),
        *("mcp-protocol-version", "mcp-session-id", "mcp-method", "mcp-name"),
    )
)
_RESERVED_PREFIX = "mcp-param-"
JSON, EVENTS = "application/json", "text/event-stream"


def _no_time() -> float:
    return 0.0


@dataclass
class _Attempt:
    """One request, which may be sent several times while `left_s` returns more than zero seconds."""

    method: str
    url: httpx2.URL
    headers: Headers
    body: bytes
    left_s: Callable[[], float]
    delays_s: Iterator[float]
    redirects: int = 0
    challenges: int = 0
    authorization: str | None = field(default=None, repr=False)


class HttpEndpoint:
    """The address of one remote server, and the only way to send it requests."""

    def __init__(
        self,
        group: str,
        remote: Remote,
        *,
        connect_s: float,
        authorization: ServerCredentials | None = None,
        keeps_cookies: bool = True,
    ) -> None:
        self.group = group
        self._keeps_cookies = keeps_cookies
        try:
            self.url = request_url(remote.url)
            self._connections = create_pool(remote.url)
        except (OSError, ValueError, ImportError, httpx2.InvalidURL) as exc:
            raise Unreachable(group, f"cannot be reached with the current settings: {exc}", final=True) from exc
        self.host = _display_host(remote.url)
        self._mask = mask_of(remote)
        self._headers = _static_headers(remote)
        self._has_own_credentials = any(name.lower() == b"authorization" for name, _ in self._headers)
        self._authorization = None if self._has_own_credentials else authorization
        self._secret = ""
        self._cookies = httpx2.Cookies()
        self._busy_until = 0.0
        # reads have no bound here: their callers have one
        self._extensions = {"timeout": {"connect": connect_s, "read": None, "write": None, "pool": None}}

    async def close(self) -> None:
        await self._connections.aclose()

    @asynccontextmanager
    async def exchange(
        self,
        method: str,
        headers: Headers,
        body: bytes = b"",
        *,
        url: httpx2.URL | None = None,
        left_s: Callable[[], float] = _no_time,
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request and yield the response, whatever its status, as soon as its headers have arrived.

        The request may be sent again, or wait for a busy server, while `left_s` returns more seconds than that takes.
        Raises NotSent, LinkLost, HttpError, ProtocolViolation, Unreachable and LoginNeeded.
        """
        attempt = _Attempt(method, url or self.url, headers, body, left_s, delays(0.2, 8.0, random.random))
        try:
            response = await self._send(attempt)
            try:
                yield response
            finally:
                await response.aclose()
        except REQUEST_ERRORS as exc:
            raise http_errors.network_error(self.group, self.host, exc) from exc

    async def read_body(self, response: httpx2.Response, limit: int) -> bytes:
        """Return the body. Raises ProtocolViolation if it is longer than `limit` bytes, also after decompression."""
        body: list[bytes] = []
        size = 0
        async with chunks(response) as parts:
            async for part in parts:
                size += len(part)
                if size > limit:
                    why = f"`{self.host}` sent a message of more than {limit} bytes, over `max_message_bytes`"
                    raise ProtocolViolation(self.group, why, hint="the request ran, but its answer was lost")
                body.append(part)
        return b"".join(body)

    async def status_error(self, response: httpx2.Response, body: bytes | None = None) -> HttpError:
        """Return the error for the status of a response; reads the body unless it is passed in."""
        has_credentials = self._has_own_credentials or self._authorization is not None
        if 300 <= response.status_code < 400:
            detail = f"a redirect to `{self._redirect_excerpt(response)}`, which is not followed"
        else:
            detail = self.excerpt(await self.read_beginning(response) if body is None else body)
        return http_errors.status_error(
            self.group, self.host, response, detail=detail, has_credentials=has_credentials
        )

    async def read_beginning(self, response: httpx2.Response) -> bytes:
        """Return the first bytes of a body that arrive soon."""
        content = bytearray()
        try:
            async with asyncio.timeout(_ERROR_WITHIN_S), chunks(response) as parts:
                async for part in parts:
                    content += part
                    if len(content) > _ERROR_BYTES:
                        break
        except (TimeoutError, *REQUEST_ERRORS):  # the status is enough
            pass
        return bytes(content[:_ERROR_BYTES])

    def excerpt(self, body: bytes) -> str:
        """Return the beginning of a body, masked and printable."""
        return http_errors.excerpt(body, self.mask)

    def mask(self, text: str) -> str:
        """Return a text without the secrets of the config and the login."""
        return mask_secrets([self._secret])(self._mask(text))

    # --- sending -----------------------------------------------------------------------------------------

    async def _send(self, attempt: _Attempt) -> httpx2.Response:
        while True:
            await self._wait_while_busy(attempt)
            response = await self._send_once(attempt)
            try:
                if not await self._prepare_retry(attempt, response):
                    return response
                await self.read_beginning(response)  # a connection is reused only after the body has been read
            except BaseException:
                await response.aclose()
                raise
            await response.aclose()

    async def _send_once(self, attempt: _Attempt) -> httpx2.Response:
        headers = [*attempt.headers, *self._headers, *outgoing_headers()]
        if self._authorization is not None:
            attempt.authorization = await self._authorization.get_header()
            if attempt.authorization is not None:
                headers.append((b"authorization", attempt.authorization.encode()))
                self._secret = attempt.authorization
        request = httpx2.Request(
            attempt.method, attempt.url, headers=headers, content=attempt.body, extensions=self._extensions
        )
        if self._cookies.jar:
            self._cookies.set_cookie_header(request)
        response = await self._connections.handle_async_request(request)
        response.request = request
        if (
            self._keeps_cookies and "set-cookie" in response.headers
        ):  # load balancers use them to keep a session at one server
            self._cookies.extract_cookies(response)
        return response

    async def _prepare_retry(self, attempt: _Attempt, response: httpx2.Response) -> bool:
        """Follow the redirect, challenge or delay of a response; return whether to send the request again."""
        match response.status_code:
            case 307 | 308:
                attempt.redirects += 1
                attempt.url = await self._redirect_target(attempt, response)
                return True
            case 401 | 403 if self._authorization is not None and attempt.challenges < MAX_CHALLENGES:
                attempt.challenges += 1
                challenges = tuple(response.headers.get_list("www-authenticate"))
                challenge = Challenge(response.status_code, challenges, attempt.authorization)
                return await self._authorization.handle_challenge(challenge)
            case 429 | 503:
                return self._back_off(attempt, response)
        return False

    async def _redirect_target(self, attempt: _Attempt, response: httpx2.Response) -> httpx2.URL:
        """Return the target of a redirect. Raises HttpError if it is not followed."""
        try:
            target = attempt.url.join(response.headers.get("location", ""))
        except httpx2.InvalidURL:
            target = httpx2.URL("")
        if attempt.redirects > MAX_REDIRECTS or not is_same_origin(target, attempt.url):
            raise await self.status_error(response)
        return target

    def _back_off(self, attempt: _Attempt, response: httpx2.Response) -> bool:
        """Delay all requests as long as the server asks; return whether this one has the time."""
        retry_after_s = _retry_after_s(response)
        if retry_after_s is None:
            return False
        delay_s = max(retry_after_s * (1 + 0.1 * random.random()), next(attempt.delays_s))  # noqa: S311 - no secret
        self._busy_until = max(self._busy_until, time.monotonic() + delay_s)
        return delay_s < attempt.left_s()

    async def _wait_while_busy(self, attempt: _Attempt) -> None:
        """Wait as long as the server has asked for. Raises HttpError if the request does not have the time."""
        delay_s = self._busy_until - time.monotonic()
        if delay_s <= 0:
            return
        if delay_s >= attempt.left_s():
            why = f"`{self.host}` asks to wait {delay_s:.0f} s"
            raise HttpError(self.group, why, status=429, hint="try again later")
        await asyncio.sleep(delay_s)

    def _redirect_excerpt(self, response: httpx2.Response) -> str:
        location = response.headers.get("location", "")
        return self.excerpt(location.partition("?")[0].encode())


def is_same_origin(url: httpx2.URL, other: httpx2.URL) -> bool:
    """Return whether two URLs have the same origin (RFC 6454)."""
    return _origin(url) == _origin(other)


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)


def _static_headers(remote: Remote) -> Headers:
    """Return the headers of every request: the config's, except reserved ones, and basic auth from the URL."""
    headers = [(name, value.strip()) for name, value in remote.headers.items() if not _is_reserved(name.lower())]
    names = {name.lower() for name, value in headers if value}
    headers = [(name, value) for name, value in headers if value or name.lower() != "authorization"]
    headers += _defaults(names, ("user-agent", f"dynamic-mcp/{__version__}"), ("accept-encoding", "gzip, deflate"))
    parts = urlsplit(remote.url)
    if parts.username and "authorization" not in names and parts.scheme != "http+unix":
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        headers.append(("authorization", f"Basic {b64encode(pair).decode()}"))
    return tuple((name.encode(), value.encode()) for name, value in headers)


def _is_reserved(name: str) -> bool:
    return name in _RESERVED_HEADERS or name.startswith(_RESERVED_PREFIX)


def _defaults(names: Iterable[str], *defaults: tuple[str, str]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in defaults if name not in names]


def _display_host(url: str) -> str:
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


def media_type(response: httpx2.Response) -> str:
    """Return the media type of a body, without parameters; empty if the response names none."""
    content_type: str = response.headers.get("content-type", "")
    return content_type.partition(";")[0].strip().lower()


def is_event_stream(response: httpx2.Response) -> bool:
    """Return whether a response is a stream of events."""
    return response.status_code == 200 and media_type(response) == EVENTS


def chunks(response: httpx2.Response) -> aclosing[AsyncGenerator[bytes, None]]:
    """Return the chunks of a body as they arrive, decompressed; close the generator after use."""
    if "content-encoding" in response.headers:
        return aclosing(response.aiter_bytes())
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    stream = aiter(response.stream)  # as above, without the layer that decompresses
    assert isinstance(stream, AsyncGenerator)
    return aclosing(stream)


async def read_events(
    response: httpx2.Response, stream: EventStream, take: Callable[[ServerSentEvent], None]
) -> None:
    """Hand over the events of a body until it ends."""
    async with chunks(response) as parts:
        async for part in parts:
            for event in stream.feed(part):
                take(event)
