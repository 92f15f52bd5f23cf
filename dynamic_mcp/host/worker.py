"""One of the processes that serve a config over HTTP together: what it knows of itself and of the others."""

from __future__ import annotations

import hashlib
from pathlib import Path

from msgspec import Struct


class Worker(Struct, frozen=True):
    """One of `count` processes, numbered from 0. `folder` has their sockets, and is private to this user.

    `key` is a secret of this service, with which the workers sign what they say to each other.
    """

    number: int
    count: int
    folder: Path
    key: str

    @property
    def name(self) -> str:
        """The name of this worker in the ids of its sessions."""
        return f"w{self.number}"

    def socket_of(self, number: int) -> Path:
        """Return the socket at which a worker takes the requests that others pass on."""
        return self.folder / f"{number}.sock"

    def home_socket_of(self, number: int) -> Path:
        """Return the socket at which a worker serves the servers that run in it."""
        return self.folder / f"{number}-home.sock"

    def home_of(self, server: str) -> int:
        """Return the number of the worker in which a server runs, always the same of so many."""
        return max(range(self.count), key=lambda number: _weight(server, number))


def _weight(server: str, number: int) -> bytes:
    return hashlib.blake2b(f"{number}/{server}".encode(), digest_size=8).digest()
