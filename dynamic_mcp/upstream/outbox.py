"""Messages on their way to a remote server, each by a POST of its own.

A request waits for nothing but what sets the session up, notifications go one after another, and what fails costs
only itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from dynamic_mcp.errors import DynamicMcpError, LinkLost, NotSent
from dynamic_mcp.mcp import wire
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.upstream.link import Link

log = logging.getLogger(__name__)

# How long a notification or an answer may take to be accepted.
NOTE_S = 30.0
# What was sent at the same time as a request that found the server gone may still learn that it was not executed.
SETTLE_S = 1.0
# What is asked later must find these done, which the order of lines sees to on a pipe; so long at most is waited.
_SETS_UP = frozenset(["logging/setLevel", "resources/subscribe"])
_SET_UP_WITHIN_S = 5.0
_MAX_NOTES = 1000
# More requests than can be in flight: some were answered elsewhere, and their streams stay open for nothing.
_MAX_REQUESTS = 256


class MessagePoster(Protocol):
    """A transport that can post."""

    async def ask(self, id: bytes, method: str, body: bytes) -> None:
        """Post a request and hand over what comes back. Raises DynamicMcpError when the answer will not come."""
        ...

    async def tell(self, body: bytes) -> None:
        """Post a notification or an answer. Raises DynamicMcpError."""
        ...

    def greeted(self) -> None:
        """Learn that the server takes requests from now on."""
        ...


class Outbox:
    """The messages of one link, which is told what becomes of its requests."""

    def __init__(self, group: str, postman: MessagePoster) -> None:
        self.group = group
        self._logger = group_logger(log, group)
        self.link: Link
        self._postman = postman
        self._requests: dict[bytes, asyncio.Task[None]] = {}
        self._notes = TaskSet(self._logger)
        self._latest: asyncio.Task[None] | None = None
        self._setting_up: asyncio.Task[None] | None = None
        self._dying: asyncio.Task[None] | None = None
        self._is_closed = False

    def send(self, line: bytes) -> None:
        """Send one message. Raises NotSent when the link is ending."""
        if self._is_closed:
            raise NotSent(self.group, "the link is being closed")
        if len(self._notes) >= _MAX_NOTES:
            raise NotSent(self.group, "the server does not accept messages")
        frame, body = wire.parse(line), line.rstrip(b"\n")
        if not frame.method:
            self._note(self._told(body))
        elif len(frame.id):
            self._request(bytes(frame.id), frame.method, body)
        elif frame.method == "notifications/cancelled":
            self._note(self._cancelled(bytes(wire.member(frame.params, "requestId")), body))
        else:
            self._latest = self._note(self._told(body, after=self._latest))
            if frame.method == "notifications/initialized":
                self._setting_up = self._latest
                self._setting_up.add_done_callback(self._greeted)

    def is_gone(self, error: NotSent) -> None:
        """Note that the server is not there any more, or knows this session no more; the link ends in a moment."""
        if self._dying is None and not self._is_closed:
            self._dying = asyncio.create_task(self._die(error), name=f"end of the link of {self.group}")

    async def close(self) -> None:
        """Break off whatever is under way."""
        self._is_closed = True
        if self._dying is not None:
            await asyncio.wait([self._dying])
        tasks = [*self._requests.values(), *self._notes]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- requests ----------------------------------------------------------------------------------------

    def _request(self, id: bytes, method: str, body: bytes) -> None:
        if len(self._requests) > _MAX_REQUESTS:
            for other, task in self._requests.items():
                if not self.link.awaits(other):
                    task.cancel()
        asking = self._asked(id, method, body, after=self._setting_up)
        task = self._requests[id] = asyncio.create_task(asking, name=f"request to {self.group}")
        if method in _SETS_UP:
            self._setting_up = task
        task.add_done_callback(lambda _: self._requests.pop(id))

    async def _asked(self, id: bytes, method: str, body: bytes, after: asyncio.Task[None] | None) -> None:
        try:
            if after is not None and not after.done():
                await asyncio.wait([after], timeout=_SET_UP_WITHIN_S)
            await self._postman.ask(id, method, body)
        except NotSent as exc:
            self.link.failed(id, exc)
            self.is_gone(exc)
        except DynamicMcpError as exc:
            self.link.failed(id, exc)
        except Exception:
            self._logger.exception("a bug: group %s: a request fails", self.group)
            self.link.failed(id, LinkLost(self.group, "internal error of the proxy"))

    async def _die(self, error: NotSent) -> None:
        if self._requests:
            await asyncio.wait([*self._requests.values()], timeout=SETTLE_S)
        self.link.lost(error)

    # --- notifications and answers -------------------------------------------------------------------------

    def _note(self, posting: Coroutine[Any, Any, None]) -> asyncio.Task[None]:  # Any: as Coroutine is declared
        return self._notes.create(posting, name=f"message to {self.group}")

    async def _told(self, body: bytes, after: asyncio.Task[None] | None = None) -> None:
        if after is not None and not after.done():
            await asyncio.wait([after])
        try:
            async with asyncio.timeout(NOTE_S):
                await self._postman.tell(body)
        except TimeoutError:
            self._logger.warning("group %s: the server did not take a message within %g s", self.group, NOTE_S)
        except DynamicMcpError as exc:
            self._logger.warning("group %s: the server did not take a message: %s", self.group, exc.message)
        except Exception:
            self._logger.exception("a bug: group %s: a message fails", self.group)

    async def _cancelled(self, id: bytes, body: bytes) -> None:
        """Say that a request is cancelled while its stream is open, then let go of the stream."""
        try:
            await self._told(body)
        finally:
            if id in self._requests:
                self._requests[id].cancel()

    def _greeted(self, _: asyncio.Task[None]) -> None:
        if not self._is_closed:
            self._postman.greeted()
