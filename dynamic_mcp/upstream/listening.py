"""The stream on which a server says what nobody asked for: opened again whenever it ends, ever more slowly.

Whatever happens to it, requests are not affected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from dynamic_mcp.errors import DynamicMcpError, HttpError
from dynamic_mcp.mcp.event_stream import Event, EventStream
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.system.clock import delays
from dynamic_mcp.upstream.endpoint import Headers, HttpEndpoint, chunks, media_type

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
# A stream that lived so long is no storm.
_LONG_LIVED_S = 10.0


class Listening:
    """Keeps one stream open."""

    def __init__(
        self,
        site: HttpEndpoint,
        headers: Callable[[], Headers],
        heard: Callable[[Event], None],
        limit: int,
        *,
        jitter: Callable[[], float],
    ) -> None:
        self._site = site
        self._logger = group_logger(log, site.group)
        self._headers = headers
        self._heard = heard
        self._jitter = jitter
        self._stream = EventStream(limit)
        self._has_worked = False

    async def until_refused(self) -> bool:
        """Listen until the server says that there is no such stream; tell whether there was one before."""
        loop = asyncio.get_running_loop()
        pauses = delays(FIRST_PAUSE_S, LONGEST_PAUSE_S, self._jitter)
        while True:
            began = loop.time()
            try:
                await self._listen()
            except HttpError as exc:
                if exc.status < 500 and exc.status != 429:
                    self._logger.debug("group %s: no stream for notifications: %s", self._site.group, exc.message)
                    return self._has_worked
            except DynamicMcpError as exc:
                self._logger.debug("group %s: the stream for notifications ended: %s", self._site.group, exc.message)
            if loop.time() - began >= _LONG_LIVED_S:
                pauses = delays(FIRST_PAUSE_S, LONGEST_PAUSE_S, self._jitter)
            await asyncio.sleep(max(next(pauses), self._stream.retry_s or 0.0))

    async def _listen(self) -> None:
        headers = self._headers()
        if self._stream.last_id:
            headers += ((b"last-event-id", self._stream.last_id),)
        self._stream.reconnected()
        async with self._site.exchange("GET", headers) as response:
            if response.status_code != 200 or media_type(response) != "text/event-stream":
                raise await self._site.refusal(response)
            self._has_worked = True
            async with chunks(response) as parts:
                async for part in parts:
                    for event in self._stream.feed(part):
                        self._heard(event)
