"""Errors of a remote server, with messages that name the server and a remedy.

Errors are classified by their type, never by their text. `NotSent` means that the request did not reach the server.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable
from http import HTTPStatus

import httpx2

from dynamic_mcp.errors import HttpError, LinkLost, NotSent, ProtocolViolation, Unreachable, UpstreamError
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.exceptions import iter_causes
from dynamic_mcp.system.text import escape

LONGEST_EXCERPT = 200
_MAY_HAVE_RUN = "the request may have run; it was not sent again"
_SCOPE = re.compile(r'\bscope="([^"\\]{1,300})"')
_PHRASES = {each.value: each.phrase for each in HTTPStatus}
_UNSENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)


def network_error(group: str, host: str, exc: Exception) -> UpstreamError:
    """Return the upstream error for a network error; `host` names the server in its message."""
    match exc:
        case httpx2.LocalProtocolError():
            return Unreachable(
                group, f"a request to `{host}` cannot be sent: {exc}", hint="check `headers` in the config"
            )
        case _ if isinstance(exc, _UNSENT):
            why, hint = _explain_unsent(host, exc)
            return NotSent(group, why, hint=hint)
        case ssl.SSLError():
            why = f"`{host}` ended the connection with an error of TLS: {exc.reason or exc}"
            return LinkLost(group, why, hint="it may want a certificate of its clients; see the log of the server")
        case httpx2.DecodingError():
            return ProtocolViolation(group, f"`{host}` sent an answer that cannot be decoded", hint=_MAY_HAVE_RUN)
        case _:
            why = f"`{host}` closed the connection, or sent something that is not HTTP"
            return LinkLost(group, why, hint="check the `url` and the log of the server")


def _explain_unsent(host: str, exc: Exception) -> tuple[str, str]:
    if isinstance(exc, httpx2.ConnectTimeout):
        return f"`{host}` did not accept the connection in time", "check the `url`, and the network or VPN"
    if isinstance(exc, httpx2.ProxyError):
        return f"the proxy does not connect to `{host}`: {exc}", "check `HTTPS_PROXY` and `NO_PROXY`"
    for cause in iter_causes(exc):  # a group holds the error of each address of a host
        match cause:
            case ssl.SSLCertVerificationError():
                why = f"the certificate of `{host}` cannot be verified: {cause.verify_message}"
                return why, "for your own certificate authority, set `SSL_CERT_FILE` to its certificate"
            case ssl.SSLError():
                why = f"`{host}` does not speak TLS: {cause.reason or cause}"
                return why, "check the port, and whether the `url` should begin with `http://`"
            case socket.gaierror():
                return f"the name `{host}` cannot be resolved", "check the `url`, and the network or VPN"
            case ConnectionRefusedError():
                return f"`{host}` refuses connections", "start the server, or check the port in the `url`"
            case FileNotFoundError():
                return f"there is no socket `{host}`", "start the server, or check the `url`"
            case OSError(strerror=str(why)):
                return f"`{host}` cannot be reached: {why.lower()}", "check the `url`, and the network or VPN"
    return f"`{host}` cannot be reached", "check the `url`, and the network or VPN"


def status_error(
    group: str, host: str, response: httpx2.Response, *, detail: str = "", has_credentials: bool = False
) -> HttpError:
    """Return the error for a status; `detail` is an excerpt of the body."""
    status = response.status_code
    name = f"{status} {_PHRASES[status]}" if status in _PHRASES else str(status)
    why = f"`{host}` answered {name}" + (f": {detail}" if detail else "")
    scope = _SCOPE.search(response.headers.get("www-authenticate", ""))
    match status:
        case 401 if has_credentials:
            hint = "renew the credentials in the config: the server does not accept them"
        case 401:
            hint = 'add credentials to the config: `"headers": {"Authorization": "Bearer ${TOKEN}"}`'
        case 403 if scope:
            hint = f"use credentials that have the scope `{scope[1]}`"
        case 403:
            hint = "use credentials that are allowed to do this"
        case 404 | 405 | 410:
            hint = "check the path in the `url`; it is often `/mcp` or `/sse`"
        case 429 | 503:
            hint = "try again later"
        case _ if 300 <= status < 400:
            hint = "if you trust that address, put it into the `url`"
        case _ if status >= 500:
            hint = "this is a problem of the server; the request may have run, and was not sent again"
        case _:
            hint = ""
    return HttpError(group, why, status=status, hint=hint)


def excerpt(body: bytes, mask: Callable[[str], str]) -> str:
    """Return the message of a JSON error, else the beginning of the text; masked and printable."""
    members = (
        wire.member(body, "error", "message"),
        wire.member(body, "error_description"),
        wire.member(body, "error"),
    )
    text = next(filter(None, map(wire.text, members)), None) or body.decode("utf-8", "replace")
    safe = escape(mask(" ".join(text.split())))
    return safe if len(safe) <= LONGEST_EXCERPT else f"{safe[: LONGEST_EXCERPT - 1]}…"
