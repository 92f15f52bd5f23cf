"""Refuses requests that foreign pages make a browser send: Host against DNS rebinding, Origin against other sites.

A page of another site can send requests to addresses that only its visitor reaches. Checking Host prevents this under
the page's own name, checking Origin under ours (MCP specification, transports, security warning). Browsers send no
Origin with images, scripts and links; `Sec-Fetch-Site` shows those of other sites.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from itertools import islice

from dynamic_mcp.face.http.authenticator import AuthRejection
from dynamic_mcp.face.http.exchange import RequestHead, Response
from dynamic_mcp.face.http.options import HttpOptions
from dynamic_mcp.face.http.responses import Headers, refusal
from dynamic_mcp.face.http.trusted_peers import TrustedPeers

# Allowed hosts are cached, so that a request costs one lookup.
_MAX_CACHED_HOSTS = 64
_PREFLIGHT_FOR_S = b"600"
_REQUEST_HEADERS = (
    b"authorization, content-type, accept, last-event-id, mcp-protocol-version, mcp-session-id, mcp-method, mcp-name"
)
# Only a tool knows the names of its parameters' headers, so those that a page requests are all allowed.
_PARAMETER_HEADER = re.compile(rb"mcp-param-[!#$%&'*+\-.^_`|~0-9a-z]{1,100}")
_MAX_PARAMETER_HEADERS = 100
_RESPONSE_HEADERS = b"mcp-session-id, www-authenticate"


class BrowserGuard:
    """Checks the host and the origin of requests."""

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self._hosts = frozenset(each.lower() for each in (*options.own_hosts, *options.allowed_hosts))
        self._origins = frozenset(each.encode() for each in options.allowed_origins)
        self._own_origins = frozenset(each.encode() for each in options.own_origins)
        self._trusted = TrustedPeers(options.trusted_proxies)
        self._good_hosts: set[bytes] = set()

    def check(self, head: RequestHead, *, may_navigate: bool = False) -> Response | None:
        """Return the refusal of a request; None if it is accepted.

        With `may_navigate`, links of other sites are accepted, such as those to a login page.
        """
        host = self._host_of(head)
        refused = self._check_host(host)
        if refused is not None:
            return refused
        origin = head.headers.get(b"origin")
        if origin is None:
            return self._check_site(head, may_navigate=may_navigate)
        if origin in self._origins or origin in self._own_origins or _is_same_origin(origin, host):
            return None
        hint = "such origins are never allowed" if origin == b"null" else "add it to `allowed_origins`"
        why = f"pages of `{_printable(origin)}` may not use this server"
        return AuthRejection.of(refusal(403, f"{why}: {hint}"), why)

    def check_host(self, head: RequestHead) -> Response | None:
        """Return the refusal of a request whose origin does not matter; None if it is accepted."""
        return self._check_host(self._host_of(head))

    def cors_headers(self, headers: Mapping[bytes, bytes]) -> Headers:
        """Return the headers that let a page of an allowed origin read the answer; none for others."""
        origin = headers.get(b"origin")
        if origin is None or origin not in self._origins:
            return ()
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _RESPONSE_HEADERS),
            (b"vary", b"origin"),
        )

    def preflight(self, head: RequestHead, methods: bytes) -> Response:
        """Answer OPTIONS, without the `cors_headers` (Fetch standard, CORS protocol)."""
        if not self.cors_headers(head.headers):
            return Response(204, ((b"allow", methods),))
        granted: Headers = (
            (b"allow", methods),
            (b"access-control-allow-methods", methods),
            (b"access-control-allow-headers", _allowed_headers(head.headers)),
            (b"access-control-max-age", _PREFLIGHT_FOR_S),
        )
        return Response(204, granted)

    def _check_site(self, head: RequestHead, *, may_navigate: bool) -> Response | None:
        """Check a request without an Origin (Fetch Metadata, section 2.3)."""
        if head.headers.get(b"sec-fetch-site") != b"cross-site":
            return None
        if may_navigate and head.headers.get(b"sec-fetch-mode") == b"navigate":
            return None
        why = "pages of other sites may not use this server"
        return AuthRejection.of(refusal(403, f"{why}: `allowed_origins` can allow those that send an `Origin`"), why)

    def _host_of(self, head: RequestHead) -> bytes:
        headers = head.headers
        if b"x-forwarded-host" in headers and self._options.trusted_proxies and head.peer in self._trusted:
            return headers[b"x-forwarded-host"]
        return headers.get(b"host", b"")

    def _check_host(self, host: bytes) -> Response | None:
        if host in self._good_hosts:
            return None
        if not self._is_allowed_host(host):
            why = f"unknown host `{_printable(host)}`"
            return AuthRejection.of(refusal(403, f"{why}: add it to `allowed_hosts`"), why)
        if len(self._good_hosts) < _MAX_CACHED_HOSTS:
            self._good_hosts.add(host)
        return None

    def _is_allowed_host(self, host: bytes) -> bool:
        try:
            text = host.decode("ascii").lower()
        except UnicodeDecodeError:
            return False
        name = _without_port(text)
        if name in self._hosts or text in self._hosts:
            return True
        return self._options.accepts_any_address and _is_address(name)


def _allowed_headers(headers: Mapping[bytes, bytes]) -> bytes:
    requested = (each.strip().lower() for each in headers.get(b"access-control-request-headers", b"").split(b","))
    parameters = dict.fromkeys(each for each in requested if _PARAMETER_HEADER.fullmatch(each))
    return b", ".join((_REQUEST_HEADERS, *islice(parameters, _MAX_PARAMETER_HEADERS)))


def _is_same_origin(origin: bytes, host: bytes) -> bool:
    """Return whether a page comes from the host and port that the request goes to."""
    scheme, separator, authority = origin.partition(b"://")
    return bool(separator) and scheme in (b"http", b"https") and authority == host


def _without_port(text: str) -> str:
    """Return the host of `host:port`, with the brackets of an IPv6 address; the whole text if there is no port."""
    host, separator, port = text.rpartition(":")
    return host if separator and port.isdecimal() and (host.endswith("]") or ":" not in host) else text


def _is_address(name: str) -> bool:
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _printable(value: bytes) -> str:
    return ascii(value[:200].decode("utf-8", "replace"))[1:-1]
