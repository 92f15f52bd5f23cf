"""A request on its way to an upstream and back, and whom it is made for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from dynamic_mcp.errors import DynamicMcpError, LinkLost
from dynamic_mcp.mcp.wire import ABSENT, Frame

# A call whose upstream reports progress may take this many times its timeout, and no longer.
PROGRESS_EXTENDS_TO = 60
# Requests of the proxy's own that change nothing, beside the lists.
_HARMLESS = frozenset(("initialize", "ping"))


class Caller(Protocol):
    """For whom a request is made; hears what the upstream sends back because of it."""

    def notify(self, frame: Frame) -> None:
        """Pass on a notification."""
        ...

    async def ask(self, frame: Frame, heard: Callable[[Frame], None]) -> Frame:
        """Pass on a request and return its answer; `heard` takes what the client says of it meanwhile and later."""
        ...


class Call:
    """A request that waits for its answer."""

    __slots__ = ("caller", "deadline", "future", "is_task", "last_deadline", "timeout_s", "timer", "token", "what")

    def __init__(self, what: str, caller: Caller | None, timeout_s: float, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        self.what = what
        self.caller = caller
        self.token = ABSENT
        self.is_task = False
        self.timeout_s = timeout_s
        self.deadline = now + timeout_s
        self.last_deadline = now + timeout_s * PROGRESS_EXTENDS_TO
        self.future: asyncio.Future[Frame] = loop.create_future()
        self.timer: asyncio.TimerHandle

    def extend(self, now: float) -> None:
        """Start the timeout anew, because the upstream says that it is working, or waits for the client."""
        self.deadline = min(now + self.timeout_s, self.last_deadline)

    def lose(self, error: LinkLost) -> None:
        """Raise that the connection broke; what does more than ask the upstream what it has may have run."""
        is_harmless = self.what in _HARMLESS or self.what.endswith("/list")
        risk = "" if is_harmless else f"{self.what} may have run; it was not sent again"
        self.fail(LinkLost(error.group, error.reason, hint="; ".join(filter(None, (error.hint, risk)))))

    def fail(self, error: DynamicMcpError) -> None:
        """Raise `error` where the answer is awaited, unless the answer is there."""
        if not self.future.done():
            self.future.set_exception(error)


class Question(Struct, frozen=True):
    """A request of the upstream, and whom it was passed on to."""

    caller: Caller
    task: asyncio.Task[None]
