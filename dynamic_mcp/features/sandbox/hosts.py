"""The hosts of a config, such as `api.example.com`, `*.example.com`, `db.example.com:5432` or `[::1]:8080`."""

from __future__ import annotations

import ipaddress
import re

from msgspec import Struct

_NAME = r"(?:\*\.)?[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?"
_WRITTEN = re.compile(rf"(?P<name>{_NAME}|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{{1,5}}))?")
_USUAL_PORTS = (80, 443)


class HostRule(Struct, frozen=True):
    """A name or an address of hosts, and the ports there. One that starts with `*.` is all names below the rest."""

    name: str
    ports: tuple[int, ...]

    @property
    def is_address(self) -> bool:
        """Return whether it is an address, which no name is resolved to without being a rule itself."""
        return is_address(self.name)

    def matches(self, name: str, port: int) -> bool:
        """Return whether a host, in lower case, is one of these."""
        if port not in self.ports:
            return False
        return name.endswith(self.name[1:]) if self.name.startswith("*.") else name == self.name


def parse_host(written: str) -> HostRule:
    """Parse a host of a config. Raises ValueError."""
    match = _WRITTEN.fullmatch(written.lower())
    if match is None:
        raise ValueError("is not a host")
    name = match["name"].strip("[]")
    if match["name"] != name:
        name = str(ipaddress.IPv6Address(name))
    port = match["port"]
    if port is not None and not 0 < int(port) < 1 << 16:
        raise ValueError("is not a port")
    return HostRule(name, _USUAL_PORTS if port is None else (int(port),))


def is_address(name: str) -> bool:
    """Return whether a host is an address, in any notation that systems take for one."""
    last = name.rstrip(".").rpartition(".")[2]
    return ":" in name or last.isdigit() or last.startswith("0x")
