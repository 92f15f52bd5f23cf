"""Checks whether the addresses of a config are available."""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Iterator

from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.config.location import config_key
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.findings import Finding, Level, warning
from dynamic_mcp.observe.proxies import ProxyRegistry
from dynamic_mcp.system import paths
from dynamic_mcp.system.text import os_reason


def check_http_address(config: Config) -> Iterator[Finding]:
    """Return the findings about the address of HTTP."""
    if config.http is not None and isinstance(config.http.listen, TcpAddress):
        yield from check_address("settings.http.listen", config.http.listen, is_served=is_served(config))


def is_served(config: Config) -> bool:
    """Return whether a proxy of this config runs."""
    running = ProxyRegistry(paths.state_dir() / "running").list_proxies()
    return any(config_key(each.status.config) == config_key(config.file) for each in running)


def check_address(where: str, address: TcpAddress, *, is_served: bool) -> Iterator[Finding]:
    """Return the findings about an address; `is_served` if a proxy of its config runs."""
    try:
        _try_to_listen(address.host, address.port)
    except OSError as exc:
        if exc.errno != errno.EADDRINUSE:
            yield warning(where, f"`{address}` cannot be used: {os_reason(exc)}", "give another address")
        elif is_served:
            yield Finding(Level.OK, where, f"`{address}` is in use, by a proxy of this config it seems")
        else:
            yield warning(where, f"`{address}` is in use by another program", "give another address")


def _try_to_listen(host: str, port: int) -> None:
    """Listen on an address for a moment. Raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        if sys.platform != "win32":  # a server also sets this, so recently closed connections are no obstacle
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen(1)
