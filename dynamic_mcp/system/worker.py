"""One of the processes that serve a config over HTTP together: what it knows of itself and of the others."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import MutableMapping

import msgspec
from msgspec import Struct

from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.prctl import end_with_parent

# Where the supervisor tells a worker who it is; no program that the worker starts gets it.
VARIABLE = "DYNAMIC_MCP_WORKER"
# How often a worker says that it does not hang.
ALIVE_EVERY_S = 5.0


class WorkerIdentity(Struct, frozen=True):
    """One of `count` processes, numbered from 0. `folder` has their sockets, and is private to this user.

    `key` is a secret of this service, with which the workers sign what they say to each other. `supervisor` is the
    process that has started them. `port` is the one to share where the config leaves it to the system. To the
    descriptor `alive`, the worker writes when it serves, and then every few seconds.
    """

    number: int
    count: int
    folder: str
    key: str
    supervisor: int = 0
    port: int = 0
    alive: int = -1

    @property
    def name(self) -> str:
        """The name of this worker in the ids of its sessions."""
        return self.name_of(self.number)

    @staticmethod
    def name_of(number: int) -> str:
        """Return the name of the worker with this number."""
        return f"w{number}"

    def socket_of(self, number: int) -> str:
        """Return the socket at which a worker takes the requests that others pass on."""
        return f"{self.folder}/{number}.sock"

    def home_socket_of(self, number: int) -> str:
        """Return the socket at which a worker serves the servers that run in it."""
        return f"{self.folder}/{number}-home.sock"

    def metrics_socket_of(self, number: int) -> str:
        """Return the socket at which a worker shows its own metrics."""
        return f"{self.folder}/{number}-metrics.sock"

    def home_of(self, server: str) -> int:
        """Return the number of the worker in which a server runs, always the same of so many."""
        return max(range(self.count), key=lambda number: _weight(server, number))

    def say_alive(self) -> None:
        """Tell the supervisor that this worker serves, and does not hang."""
        with contextlib.suppress(OSError):
            os.write(self.alive, b"1")

    def to_variable(self) -> str:
        """Return what `of_process` reads."""
        return msgspec.json.encode(self).decode()


def of_process(environment: MutableMapping[str, str]) -> WorkerIdentity | None:
    """Return the worker that this process is, whose variable is removed; None if it is none.

    From now on, it is told to end when its supervisor has ended, also before it serves (Linux).
    """
    text = environment.pop(VARIABLE, "")
    if not text:
        return None
    end_with_parent()
    return decode_as(text.encode(), WorkerIdentity)


def _weight(server: str, number: int) -> bytes:
    return hashlib.blake2b(f"{number}/{server}".encode(), digest_size=8).digest()
