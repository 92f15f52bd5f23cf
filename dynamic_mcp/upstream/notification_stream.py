"""The stream for what belongs to no request, such as notifications. It is reopened when it ends, ever more slowly.

Nothing that happens to it affects requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from dynamic_mcp.errors import DynamicMcpError, HttpError
from dynamic_mcp.mcp.event_stream import Event, EventStream
from dynamic_mcp.system.clock import delays
from dynamic_mcp.upstream.endpoint import Headers, HttpEndpoint
from dynamic_mcp.upstream.responses import is_event_stream, read_events

log = logging.getLogger(__name__)

FIRST_DELAY_S, LONGEST_DELAY_S = 1.0, 60.0
# After a stream that lived this long, the delays start anew.
_LONG_LIVED_S = 10.0


class NotificationStream:
    """Keeps one stream open; `take` receives its events."""

    def __init__(
        self,
        endpoint: HttpEndpoint,
        headers: Callable[[], Headers],
        take: Callable[[Event], None],
        limit: int,
        *,
        jitter: Callable[[], float],
    ) -> None:
        self._endpoint = endpoint
        self._headers = headers
        self._take = take
        self._jitter = jitter
        self._stream = EventStream(limit)
        self._was_open = False

    async def read_until_refused(self) -> bool:
        """Read the stream until the server says that it has none; return whether there was one before."""
        loop = asyncio.get_running_loop()
        group, delays_s = self._endpoint.group, self._delays()
        while True:
            began = loop.time()
            try:
                await self._read()
            except HttpError as exc:
                if exc.status < 500 and exc.status != 429:
                    log.debug("group %s: no stream for notifications: %s", group, exc.message)
                    return self._was_open
            except DynamicMcpError as exc:
                log.debug("group %s: the stream for notifications ended: %s", group, exc.message)
            if loop.time() - began >= _LONG_LIVED_S:
                delays_s = self._delays()
            await asyncio.sleep(max(next(delays_s), self._stream.retry_s or 0.0))

    def _delays(self) -> Iterator[float]:
        return delays(FIRST_DELAY_S, LONGEST_DELAY_S, self._jitter)

    async def _read(self) -> None:
        headers = self._headers()
        if self._stream.last_id:
            headers += ((b"last-event-id", self._stream.last_id),)
        self._stream.restart()
        async with self._endpoint.exchange("GET", headers) as response:
            if not is_event_stream(response):
                raise await self._endpoint.status_error(response)
            self._was_open = True
            await read_events(response, self._stream, self._take)
