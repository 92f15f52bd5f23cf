"""The connections of a server, and what they share: the handler, the time, and whether the server is about to end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from dynamic_mcp.face.http import heads
from dynamic_mcp.face.http.admission import Admission
from dynamic_mcp.face.http.body_budget import BodyBudget
from dynamic_mcp.face.http.exchange import Handler


class Connection(Protocol):
    """A connection as its server sees it."""

    def check(self, now: float) -> None:
        """Act if what the connection waits for has not come in time."""
        ...

    def close_when_idle(self) -> None:
        """Close now if no request is on its way, and after the answer if one is."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...


class Connections:
    """All connections of a server. They read the time from here, where it is at most a second old."""

    def __init__(self, handler: Handler, *, clock: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        self.handler = handler
        self.clock = clock
        self.bodies = BodyBudget()
        self.admission = Admission(clock)
        self.is_closing = False
        self.now = clock()
        self.date = heads.date_line(wall_clock())
        self._wall_clock = wall_clock
        self._members = set[Connection]()
        self._timer: asyncio.TimerHandle | None = None
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def __len__(self) -> int:
        return len(self._members)

    def add(self, connection: Connection) -> None:
        """Watch over a new connection."""
        if self._timer is None:  # the time has stood still while there were none
            self._tick()
        self._members.add(connection)
        self._is_empty.clear()

    def remove(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        self._members.discard(connection)
        if not self._members:
            self._is_empty.set()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def sweep(self) -> None:
        """Read the clocks, and end what is overdue. This happens once a second while there are connections."""
        self.now = self.clock()
        self.date = heads.date_line(self._wall_clock())
        for connection in tuple(self._members):
            connection.check(self.now)

    def close_idle(self) -> None:
        """Let the connections end with the requests that are on their way."""
        self.is_closing = True
        for connection in tuple(self._members):
            connection.close_when_idle()

    def abort(self) -> None:
        """Close all connections at once."""
        for connection in tuple(self._members):
            connection.abort()

    async def wait_until_empty(self) -> None:
        """Wait until the last connection is closed."""
        await self._is_empty.wait()

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(1.0, self._tick)
        self.sweep()
