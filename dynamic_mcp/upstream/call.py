"""A request to an upstream, the client that it is made for, and the transport that carries it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from msgspec import Raw, Struct

from dynamic_mcp.client import Caller
from dynamic_mcp.errors import DynamicMcpError, LinkLost
from dynamic_mcp.mcp.wire import ABSENT, Frame

# A call whose upstream reports progress may take this many times its timeout, and no longer.
PROGRESS_EXTENDS_TO = 60
# MCP 2025-11-25, basic/utilities/cancellation: clients must not cancel the first. A server that answers it may not
# know the second, and has nothing to cancel.
_NOT_CANCELLABLE = frozenset(("initialize", "server/discover"))
# Requests that the proxy sends itself and that change nothing, besides the lists.
_HARMLESS = frozenset(("initialize", "ping", "server/discover", "subscriptions/listen"))


class UpstreamCall(Struct, eq=False):
    """A request that waits for its answer; times are those of the loop, and `label` names it in messages."""

    method: str
    label: str
    caller: Caller | None
    timeout_s: float
    begun_at: float
    deadline: float
    future: asyncio.Future[Frame]
    token: Raw = ABSENT
    is_task: bool = False
    questions: int = 0

    def is_cancellable(self) -> bool:
        """Return whether the upstream may be sent a cancellation."""
        return self.method not in _NOT_CANCELLABLE

    def is_harmless(self) -> bool:
        """Return whether the request only reads."""
        return self.method in _HARMLESS or self.method.endswith("/list")

    def extend(self, now: float) -> None:
        """Restart the timeout, because the upstream reports progress or waits for the client."""
        self.deadline = min(now + self.timeout_s, self.begun_at + self.timeout_s * PROGRESS_EXTENDS_TO)

    def lose(self, error: LinkLost) -> None:
        """Fail because the connection broke; the error warns that a request may have run unless it is harmless."""
        risk = "" if self.is_harmless() else f"{self.label} may have run; it was not sent again"
        self.fail(LinkLost(error.group, error.reason, hint="; ".join(filter(None, (error.hint, risk)))))

    def fail(self, error: DynamicMcpError) -> None:
        """Raise `error` where the answer is awaited; no effect once the answer has arrived."""
        if not self.future.done():
            self.future.set_exception(error)


class Transport(Protocol):
    """The carrier of the lines of a link."""

    def send(self, line: bytes) -> None:
        """Write one line. Raises NotSent if that is not possible."""
        ...

    async def close(self) -> None:
        """End the connection and everything that it started; bounded in time."""
        ...


class LineTransport(Transport, Protocol):
    """The carrier of the lines of a program; `receive` gets each line of it."""

    receive: Callable[[bytes], None]


class UpstreamQuestion(Struct, frozen=True):
    """A request of the upstream, and the caller that it was passed on to."""

    caller: Caller
    task: asyncio.Task[None]
