"""Addresses that HTTP is served at: a host and a port, or a Unix socket."""

from __future__ import annotations

import re

from msgspec import Struct

from dynamic_mcp.config.flaws import FlawError, printable

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8808
_HINT = "write `8808`, `127.0.0.1:8808`, `[::1]:8808` or `unix:/path/to/socket`"
PATTERN = r"^([0-9]{1,6}|(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,6}|unix:.+)$"
_UNIX = "unix:"
_HOST = r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?"
_LONGEST_HOST, _LONGEST_LABEL = 253, 63


class TcpAddress(Struct, frozen=True):
    """A host and a port. The host is a name or an address without brackets; port 0 is any free port."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class UnixAddress(Struct, frozen=True):
    """The path of a Unix socket."""

    path: str

    def __str__(self) -> str:
        return f"{_UNIX}{self.path}"


Address = TcpAddress | UnixAddress


def parse_address(value: object) -> Address:
    """Parse an address to listen on: `PORT`, `HOST:PORT`, `[IPV6]:PORT` or `unix:/path`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return TcpAddress(port=_check_port(value))
    if not isinstance(value, str):
        raise FlawError("must be an address", hint=_HINT)
    if value.startswith(_UNIX):
        return _parse_unix(value)
    if re.fullmatch(r"[0-9]{1,6}", value, re.ASCII):
        return TcpAddress(port=_check_port(int(value)))
    match = re.fullmatch(r"(\[(?P<ipv6>[^\]]*)\]|(?P<host>[^:\[\]]*)):(?P<port>[0-9]{1,6})", value, re.ASCII)
    if match is None:
        raise FlawError(f"is not an address: `{printable(value)}`", hint=_HINT)
    host = match["host"] if match["ipv6"] is None else match["ipv6"]
    if not (_is_ipv6(host) if match["ipv6"] is not None else _is_host(host)):
        raise FlawError(f"is not an address: `{printable(value)}`", hint=_HINT)
    return TcpAddress(host, _check_port(int(match["port"])))


def _parse_unix(text: str) -> UnixAddress:
    path = text.removeprefix(_UNIX)
    if not path or "\0" in path:
        raise FlawError("names no path after `unix:`", hint=_HINT)
    return UnixAddress(path)


def _check_port(port: int) -> int:
    if not 0 <= port <= 65535:
        raise FlawError("has a port that is not between 0 and 65535")
    return port


def _is_host(text: str) -> bool:
    labels = text.removesuffix(".").split(".")  # what has an empty one, Python asks no name server for
    are_labels = all(0 < len(each) <= _LONGEST_LABEL for each in labels)
    return len(text) <= _LONGEST_HOST and are_labels and re.fullmatch(_HOST, text, re.ASCII) is not None


def _is_ipv6(text: str) -> bool:
    from ipaddress import IPv6Address

    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True
