"""A link of either era, as the instance that uses it sees it."""

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
        """Whether requests carry all that the upstream must know of the client."""
        ...

    @property
    def has_streams(self) -> bool:
        """Whether what comes back says by its stream which request it belongs to."""
        ...

    @property
    def pid(self) -> int | None:
        """The process of the upstream, if it is one that we started."""
        ...

    @property
    def loss(self) -> LinkLost | None:
        """How the link ended; None while it has not."""
        ...

    @property
    def dropped(self) -> int:
        """How many answers came that nobody waited for."""
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
        """Ask the upstream whether it answers at all."""
        ...

    def is_asking(self) -> bool:
        """Tell whether the upstream waits for an answer of the client."""
        ...

    def notify(self, method: str, params: bytes | Raw = ABSENT) -> None:
        """Send a notification; a lost link takes none."""
        ...

    def forget(self, client: Hashable) -> None:
        """Hold on to nothing of a client that has gone."""
        ...

    async def close(self) -> None:
        """End the link; requests in flight fail."""
        ...
