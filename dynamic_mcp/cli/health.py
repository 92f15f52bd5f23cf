"""The `health` command: what runs here is asked whether it serves, at the address where it listens."""

from __future__ import annotations

import socket
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import SplitResult, urljoin, urlsplit

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.config.location import config_key
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments
from dynamic_mcp.observe.proxies import ProxyRegistry, RunningProxy
from dynamic_mcp.system import paths
from dynamic_mcp.system.text import os_reason

# An answer takes a millisecond; a loop that is held up longer than this is not healthy.
_WITHIN_S = 5.0
_UNIX = "unix:"
_AF_UNIX: int = getattr(socket, "AF_UNIX", -1)  # where there are none, nothing listens there either
# What listens at all addresses is reached at this one.
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with


def check_running(context: Invocation, path: str) -> None:
    """Check the proxies that run, or those of the config. Raises DynamicMcpError unless all of them serve."""
    config = context.explicit_path()
    wanted = None if config is None else config_key(config)
    registry = ProxyRegistry(paths.state_dir() / "running")
    running = [each for each in registry.list_proxies() if wanted in (None, config_key(each.status.config))]
    if not running:
        raise DynamicMcpError("nothing runs here" if config is None else f"nothing here serves `{config}`")
    # an old entry may be that of a process that was killed, whose number another one has by now
    current = [each for each in running if not each.silent_s]
    if not current:
        raise DynamicMcpError(f"process {running[0].pid} has not shown for {running[0].silent_s:.0f} s that it runs")
    for each in current:
        _check_proxy(context, each, path)


def check_url(context: Invocation, url: str, name: str) -> None:
    """Check an endpoint by its URL. Raises DynamicMcpError unless it serves, InvalidArguments if it is no URL."""
    if url.startswith(_UNIX):
        _ask(context, url, _open_unix(url), f"/{name}")
        return
    try:
        parts = urlsplit(urljoin(url, name))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("not a URL of HTTP")
        connection = _open(parts, is_local=False)
    except (ValueError, HTTPException):
        raise InvalidArguments(
            f"`{url}` is not a URL", hint="write `http://127.0.0.1:8808` or `unix:/path/to/socket`"
        ) from None
    _ask(context, url, connection, parts.path)


def _check_proxy(context: Invocation, running: RunningProxy, path: str) -> None:
    url = running.status.url
    if not url and running.status.kind == "http":
        raise DynamicMcpError(f"process {running.pid} does not listen yet")
    if not url:
        context.out.say(f"process {running.pid} serves {running.status.config}")
    elif url.startswith(_UNIX):
        _ask(context, url, _open_unix(url), path)
    else:
        _ask(context, url, _open(urlsplit(url), is_local=True), path)


def _ask(context: Invocation, url: str, connection: HTTPConnection, path: str) -> None:
    try:
        connection.request("GET", path)
        status = connection.getresponse().status
    except UnicodeError as exc:  # of its name, which is looked up here
        raise DynamicMcpError(f"`{url}` does not answer: its host cannot be a name") from exc
    except (OSError, HTTPException) as exc:
        why = os_reason(exc) if isinstance(exc, OSError) else f"it answers with no HTTP: {exc!r}"
        raise DynamicMcpError(f"`{url}` does not answer: {why}") from exc
    finally:
        connection.close()
    if status != 200:
        raise DynamicMcpError(f"`{url}` answers {path} with {status}")
    context.out.say(f"{url} serves")


def _open(parts: SplitResult, *, is_local: bool) -> HTTPConnection:
    assert parts.hostname is not None
    host = _LOOPBACK.get(parts.hostname, parts.hostname) if is_local else parts.hostname
    if parts.scheme == "http":
        return HTTPConnection(host, parts.port, timeout=_WITHIN_S)
    import ssl  # takes as long to load as all the rest

    context = ssl.create_default_context()
    if is_local:  # clients know it by another name than this
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return HTTPSConnection(host, parts.port, timeout=_WITHIN_S, context=context)


def _open_unix(address: str) -> HTTPConnection:
    return _UnixConnection(address.removeprefix(_UNIX))


class _UnixConnection(HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_WITHIN_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(_AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
