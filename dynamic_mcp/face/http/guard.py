"""Which requests a browser must not be made to send: Host against DNS rebinding, Origin against foreign pages.

A page of another site can send requests to addresses that only its visitor reaches. With Host checked, it cannot do
so under a name of its own; with Origin checked, not under ours (MCP specification, transports, security warning).
Browsers send no Origin with images, scripts and links; of those, `Sec-Fetch-Site` tells that another site has them.
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

# Hosts that were found allowed and are remembered, so that a request costs one look into a set.
_MAX_REMEMBERED = 64
_PREFLIGHT_FOR_S = b"600"
_REQUEST_HEADERS = (
    b"authorization, content-type, accept, last-event-id, mcp-protocol-version, mcp-session-id, mcp-method, mcp-name"
)
# Those of annotated parameters have names that only the tool knows: what a page asks for is repeated.
_PARAMETER_HEADER = re.compile(rb"mcp-param-[!#$%&'*+\-.^_`|~0-9a-z]{1,100}")
_MAX_PARAMETER_HEADERS = 100
_RESPONSE_HEADERS = b"mcp-session-id, www-authenticate"


class Guard:
    """Checks where a request says that it goes to and comes from."""

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self._hosts = frozenset(each.lower() for each in (*options.own_hosts, *options.allowed_hosts))
        self._origins = frozenset(each.encode() for each in options.allowed_origins)
        self._own_origins = frozenset(each.encode() for each in options.own_origins)
        self._trusted = TrustedPeers(options.trusted_proxies)
        self._good_hosts: set[bytes] = set()

    def check(self, head: RequestHead, *, may_navigate: bool = False) -> Response | None:
        """Return why a request is refused; None if it is not.

        `may_navigate`: a link of another site may lead there, as to the page of a login.
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
        hint = "such pages never may" if origin == b"null" else "`allowed_origins` may name it"
        why = f"pages of `{_printable(origin)}` may not use this server"
        return AuthRejection.of(refusal(403, f"{why}: {hint}"), why)

    def check_host(self, head: RequestHead) -> Response | None:
        """Return why a request for what pages of any origin may read is refused; None if it is not."""
        return self._check_host(self._host_of(head))

    def cors_headers(self, headers: Mapping[bytes, bytes]) -> Headers:
        """Return what lets a page of a listed origin read the answer; nothing for everybody else."""
        origin = headers.get(b"origin")
        if origin is None or origin not in self._origins:
            return ()
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _RESPONSE_HEADERS),
            (b"vary", b"origin"),
        )

    def preflight(self, head: RequestHead, methods: bytes) -> Response:
        """Answer OPTIONS, but for `cors_headers`: what may be sent to a path (Fetch standard, CORS protocol)."""
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
        return AuthRejection.of(refusal(403, f"{why}: `allowed_origins` may name those that send their origin"), why)

    def _host_of(self, head: RequestHead) -> bytes:
        headers = head.headers
        if b"x-forwarded-host" in headers and self._options.trusted_proxies and head.peer in self._trusted:
            return headers[b"x-forwarded-host"]
        return headers.get(b"host", b"")

    def _check_host(self, host: bytes) -> Response | None:
        if host in self._good_hosts:
            return None
        if not self._is_allowed_host(host):
            why = f"the host `{_printable(host)}` is not one of this server"
            return AuthRejection.of(refusal(403, f"{why}: `allowed_hosts` may name it"), why)
        if len(self._good_hosts) < _MAX_REMEMBERED:
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
    asked = (each.strip().lower() for each in headers.get(b"access-control-request-headers", b"").split(b","))
    parameters = dict.fromkeys(each for each in asked if _PARAMETER_HEADER.fullmatch(each))
    return b", ".join((_REQUEST_HEADERS, *islice(parameters, _MAX_PARAMETER_HEADERS)))


def _is_same_origin(origin: bytes, host: bytes) -> bool:
    """Tell whether a page comes from the very host and port that the request goes to."""
    scheme, separator, place = origin.partition(b"://")
    return bool(separator) and scheme in (b"http", b"https") and place == host


def _without_port(text: str) -> str:
    """Return the host of `host:port`, an IPv6 address in its brackets; the text itself if the port is no number."""
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
