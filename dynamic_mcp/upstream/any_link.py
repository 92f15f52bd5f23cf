"""The interface of a link of either era."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Protocol

from msgspec import Raw

from dynamic_mcp.client import Caller
from dynamic_mcp.errors import LinkLost
from dynamic_mcp.mcp.wire import ABSENT, Frame


class AnyLink(Protocol):
    """A live connection to an upstream, which never reconnects."""

    @property
    def is_modern(self) -> bool:
        """True if each request carries everything that the upstream must know of the client."""
        ...

    @property
    def has_streams(self) -> bool:
        """True if each message arrives in a stream that belongs to one request."""
        ...

    @property
    def pid(self) -> int | None:
        """The process of the upstream, if we started one."""
        ...

    @property
    def loss(self) -> LinkLost | None:
        """The reason for which the link ended; None while it is live."""
        ...

    @property
    def dropped(self) -> int:
        """The number of answers that matched no waiting request."""
        ...

    async def request(
        self,
        method: str,
        params: Mapping[str, Raw] | None = None,
        *,
        timeout_s: float,
        caller: Caller | None = None,
        label: str = "",
    ) -> Frame:
        """Send a request and return the answer. Raises TimedOut, LinkLost, NotSent and ProtocolViolation."""
        ...

    async def is_alive(self, within_s: float) -> bool:
        """Return whether the upstream answers a request at all."""
        ...

    def is_asking(self) -> bool:
        """Return whether the upstream waits for an answer of the client."""
        ...

    def notify(self, method: str, params: bytes | Raw = ABSENT) -> None:
        """Send a notification; a lost link drops it."""
        ...

    def forget(self, client: Hashable) -> None:
        """Release everything that is kept for a client that has disconnected."""
        ...

    async def close(self) -> None:
        """End the link; requests in flight fail."""
        ...
