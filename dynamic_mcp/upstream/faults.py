"""What went wrong with a remote server, in words that name it and say how to go on.

A fault is told by its class, never by its text. `NotSent` is kept for what certainly did not reach the server.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterator
from http import HTTPStatus

import httpx2

from dynamic_mcp.errors import HttpError, LinkLost, NotSent, ProtocolViolation, Unreachable, UpstreamError
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.text import escape

LONGEST_EXCERPT = 200
_MAY_HAVE_RUN = "it may have run; it was not sent again"
_SCOPE = re.compile(r'\bscope="([^"\\]{1,300})"')
_PHRASES = {each.value: each.phrase for each in HTTPStatus}
_UNSENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)


def of_network(group: str, host: str, exc: Exception) -> UpstreamError:
    """Return what is raised for an error of the network; `host` is how the server is named to people."""
    match exc:
        case httpx2.LocalProtocolError():
            return Unreachable(group, f"`{host}` cannot be asked: {exc}", hint="check `headers` in the config")
        case _ if isinstance(exc, _UNSENT):
            why, hint = _why_unsent(host, exc)
            return NotSent(group, why, hint=hint)
        case httpx2.DecodingError():
            return ProtocolViolation(group, f"`{host}` sent an answer that cannot be decoded", hint=_MAY_HAVE_RUN)
        case _:
            why = f"`{host}` closed the connection, or sent something that is not HTTP"
            return LinkLost(group, why, hint="check the `url`, and the server's own log")


def _why_unsent(host: str, exc: Exception) -> tuple[str, str]:
    if isinstance(exc, httpx2.ConnectTimeout):
        return f"`{host}` did not accept the connection in time", "check the `url`, and the network or VPN"
    if isinstance(exc, httpx2.ProxyError):
        return f"the proxy does not connect to `{host}`: {exc}", "check `HTTPS_PROXY` and `NO_PROXY`"
    for cause in _causes(exc):
        match cause:
            case ssl.SSLCertVerificationError():
                why = f"the certificate of `{host}` cannot be verified: {cause.verify_message}"
                return why, "for an authority of your own, let `SSL_CERT_FILE` name its certificate"
            case ssl.SSLError():
                why = f"`{host}` does not speak TLS: {cause.reason or cause}"
                return why, "check whether the `url` should begin with `http://`, and the port"
            case socket.gaierror():
                return f"the name `{host}` cannot be resolved", "check the `url`, and the network or VPN"
            case ConnectionRefusedError():
                return f"`{host}` refuses connections", "start the server, or check the port in the `url`"
            case FileNotFoundError():
                return f"there is no socket `{host}`", "start the server, or check the `url`"
            case OSError(strerror=str(why)):
                return f"`{host}` cannot be reached: {why.lower()}", "check the `url`, and the network or VPN"
    return f"`{host}` cannot be reached", "check the `url`, and the network or VPN"


def _causes(exc: BaseException, depth: int = 0) -> Iterator[BaseException]:
    """Yield what is behind an error, the innermost first; groups hold what each address of a host came to."""
    wrapped = [*exc.exceptions] if isinstance(exc, BaseExceptionGroup) else []
    inner = [*wrapped, exc.__cause__, exc.__context__, *exc.args]
    for each in inner:
        if isinstance(each, BaseException) and depth < 8:
            yield from _causes(each, depth + 1)
    yield exc


def of_status(
    group: str, host: str, response: httpx2.Response, *, said: str = "", has_credentials: bool = False
) -> HttpError:
    """Return what is raised for a status that is no answer; `said` is an excerpt of what came with it."""
    status = response.status_code
    name = f"{status} {_PHRASES[status]}" if status in _PHRASES else str(status)
    why = f"`{host}` answered {name}" + (f": {said}" if said else "")
    scope = _SCOPE.search(response.headers.get("www-authenticate", ""))
    match status:
        case 401 if has_credentials:
            hint = "renew the credentials in the config, which were not accepted"
        case 401:
            hint = 'give it credentials in the config: `"headers": {"Authorization": "Bearer ${TOKEN}"}`'
        case 403 if scope:
            hint = f"use credentials that have the scope `{scope[1]}`"
        case 403:
            hint = "use credentials that are allowed to do this"
        case 404 | 405 | 410:
            hint = "check the path in the `url`; it is often `/mcp` or `/sse`"
        case 429 | 503:
            hint = "try again later"
        case _ if 300 <= status < 400:
            hint = "put the address that is meant into the `url`, if you trust it"
        case _ if status >= 500:
            hint = "the server has a problem of its own; it may have run, and was not sent again"
        case _:
            hint = ""
    return HttpError(group, why, status=status, hint=hint)


def excerpt(body: bytes, mask: Callable[[str], str]) -> str:
    """Return what a server said beside a status: the message of a JSON error, else the beginning of the text."""
    message = (
        wire.member(body, "error", "message"),
        wire.member(body, "error_description"),
        wire.member(body, "error"),
    )
    text = next(filter(None, map(wire.text, message)), None) or body.decode("utf-8", "replace")
    shown = escape(mask(" ".join(text.split())))
    return shown if len(shown) <= LONGEST_EXCERPT else f"{shown[: LONGEST_EXCERPT - 1]}…"
