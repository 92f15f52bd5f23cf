"""What systemd gives a service, and hears of it: sockets that listen already, that it is ready, and does not hang.

The protocols are sd_listen_fds(3) and sd_notify(3). Variables of theirs are removed, so that no server gets them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import MutableMapping
from ipaddress import ip_address

from dynamic_mcp.config.addresses import Address, TcpAddress, UnixAddress
from dynamic_mcp.errors import ListenError

_UNIX: int = getattr(socket, "AF_UNIX", -1)  # where there are none, there is no systemd either
_FIRST_DESCRIPTOR = 3
_OF_SOCKETS = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


class PassedSockets:
    """The listening sockets that this process was started with, each of which serves its address once."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        self._sockets = sockets

    def __repr__(self) -> str:
        return f"<PassedSockets {', '.join(map(_describe, self._sockets)) or 'none'}>"

    def check(self, address: Address, resolved: tuple[str, ...]) -> None:
        """Check that all sockets are for this address, a host of which was resolved. Raises ListenError."""
        wanted: list[Address] = [address]
        if isinstance(address, TcpAddress):
            wanted = [TcpAddress(each, address.port) for each in resolved]
        for each in self._sockets:
            if not any(_is_at(each, one) for one in wanted):
                raise ListenError(
                    f"systemd passes a socket that listens at `{_describe(each)}`, and HTTP is served at `{address}`",
                    hint="let `ListenStream=` of the socket unit be the address of `settings.http.listen`",
                )

    def take(self, address: Address) -> list[socket.socket]:
        """Return the sockets that listen at an address; they are the caller's from now on."""
        taken = [each for each in self._sockets if _is_at(each, address)]
        self._sockets = [each for each in self._sockets if each not in taken]
        return taken


def read_sockets(environment: MutableMapping[str, str]) -> PassedSockets | None:
    """Return the sockets that systemd passes to this process; None if it passes none."""
    pid, count, _ = (environment.pop(name, "") for name in _OF_SOCKETS)
    if pid != str(os.getpid()) or not count.isdecimal():
        return None
    sockets = []
    for number in range(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + int(count)):
        os.set_inheritable(number, False)  # noqa: FBT003 - its only form
        passed = socket.socket(fileno=number)
        passed.settimeout(0)
        sockets.append(passed)
    return PassedSockets(sockets)


def _is_at(passed: socket.socket, address: Address) -> bool:
    if isinstance(address, UnixAddress):
        return passed.family == _UNIX and passed.getsockname() == address.path
    if passed.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    host, port = passed.getsockname()[:2]
    at, wanted = ip_address(host.partition("%")[0]), ip_address(address.host.partition("%")[0])
    # systemd's `ListenStream=8808` is one socket for both families
    is_any = at.is_unspecified and wanted.is_unspecified and at.version >= wanted.version
    return port == address.port and (at == wanted or is_any)


def _describe(passed: socket.socket) -> str:
    name = passed.getsockname()
    return str(TcpAddress(*name[:2])) if isinstance(name, tuple) else f"unix:{name}"


class Notifier:
    """Tells systemd of this service; with a watchdog, also that its loop runs, twice in each of its intervals."""

    def __init__(self, path: str, watchdog_s: float = 0.0) -> None:
        self._path = f"\0{path[1:]}" if path.startswith("@") else path
        self._every_s = watchdog_s / 2
        self._is_patting = False

    def ready(self, status: str) -> None:
        """Say that clients are served, and begin to say that the loop runs."""
        self._send(f"READY=1\nSTATUS={status}")
        if self._every_s > 0 and not self._is_patting:
            self._is_patting = True
            self._pat()

    def stopping(self) -> None:
        """Say that the service ends; its loop still runs."""
        self._send("STOPPING=1")

    def _pat(self) -> None:
        self._send("WATCHDOG=1")
        asyncio.get_running_loop().call_later(self._every_s, self._pat)

    def _send(self, state: str) -> None:
        with contextlib.suppress(OSError), socket.socket(_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(0)
            sender.sendto(state.encode(), self._path)


def open_notifier(environment: MutableMapping[str, str]) -> Notifier | None:
    """Return what tells systemd of this service; None if nobody wants to hear of it."""
    path = environment.pop("NOTIFY_SOCKET", "")
    interval, pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
    if not path:
        return None
    is_watched = interval.isdecimal() and pid in ("", str(os.getpid()))
    return Notifier(path, int(interval) / 1e6 if is_watched else 0.0)
