"""Whether the addresses of a config can be listened at: those of HTTP and of metrics."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator

from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.findings import Finding, Level, warning
from dynamic_mcp.system.text import os_reason


def check_addresses(config: Config, *, is_served: bool) -> Iterator[Finding]:
    """Return the findings about addresses; `is_served` says that a proxy of this config runs."""
    if config.http is not None and isinstance(config.http.listen, TcpAddress):
        yield from _check("settings.http.listen", config.http.listen, is_served=is_served)
    if config.metrics is not None:
        yield from _check("settings.metrics.listen", config.metrics.listen, is_served=is_served)


def _check(where: str, address: TcpAddress, *, is_served: bool) -> Iterator[Finding]:
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
    """Listen at an address for a moment. Raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        if os.name == "posix":  # what has just been closed is no obstacle for a server either
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen(1)
